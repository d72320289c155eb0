"""llama-server's spellings for ``slipstream serve``: its command lines work as they are.

Long names that mean the same are aliases in the option structs already. Here are its short names,
its values for "unset", and the flags that have no meaning: those that change no result are
accepted and named in one line, the others are refused with what to do instead.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from slipstream.cli.llama_flags import (
    FLASH,
    IDLE_SWITCHES,
    IDLE_VALUES,
    NEUTRAL,
    REFUSED_SWITCHES,
    REFUSED_VALUES,
    SHORT,
    SPEC_DEFAULT,
    UNSET,
)
from slipstream.errors import OptionError, UnsupportedError


@dataclass(frozen=True)
class _Seen:
    """A flag of llama-server as it was given."""

    flag: str
    value: str | None


class _Collect(argparse.Action):
    """Keeps a flag and its value for ``settle``."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        del parser
        value = values if isinstance(values, str) else None
        seen = [*(getattr(namespace, self.dest, None) or ()), _Seen(str(option_string), value)]
        setattr(namespace, self.dest, seen)


def add_aliases(parser: argparse.ArgumentParser) -> None:
    """Let a parser, which has its own flags already, take llama-server's too.

    MODEL may then be given by ``-m``. ``settle`` must see what was parsed.
    """
    known = set(parser._option_string_actions)
    positional = {action.dest: action for action in parser._actions}
    if "model" in positional:
        positional["model"].nargs, positional["model"].required = "?", False
        _add(parser, known, ("-m", "--model"), dest="llama_model", metavar="MODEL")
    for dest, names in SHORT.items():
        if dest in positional:
            _add(parser, known, names, dest=dest, metavar="VALUE")
    if "stop" in positional:
        _add(parser, known, ("-r",), dest="stop", metavar="TEXT", action="append")
    if "type" in positional:
        extra = {"action": "append_const", "const": SPEC_DEFAULT}
        _add(parser, known, ("--spec-default",), dest="type", **extra)
    collect = {"action": _Collect, "metavar": "VALUE"}
    _add(parser, known, FLASH, dest="llama_idle", nargs="?", **collect)
    for dest, switches, values in (
        ("llama_idle", IDLE_SWITCHES, IDLE_VALUES),
        ("llama_neutral", (), NEUTRAL),
        ("llama_refused", REFUSED_SWITCHES, REFUSED_VALUES),
    ):
        for names in switches:
            _add(parser, known, names, dest=dest, nargs=0, **collect)
        for names in values:
            _add(parser, known, names, dest=dest, **collect)


def _add(
    parser: argparse.ArgumentParser, known: Iterable[str], names: tuple[str, ...], **extra: object
) -> None:
    """Names that the parser has already keep their meaning; help does not list the others."""
    new = [name for name in names if name not in known]
    if new:
        parser.add_argument(*new, help=argparse.SUPPRESS, **extra)  # type: ignore[arg-type]


def settle(arguments: argparse.Namespace, defaults: Mapping[str, Any] | None = None) -> list[str]:
    """Put llama-server's values into their places.

    Args:
        defaults: of ``add_flags``: what is in effect where llama-server's value means unset.

    Returns:
        What to tell the user, a line each: flags that have no effect here.

    Raises:
        OptionError: no model, two of them, or a value that llama-server would not take.
        UnsupportedError: a flag that would change what the server does, and cannot.
    """
    for seen in getattr(arguments, "llama_refused", None) or ():
        raise UnsupportedError(
            "flags that this server can obey", f"`{seen.flag}`", _remedy(seen.flag)
        )
    for seen in getattr(arguments, "llama_neutral", None) or ():
        _require_neutral(seen)
    idle = getattr(arguments, "llama_idle", None) or []
    _require_flash([seen for seen in idle if seen.flag in FLASH])
    _settle_model(arguments)
    for dest, unset in UNSET.items():
        if getattr(arguments, dest, None) in unset:
            setattr(arguments, dest, (defaults or {}).get(dest))
    flags = dict.fromkeys(seen.flag for seen in idle)
    return [f"{', '.join(flags)}: without effect here"] if flags else []


def _settle_model(arguments: argparse.Namespace) -> None:
    if not hasattr(arguments, "llama_model"):
        return
    given = {arguments.model, arguments.llama_model} - {None}
    if len(given) != 1:
        found = " and ".join(f"`{name}`" for name in sorted(given)) or "none"
        raise OptionError("one MODEL", found, "Name it once, as MODEL or with `-m`.")
    [arguments.model] = given


def _remedy(flag: str) -> str:
    refused = {**REFUSED_SWITCHES, **REFUSED_VALUES}
    return next(remedy for names, remedy in refused.items() if flag in names)


def _require_neutral(seen: _Seen) -> None:
    allowed = next(values for names, values in NEUTRAL.items() if seen.flag in names)
    if seen.value not in allowed:
        raise UnsupportedError(
            f"`{seen.flag}` to be left out, or {allowed[0]}", f"{seen.value}", "Leave it out."
        )


def _require_flash(given: Iterable[_Seen]) -> None:
    """Attention is always computed as flash attention does; old command lines have no value."""
    for seen in given:
        if seen.value not in (None, "on", "off", "auto", "1", "0"):
            raise OptionError(
                f"`{seen.flag}` on, off or auto", f"`{seen.value}`", "Give one of them, or none."
            )
