"""The bars of docs/performance.md, once, as data, and how a record is held against one.

The row bars of qwen2.5-coder-1.5b were set on a processor with AVX-512 VNNI, whose limit at 8 and
16 rows is lower than that of an AVX2 machine: the page prints the limit beside them.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workers import PEERS

from slipstream.measure.statistics import median_interval, paired_ratio

OWN = "slipstream"
LARGE = "qwen2.5-coder-1.5b"
SMALL = ("qwen2.5-coder-0.5b", "gemma-3-270m", "smollm2-135m")
MODELS = (LARGE, *SMALL)
MEMORY_FACTOR, MEMORY_EXTRA = 1.03, 220e6  # of the bytes a step reads, and bytes beside the KV


@dataclass(frozen=True)
class Bar:
    """One figure that the product must reach.

    Attributes:
        kind: ``ratio`` (pass of R rows / the faster first row, at most), ``speed`` (times faster
            than a peer, at least), ``first_token`` (ours / llama, at most) or ``memory`` (peak /
            allowance, at most).
        key: row count, prompt tokens or context.
        peer: None = the better one.
    """

    model: str
    section: str
    kind: str
    key: str
    bar: float
    stretch: float | None = None
    peer: str | None = None


def _rows(model: str, bars: Mapping[int, tuple[float, float | None]]) -> list[Bar]:
    return [Bar(model, "rows", "ratio", str(r), *values) for r, values in bars.items()]


def _speeds(model: str, peer: str, bars: Mapping[int, float]) -> list[Bar]:
    return [Bar(model, "rows", "speed", str(r), bar, None, peer) for r, bar in bars.items()]


def _common(model: str) -> list[Bar]:
    large = model == LARGE
    return [
        Bar(model, "rows", "speed", "1", 0.97 if large else 1.0, 1.0 if large else None),
        Bar(model, "prefill", "speed", "512", 1.0, 1.4 if large else None),
        Bar(model, "prefill", "speed", "2048", 1.0, 1.4 if large else None),
        Bar(model, "decode", "speed", "4096", 1.0),
        Bar(model, "first_token", "first_token", "first_token_s", 1.1, None, "llama"),
        Bar(model, "first_token", "memory", "peak_rss_bytes", 1.0),
    ]


BARS: tuple[Bar, ...] = (
    *_rows(LARGE, {2: (1.10, 1.03), 4: (1.25, 1.10), 8: (1.60, 1.30), 16: (2.70, 2.40)}),
    *_speeds(LARGE, "llama", {4: 2.5, 8: 3.5}),
    *_speeds(LARGE, "ik_llama", {2: 1.05, 4: 1.25, 8: 1.4, 16: 1.4}),
    *(bar for model in SMALL for bar in _rows(model, {4: (1.4, None), 8: (1.9, None)})),
    *(bar for model in MODELS for bar in _common(model)),
)


@dataclass(frozen=True)
class Outcome:
    """A bar against a record.

    Attributes:
        figure, low, high: median and its 95 % interval; equal where there is one sample.
        limit: the same figure at the machine's limit, None where it has none.
        against: the peer's name, None where the figure needs none.
        met: whether the median reaches the bar.
    """

    figure: float
    low: float
    high: float
    limit: float | None
    against: str | None
    met: bool


def evaluate(bar: Bar, models: Mapping[str, Any]) -> Outcome | None:
    """None when the record lacks the figure."""
    sections = models.get(bar.model, {})
    record = sections.get(bar.section)
    if record is None or bar.key not in record["samples"][OWN]:
        return None
    limits = sections.get("rows", {}).get("limits")
    if bar.kind == "ratio":
        return _ratio(bar, record)
    if bar.kind == "memory":
        return _memory(bar, record)
    return _against(bar, record, limits)


def better_peer(samples: Mapping[str, Any], key: str) -> str:
    return min(PEERS, key=lambda name: statistics.median(samples[name][key]))


def base_ms(samples: Mapping[str, Any]) -> float:
    """The fastest first row: a slow own one earns nothing."""
    return min(statistics.median(by_rows["1"]) for by_rows in samples.values())


def limit_ms(record_limits: Mapping[str, Any] | None, section: str, key: str) -> float | None:
    """Milliseconds that the machine allows, None where there is no limit model.

    A prompt is bound by its multiplications; a long context also reads its keys and values, for
    which the limit of one row does not count.
    """
    if record_limits is None:
        return None
    if section == "rows":
        return float(record_limits["limit_ms"][key])
    if section == "prefill":
        return float(record_limits["prompt_token_ms"]) * int(key)
    return None


def _ratio(bar: Bar, record: Mapping[str, Any]) -> Outcome:
    samples, base = record["samples"], base_ms(record["samples"])
    own = samples[OWN][bar.key]
    figure = statistics.median(own) / base
    low, high = (bound / base for bound in median_interval(own))
    limit = float(record["limits"]["limit_ms"][bar.key]) / base
    return Outcome(figure, low, high, limit, None, figure <= bar.bar)


def _against(
    bar: Bar, record: Mapping[str, Any], limits: Mapping[str, Any] | None
) -> Outcome | None:
    samples = record["samples"]
    peer = bar.peer or better_peer(samples, bar.key)
    own, other = samples[OWN][bar.key], samples[peer][bar.key]
    if bar.kind == "first_token":
        ratio = paired_ratio(own, other)
        return Outcome(ratio.median, ratio.low, ratio.high, None, peer, ratio.median <= bar.bar)
    ratio = paired_ratio(other, own)
    least = limit_ms(limits, bar.section, bar.key)
    limit = None if least is None else statistics.median(other) / least
    return Outcome(ratio.median, ratio.low, ratio.high, limit, peer, ratio.median >= bar.bar)


def allowance(record: Mapping[str, Any]) -> float:
    """Bytes of memory that the bar allows."""
    return MEMORY_FACTOR * record["step_bytes"] + record["kv_bytes"] + MEMORY_EXTRA


def _memory(bar: Bar, record: Mapping[str, Any]) -> Outcome:
    peaks: Sequence[float] = record["samples"][OWN][bar.key]
    allowed = allowance(record)
    figure = statistics.median(peaks) / allowed
    low, high = min(peaks) / allowed, max(peaks) / allowed
    return Outcome(figure, low, high, None, None, figure <= bar.bar)
