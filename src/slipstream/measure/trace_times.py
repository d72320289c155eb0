"""What a pass of R rows took in a trace."""

from __future__ import annotations

import random
import statistics
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field

from slipstream.measure.trace_passes import Pass

MOST_SAMPLES = 2048  # per row count; beyond it, a uniform choice of all
ENOUGH = 8  # passes of requests without drafters, to take the plain time from them alone


@dataclass
class _Samples:
    """A uniform choice of (context, seconds) of passes of one row count."""

    seen: int = 0
    kept: list[tuple[float, float]] = field(default_factory=list)

    def add(self, sample: tuple[float, float], chance: random.Random) -> None:
        self.seen += 1
        if len(self.kept) < MOST_SAMPLES:
            self.kept.append(sample)
        elif (place := chance.randrange(self.seen)) < MOST_SAMPLES:
            self.kept[place] = sample


@dataclass(frozen=True)
class RowTimes:
    """Seconds of a pass by its rows and the committed positions it reads.

    Attributes:
        base: rows -> seconds at context 0: medians, made to rise with the rows.
        slope: seconds per committed position, the same for all rows.
    """

    base: Mapping[int, float]
    slope: float

    def __call__(self, rows: int, context: float) -> float:
        """Between measured row counts by a line; beyond them by the nearest line."""
        known = sorted(self.base)
        if rows in self.base or len(known) == 1:
            return self.base.get(rows, self.base[known[0]]) + self.slope * context
        place = min(max(bisect_left(known, rows), 1), len(known) - 1)
        low, high = known[place - 1], known[place]
        rise = (self.base[high] - self.base[low]) / (high - low)
        # fewer rows never cost less per row, whatever a line through two noisy points says
        least = self.base[known[0]] * min(rows / known[0], 1.0)
        return max(self.base[low] + rise * (rows - low), least) + self.slope * context


class TimeFit:
    """Collects passes for ``RowTimes``."""

    def __init__(self) -> None:
        self._samples: dict[int, _Samples] = {}
        self._plain = _Samples()
        self._chance = random.Random(1)

    def add(self, made: Pass, *, drafting: bool) -> None:
        """
        Args:
            drafting: whether its engine has drafters.
        """
        if not made.pure:
            return
        sample = (float(made.context), made.first.verify_s)
        rows = made.first.pass_rows
        if rows == 1 and not drafting:
            self._plain.add(sample, self._chance)
        self._samples.setdefault(rows, _Samples()).add(sample, self._chance)

    def times(self) -> RowTimes | None:
        """None where no pass without prompt rows was traced."""
        groups = {rows: samples.kept for rows, samples in self._samples.items()}
        if len(self._plain.kept) >= ENOUGH:
            groups[1] = self._plain.kept
        if not groups:
            return None
        slope = _slope(groups)
        medians = {
            rows: statistics.median(seconds - slope * context for context, seconds in kept)
            for rows, kept in groups.items()
        }
        weights = {rows: len(kept) for rows, kept in groups.items()}
        return RowTimes(_rising(medians, weights), slope)


def _slope(groups: Mapping[int, list[tuple[float, float]]]) -> float:
    """Seconds per position by least squares within row counts; never negative."""
    product = square = 0.0
    for kept in groups.values():
        middle = statistics.fmean(context for context, _ in kept)
        mean = statistics.fmean(seconds for _, seconds in kept)
        product += sum((context - middle) * (seconds - mean) for context, seconds in kept)
        square += sum((context - middle) ** 2 for context, _ in kept)
    return max(product / square, 0.0) if square > 0 else 0.0


def _rising(medians: Mapping[int, float], weights: Mapping[int, int]) -> dict[int, float]:
    """The nearest curve that never falls (pool adjacent violators, Barlow et al. 1972)."""
    blocks: list[tuple[float, int, list[int]]] = []
    for rows in sorted(medians):
        block = (medians[rows], weights[rows], [rows])
        while blocks and blocks[-1][0] > block[0]:
            value, weight, members = blocks.pop()
            total = weight + block[1]
            mean = (value * weight + block[0] * block[1]) / total
            block = (mean, total, [*members, *block[2]])
        blocks.append(block)
    return {rows: value for value, _, members in blocks for rows in members}
