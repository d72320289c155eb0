"""How fast this machine reads weights, and how far that figure is to be trusted."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from slipstream.lab.observation.probe import BUSY_LIMIT, other_load

MOST_SPREAD: Final = 2.0
"""Fastest over slowest probe from which on the machine was not quiet."""
_BYTES: Final = 64 << 20
_LOOKS: Final = 5
_PROBES: Final = 5
_AFFINE: Final = hasattr(os, "sched_getaffinity")


@dataclass(frozen=True)
class ReadingRate:
    """
    Attributes:
        bytes_per_s: of the fastest probe: what disturbs only slows.
        slowest: of the slowest look, which is the fastest of five probes in a row.
        other_load: median share of the processors that others kept busy between the looks, from 0
            to 1; None = the system does not tell.
    """

    bytes_per_s: float
    slowest: float
    other_load: float | None = None

    @property
    def caution(self) -> str:
        """Why the machine may be faster than that; empty = it was quiet."""
        signs = []
        if self.other_load is not None and self.other_load > BUSY_LIMIT:
            signs.append(f"other programs kept {self.other_load:.0%} of the processors busy")
        if self.bytes_per_s > MOST_SPREAD * self.slowest:
            most, least = self.bytes_per_s / 1e9, self.slowest / 1e9
            signs.append(f"its probes read between {least:.1f} and {most:.1f} GB/s")
        if not signs:
            return ""
        return f"measured on a busy machine ({'; '.join(signs)}): a quiet one may take far less"


def reading_rate(
    threads: int = 0,
    *,
    look: Callable[[], float] | None = None,
    watch: Callable[[], float | None] = other_load,
) -> ReadingRate:
    """Five looks within about a second, and who else works meanwhile: a rate to expect, no figure.

    Args:
        threads: that read at a time; 0 = one for each processor.
        look: bytes per second now.
        watch: share of the processors that others keep busy; takes a fifth of a second.
    """
    with ThreadPoolExecutor(threads or _processors()) as pool:
        taken = look or _reader(pool, threads or _processors())
        rates, loads = [], []
        for _ in range(_LOOKS):
            rates.append(taken())
            loads.append(watch())
    known = [load for load in loads if load is not None]
    return ReadingRate(max(rates), min(rates), statistics.median(known) if known else None)


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if _AFFINE else os.cpu_count() or 1


def _reader(pool: ThreadPoolExecutor, count: int) -> Callable[[], float]:
    """Bytes per second that the processors read of a large array, the best of a few probes."""
    import numpy as np

    parts = [np.ones(_BYTES // 8) for _ in range(count)]

    def look() -> float:
        best = float("inf")
        for _ in range(_PROBES):
            start = time.perf_counter()
            list(pool.map(np.max, parts))
            best = min(best, time.perf_counter() - start)
        return count * _BYTES / max(best, 1e-6)

    return look
