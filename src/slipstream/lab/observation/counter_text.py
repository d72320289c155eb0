"""Counters in Prometheus's text format, as far as a reset shows in them.

Source: prometheus.io, "Exposition formats": a line is ``name{labels} value [timestamp]``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

_MOST_LINES: Final = 20_000
_START: Final = "process_start_time_seconds"
_COUNTERS: Final = ("_total", "_sum", "_count")


def _samples(text: str) -> Iterator[tuple[str, float]]:
    for line in text.split("\n", _MOST_LINES)[:_MOST_LINES]:
        if line.startswith("#"):
            continue
        head, brace, rest = line.rpartition("}")
        parts = rest.split()
        if not brace and len(parts) > 1:
            head, parts = parts[0], parts[1:]
        try:
            value = float(parts[0]) if head and parts else math.nan
        except ValueError:
            continue
        if math.isfinite(value):
            yield head + brace, value


def counter_values(text: str) -> dict[str, float]:
    """Series -> value, of those that only grow while a process lives (by their names)."""
    return {
        series: value
        for series, value in _samples(text)
        if series.partition("{")[0].endswith(_COUNTERS)
    }


def start_time(text: str) -> float | None:
    """When the process began, where it tells."""
    return dict(_samples(text)).get(_START)
