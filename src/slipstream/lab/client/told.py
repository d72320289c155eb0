"""Reading values that a server says, whatever it says: of the right type, or None."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from slipstream.lab.contract.records import REACHED, Counts

PHASES: Final = ("draft", "verify", "sample", "commit")
MOST_POSITIONS: Final = 1024
_MOST: Final = 1e15


def number(value: Any) -> float | None:
    """A finite number that is no truth value and not below 0."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return float(value) if 0 <= value < _MOST else None


def logarithm(value: Any) -> float | None:
    """A finite number of any sign."""
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > _MOST:
        return None
    return float(value) if math.isfinite(value) else None


def whole(value: Any) -> int | None:
    """A whole number from 0."""
    found = number(value)
    return int(found) if found is not None and found == int(found) else None


def text(value: Any) -> str:
    """A text, or an empty one."""
    return value if isinstance(value, str) else ""


def mapping(value: Any) -> Mapping[str, Any]:
    """An object, or an empty one."""
    return value if isinstance(value, dict) else {}


def items(value: Any) -> list[Any]:
    """A list, or an empty one."""
    return value if isinstance(value, list) else []


def ids(value: Any) -> tuple[int, ...]:
    """Token ids; what is none is left out."""
    found = (whole(item) for item in items(value))
    return tuple(item for item in found if item is not None)


def counts_of(timings: Mapping[str, Any]) -> Counts:
    """Drafting of one request, from llama-server's ``timings`` or Slipstream's.

    llama-server leaves ``draft_n`` out where nothing was drafted; older builds of it, which have no
    ``cache_n``, and ik_llama.cpp's always do, so there it is unknown. Steps and
    positions only Slipstream tells.
    """
    if "draft_n" not in timings and "cache_n" not in timings:
        return Counts()
    accepted_at, reached_at = _positions(timings)
    return Counts(
        drafted=whole(timings.get("draft_n", 0)),
        accepted=whole(timings.get("draft_n_accepted", 0)),
        steps=whole(timings.get("verification_steps")),
        accepted_at=accepted_at,
        reached_at=reached_at,
        denominator=REACHED if reached_at else "",
        source="request",
    )


def _positions(timings: Mapping[str, Any]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Accepted at each position, and the drafts that reached it; nothing unless both are sound."""
    lists = [items(timings.get(name)) for name in ("accepted_at", "reached_at")]
    accepted, reached = (ids(values[:MOST_POSITIONS]) for values in lists)
    if (len(accepted), len(reached)) != (len(lists[0]), len(lists[1])):
        return (), ()  # too long, or with what is no count
    missing = len(reached) - len(accepted)
    return (accepted + (0,) * missing, reached) if missing >= 0 else ((), ())


def phases_of(timings: Mapping[str, Any]) -> dict[str, float]:
    """Seconds by phase, where they are told."""
    told = {phase: number(timings.get(f"{phase}_ms")) for phase in PHASES}
    return {phase: value / 1e3 for phase, value in told.items() if value is not None}


def timing_fields(timings: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of ``Answer`` that llama-server's ``timings`` tells, or Slipstream's."""
    queue_ms = number(timings.get("queue_ms"))
    paths = [text(path) for path in items(timings.get("kernel_paths"))]
    return {
        "queue_s": None if queue_ms is None else queue_ms / 1e3,
        "reused_tokens": whole(timings.get("cache_n")),
        "prompt_tok_s": number(timings.get("prompt_per_second")),
        "decode_tok_s": number(timings.get("predicted_per_second")),
        "phases": phases_of(timings),
        "counts": counts_of(timings),
        "kernel_paths": tuple(path for path in paths if path),
        "method": text(timings.get("method")),
    }
