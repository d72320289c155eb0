"""Reads one function call, ``{"name": "f", "arguments": {..}}``, character by character."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

ARGUMENT_KEYS: Final = ("arguments", "parameters")
KEYS: Final = frozenset({"name", "type", "id", *ARGUMENT_KEYS})
_SPACE: Final = frozenset(" \t\r\n")
_SCALAR: Final = frozenset("-0123456789tfnaulrsegi.+E")  # numbers, true, false, null


@dataclass(frozen=True, slots=True)
class CallPart:
    """A piece of a call.

    Attributes:
        index: of the call among those of the output.
        name: of the function, on the call's first piece.
        arguments: next piece of the JSON text of its arguments.
    """

    index: int
    name: str | None = None
    arguments: str = ""


class CallScanner:
    """The characters of one call; pieces of it as soon as it is certain that it is one.

    It is certain once the function's name was read and its arguments begin with ``{``. Before
    that, whatever cannot be a call makes it ``failed``; after that, what is malformed ends it.

    Args:
        index: of the call.
        names: of the functions that may be called; None = any.

    Attributes:
        raw: every character so far.
        failed: it is no call.
        done: it is over; the character that ended it belongs to it.
        overrun: it is over, and the last character does not belong to it.
    """

    def __init__(self, index: int, names: Collection[str] | None = None) -> None:
        self.raw: list[str] = []
        self.failed = False
        self.done = False
        self.overrun = False
        self._index = index
        self._names = names
        self._state: Callable[[str], None] = self._opening
        self._key = ""
        self._value: list[str] = []
        self._depth = 0
        self._quoted = self._escaped = False
        self._name: str | None = None
        self._arguments: str | None = None
        self._announced = False
        self._pieces: list[str] = []
        self._begun = False

    @property
    def certain(self) -> bool:
        return self._announced

    def feed(self, character: str) -> None:
        """One character; nothing after ``failed``, ``done`` or ``overrun``."""
        self.raw.append(character)
        self._state(character)

    def take(self) -> list[CallPart]:
        """What is new since the last time."""
        if not self._announced:
            return []
        text, self._pieces = "".join(self._pieces), []
        if self._begun:
            return [CallPart(self._index, arguments=text)] if text else []
        self._begun = True
        return [CallPart(self._index, self._name, text)]

    def _wrong(self) -> None:
        """A character that has no place here."""
        if self._announced:
            self.overrun = True
        else:
            self.failed = True

    def _opening(self, character: str) -> None:
        if character == "{":
            self._state = self._first_key
        elif character not in _SPACE:
            self._wrong()

    def _first_key(self, character: str) -> None:
        if character == "}":
            self._wrong()
        else:
            self._next_key(character)

    def _next_key(self, character: str) -> None:
        if character == '"':
            self._value, self._quoted, self._escaped = ['"'], True, False
            self._state = self._in_key
        elif character not in _SPACE:
            self._wrong()

    def _in_key(self, character: str) -> None:
        self._value.append(character)
        if self._string_goes_on(character):
            return
        key = _json("".join(self._value))
        if key not in KEYS:
            self._wrong()
            return
        self._key, self._state = str(key), self._colon

    def _colon(self, character: str) -> None:
        if character == ":":
            self._state = self._value_start
        elif character not in _SPACE:
            self._wrong()

    def _value_start(self, character: str) -> None:
        if character in _SPACE:
            return
        self._value, self._depth = [], 0
        self._quoted = self._escaped = False
        arguments = self._key in ARGUMENT_KEYS
        if character == "{" and arguments and self._name is not None and not self._announced:
            self._announced = True
            self._state = self._streamed
        elif character in "{[":
            self._state = self._nested
        elif character == '"':
            self._quoted = True
            self._value, self._state = ['"'], self._in_string
            return
        elif character in _SCALAR:
            self._state = self._scalar
        else:
            self._wrong()
            return
        self._state(character)

    def _streamed(self, character: str) -> None:
        """The arguments, handed on as they come."""
        self._pieces.append(character)
        if self._closes(character):
            self._state = self._after_value

    def _nested(self, character: str) -> None:
        self._value.append(character)
        if self._closes(character):
            self._take_value()

    def _in_string(self, character: str) -> None:
        self._value.append(character)
        if not self._string_goes_on(character):
            self._take_value()

    def _scalar(self, character: str) -> None:
        if character in _SCALAR:
            self._value.append(character)
            return
        self._take_value()
        if not self.failed:
            self._state(character)

    def _after_value(self, character: str) -> None:
        if character == ",":
            self._state = self._next_key
        elif character == "}":
            self._finish()
        elif character not in _SPACE:
            self._wrong()

    def _string_goes_on(self, character: str) -> bool:
        """Whether a text in quotes is not over with this character."""
        if self._escaped:
            self._escaped = False
        elif character == "\\":
            self._escaped = True
        elif character == '"':
            self._quoted = False
        return self._quoted

    def _closes(self, character: str) -> bool:
        """Whether the brackets are closed with this character."""
        if self._quoted:
            self._string_goes_on(character)
        elif character == '"':
            self._quoted = True
        elif character in "{[":
            self._depth += 1
        elif character in "}]":
            self._depth -= 1
        return self._depth == 0 and not self._quoted

    def _take_value(self) -> None:
        text = "".join(self._value)
        self._state = self._after_value
        if self._key == "name":
            name = _json(text)
            if isinstance(name, str) and self._name is None and self._may_call(name):
                self._name = name
            else:
                self._wrong()
        elif self._key in ARGUMENT_KEYS:
            self._arguments = _arguments(text)

    def _may_call(self, name: str) -> bool:
        return bool(name) and (self._names is None or name in self._names)

    def _finish(self) -> None:
        if self._announced:
            self.done = True
        elif self._name is None:
            self.failed = True
        else:
            self._announced = self.done = True
            self._pieces.append(self._arguments or "{}")


def _json(text: str) -> object:
    """The value of a text, or None where it is no JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _arguments(text: str) -> str | None:
    """Arguments that were not handed on as they came: a text that holds them is unpacked."""
    if text.startswith("{"):
        return text
    value = _json(text)
    return value if isinstance(value, str) else None
