"""What a pass of R rows took in a trace, and whether its drafts paid."""

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
    """A uniform choice of (context, verify seconds, settle seconds) of passes of one row count."""

    seen: int = 0
    kept: list[tuple[float, float, float]] = field(default_factory=list)

    def add(self, sample: tuple[float, float, float], chance: random.Random) -> None:
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
        settle_s: of sampling and committing in a pass without drafts; None where there was none.
    """

    base: Mapping[int, float]
    slope: float
    settle_s: float | None

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
        sample = (float(made.context), made.first.verify_s, made.settle_s)
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
            rows: statistics.median(seconds - slope * context for context, seconds, _ in kept)
            for rows, kept in groups.items()
        }
        weights = {rows: len(kept) for rows, kept in groups.items()}
        settle = [settle for _, _, settle in groups.get(1, [])]
        return RowTimes(
            _rising(medians, weights), slope, statistics.median(settle) if settle else None
        )


def _slope(groups: Mapping[int, list[tuple[float, float, float]]]) -> float:
    """Seconds per position by least squares within row counts; never negative."""
    product = square = 0.0
    for kept in groups.values():
        middle = statistics.fmean(context for context, _, _ in kept)
        mean = statistics.fmean(seconds for _, seconds, _ in kept)
        product += sum((context - middle) * (seconds - mean) for context, seconds, _ in kept)
        square += sum((context - middle) ** 2 for context, _, _ in kept)
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


@dataclass
class Balance:
    """Whether drafts paid, over decoding passes without prompt rows, in seconds.

    Attributes:
        plain_s: what the same tokens would have taken without drafts, estimated.
        draft_s: drafters at work.
        extra_rows_s: verifying passes beyond the time of a pass without their draft rows.
        bookkeeping_s: choosing, and sampling, committing and telling beyond a plain pass's.
        saved_s: plain time of the tokens that passes emitted beyond one per sequence.
        left_out: passes that held prompt rows.
    """

    plain_s: float = 0.0
    draft_s: float = 0.0
    extra_rows_s: float = 0.0
    bookkeeping_s: float = 0.0
    saved_s: float = 0.0
    passes: int = 0
    left_out: int = 0

    def add(self, made: Pass, times: RowTimes, share: float = 1.0) -> None:
        """
        Args:
            share: of the pass that is counted, for one of its sequences.
        """
        decoding = made.decoding
        if not decoding or not made.pure:
            self.left_out += 1
            return
        self.passes += 1
        sequences = len(decoding)
        settle = times.settle_s or 0.0
        undrafted = times(made.first.pass_rows - made.drafted, made.context)
        token_s = (undrafted + settle) / sequences
        emitted = sum(record.emitted for record in decoding)
        self.plain_s += share * emitted * token_s
        self.saved_s += share * (emitted - sequences) * token_s
        self.draft_s += share * made.asked_s
        self.bookkeeping_s += share * max(made.draft_s - made.asked_s, 0.0)
        if made.drafted:
            self.extra_rows_s += share * (made.first.verify_s - undrafted)
            self.bookkeeping_s += share * (made.settle_s - settle)

    def merge(self, other: Balance) -> None:
        for name in vars(self):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    @property
    def cost_percent(self) -> float | None:
        """(draft + extra rows + bookkeeping) - saved, in % of plain time; negative = it paid."""
        if not self.plain_s:
            return None
        spent = self.draft_s + self.extra_rows_s + self.bookkeeping_s
        return 100 * (spent - self.saved_s) / self.plain_s

    def to_mapping(self) -> dict[str, float | int | None]:
        """Plain values, for JSON."""
        names = "plain_s draft_s extra_rows_s bookkeeping_s saved_s passes left_out cost_percent"
        return {name: getattr(self, name) for name in names.split()}
