"""Finding special tokens in a text: the longest token first, then left to right (llama.cpp).

llama.cpp walks all special tokens from the longest to the shortest and cuts each out of what is
left of the text. Where no two occurrences overlap the order does not matter, so the text is
scanned once, and only a run of overlapping occurrences is cut token by token.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping


class SpecialTokens:
    """Splits texts at special tokens.

    Args:
        ids: id by token text; an empty text is never found.
    """

    def __init__(self, ids: Mapping[str, int]) -> None:
        self._ids = {text: token for text, token in ids.items() if text}
        self._longest_first = sorted(self._ids, key=lambda text: -len(text.encode()))
        lengths: dict[str, set[int]] = {}
        for text in self._ids:
            lengths.setdefault(text[0], set()).add(len(text))
        self._lengths = {first: sorted(found, reverse=True) for first, found in lengths.items()}
        starts = "".join(map(re.escape, self._lengths))
        self._start = re.compile(f"[{starts}]") if starts else None

    def split(self, text: str) -> Iterator[str | int]:
        """Non-empty stretches of ordinary text and ids of special tokens, in order."""
        ordinary = ""
        for part in self._parts(text):
            if isinstance(part, str):
                ordinary += part
                continue
            if ordinary:
                yield ordinary
            ordinary = ""
            yield part
        if ordinary:
            yield ordinary

    def _parts(self, text: str) -> Iterator[str | int]:
        """As ``split``, but what a run leaves over stands apart from the text beside it."""
        position = 0
        for start, end in self._runs(text):
            yield text[position:start]
            yield from self._cut(text[start:end])
            position = end
        yield text[position:]

    def _occurrences(self, text: str) -> Iterator[tuple[int, int]]:
        """Start and end of the longest token at every position that has one."""
        if self._start is None:
            return
        for match in self._start.finditer(text):
            start = match.start()
            for length in self._lengths[match.group()]:
                if text[start : start + length] in self._ids:
                    yield start, start + length
                    break

    def _runs(self, text: str) -> Iterator[tuple[int, int]]:
        """Maximal stretches covered by overlapping occurrences."""
        run_start, run_end = 0, 0
        for start, end in self._occurrences(text):
            if start >= run_end:
                if run_end:
                    yield run_start, run_end
                run_start = start
            run_end = max(run_end, end)
        if run_end:
            yield run_start, run_end

    def _cut(self, run: str) -> list[str | int]:
        if run in self._ids:
            return [self._ids[run]]
        characters = set(run)
        parts: list[str | int] = [run]
        for token in self._longest_first:
            if token[0] in characters and token in run:
                parts = [piece for part in parts for piece in self._cut_out(part, token)]
        return parts

    def _cut_out(self, part: str | int, token: str) -> Iterator[str | int]:
        if isinstance(part, int) or token not in part:
            yield part
            return
        first, *others = part.split(token)
        if first:
            yield first
        for other in others:
            yield self._ids[token]
            if other:
                yield other
