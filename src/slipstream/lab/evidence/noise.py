"""How much two runs of the same thing differ here, and how many pairs a margin therefore needs.

Noise is heavy-tailed (other programs, clocks), so everything is by ranks: the spread is the 68 %
quantile of the differences, and the power is that of the sign test that the time gate asks for.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Final

import numpy as np
from numpy.typing import NDArray

POWER: Final = 0.8
FEWEST_PAIRS: Final = 5
"""Of fewer pairs nothing is concluded, however quiet the machine is."""
MOST_PAIRS: Final = 2000
_FEWEST_DIFFERENCES: Final = 4
_WITHIN: Final = 0.6827  # share of a normal distribution within one standard deviation
_ALLOWANCE: Final = 1.5
"""On the spread, when planning: a run's own estimate may be that much above the one at hand."""
_FEWEST_TO_PLAN: Final = 8
"""One pair of them may be lost, or go the other way."""
_SETTLED: Final = 6  # further counts of pairs that must reach the power too


@dataclass(frozen=True)
class Spread:
    """Noise of a pair of blocks of the same condition.

    Attributes:
        sigma: 68 % quantile of ``|log(time of a block / time of the next)|``, or of the distances
            of pairs' ratios from their median; of normal noise it is the standard deviation of the
            log of a pair's ratio.
        differences: that it rests on.
        source: where they are from.
    """

    sigma: float
    differences: int
    source: str


def differences(times: Sequence[float] | NDArray[np.float64]) -> list[float]:
    """Logs of the ratios of neighbouring blocks of the same condition and workload.

    Raises:
        ValueError: a time is not positive and finite.
    """
    if any(not (math.isfinite(t) and t > 0) for t in times):
        raise ValueError("a spread needs positive finite times")
    return [math.log(b / a) for a, b in itertools.pairwise(times)]


def spread(series: Iterable[Sequence[float] | NDArray[np.float64]], source: str) -> Spread | None:
    """Of the blocks of one or several workloads, each in the order they ran.

    Returns:
        None of fewer than four differences.
    """
    found = [abs(d) for times in series for d in differences(times)]
    if len(found) < _FEWEST_DIFFERENCES:
        return None
    return Spread(float(np.quantile(found, _WITHIN)), len(found), source)


def scatter(ratios: Iterable[Sequence[float]], source: str) -> Spread | None:
    """Of the ratios of the pairs of one or several conditions, each about its own median.

    Widened for the freedom that the median takes: by ``sqrt(n / (n - 1))`` of a condition's n.

    Returns:
        None of fewer than five pairs of a condition.
    """
    found: list[float] = []
    for own in ratios:
        if len(own) >= FEWEST_PAIRS:
            logs = np.log(np.asarray(own, dtype=np.float64))
            wider = math.sqrt(len(own) / (len(own) - 1))
            found += (wider * np.abs(logs - np.median(logs))).tolist()
    if not found:
        return None
    return Spread(float(np.quantile(found, _WITHIN)), len(found), source)


def _at_least(pairs: int, p: float) -> NDArray[np.float64]:
    """P(at least k of the pairs are won), k = 0..pairs, each won with probability p."""
    k = np.arange(pairs + 1)
    logs = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, pairs + 1)))])
    choose = logs[pairs] - logs - logs[::-1]
    weights = np.exp(choose + k * math.log(p) + (pairs - k) * math.log1p(-p))
    return np.cumsum(weights[::-1])[::-1]


def wins_needed(pairs: int, confidence: float) -> int | None:
    """Least pairs won for a one-sided sign test at ``1 - confidence``; None = not even all do."""
    enough = np.flatnonzero(_at_least(pairs, 0.5) <= 1 - confidence)
    return int(enough[0]) if enough.size else None


def _won(sigma: float, margin: float) -> float:
    """Phi(log(1 + margin) / sigma): how often a pair shows that gain; short of 1."""
    z = math.log1p(margin) / max(sigma, 1e-9)
    return min(NormalDist().cdf(z), 1 - 1e-12)


def power(sigma: float, margin: float, confidence: float, pairs: int) -> float:
    """Probability that so many pairs show a speed-up of ``1 + margin``."""
    wins = wins_needed(pairs, confidence)
    return float(_at_least(pairs, _won(sigma, margin))[wins]) if wins is not None else 0.0


@lru_cache(maxsize=1024)
def pairs_needed(
    sigma: float, margin: float, confidence: float, wanted: float = POWER
) -> int | None:
    """Pairs of blocks that show a speed-up of ``1 + margin`` with that probability.

    Args:
        sigma: of ``Spread``.
        margin: the plan's, above 0.
        confidence: the plan's, in (0, 1).

    Returns:
        At least 5; None where more than 2000 would not do. A few more pairs than that never show
        it less probably (the sign test is coarse).
    """
    if not (margin > 0 and 0 < confidence < 1 and math.isfinite(sigma)):
        return None
    p, normal = _won(sigma, margin), NormalDist()
    if p - 0.5 < 1 / MOST_PAIRS:
        return None
    # the normal limit, halved: so few counts below the answer have to be tried
    spans = normal.inv_cdf(confidence) / 2 + normal.inv_cdf(wanted) * math.sqrt(p * (1 - p))
    limit = (spans / (p - 0.5)) ** 2
    run = 0
    for pairs in range(max(FEWEST_PAIRS, int(min(limit, MOST_PAIRS) / 2)), MOST_PAIRS + 1):
        run = run + 1 if power(sigma, margin, confidence, pairs) >= wanted else 0
        if run > _SETTLED:
            return pairs - _SETTLED
    return None


def pairs_to_exclude(sigma: float, margin: float, confidence: float) -> int | None:
    """Pairs that show that a gain of ``1 + margin`` is not there: noise half as much again.

    A run's own spread has an error; of few pairs that happen to agree it is far too small.
    """
    return pairs_needed(sigma * _ALLOWANCE, margin, confidence)


def pairs_to_plan(sigma: float, margin: float, confidence: float) -> int | None:
    """Pairs to ask for in a plan, from a spread that was estimated before.

    More than ``pairs_needed``, which the run will judge by its own blocks: with this number both
    come out well with a probability of 0.8, its estimate and the gain of ``1 + margin``.
    """
    found = pairs_to_exclude(sigma, margin, confidence)
    return None if found is None else max(found, _FEWEST_TO_PLAN)
