"""Seconds of target passes and of drafters, learned from the steps that run anyway."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque

from slipstream.drafters import runs_a_model
from slipstream.drafters.base import Draft

KNOTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
# Seconds beyond those of one row, in one-row times: qwen2.5-coder-1.5b on two AVX2 cores
# (docs/performance.md), rounded up. Machines with a byte dot product are cheaper and soon show it.
PRIOR = (0.0, 0.1, 0.25, 0.45, 1.1, 1.9, 2.95, 4.1, 6.4, 8.7, 13.3, 17.9)
PRIOR_WEIGHT = 1.5  # passes at a knot that count as much as its prior
SCALE_WEIGHT = 1.0  # the same for the scale of the whole prior, in one-row times
MEMORY = 20.0  # passes that a knot remembers
ENOUGH = 2.0  # passes after which the rows of a knot are not tried for the sake of trying
FADING = 0.999  # of a knot's weight, per pass
WINDOW = 9  # passes whose median is the one-row time
STALE = 32  # passes with draft rows in a row, after which they tell the one-row time too
TOO_FAST = 0.75  # of the one-row time: a pass of more rows shows that it was overrated
SURPRISE = 1.6  # a pass that takes more than so many times the expected was interrupted
CONTEXT_RIDGE = 256.0**2  # positions^2: a smaller variance of the context shows no slope
CONTEXT_RATE = 0.01


def _place(rows: int) -> tuple[int, float]:
    """The knot at or below a row count, and the way to the next."""
    lower = max(i for i, knot in enumerate(KNOTS[:-1]) if knot <= rows)
    return lower, (rows - KNOTS[lower]) / (KNOTS[lower + 1] - KNOTS[lower])


_PLACES = tuple(_place(rows) for rows in range(1, KNOTS[-1] + 1))
_WAYS = tuple(tuple(way for low, way in _PLACES if low == lower) for lower in range(len(KNOTS) - 1))
"""The same ways by knot."""


class PassTimes:
    """t(rows, context) = level x (1 + extra(rows)) + slope x context.

    The level is a median over recent passes without draft rows, so it follows the machine and
    ignores single interruptions. Where those had several rows, what was learned of ``extra`` since
    tells what one of them would have taken. ``extra`` is piecewise linear and never falls; it
    starts from a prior, whose scale is learned too, so a few cheap rows make one bold about more.
    It describes the machine, not the texts, and is shared by all scopes.

    Attributes:
        level: seconds of one row without a context; ``slope``: more per position.
        most: rows of the largest pass so far.
    """

    def __init__(self) -> None:
        self.level = 0.0
        self.slope = 0.0
        self.most = 1
        self._levels: deque[tuple[float, int]] = deque(maxlen=WINDOW)  # seconds, rows
        self._since_plain = 0
        self._means = list(PRIOR)
        self._weights = [0.0] * len(KNOTS)
        self._tried = [0.0] * len(KNOTS)  # passes ever
        self._values = list(PRIOR)
        self._extras = [0.0, *_interpolated(self._values)]
        self._contexts = _Slope()

    @property
    def known(self) -> bool:
        """Whether a pass has been seen."""
        return bool(self._levels)

    def extra(self, rows: int) -> float:
        """Cost beyond one row, in one-row times."""
        if rows <= KNOTS[-1]:
            return self._extras[rows]
        last = self._values[-1]
        slope = (last - self._values[-2]) / (KNOTS[-1] - KNOTS[-2])
        return last + slope * (rows - KNOTS[-1])

    def seconds(self, rows: int, context: int = 0) -> float:
        """
        Args:
            rows: of a pass, at least 1.
            context: committed positions of all its sequences together.
        """
        return self.level * (1.0 + self.extra(rows)) + self.slope * context

    def table(self, rows: int, more: int, context: int) -> list[float]:
        """``seconds`` of ``rows``, ``rows + 1``, .. ``rows + more`` rows."""
        level, fixed = self.level, self.level + self.slope * context
        if rows + more <= KNOTS[-1]:
            return [fixed + level * extra for extra in self._extras[rows : rows + more + 1]]
        return [self.seconds(rows + i, context) for i in range(more + 1)]

    def untried(self, rows: int) -> int | None:
        """The knot above a row count, if hardly any pass of about so many rows was ever seen."""
        knot = bisect_right(KNOTS, rows)
        return KNOTS[knot] if knot < len(KNOTS) and self._tried[knot] < ENOUGH else None

    def observe(self, rows: int, context: int, elapsed_s: float, *, plain: bool) -> None:
        """Learn from a pass without prompt rows.

        Args:
            plain: whether it had no draft rows. What such a pass takes is the level; what others
                take beyond it is the price of their rows.
        """
        if not elapsed_s > 0.0 or not (plain or self._levels):
            return
        self.most = max(self.most, rows)
        more = 1.0 + self.extra(rows)
        work = elapsed_s
        if self._levels:
            free = max(elapsed_s - self.slope * context, 0.1 * elapsed_s)
            work = min(free, SURPRISE * self.level * more)
        self._since_plain = 0 if plain else self._since_plain + 1
        if plain:
            slope = self._contexts.observe(context, work / more + self.slope * context)
            self.slope = min(slope, 0.002 * work / more)
        if plain or self._since_plain > STALE:
            self._levels.append((work, rows) if plain else (work / more, 1))
            self._refresh_level()
        elif work < TOO_FAST * self.level:
            self._levels.append((work, 1))
            self._refresh_level()
        self._weights = [FADING * weight for weight in self._weights]
        if not plain:
            self._learn_extra(min(rows, KNOTS[-1]), work / self.level - 1.0)

    def _refresh_level(self) -> None:
        ordered = sorted(seconds / (1.0 + self.extra(rows)) for seconds, rows in self._levels)
        half = len(ordered) // 2
        odd = len(ordered) % 2
        self.level = ordered[half] if odd else (ordered[half - 1] + ordered[half]) / 2

    def _learn_extra(self, rows: int, seen: float) -> None:
        lower, way = _PLACES[rows - 1]
        surprise = max(seen, -0.5) - self._extras[rows]
        for knot, share in ((lower, 1.0 - way), (lower + 1, way)):
            if share and knot:
                weight = min(self._weights[knot], MEMORY - 1.0)
                told = weight * self._means[knot] + share * (self._values[knot] + surprise)
                self._means[knot] = told / (weight + share)
                self._weights[knot] = weight + share
                self._tried[knot] += share
        self._refresh()

    def _refresh(self) -> None:
        pairs = list(zip(self._weights, self._means, PRIOR, strict=True))
        told = SCALE_WEIGHT + sum(weight * mean for weight, mean, _ in pairs)
        expected = SCALE_WEIGHT + sum(weight * prior for weight, _, prior in pairs)
        scale = PRIOR_WEIGHT * min(max(told / expected, 0.1), 3.0)
        highest = 0.0
        for knot, (weight, mean, prior) in enumerate(pairs):
            found = (weight * mean + scale * prior) / (weight + PRIOR_WEIGHT)
            highest = self._values[knot] = max(found, highest)
        self._extras = [0.0, *_interpolated(self._values)]
        before = self.level
        self._refresh_level()
        if self.level != before:  # what passes took has not changed
            change = before / self.level
            self._means = [(1.0 + mean) * change - 1.0 for mean in self._means]


def _interpolated(values: list[float]) -> list[float]:
    """At 1, 2, .. 64 rows."""
    found: list[float] = []
    for low, ways in enumerate(_WAYS):
        start, rise = values[low], values[low + 1] - values[low]
        found += [start + way * rise for way in ways]
    return found


class _Slope:
    """Decayed regression of seconds on positions, shrunk to 0 while the positions vary little."""

    def __init__(self) -> None:
        self._seen = 0
        self._x = self._y = self._xx = self._xy = 0.0

    def observe(self, x: float, y: float) -> float:
        self._seen += 1
        rate = max(1.0 / self._seen, CONTEXT_RATE)
        dx, dy = x - self._x, y - self._y
        self._x += rate * dx
        self._y += rate * dy
        self._xx = (1.0 - rate) * (self._xx + rate * dx * dx)
        self._xy = (1.0 - rate) * (self._xy + rate * dx * dy)
        return max(self._xy / (self._xx + CONTEXT_RIDGE), 0.0)


# A drafter that reads with a model of its own, in one-row times of the target: a quarter to a
# third of its size. Others look something up, in seconds.
DEAR_CALL, DEAR_NODE, DEAR_PENDING = 0.05, 0.35, 0.05
CHEAP_CALL_S = 1e-4
FEW = 8  # pending tokens that ride along with the first drafted one
DRAFT_FADING = 0.95
INTERRUPTED = 2.0


class DraftTimes:
    """Seconds of one drafter's call = call + node x passes + catch-up x pending tokens.

    A drafter that runs a model makes a pass per token of its longest path: alternatives beside it
    come from the same logits.

    Args:
        method: its name, which gives the prior.
    """

    def __init__(self, method: str) -> None:
        self.dear = runs_a_model(method)
        self._calls = 0
        self._catch_up: float | None = None
        self._sums = (0.0, 0.0, 0.0, 0.0, 0.0)  # 1, x, x^2, y, x y
        self._line: tuple[float, float] | None = None

    def _prior(self, step_s: float) -> tuple[float, float]:
        return (DEAR_CALL * step_s, DEAR_NODE * step_s) if self.dear else (CHEAP_CALL_S, 0.0)

    def passes(self, draft: Draft) -> int:
        """Of the drafter's model, one after the other; 0 where it runs none."""
        return 1 + max(draft.depths(), default=-1) if self.dear else 0

    def seconds(self, nodes: int, step_s: float) -> float:
        """Of a call with nothing to catch up.

        Args:
            nodes: on the longest path that it returns.
            step_s: of a one-row pass of the target, for the prior.
        """
        call, node = self._line or self._prior(step_s)
        return call + node * nodes

    def catch_up(self, pending: int, step_s: float) -> float:
        """Seconds to read tokens that came since its last call, the first ``FEW`` for nothing."""
        if not self.dear or pending <= FEW:
            return 0.0
        rate = DEAR_PENDING * step_s if self._catch_up is None else self._catch_up
        return rate * pending

    def observe(self, nodes: int, pending: int, elapsed_s: float, step_s: float) -> float:
        """Learn from a call.

        Returns:
            Its seconds, cut to a multiple of the expected: the rest was an interruption.
        """
        usual = self.seconds(nodes, step_s)
        told = elapsed_s
        if self._calls >= 3:
            most = INTERRUPTED * (usual + self.catch_up(pending, step_s))
            told = min(elapsed_s, most + CHEAP_CALL_S)
        self._calls += 1
        if self.dear and pending > FEW:
            rate = max(told - usual, 0.0) / pending
            known = self._catch_up
            self._catch_up = rate if known is None else 0.5 * (known + rate)
        else:
            self._learn(nodes, told, step_s)
        return told

    def _learn(self, nodes: int, told: float, step_s: float) -> None:
        one, x, xx, y, xy = self._sums
        one = DRAFT_FADING * one + 1.0
        x = DRAFT_FADING * x + nodes
        xx = DRAFT_FADING * xx + nodes * nodes
        y = DRAFT_FADING * y + told
        xy = DRAFT_FADING * xy + nodes * told
        self._sums = one, x, xx, y, xy
        call, node = self._prior(step_s)
        for nodes_before in (1, 4):  # the prior as two calls of half a weight
            expected = call + node * nodes_before
            one, x, xx = one + 0.5, x + 0.5 * nodes_before, xx + 0.5 * nodes_before**2
            y, xy = y + 0.5 * expected, xy + 0.5 * nodes_before * expected
        slope = min(max((one * xy - x * y) / (one * xx - x * x), 0.0), y / x)
        self._line = ((y - slope * x) / one, slope)
