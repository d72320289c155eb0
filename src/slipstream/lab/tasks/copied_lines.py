"""How far an answer copies the lines that its prompt shows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_FENCE: Final = re.compile(r"^[ \t]*+```[^\n`]*+$", re.MULTILINE)


def _fenced(text: str) -> str | None:
    """What the first fence opens, to its end or to that of the text."""
    start = _FENCE.search(text)
    if start is None:
        return None
    end = _FENCE.search(text, start.end())
    return text[start.end() : end.start() if end else len(text)]


def _lines(text: str) -> list[str]:
    """Lines without trailing spaces, blank ones at both ends left out."""
    lines = [line.rstrip() for line in text.splitlines()]
    filled = [number for number, line in enumerate(lines) if line]
    return lines[filled[0] : filled[-1] + 1] if filled else []


def opened(text: str) -> bool:
    """Whether a fenced block has begun."""
    return _FENCE.search(text) is not None


def source_lines(prompt: str) -> list[str]:
    """Lines to copy: the first fenced block, else what follows the first blank line."""
    block = _fenced(prompt)
    return _lines(prompt.partition("\n\n")[2] if block is None else block)


def answer_lines(text: str) -> list[str]:
    """Lines of the first fenced block, else of the whole text."""
    block = _fenced(text)
    return _lines(text if block is None else block)


def distance(source: Sequence[str], given: Sequence[str], most: int, prefix: bool = False) -> int:
    """Fewest lines to change, insert or leave out to get from one to the other.

    Args:
        most: a greater distance is reported as ``most + 1``; time is lines times ``most``.
        prefix: to the nearest beginning of the source instead of all of it.
    """
    beyond = most + 1
    if len(given) > len(source) + most or (not prefix and len(source) > len(given) + most):
        return beyond
    row = {column: column for column in range(min(most, len(source)) + 1)}
    for number, line in enumerate(given, 1):
        row = _next_row(row, source, number, line, most)
        if min(row.values()) > most:
            return beyond
    return min(beyond, min(row.values()) if prefix else row.get(len(source), beyond))


def _next_row(
    row: dict[int, int], source: Sequence[str], number: int, line: str, most: int
) -> dict[int, int]:
    """Column -> distance, for the columns within ``most`` of the diagonal."""
    beyond = most + 1
    made: dict[int, int] = {}
    for column in range(max(0, number - most), min(len(source), number + most) + 1):
        best = row.get(column, beyond) + 1
        if column:
            changed = row.get(column - 1, beyond) + (source[column - 1] != line)
            best = min(best, changed, made.get(column - 1, beyond) + 1)
        made[column] = best
    return made
