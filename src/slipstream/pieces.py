"""What a generation gives: pieces as they come, or the whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from slipstream.engine.events import EmittedToken, Event
from slipstream.engine.statistics import Statistics


@dataclass(frozen=True, slots=True)
class Piece:
    """What one step added to an output.

    Attributes:
        text: new text, perhaps empty; never half a character, never part of a stop string.
        tokens: new tokens, each with its id, text, origin and log-probabilities.
        finish_reason, statistics: set on the last piece.
    """

    text: str
    tokens: tuple[EmittedToken, ...]
    finish_reason: str | None = None
    statistics: Statistics | None = None

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(token.id for token in self.tokens)

    @property
    def from_draft(self) -> tuple[bool, ...]:
        """Per token, whether it was an accepted draft token."""
        return tuple(token.from_draft for token in self.tokens)


@dataclass(frozen=True, slots=True)
class Completion:
    """A whole output.

    Attributes:
        tokens: an end-of-generation token included.
        finish_reason: ``stop`` or ``length``.
    """

    text: str
    tokens: tuple[EmittedToken, ...]
    finish_reason: str
    statistics: Statistics

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(token.id for token in self.tokens)

    @property
    def logprobs(self) -> tuple[float | None, ...]:
        """Per token; None unless ``logprobs`` was asked for."""
        return tuple(token.logprob for token in self.tokens)

    @property
    def stats(self) -> dict[str, object]:
        return self.statistics.summary()


def piece_of(event: Event) -> Piece:
    if event.error is not None:
        raise event.error
    return Piece(event.text, event.tokens, event.finish_reason, event.statistics)


def pieces_of(events: Iterator[Event]) -> Iterator[Piece]:
    """A piece per event; closing the iterator closes the events."""
    try:
        for event in events:
            yield piece_of(event)
    finally:
        events.close()  # type: ignore[attr-defined]


def completion_of(pieces: Iterator[Piece]) -> Completion:
    collected = list(pieces)
    last = collected[-1]
    assert last.finish_reason is not None
    assert last.statistics is not None
    text = "".join(piece.text for piece in collected)
    tokens = tuple(token for piece in collected for token in piece.tokens)
    return Completion(text, tokens, last.finish_reason, last.statistics)
