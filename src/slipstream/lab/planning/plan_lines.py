"""Which line of a TOML text holds a key, so that an error can name it; ``tomllib`` does not tell.

The text is one that ``tomllib`` has read, so its syntax is sound; keys inside an inline table are
on the line of the key that holds the table.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Final

from slipstream.paths import shown

Place = tuple[str | int, ...]
"""Keys and indices from the top: ``("conditions", 2, "parameters", "n_max")``."""

_HEADER: Final = re.compile(r"\[(?P<array>\[)?(?P<name>(?:\"[^\"]*\"|'[^']*'|[^\[\]\"'#])+)\]")
_KEY: Final = re.compile(r"(?P<name>(?:\"[^\"]*\"|'[^']*'|[^=\"'#])+?)\s*=")
_PART: Final = re.compile(r"\"([^\"]*)\"|'([^']*)'|([A-Za-z0-9_-]+)")
# What matters of a value: strings (to be passed over), comments and brackets.
_TOKEN: Final = re.compile(
    r"\"\"\"|'''|\"(?:\\.|[^\"\\])*\"|'[^']*'|#.*|[\[{]|[\]}]",
)


class KeyLines:
    """
    Args:
        text: of a TOML file.
    """

    def __init__(self, text: str) -> None:
        self._lines: dict[Place, int] = {}
        self._table: Place = ()
        self._elements: Counter[Place] = Counter()
        self._depth = 0
        self._quotes = ""
        for number, line in enumerate(text.splitlines(), 1):
            self._read(number, line.strip())

    def line(self, place: Place) -> int | None:
        """Line of a key, else of the nearest table around it; None where neither was found."""
        for end in range(len(place), 0, -1):
            if place[:end] in self._lines:
                return self._lines[place[:end]]
        return None

    def shown(self, place: Place) -> str:
        """The key as a user writes it, with its line where one was found."""
        line = self.line(place)
        return f"`{dotted(place)}`" + ("" if line is None else f" (line {line})")

    def _read(self, number: int, line: str) -> None:
        if self._quotes or self._depth:
            self._pass_over(line)
        elif header := _HEADER.match(line):
            self._open_table(number, _parts(header["name"]), array=bool(header["array"]))
        elif key := _KEY.match(line):
            self._lines.setdefault((*self._table, *_parts(key["name"])), number)
            self._pass_over(line[key.end() :])

    def _open_table(self, number: int, names: Place, *, array: bool) -> None:
        place: Place = ()
        for name in names[:-1]:
            place = self._latest((*place, name))
        place = (*place, *names[-1:])
        if array:
            self._elements[place] += 1
            self._lines.setdefault(place, number)
        self._table = self._latest(place)
        self._lines.setdefault(self._table, number)

    def _latest(self, place: Place) -> Place:
        """Of an array of tables its last element, as TOML means it."""
        count = self._elements[place]
        return (*place, count - 1) if count else place

    def _pass_over(self, text: str) -> None:
        """Follow a value as far as this line goes: what it leaves open hides the next lines."""
        while text:
            if self._quotes:
                end = text.find(self._quotes)
                if end < 0:
                    return
                text, self._quotes = text[end + 3 :], ""
                continue
            token = _TOKEN.search(text)
            if token is None:
                return
            self._count(token[0])
            text = text[token.end() :]

    def _count(self, token: str) -> None:
        if token in ('"""', "'''"):
            self._quotes = token
        elif token in ("[", "{"):
            self._depth += 1
        elif token in ("]", "}"):
            self._depth = max(0, self._depth - 1)


def dotted(place: Place) -> str:
    """``conditions[2].parameters.n_max``."""
    text = ""
    for part in place:
        text += f"[{part}]" if isinstance(part, int) else f".{shown(part)}"
    return text.removeprefix(".")


def _parts(name: str) -> Place:
    return tuple(next(filter(None, part), "") for part in _PART.findall(name))
