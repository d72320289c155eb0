"""Emitted tokens to text: whole characters only, and nothing of a stop string."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol


class StreamDecoder(Protocol):
    """What the tokenizer gives for one output: ids in, complete characters out."""

    def push(self, token_id: int, /) -> str: ...

    def flush(self) -> str:
        """Text of the bytes that never became a character."""


class Detokenizer(Protocol):
    """What the engine needs of a tokenizer."""

    @property
    def end_ids(self) -> Collection[int]:
        """End-of-generation ids."""

    def stream(self) -> StreamDecoder: ...


class TextStream:
    """Text of one output, released as soon as it cannot be part of a stop string.

    Args:
        decoder: fresh, for this output alone.
        stops: non-empty strings; the output ends before the first that occurs in it.
    """

    def __init__(self, decoder: StreamDecoder, stops: Sequence[str]) -> None:
        self._decoder = decoder
        self._stops = tuple(stops)
        self._held = ""
        self.stop: str | None = None

    def push(self, token: int) -> str:
        """Text that ``token`` releases; sets ``stop`` when it completes a stop string."""
        self._held += self._decoder.push(token)
        if self._cut():
            return self._release(len(self._held))
        return self._release(len(self._held) - self._possible())

    def finish(self) -> str:
        """The text still held back; nothing after a stop string."""
        if self.stop is None:
            self._held += self._decoder.flush()
            self._cut()
        return self._release(len(self._held))

    def _cut(self) -> bool:
        found = [(place, stop) for stop in self._stops if (place := self._held.find(stop)) >= 0]
        if not found:
            return False
        place, self.stop = min(found)
        self._held = self._held[:place]
        return True

    def _possible(self) -> int:
        """Length of the longest end of the held text that begins a stop string."""
        longest = max((len(stop) for stop in self._stops), default=1) - 1
        for size in range(min(longest, len(self._held)), 0, -1):
            if any(stop.startswith(self._held[-size:]) for stop in self._stops):
                return size
        return 0

    def _release(self, size: int) -> str:
        released, self._held = self._held[:size], self._held[size:]
        return released
