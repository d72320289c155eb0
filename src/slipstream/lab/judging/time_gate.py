"""The gate of time: a paired ratio with its interval, a sign test, and enough pairs for both."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from slipstream.lab.contract.plan import Rules
from slipstream.lab.contract.records import RequestRecord
from slipstream.lab.evidence.definitions import (
    NOT_MEASURABLE,
    PairedRatio,
    decode_rate,
    figure,
    paired_ratio,
    sign_test,
    throughput_tok_s,
    total_s,
    ttft_s,
)
from slipstream.lab.evidence.noise import (
    FEWEST_PAIRS,
    POWER,
    Spread,
    pairs_needed,
    pairs_to_exclude,
    scatter,
    spread,
)
from slipstream.lab.judging.block_times import block_ratios, block_times
from slipstream.lab.judging.cells import NONE, Cell, Evidence
from slipstream.lab.judging.gate_result import GateResult, combined
from slipstream.lab.judging.pair_words import counted_pairs, ratio_text

_NAME: Final = "time"
_FEW: Final = 10  # pairs; of fewer, the noise of the other workloads counts too


def spread_of(evidence: Evidence, cell: Cell) -> Spread | None:
    """Noise of a pair of blocks under this workload and concurrency, from the run's own blocks.

    Told by how far pairs lie from their median, and by neighbouring blocks of ``none``; the smaller
    counts, since pairs cancel what drifts slowly and ``none`` knows nothing of the condition. Where
    this workload has few of both, those of all workloads are looked at together.
    """
    own = _spread(evidence, [cell], cell.stratum)
    if own is not None and own.differences >= _FEW:
        return own
    like = [c for c in evidence.cells if _alike(c, cell)]
    every = _spread(evidence, like, "all workloads")
    return every if own is None or (every is not None and every.differences >= _FEW) else own


def _spread(evidence: Evidence, cells: Iterable[Cell], where: str) -> Spread | None:
    given = sorted({*cells})
    drafting = [block_ratios(evidence, c) for c in given if c.condition != NONE]
    none = [block_times(evidence, c) for c in sorted({c.none for c in given})]
    known = (scatter(drafting, f"pairs, {where}"), spread(none, f"blocks of none, {where}"))
    found = [s for s in known if s is not None]
    return min(found, key=lambda s: s.sigma, default=None)


def _alike(one: Cell, other: Cell) -> bool:
    return (one.runtime, one.slots, one.stage) == (other.runtime, other.slots, other.stage)


def speed(evidence: Evidence, cell: Cell) -> PairedRatio | None:
    """The paired ratio of total times, or of throughputs; above 1 = better than ``none``."""
    confidence = evidence.manifest.plan.rules.confidence
    return paired_ratio(block_ratios(evidence, cell), confidence)


def needed(evidence: Evidence, cell: Cell) -> int | None:
    """Pairs of blocks that the plan's margin needs; None = unknown, or more than can be run."""
    rules, noise = evidence.manifest.plan.rules, spread_of(evidence, cell)
    if noise is None:
        return None
    return pairs_needed(noise.sigma, rules.margin, rules.confidence)


def decided(
    ratios: Sequence[float],
    made: PairedRatio,
    rules: Rules,
    wanted: int | None,
    excluding: int | None,
) -> tuple[bool | None, str]:
    """Whether a gain is shown, and where it is not, why.

    Of fewer than five pairs nothing is said: their interval is but their extremes. With enough
    pairs: passed where the interval lies above 1, its end reaches the margin and the sign test
    agrees; with some more, failed where interval and sign test exclude the margin: whatever there
    is, it is not worth it. However many: failed where both say that it is slower by the margin.

    Args:
        ratios: of the pairs of blocks; ``made`` = their median and interval.
        wanted: pairs that the margin needs; ``excluding`` to show that it is not there; None =
            unknown.
    """
    if made.low is None or made.high is None:
        return None, f"fewer than {FEWEST_PAIRS} pairs say nothing"
    count = len(ratios)
    if _below(ratios, made.high, 1 / (1 + rules.margin), rules.confidence):
        return False, f"slower by {rules.margin:.1%} and more"
    if wanted is None or count < wanted:
        return None, ""
    certain = excluding is not None and count >= excluding
    if certain and _below(ratios, made.high, 1 + rules.margin, rules.confidence):
        return False, f"a gain of {rules.margin:.1%} is excluded"
    shown = made.low > 1 and made.high >= 1 + rules.margin and made.p <= 1 - made.confidence
    return (True if shown else None), ""


def _below(ratios: Sequence[float], high: float, bound: float, confidence: float) -> bool:
    """Whether interval and sign test agree that the ratio is below a bound."""
    under, over = sum(r < bound for r in ratios), sum(r > bound for r in ratios)
    return high < bound and sign_test(under, over) <= 1 - confidence


