"""Prometheus's text format: counters of drafting from llama.cpp, vLLM and Slipstream.

``lab.observation.counters`` takes the difference of two readings.

Sources: the text format 0.0.4 of Prometheus's documentation; names as the servers show them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from slipstream.lab.contract.records import STEPS, Counts
from slipstream.lab.contract.runtimes import Metrics

MOST_CHARACTERS: Final = 8 << 20
MOST_SAMPLES: Final = 100_000
MOST_POSITIONS: Final = 1024

Labels = tuple[tuple[str, str], ...]
Samples = Mapping[str, Mapping[Labels, float]]

_SAMPLE: Final = re.compile(
    r"([A-Za-z_:][\w:]*)\s*(?:\{(.*)\}\s*|\s)\s*(\S+)(?:\s+-?\d+)?\s*", re.ASCII
)
_LABEL: Final = re.compile(r'\s*([A-Za-z_]\w*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)', re.ASCII)
_ESCAPES: Final = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}
_ROWS: Final = re.compile(r"[0-9]{1,6}\+?")
_VERIFYING: Final = "slipstream_verifying_passes"
_START: Final = "process_start_time_seconds"


@dataclass(frozen=True)
class Names:
    """Where a server keeps its counters; the first name that is there counts.

    Attributes:
        flavour: of the server.
        mark: beginning of its names.
        drafted, accepted, steps: counters; ``accepted_at`` has a label ``position``.
        running: gauge of requests at work.
    """

    flavour: str
    mark: str
    drafted: tuple[str, ...]
    accepted: tuple[str, ...]
    steps: tuple[str, ...]
    accepted_at: tuple[str, ...]
    running: str


def _both(name: str) -> tuple[str, ...]:
    return (f"{name}_total", name)


def _spec_decode(flavour: str, mark: str, running: str) -> Names:
    counters = ("num_draft_tokens", "num_accepted_tokens", "num_drafts")
    drafted, accepted, steps = (_both(f"{mark}spec_decode_{name}") for name in counters)
    positions = _both(f"{mark}spec_decode_num_accepted_tokens_per_pos")
    return Names(flavour, mark, drafted, accepted, steps, positions, f"{mark}{running}")


# Slipstream shows llama.cpp's names too, so its own are looked for first
FLAVOURS: Final[tuple[Names, ...]] = (
    Names(
        "slipstream",
        "slipstream_",
        _both("slipstream_drafted_tokens"),
        _both("slipstream_accepted_tokens"),
        _both("slipstream_verification_steps"),
        _both("slipstream_accepted_tokens_at"),
        "slipstream_requests_running",
    ),
    _spec_decode("llama.cpp", "llamacpp:", "requests_processing"),
    _spec_decode("vllm", "vllm:", "num_requests_running"),
)


def samples(text: str) -> Samples:
    """Name -> labels -> value; of a sample that comes twice the last counts.

    Lines that are no samples are left out, as is what goes beyond the limits of this module.
    """
    found: dict[str, dict[Labels, float]] = {}
    left = MOST_SAMPLES
    for line in text[:MOST_CHARACTERS].splitlines():
        match = None if line.startswith("#") else _SAMPLE.fullmatch(line)
        if match is None or left <= 0:
            continue
        value = _value(match[3])
        if value is not None:
            left -= 1
            found.setdefault(match[1], {})[_labels(match[2] or "")] = value
    return found


def _value(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _labels(text: str) -> Labels:
    pairs = ((name, _unescaped(value)) for name, value in _LABEL.findall(text))
    return tuple(sorted(pairs))


def _unescaped(value: str) -> str:
    return re.sub(r"\\.", lambda match: _ESCAPES.get(match[0], match[0]), value)


def flavour(found: Samples) -> Names | None:
    """Whose metrics they are; None = nobody's that is known."""
    for names in FLAVOURS:
        if any(name.startswith(names.mark) for name in found):
            return names
    return None


def metrics_of(text: str) -> Metrics:
    """Counters so far; what is not told is None."""
    found = samples(text)
    names = flavour(found)
    start = found.get(_START, {})
    resets = max(start.values()) if start else None
    if names is None:
        return Metrics(text, Counts(), resets)
    steps = _total(found, names.steps)
    accepted_at = _positions(found, names.accepted_at)
    counts = Counts(
        drafted=_total(found, names.drafted),
        accepted=_total(found, names.accepted),
        steps=steps,
        accepted_at=accepted_at,
        reached_at=() if steps is None else (steps,) * len(accepted_at),
        denominator=STEPS if accepted_at else "",
        source="counters",
    )
    return Metrics(text, counts, resets, told_rows(text))


def requests_running(text: str) -> int | None:
    """Requests at work now; None = not told. A window is quiet when it is 0 at both ends."""
    found = samples(text)
    names = flavour(found)
    return None if names is None else _total(found, (names.running,))


def target_passes(text: str) -> int:
    """Passes of the target so far; 0 where Slipstream's metrics do not tell any."""
    return _total(samples(text), _both("slipstream_target_passes")) or 0


def told_rows(text: str) -> dict[str, int] | None:
    """As ``verified_rows``; None where the server does not count them at all."""
    return verified_rows(text) if _VERIFYING in text else None


def verified_rows(text: str) -> dict[str, int]:
    """Rows of a pass that verified drafts -> passes so far; Slipstream alone tells them.

    The last of Slipstream's counts, 64, stands for 64 and more.
    """
    found = samples(text)
    for name in _both(_VERIFYING):
        told = {
            dict(labels).get("rows", ""): value for labels, value in found.get(name, {}).items()
        }
        if told:
            usable = {rows: value for rows, value in told.items() if _ROWS.fullmatch(rows)}
            kept = {rows: value for rows, value in usable.items() if 0 <= value < 1e15}
            return {rows.removesuffix("+"): int(value) for rows, value in kept.items()}
    return {}


def _total(found: Samples, names: tuple[str, ...]) -> int | None:
    """Sum over all labels of the first of the names that is there."""
    for name in names:
        values = [value for value in found.get(name, {}).values() if math.isfinite(value)]
        if values:
            return max(int(sum(values)), 0) if abs(sum(values)) < 1e15 else None
    return None


def _positions(found: Samples, names: tuple[str, ...]) -> tuple[int, ...]:
    """Position -> count, summed over the other labels; ``64+`` counts as position 64."""
    counted: dict[int, float] = {}
    for name in names:
        for labels, value in found.get(name, {}).items():
            place = dict(labels).get("position", "").removesuffix("+")
            usable = place.isascii() and place.isdigit() and int(place[:9]) < MOST_POSITIONS
            if usable and 0 <= value < 1e15:
                counted[int(place)] = counted.get(int(place), 0) + value
        if counted:
            break
    return tuple(int(counted.get(place, 0)) for place in range(max(counted, default=-1) + 1))
