"""plan.toml as a ``Plan``: every error names the key, its line and, of a wrong name, the nearest.

Paths in a plan are those of the shell that runs it, relative to the current directory.
"""

from __future__ import annotations

import datetime
import difflib
import tomllib
from collections.abc import Iterable, Mapping, Sized
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin, get_type_hints

import msgspec

from slipstream.errors import OptionError
from slipstream.lab.contract.plan import Plan
from slipstream.lab.planning.plan_checks import faults
from slipstream.lab.planning.plan_lines import KeyLines, Place, dotted
from slipstream.paths import read_file, shown

MOST_PLAN_BYTES: Final = 1 << 20
MOST_TEXT: Final = 4096
_SHOWN: Final = 60
_WORDS: Final = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
}
_REMEDY: Final = "`slipstream lab init` writes a plan with every key explained."


def read_plan(path: Path) -> Plan:
    """A plan that was read and checked.

    Raises:
        OptionError: the file is absent, no regular one, too long or no TOML; a key is unknown (the
            nearest is named), missing or of another type; values contradict each other.
    """
    content = read_file(path, "a plan", MOST_PLAN_BYTES, OptionError)
    try:
        text = content.decode()
    except UnicodeDecodeError:
        found = f"other bytes in `{shown(str(path))}`"
        raise OptionError("a plan in UTF-8", found, "Save it so.") from None
    return parse_plan(text)


def parse_plan(text: str) -> Plan:
    """As ``read_plan``, of the text of a file."""
    try:
        table = tomllib.loads(text)
    except (ValueError, RecursionError) as problem:  # also of a number of too many digits
        remedy = "Correct it; see toml.io."
        raise OptionError("a plan in TOML", shown(f"{problem}", 400), remedy) from None
    lines = KeyLines(text)
    plan: Plan = _Reader(lines).value(Plan, _plain(table), ())
    for fault in faults(plan):
        raise OptionError(f"{lines.shown(fault.place)} {fault.expected}", fault.found, fault.remedy)
    return plan


class _Reader:
    """Builds structs from plain values, knowing where each value stands."""

    def __init__(self, lines: KeyLines) -> None:
        self._lines = lines

    def value(self, kind: Any, value: Any, place: Place) -> Any:
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            return self._struct(kind, value, place)
        inner, base = get_args(kind), get_origin(kind)
        if base is tuple and len(inner) == 2 and inner[1] is Ellipsis:
            items = self._require(value, list, "a list", place)
            self._bound(items, "entries", place)
            return tuple(self.value(inner[0], item, (*place, i)) for i, item in enumerate(items))
        if base is not None and base is not Literal and issubclass(base, Mapping):
            table = self._require(value, dict, "a table", place)
            self._bound(table, "keys", place)
            for key in table:
                self._bound(key, "characters", (*place, key))
            return {key: self.value(inner[1], item, (*place, key)) for key, item in table.items()}
        return self._leaf(kind, value, place)

    def _struct(self, kind: type[msgspec.Struct], value: Any, place: Place) -> msgspec.Struct:
        table = self._require(value, dict, "a table", place)
        hints = _hints(kind)
        for key in table:
            if key not in hints:
                raise self._unknown(key, hints, place)
        for field in msgspec.structs.fields(kind):
            if field.required and field.name not in table:
                raise self._missing(field.name, place)
        made = {key: self.value(hints[key], item, (*place, key)) for key, item in table.items()}
        return kind(**made)

    def _leaf(self, kind: Any, value: Any, place: Place) -> Any:
        if kind is str and isinstance(value, str):
            self._bound(value, "characters", place)
        try:
            return msgspec.convert(value, kind)
        except (msgspec.ValidationError, OverflowError):
            raise self._wrong(_expected(kind), value, place, _choices(kind)) from None

    def _require(self, value: Any, kind: type, words: str, place: Place) -> Any:
        if not isinstance(value, kind):
            raise self._wrong(words, value, place)
        return value

    def _bound(self, value: Sized, what: str, place: Place) -> None:
        """Everything of a plan is shown somewhere: in errors, a manifest, a report."""
        if len(value) > MOST_TEXT:
            raise OptionError(
                f"{self._lines.shown(place)} to have at most {MOST_TEXT} {what}",
                f"{len(value):,}",
                "Shorten it.",
            )

    def _wrong(
        self, words: str, value: Any, place: Place, choices: Iterable[str] = ()
    ) -> OptionError:
        text = value[:_SHOWN] if isinstance(value, str) else ""
        near = difflib.get_close_matches(text, list(choices), 1)
        remedy = f"Did you mean `{near[0]}`?" if near else _REMEDY
        where = self._lines.shown(place) if place else "the plan"
        return OptionError(f"{where} to be {words}", f"{value!r:.{_SHOWN}}", remedy)

    def _unknown(self, key: str, known: Iterable[str], place: Place) -> OptionError:
        near = difflib.get_close_matches(key[:_SHOWN], list(known), 1, 0.0)[0]
        return OptionError(
            f"a key of {_table_name(place)}",
            f"{self._lines.shown((*place, key))}",
            f"Did you mean `{near}`?",
        )

    def _missing(self, key: str, place: Place) -> OptionError:
        line = self._lines.line(place) if place else None
        found = "nothing" if line is None else f"nothing (the table begins in line {line})"
        return OptionError(f"the key `{key}` in {_table_name(place)}", found, _REMEDY)


def _table_name(place: Place) -> str:
    return f"`{dotted(place)}`" if place else "the plan"


def _plain(value: Any) -> Any:
    """TOML's dates and times as text; the plan keeps them as they are written."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    return value


@cache
def _hints(kind: type[msgspec.Struct]) -> dict[str, Any]:
    return get_type_hints(kind)


def _choices(kind: Any) -> tuple[str, ...]:
    return get_args(kind) if get_origin(kind) is Literal else ()


def _expected(kind: Any) -> str:
    choices = _choices(kind)
    if choices:
        return f"one of {', '.join(choices)}"
    if get_origin(kind) is tuple:
        return f"a list of {len(get_args(kind))} numbers"
    return _WORDS.get(kind, "another value")
