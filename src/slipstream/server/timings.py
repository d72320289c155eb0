"""What a request cost, under llama.cpp's names and ours, and how it is gathered from events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from slipstream.server.order import Timing
from slipstream.server.wire import WireEvent

UNKNOWN: Final = "unknown"
PHASES: Final = ("draft", "verify", "sample", "commit")


def observe(timing: Timing, event: WireEvent, now_s: float) -> None:
    """Add one event to what its choice cost.

    Args:
        now_s: clock reading when it came, on the clock of ``timing.arrived_s``.
    """
    if event.tokens:
        if timing.first_s is None:
            timing.first_s = now_s
        timing.last_s = now_s
        timing.tokens += len(event.tokens)
    timing.drafted += event.drafted
    timing.tested += event.tested
    timing.accepted += event.accepted
    _count(timing.reached_at, event.reached)
    _count(timing.accepted_at, event.accepted)
    if event.summary is not None:
        timing.summary = event.summary


def _count(counts: list[int], depth: int) -> None:
    """One more at each position above a depth."""
    counts += [0] * (depth - len(counts))
    for place in range(depth):
        counts[place] += 1


def timings(timing: Timing, facts: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The ``timings`` object of a reply.

    llama.cpp's names come first, in its sense: a prompt's tokens without those reused
    (``cache_n``), its time without that in the queue, rates of the output over the tokens after
    the first, and ``draft_n`` only where something was drafted, beside our counts by position.
    They are always numbers, 0 where nothing was measured. Ours follow once the output is complete;
    there None means undefined.

    Args:
        timing: its ``summary`` may hold ``prompt_tokens`` alone while the output grows.
        facts: the server's (``wire.Ready``), for ``exact``.
    """
    found = _llama(timing)
    if "target_passes" in timing.summary:
        found |= _ours(timing.summary, facts or {})
    return found


def _llama(timing: Timing) -> dict[str, Any]:
    reused = timing.summary.get("reused_tokens", 0)
    prompt = max(timing.summary.get("prompt_tokens", 0) - reused, 0)
    prompt_ms, predicted_ms = _prompt_s(timing) * 1e3, _output_s(timing) * 1e3
    after_first = max(timing.tokens - 1, 0)
    found = {
        "cache_n": reused,
        "prompt_n": prompt,
        "prompt_ms": round(prompt_ms, 3),
        "prompt_per_token_ms": _ratio(prompt_ms, prompt),
        "prompt_per_second": _ratio(1e3 * prompt, prompt_ms),
        "predicted_n": timing.tokens,
        "predicted_ms": round(predicted_ms, 3),
        "predicted_per_token_ms": _ratio(predicted_ms, after_first),
        "predicted_per_second": _ratio(1e3 * after_first, predicted_ms),
    }
    if timing.drafted:
        found |= {"draft_n": timing.drafted, "draft_n_accepted": timing.accepted}
        found |= {"reached_at": [*timing.reached_at], "accepted_at": [*timing.accepted_at]}
    return found


def _prompt_s(timing: Timing) -> float:
    """From the start of the prompt to the first token, as far as it is known."""
    times = timing.summary.get("times", {})
    told: float | None = times.get("prompt_s")
    if told is not None:
        return told
    if timing.first_s is None:
        return 0.0
    waited: float = times.get("queue_s", 0.0)
    return max(timing.first_s - timing.arrived_s - waited, 0.0)


def _output_s(timing: Timing) -> float:
    """From the first token to the newest."""
    if timing.first_s is None or timing.last_s is None:
        return 0.0
    return timing.last_s - timing.first_s


def _ours(summary: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
    times = summary.get("times", {})
    return {
        "queue_ms": _milliseconds(times.get("queue_s")),
        "target_passes": summary["target_passes"],
        "verification_steps": summary.get("verification_steps", 0),
        "tested_n": summary.get("tested", 0),
        "discarded_n": summary.get("discarded", 0),
        "acceptance_at": list(summary.get("acceptance_at", ())),
        **{f"{phase}_ms": _milliseconds(times.get(f"{phase}_s")) for phase in PHASES},
        "method": ",".join(summary.get("drafters", ())) or "none",
        "kernel_paths": summary.get("observed", UNKNOWN),
        "exact": _exact(summary, facts),
    }


def _exact(summary: Mapping[str, Any], facts: Mapping[str, Any]) -> bool | str:
    """Whether the output is plain decoding's own; a text says why it is not guaranteed."""
    if not summary.get("seed_exact", True):
        return False
    stated: bool | str = facts.get("exact", True)
    return stated


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1e3, 3)


def _ratio(part: float, whole: float) -> float:
    return round(part / whole, 3) if whole > 0 else 0.0
