"""Flags made from the option structs, so that an option is defined once."""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

import msgspec

from slipstream import plugin_names
from slipstream.cli.text_files import read_text, schema_text
from slipstream.errors import OptionError
from slipstream.options import (
    OptionInfo,
    SpeculationOptions,
    describe,
    from_mapping,
    require_used,
)

Options = TypeVar("Options", bound=msgspec.Struct)

# Spellings of design.md section 7 beside the option's own name and llama.cpp's.
_SHORT = {"max_tokens": "-n", "context": "-c", "threads": "-t", "json_schema": "-j"}
_FLAG_NAMES = {"type": "spec"}
# Options that llama.cpp splits in two flags, which must be equal here.
_HALVES = {"kv_type": (("-ctk", "--cache-type-k"), ("-ctv", "--cache-type-v"))}
# Options whose text may stand in a file, and llama.cpp's flags that name the file.
_FILES = {"json_schema": ("-jf", "--json-schema-file"), "grammar": ("--grammar-file",)}
_MOST_GRAMMAR_BYTES = 1 << 20
_NAMED_VALUES = {
    "json_schema": "FILE|JSON",
    "draft_model": "MODEL",
    "ngram_cache_static": "FILE",
    "ngram_cache_dynamic": "FILE",
}
_VALUE_NAMES = {int: "N", float: "X", str: "TEXT", tuple: "TEXT", dict: "ID=X"}
_CONVERSIONS: dict[type, Callable[[str], Any]] = {int: int, float: float}


def add_flags(
    parser: argparse.ArgumentParser,
    *structs: type[msgspec.Struct],
    defaults: Mapping[str, Any] | None = None,
) -> None:
    """A flag for every option of the structs; a required option is a positional argument.

    Args:
        defaults: option name -> a default that differs from the struct's.
    """
    changed = defaults or {}
    for struct in structs:
        title = struct.__name__.removesuffix("Options").lower()
        group = parser.add_argument_group(f"{title} options")
        for option in describe(struct):
            if option.required:
                parser.add_argument(option.name, metavar=option.name.upper(), help=option.help)
            else:
                default = changed.get(option.name, option.default)
                _add_flag(group, replace(option, default=default))
                _add_halves(group, option)
                _add_file(group, option)
    parser.set_defaults(**changed)


def options(
    struct: type[Options],
    arguments: argparse.Namespace,
    defaults: Mapping[str, Any] | None = None,
    others: Iterable[str] = (),
) -> Options:
    """The struct that the arguments describe.

    Args:
        defaults: used where the user gave nothing, instead of the struct's.
        others: drafting methods that read options beside those of ``type``.

    Raises:
        OptionError: a value of another type or out of bounds, or an option that nothing reads, in
            terms of the flag.
        RequestError: a file that an option names cannot be read.
    """
    given: dict[str, Any] = {}
    for option in describe(struct):
        value = _text_of(option, _given(option, arguments), arguments)
        if value is not None:
            given[option.name] = _value(option, value)
            _check_choice(option, given[option.name])
    with in_flags(struct):
        made = from_mapping(struct, {**(defaults or {}), **given})
        if isinstance(made, SpeculationOptions):
            require_used(made, given, others)
        return made


@contextmanager
def in_flags(struct: type[msgspec.Struct]) -> Iterator[None]:
    """Errors about options of the struct speak of their flags."""
    try:
        yield
    except OptionError as error:
        names = {option.name: _long(option.name) for option in describe(struct)}
        raise OptionError(
            _as_flags(error.expected, names), error.found, _as_flags(error.remedy, names)
        ) from None


def _given(option: OptionInfo, arguments: argparse.Namespace) -> Any:
    """The value of an option's own flag, or the equal values of its halves; None = not given."""
    value = getattr(arguments, option.name, None)
    flags = [names[0] for names in _HALVES.get(option.name, ())]
    halves = [getattr(arguments, flag, None) for flag in flags]
    if all(half is None for half in halves):
        return value
    if value is not None or len(set(halves)) > 1:
        given = [f"`{name} {half}`" for name, half in zip(flags, halves, strict=True) if half]
        raise OptionError(
            f"{' and '.join(f'`{flag}`' for flag in flags)} of one type, or "
            f"`{_long(option.name)}` alone",
            " and ".join([*given, *([f"`{_long(option.name)} {value}`"] if value else [])]),
            f"Use `{_long(option.name)}`: keys and values are kept alike.",
        )
    return halves[0]


