"""What the engine reports of a step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from slipstream.engine.statistics import Statistics
from slipstream.errors import SlipstreamError

FinishReason = Literal["stop", "length", "cancelled", "error"]


@dataclass(frozen=True, slots=True)
class EmittedToken:
    """One token of an output.

    Attributes:
        id: token id.
        text: text that it released: maybe none, maybe some of earlier tokens.
        from_draft: whether it was an accepted draft token.
        logprob, top: as ``Sampled``.
    """

    id: int
    text: str
    from_draft: bool
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Event:
    """What one step did for one request.

    Attributes:
        request: the id ``submit`` returned.
        tokens: emitted by this step, an end-of-generation token included.
        text: text released by this step.
        finish_reason: set on the last event: ``stop`` (end token or stop string), ``length``
            (token limit or context end), ``cancelled`` or ``error``.
        stop: the stop string that ended the output, if one did.
        error: set with ``error``.
        statistics: set on the last event.
    """

    request: int
    tokens: tuple[EmittedToken, ...] = ()
    text: str = ""
    finish_reason: FinishReason | None = None
    stop: str | None = None
    error: SlipstreamError | None = None
    statistics: Statistics | None = None
