"""One verb's arguments: errors are ours, help is short, unknown options name the nearest."""

from __future__ import annotations

import argparse
import difflib
import re
import shutil
import textwrap
from collections.abc import Sequence
from typing import NoReturn

from slipstream.errors import OptionError

_WIDEST = 100  # columns of help


class HelpFormatter(argparse.HelpFormatter):
    """Shows an option's short and first long spelling; ``flags`` puts the others in its help."""

    def __init__(self, prog: str) -> None:
        columns = min(shutil.get_terminal_size().columns, _WIDEST)
        super().__init__(prog, max_help_position=32, width=columns)

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(text, width, break_on_hyphens=False)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings:
            return super()._format_action_invocation(action)
        short = [s for s in action.option_strings if not s.startswith("--")][:1]
        long = [s for s in action.option_strings if s.startswith("--")][:1]
        value = "" if action.nargs == 0 else f" {self._value_name(action)}"
        return ", ".join([*short, *long]) + value

    def _value_name(self, action: argparse.Action) -> str:
        return self._format_args(action, self._get_default_metavar_for_optional(action))


NEAR, VERY_NEAR = 0.6, 0.8
"""How much alike an unknown option and one that was meant are."""


class Parser(argparse.ArgumentParser):
    """
    Args:
        name: the whole command, such as ``slipstream bench rows``.
        about: what it does, in a sentence.
    """

    def __init__(self, name: str, about: str) -> None:
        super().__init__(
            prog=name,
            description=about,
            usage=f"{name} [OPTIONS]",
            formatter_class=HelpFormatter,
            allow_abbrev=False,
        )

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Options and positional arguments in any order.

        Raises:
            OptionError: an unknown option (it names the nearest), a missing or a surplus argument.
        """
        self.usage = " ".join([f"{self.prog} [OPTIONS]", *self._positional_names()])
        try:
            values, surplus = self.parse_known_intermixed_args(arguments)
        except argparse.ArgumentError as problem:
            self.error(str(problem))
        if surplus:
            raise self._surplus(surplus)
        return values

    def error(self, message: str) -> NoReturn:
        """Raises OptionError instead of exiting."""
        hint = f"See `{self.prog} --help`."
        missing = message.removeprefix("the following arguments are required: ")
        if missing != message:
            raise OptionError(missing, "nothing", hint)
        valueless = re.fullmatch(r"argument (?:.*/)?(\S+): expected one argument", message)
        if valueless is not None:
            name = valueless[1]
            remedy = f"A value that starts with a dash needs the form {name}=VALUE."
            raise OptionError(f"a value after {name}", "none", remedy)
        raise OptionError(f"valid arguments of `{self.prog}`", message, hint)

    def _positional_names(self) -> list[str]:
        actions = [action for action in self._actions if not action.option_strings]
        names = [str(action.metavar or action.dest) for action in actions]
        return [
            f"[{name}]" if action.nargs == "?" else name
            for name, action in zip(names, actions, strict=True)
        ]

    def _near(self, unknown: str) -> str | None:
        """The option that was probably meant; what --help does not list must be much alike."""
        names = {name.lstrip("-"): name for name in self._option_string_actions}
        listed = [
            bare
            for bare, name in names.items()
            if self._option_string_actions[name].help != argparse.SUPPRESS
        ]
        bare = unknown.lstrip("-")
        found = difflib.get_close_matches(bare, listed, 1, NEAR)
        found = found or difflib.get_close_matches(bare, names, 1, VERY_NEAR)
        return names[found[0]] if found else None

    def _surplus(self, surplus: Sequence[str]) -> OptionError:
        unknown = next((word for word in surplus if word.startswith("-")), None)
        hint = f"See `{self.prog} --help`."
        if unknown is None:
            return OptionError("no further argument", f"`{surplus[0]}`", f"Quote it? {hint}")
        unknown = unknown.partition("=")[0]
        near = self._near(unknown)
        hint = f"Did you mean `{near}`? {hint}" if near else hint
        return OptionError(f"an option of `{self.prog}`", f"`{unknown}`", hint)