def time_gate(evidence: Evidence, cell: Cell) -> GateResult:
    """Total time, or throughput at the concurrency asked for, and the plan's SLO if it has one.

    Of fewer than five pairs it says nothing at all.
    """
    parts = [_gain(evidence, cell), *_objectives(evidence, cell)]
    made = combined(_NAME, parts) if len(parts) > 1 else parts[0]
    few = made.values.get("pairs", 0) < FEWEST_PAIRS
    return msgspec.structs.replace(made, passed=None) if few else made


def _gain(evidence: Evidence, cell: Cell) -> GateResult:
    rules = evidence.manifest.plan.rules
    ratios = block_ratios(evidence, cell)
    made = paired_ratio(ratios, rules.confidence)
    wanted, noise = needed(evidence, cell), spread_of(evidence, cell)
    what = "throughput" if evidence.of_throughput(cell) else "speed-up"
    limit = (
        f"{what} above 1 at {rules.confidence:.0%} confidence and {1 + rules.margin:.3g} possible, "
        f"of {wanted or 'an unknown number of'} pairs"
    )
    if made is None:
        return GateResult(
            name=_NAME,
            passed=None,
            observed=NOT_MEASURABLE,
            limit=limit,
            evidence=no_pair(evidence, cell),
        )
    sigma = math.nan if noise is None else noise.sigma
    excluding = pairs_to_exclude(sigma, rules.margin, rules.confidence)
    passed, why = decided(ratios, made, rules, wanted, excluding)
    grounds = _grounds(evidence, cell, made, wanted, noise)
    return GateResult(
        name=_NAME,
        passed=passed,
        observed=f"{what} {ratio_text(made)}" + (f", {why}" if passed is False else ""),
        limit=limit,
        evidence=grounds if passed is False or not why else f"{why}; {grounds}",
        values=_values(made, wanted, noise),
    )


def no_pair(evidence: Evidence, cell: Cell) -> str:
    """Why a condition has no pair of blocks."""
    for one in (cell.none, cell):
        if not evidence.blocks(one):
            return f"no block of {one.condition} counts"
    if unlike := evidence.unlike(cell):
        return f"the machine changed between the blocks of {counted_pairs(unlike)}"
    return "no pair of blocks with equal, fit outputs"


def _grounds(
    evidence: Evidence, cell: Cell, made: PairedRatio, wanted: int | None, noise: Spread | None
) -> str:
    asked = "an unknown number" if wanted is None else str(wanted)
    pairs = (
        f"{counted_pairs(made.figure.n)}, {asked} needed, "
        f"{made.faster} faster, {made.slower} slower, p {made.p:.3g}"
    )
    spoken = (
        f"a pair's noise is {noise.sigma:.2%} ({noise.differences} differences, {noise.source})"
        if noise
        else "noise unknown: fewer than four differences between blocks of none"
    )
    unfit = evidence.degenerate(cell)
    left_out = f"; left out as degenerate: {', '.join(sorted(unfit))}" if unfit else ""
    unlike = evidence.unlike(cell)
    changed = f"; pairs left out as the machine changed between them: {unlike}" if unlike else ""
    return f"{pairs}; {spoken}, power {POWER:.0%}{left_out}{changed}"


def _values(made: PairedRatio, wanted: int | None, noise: Spread | None) -> dict[str, float]:
    values = {
        "ratio": made.figure.median,
        "least": made.figure.least,
        "most": made.figure.most,
        "pairs": float(made.figure.n),
        "faster": float(made.faster),
        "slower": float(made.slower),
        "p": made.p,
    }
    if made.low is not None and made.high is not None:
        values |= {"low": made.low, "high": made.high}
    if wanted is not None:
        values["pairs_needed"] = float(wanted)
    return values | ({"sigma": noise.sigma} if noise else {})


def _objectives(evidence: Evidence, cell: Cell) -> list[GateResult]:
    rules = evidence.manifest.plan.rules
    wanted = [
        ("total time", rules.slo_total_s, _median(evidence, cell, total_s), "s", False),
        ("rate", rules.slo_tok_s, _rate(evidence, cell), "tok/s", True),
        ("time to first token", rules.slo_ttft_s, _median(evidence, cell, ttft_s), "s", False),
    ]
    return [
        _objective(name, limit, value, unit, at_least=at_least)
        for name, limit, value, unit, at_least in wanted
        if limit > 0
    ]


def _rate(evidence: Evidence, cell: Cell) -> float | None:
    """Of one stream by its own clock, under load of all together."""
    if cell.slots > 1:
        return throughput_tok_s([b.requests for b in evidence.blocks(cell)])
    return _median(evidence, cell, decode_rate)


def _median(
    evidence: Evidence, cell: Cell, of: Callable[[RequestRecord], float | None]
) -> float | None:
    made = figure(of(r) for r in evidence.requests(cell))
    return None if made is None else made.median


def _objective(
    name: str, limit: float, value: float | None, unit: str, *, at_least: bool
) -> GateResult:
    met = None if value is None else (value >= limit if at_least else value <= limit)
    return GateResult(
        name=_NAME,
        passed=met,
        observed=NOT_MEASURABLE if value is None else f"{name} {value:.4g} {unit}",
        limit=f"{name} {'at least' if at_least else 'at most'} {limit:.4g} {unit}",
    )
