"""Paired ratios with bootstrap intervals, a sign test and drift detection."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from slipstream.measure.interleave import Timing, by_condition

_RESAMPLES = 4000
_DRIFT_LIMIT = 0.05
_NORMAL_QUANTILE = 1.959964  # 0.975 of the standard normal distribution


@dataclass(frozen=True)
class Ratio:
    """Ratio of two conditions over paired rounds.

    Attributes:
        median: median of the per-round ratios.
        low, high: bounds of the 95 % percentile bootstrap interval of that median.
        pairs: number of rounds.
    """

    median: float
    low: float
    high: float
    pairs: int

    def verdict(self) -> str:
        """``faster``, ``slower`` or ``unknown`` for a ratio of speeds (above 1 = faster)."""
        if self.low > 1.0:
            return "faster"
        return "slower" if self.high < 1.0 else "unknown"


def paired_ratio(
    numerator: Sequence[float], denominator: Sequence[float], *, seed: int = 0
) -> Ratio:
    """Median of numerator[i] / denominator[i] with a percentile bootstrap interval (Efron 1979).

    Raises:
        ValueError: the sequences are empty, of different lengths, or hold a value that is not
            positive and finite.
    """
    a = np.asarray(numerator, dtype=np.float64)
    b = np.asarray(denominator, dtype=np.float64)
    if a.shape != b.shape or a.size == 0:
        raise ValueError("paired ratios need two sequences of the same, non-zero length")
    if not (np.all(np.isfinite(a)) and np.all(np.isfinite(b)) and a.min() > 0 and b.min() > 0):
        raise ValueError("paired ratios need positive finite values")
    ratios = a / b
    draws = np.random.default_rng(seed).integers(0, ratios.size, size=(_RESAMPLES, ratios.size))
    medians = np.median(ratios[draws], axis=1)
    low, high = np.percentile(medians, [2.5, 97.5])
    return Ratio(float(np.median(ratios)), float(low), float(high), int(ratios.size))


def median_interval(values: Sequence[float], *, seed: int = 0) -> tuple[float, float]:
    """95 % percentile bootstrap interval of the median (Efron 1979).

    Raises:
        ValueError: there are no values.
    """
    samples = np.asarray(values, dtype=np.float64)
    if samples.size == 0:
        raise ValueError("an interval needs a value")
    draws = np.random.default_rng(seed).integers(0, samples.size, (_RESAMPLES, samples.size))
    low, high = np.percentile(np.median(samples[draws], axis=1), [2.5, 97.5])
    return float(low), float(high)


def sign_test(ratios: Sequence[float]) -> float:
    """Two-sided exact sign test of "the median ratio is 1"; ties are dropped. Returns p."""
    wins = sum(1 for r in ratios if r > 1.0)
    losses = sum(1 for r in ratios if r < 1.0)
    n, k = wins + losses, min(wins, losses)
    if n == 0:
        return 1.0
    tail = sum(math.comb(n, i) for i in range(k + 1)) / 2.0**n
    return min(1.0, 2.0 * tail)


def student_quantile(freedom: int) -> float:
    """0.975 quantile of Student's t, within 4 % (Abramowitz and Stegun 1964, 26.7.5).

    Args:
        freedom: degrees of freedom, at least 2.
    """
    z = _NORMAL_QUANTILE
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / freedom + second / freedom**2 + third / freedom**3


@dataclass(frozen=True)
class Drift:
    """Change of a condition over the run: ``change`` is the fitted last-to-first change, relative.

    ``drifting`` says that it exceeds 5 % and its own 95 % confidence interval.
    """

    change: float
    standard_error: float
    drifting: bool


def drift(timings: Sequence[Timing]) -> Drift:
    """Least-squares slope of one condition's elapsed times over its run, relative to its median."""
    start = np.asarray([t.start_s for t in timings])
    elapsed = np.asarray([t.elapsed_s for t in timings])
    if elapsed.size < 4 or np.ptp(start) == 0:
        return Drift(0.0, float("inf"), False)
    x = (start - start.min()) / np.ptp(start)
    (slope, intercept) = np.polyfit(x, elapsed, 1)
    residual = elapsed - (slope * x + intercept)
    error = math.sqrt(
        float(residual @ residual) / (elapsed.size - 2) / float(np.sum((x - x.mean()) ** 2))
    )
    middle = float(np.median(elapsed))
    change, standard_error = float(slope) / middle, error / middle
    bound = student_quantile(elapsed.size - 2) * standard_error
    significant = abs(change) > max(_DRIFT_LIMIT, bound)
    return Drift(change, standard_error, significant)


def speed_up(timings: Sequence[Timing], baseline: str, candidate: str) -> Ratio:
    """How many times faster ``candidate`` is: baseline time / candidate time, paired by round."""
    groups = by_condition(timings)
    return paired_ratio(
        [t.elapsed_s for t in groups[baseline]], [t.elapsed_s for t in groups[candidate]]
    )
