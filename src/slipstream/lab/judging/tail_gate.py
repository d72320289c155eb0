"""The gate of the tail: p95 of the total time, timeouts and errors, no worse than with ``none``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from slipstream.lab.evidence.definitions import (
    FEWEST_FOR_P95,
    NOT_MEASURABLE,
    p95,
    ratio,
    sign_test,
    total_s,
)
from slipstream.lab.evidence.noise import FEWEST_PAIRS
from slipstream.lab.judging.cells import Block, Cell, Evidence
from slipstream.lab.judging.gate_result import GateResult, combined
from slipstream.lab.judging.pair_words import counted_pairs

_NAME: Final = "tail"
_RESAMPLES: Final = 1024
_ROUNDING: Final = 1e-12


def tail_gate(evidence: Evidence, cell: Cell) -> GateResult:
    """All of it must be no worse; p95 from fewer than 20 requests is not measurable."""
    return combined(_NAME, [_p95(evidence, cell), _failures(evidence, cell)])


def _failures(evidence: Evidence, cell: Cell) -> GateResult:
    """Shares of timeouts and of other errors; a block that failed counts as an error."""
    before, after = (_shares(evidence, c) for c in (cell.none, cell))
    worse = [name for name in after if after[name] > before.get(name, 0.0)]
    passed = not worse if after and before else None
    if worse == ["timeouts"] and _by_chance(evidence, cell):
        passed = None
    return GateResult(
        name=_NAME,
        passed=passed,
        observed=", ".join(f"{name} {share:.1%}" for name, share in after.items())
        or NOT_MEASURABLE,
        limit=", ".join(f"{name} at most {share:.1%}" for name, share in before.items())
        or "timeouts and errors as with none",
        evidence=f"more {' and '.join(worse)} than with none" if worse else "",
        values={f"{name}_share": share for name, share in after.items()},
    )


def _by_chance(evidence: Evidence, cell: Cell) -> bool:
    """Whether timeouts, which depend on what else the machine does, may differ by chance alone."""
    late = [[sum(r.timed_out for r in b.requests) for b in pair] for pair in evidence.pairs(cell)]
    worse, better = sum(two > one for one, two in late), sum(two < one for one, two in late)
    return sign_test(worse, better) > 1 - evidence.manifest.plan.rules.confidence


def _shares(evidence: Evidence, cell: Cell) -> dict[str, float]:
    requests = list(evidence.all_requests(cell))
    failed = sum(b.record.outcome == "failed" for b in evidence.attempts(cell))
    if not requests and not failed:
        return {}
    timeouts = sum(r.timed_out for r in requests)
    errors = sum(bool(r.error) and not r.timed_out for r in requests)
    count = max(len(requests), 1)
    return {"timeouts": timeouts / count, "errors": max(errors, failed) / count}


def _p95(evidence: Evidence, cell: Cell) -> GateResult:
    """Failed where it is worse beyond noise, passed where it is within the drift limit.

    Noise is told by two tests that must agree, over blocks; of fewer than five pairs by none.
    """
    limit = evidence.manifest.plan.rules.drift_limit
    before, after = (_times(evidence.blocks(c)) for c in (cell.none, cell))
    one, two = (p95(np.concatenate(blocks)) if blocks else None for blocks in (before, after))
    change = ratio(two, one)
    spoken = f"p95 within {limit:.0%} of none, and not worse beyond noise"
    if change is None or one is None or two is None:
        count = min(sum(map(len, blocks)) for blocks in (before, after))
        return GateResult(
            name=_NAME,
            passed=None,
            observed=f"p95 {NOT_MEASURABLE}",
            limit=spoken,
            evidence=f"{count} requests, p95 needs {FEWEST_FOR_P95}",
        )
    values = {"p95_s": two, "p95_none_s": one, "p95_ratio": change}
    pairs = [p for p in map(_times, evidence.pairs(cell)) if len(p) == len(("none", "other"))]
    told = f"ratio {change:.3f}, {counted_pairs(len(pairs))}"
    passed: bool | None = None
    if len(pairs) >= FEWEST_PAIRS:
        confidence = evidence.manifest.plan.rules.confidence
        low = _low(before, after, confidence)
        p = swapped_p(pairs) if low > 1 else 1.0
        worse = p <= 1 - confidence
        passed = False if worse else (True if change <= 1 + limit else None)
        told, values = f"{told}, at least {low:.3f}", values | {"p95_ratio_low": low}
        told += f", p {p:.3g}" if low > 1 else ""
    return GateResult(
        name=_NAME,
        passed=passed,
        observed=f"p95 {two:.3g} s, {one:.3g} s with none",
        limit=spoken,
        evidence=told,
        values=values,
    )


def swapped_p(pairs: Sequence[Sequence[NDArray[np.float64]]]) -> float:
    """One-sided permutation test (Fisher 1935) of the tails of the pairs' second blocks.

    Returns:
        How often the logs of p95 of the second block / p95 of the first add up to as much, where
        each pair is swapped or not; exact of up to ten pairs.
    """
    logs = np.asarray([np.log(np.percentile(b, 95) / np.percentile(a, 95)) for a, b in pairs])
    count = logs.size
    if 2**count <= _RESAMPLES:
        swaps = (np.arange(2**count)[:, None] >> np.arange(count)) & 1
    else:
        swaps = np.random.default_rng(0).integers(0, 2, (_RESAMPLES, count))
        swaps[0] = 0
    sums = (1 - 2 * swaps) @ logs
    return float(np.mean(sums >= logs.sum() - _ROUNDING))


def _times(blocks: Sequence[Block]) -> list[NDArray[np.float64]]:
    made = [[t for r in block.requests if (t := total_s(r)) is not None] for block in blocks]
    return [np.asarray(times, dtype=np.float64) for times in made if times]


def _low(
    before: Sequence[NDArray[np.float64]],
    after: Sequence[NDArray[np.float64]],
    confidence: float,
) -> float:
    """Lower end of the bootstrap interval of the ratio of p95s, over blocks."""
    draws = np.random.default_rng(0)
    ratios = _drawn(after, draws) / _drawn(before, draws)
    return float(np.percentile(ratios, 50 * (1 - confidence)))


def _drawn(
    blocks: Sequence[NDArray[np.float64]], draws: np.random.Generator
) -> NDArray[np.float64]:
    """p95 of as many blocks, drawn with replacement, many times."""
    picks = draws.integers(0, len(blocks), (_RESAMPLES, len(blocks)))
    if len({times.size for times in blocks}) == 1:
        joined = np.stack(blocks)[picks].reshape(_RESAMPLES, -1)
        made: NDArray[np.float64] = np.percentile(joined, 95, axis=1)
        return made
    drawn = (np.concatenate([blocks[i] for i in row]) for row in picks)
    return np.asarray([np.percentile(times, 95) for times in drawn])
