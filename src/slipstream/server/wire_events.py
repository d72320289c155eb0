"""What the engine process tells of events: plain values, cheap to make in the step loop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from slipstream.engine.events import Event
from slipstream.engine.statistics import Round, Statistics
from slipstream.server.wire import WireEvent, WireToken
from slipstream.server.wire_errors import told


def wire_event(
    number: int,
    event: Event,
    made: Round | None,
    queue_s: float,
    observed: Mapping[str, int] | None = None,
) -> WireEvent:
    """
    Args:
        number: of the request on the wire.
        made: the round of this step, where there was one.
        queue_s: seconds that it waited for a place.
        observed: kernel path -> calls; for a last event.
    """
    counts = (0, 0, 0) if made is None else (made.drafted, made.tested, made.accepted)
    tokens = tuple(
        WireToken(token.id, token.text, token.from_draft, token.logprob, token.top)
        for token in event.tokens
    )
    reached = 0 if made is None else made.reached
    if event.finish_reason is None:
        return WireEvent(number, tokens, event.text, *counts, reached=reached)
    statistics = event.statistics
    return WireEvent(
        number,
        tokens,
        event.text,
        *counts,
        finish_reason=event.finish_reason,
        stop=event.stop,
        error=None if event.error is None else told(event.error),
        summary=None if statistics is None else summary(statistics, queue_s, observed or {}),
        reached=reached,
    )


def summary(statistics: Statistics, queue_s: float, observed: Mapping[str, int]) -> dict[str, Any]:
    """``WireEvent.summary``; ``by_method`` has each drafter's nodes that were verified, accepted.

    Of the times, ``prompt_s`` lasts from the place to the first token; the others are sums over
    the passes after it. A pass serves several sequences, and its time counts for each in full.
    """
    rounds = statistics.rounds[1:]
    times = {
        "queue_s": queue_s,
        "prompt_s": _prompt_s(statistics, queue_s),
        "draft_s": sum(made.draft_s for made in rounds),
        "verify_s": sum(made.elapsed_s for made in rounds),
        "sample_s": sum(made.sample_s for made in rounds),
        "commit_s": sum(made.commit_s for made in rounds),
    }
    return {
        **statistics.totals(),
        "times": times,
        "by_method": _by_method(statistics),
        "observed": sorted(path for path, calls in observed.items() if calls),
    }


def _prompt_s(statistics: Statistics, queue_s: float) -> float | None:
    ttft_s = statistics.ttft_s
    return None if ttft_s is None else max(ttft_s - queue_s, 0.0)


def _by_method(statistics: Statistics) -> dict[str, dict[str, int]]:
    drafted: Counter[str] = Counter()
    accepted: Counter[str] = Counter()
    for made in statistics.rounds:
        drafted.update(made.drafted_by)
        accepted.update(made.accepted_by)
    return {name: {"drafted": count, "accepted": accepted[name]} for name, count in drafted.items()}