def _text_of(option: OptionInfo, value: Any, arguments: argparse.Namespace) -> Any:
    """The value, or what the file holds that stands for it."""
    if option.name not in _FILES:
        return value
    flag = _FILES[option.name][-1]
    name = getattr(arguments, flag, None)
    if name is None:
        schema = value is not None and option.name == "json_schema"
        return schema_text(value, _MOST_GRAMMAR_BYTES) if schema else value
    if value is not None:
        raise OptionError(f"`{_long(option.name)}` or `{flag}`", "both", "Leave one out.")
    return read_text(name, option.name.replace("_", " "), _MOST_GRAMMAR_BYTES)


def _check_choice(option: OptionInfo, value: Any) -> None:
    if not option.choices:
        return
    for name in map(str.strip, str(value).split(",")):
        if name not in option.choices and not _is_plugin(option, name):
            near = difflib.get_close_matches(name, option.choices, 1, 0.4)
            hint = f"Did you mean `{near[0]}`?" if near else f"{option.help}."
            also = plugin_names.shown() if option.type is tuple else ""
            expected = f"`{_long(option.name)}` {option.expected()}{also}"
            raise OptionError(expected, f"`{name}`", hint)


def _is_plugin(option: OptionInfo, name: str) -> bool:
    """Whether an installed package offers a drafting method of that name."""
    return option.type is tuple and name in plugin_names.installed()


def _add_flag(group: Any, option: OptionInfo) -> None:
    first = _long(option.name)
    names = dict.fromkeys([first, *map(_long, option.aliases)])
    long = [name for name in names if len(name) > len("--np")]
    short = [_SHORT[option.name]] if option.name in _SHORT else []
    extra: dict[str, Any]
    if option.type is bool:
        extra = {"action": "store_const", "const": True}
    elif option.type in (tuple, dict):
        extra = {"action": "append", "metavar": _value_name(option)}
    else:
        extra = {"metavar": _value_name(option)}
    group.add_argument(*short, *long, dest=option.name, help=_help(option, long[1:]), **extra)


def _add_halves(group: Any, option: OptionInfo) -> None:
    for names in _HALVES.get(option.name, ()):
        help_text = (
            f"llama.cpp's spelling; both must be given, and be equal (see {_long(option.name)})"
        )
        group.add_argument(*names, dest=names[0], metavar=_value_name(option), help=help_text)


def _add_file(group: Any, option: OptionInfo) -> None:
    if option.name in _FILES:
        names = _FILES[option.name]
        help_text = f"file of {_long(option.name)}"
        group.add_argument(*names, dest=names[-1], metavar="FILE", help=help_text)


def _long(name: str) -> str:
    return "--" + _FLAG_NAMES.get(name, name).replace("_", "-")


def _value_name(option: OptionInfo) -> str:
    if option.name in _NAMED_VALUES:
        return _NAMED_VALUES[option.name]
    if option.choices and option.type is str:
        return "{" + ",".join(option.choices) + "}"
    return "NAME,.." if option.choices else _VALUE_NAMES[option.type]


def _help(option: OptionInfo, aliases: list[str]) -> str:
    default = option.default
    if option.type is tuple and option.choices:
        default = ",".join(default)
    hidden = option.type is bool or default in (None, (), {})
    shown = "" if hidden else f" [{default}]"
    also = f" (also {', '.join(aliases)})" if aliases else ""
    return f"{option.help}{shown}{also}".replace("%", "%%")


def _value(option: OptionInfo, value: Any) -> Any:
    """Text as the option's type; what does not convert is passed on for the option's own error."""
    if option.type is tuple:
        return ",".join(value) if option.choices else tuple(value)
    try:
        if option.type is dict:
            pairs = (text.partition("=") for text in value)
            return {key: float(number) for key, _, number in pairs}
        return _CONVERSIONS[option.type](value) if option.type in _CONVERSIONS else value
    except ValueError:
        return value


def _as_flags(text: str, names: dict[str, str]) -> str:
    """`max_tokens` in backticks becomes `--max-tokens`."""
    return re.sub(r"`(\w+)`", lambda found: f"`{names.get(found[1], found[1])}`", text)
