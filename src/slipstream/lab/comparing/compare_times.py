"""Time of B beside that of A: pairs of neighbouring blocks, their ratio, and what may be said."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from slipstream.lab.comparing.compare_data import TimeRatio
from slipstream.lab.contract.plan import ComparisonRule
from slipstream.lab.contract.records import RequestRecord
from slipstream.lab.evidence.definitions import (
    paired_ratio,
    ratio,
    sign_test,
    throughput_tok_s,
    total_s,
)
from slipstream.lab.evidence.noise import pairs_needed
from slipstream.lab.judging.cells import (
    Block,
    Cell,
    Evidence,
    by_occurrence,
    degenerate_reason,
    output_of,
)
from slipstream.lab.judging.pair_words import counted_pairs
from slipstream.lab.judging.time_gate import spread_of
from slipstream.lab.scheduling.schedule import Block as Planned

Pair = tuple[Block, Block]
Round = tuple[str, int]
"""Rung of the ladder, and round within it."""

LESS: Final = "B takes less time"
MORE: Final = "B takes more time"
SAME: Final = "the same within the margin"
NO_DIFFERENCE: Final = "no difference is shown"
FEW: Final = "not measurable"


def rounds_of(evidence: Evidence, planned: Mapping[int, Planned], cell: Cell) -> dict[Round, Block]:
    """The blocks of a build that figures rest on, by their place in the run."""
    blocks = ((planned.get(b.record.block), b) for b in evidence.blocks(cell))
    return {(p.stage, p.repeat): block for p, block in blocks if p is not None}


def pairs_of(
    evidence: Evidence, planned: Mapping[int, Planned], cell: Cell, other: str
) -> dict[Round, Pair]:
    """A's and B's blocks of the same round.

    Args:
        planned: the schedule, by number.
        cell: of A; ``other`` is B.
    """
    theirs = Cell(other, cell.condition, cell.stratum, cell.slots, cell.stage)
    before, after = (rounds_of(evidence, planned, c) for c in (cell, theirs))
    return {key: (block, after[key]) for key, block in before.items() if key in after}


def pair_ratio(evidence: Evidence, cell: Cell, pair: Pair) -> float | None:
    """Time of B / time of A over the requests that both answered alike, fit for a figure.

    Under load the time is that of a token: the inverse of the throughput.
    """
    if evidence.of_throughput(cell):
        one, two = (throughput_tok_s([block.requests]) for block in pair)
        return ratio(one, two) if _all_alike(evidence, pair) else None
    rule = evidence.manifest.plan.rules.comparison
    before, after = (by_occurrence(block.requests) for block in pair)
    ours = theirs = 0.0
    for key, first in before.items():
        second = after.get(key)
        if second is None or degenerate_reason(first) or degenerate_reason(second):
            continue
        one, two = total_s(first), total_s(second)
        if one is not None and two is not None and _alike(first, second, rule):
            ours, theirs = ours + one, theirs + two
    return ratio(theirs, ours)


def _alike(first: RequestRecord, second: RequestRecord, rule: ComparisonRule) -> bool:
    given = output_of(first, rule)
    return bool(given) and given == output_of(second, rule)


def _all_alike(evidence: Evidence, pair: Pair) -> bool:
    """A throughput is that of a whole block, so every output in it must be equal."""
    rule = evidence.manifest.plan.rules.comparison
    before, after = (
        {key: output_of(r, rule) for key, r in by_occurrence(block.requests).items()}
        for block in pair
    )
    return before == after and "" not in before.values()


def time_ratio(
    evidence: Evidence, cell: Cell, other: str, ratios: Sequence[float]
) -> TimeRatio | None:
    """Of one ratio per pair of blocks; None of none.

    Args:
        cell: of A; the noise is the larger one of both builds' blocks of ``none``.
        other: B.
    """
    rules = evidence.manifest.plan.rules
    made = paired_ratio(ratios, rules.confidence)
    if made is None:
        return None
    theirs = Cell(other, cell.condition, cell.stratum, cell.slots, cell.stage)
    noise = [s.sigma for s in (spread_of(evidence, c) for c in (cell, theirs)) if s is not None]
    # Neither direction was asked for, so each has half of what may go wrong.
    one_sided = 1 - (1 - rules.confidence) / 2
    needed = pairs_needed(max(noise), rules.margin, one_sided) if noise else None
    p = min(1.0, 2 * sign_test(max(made.faster, made.slower), min(made.faster, made.slower)))
    told = TimeRatio(
        figure=made.figure,
        low=made.low,
        high=made.high,
        confidence=made.confidence,
        shorter=made.slower,
        longer=made.faster,
        p=p,
        needed=needed,
        statement="",
    )
    return msgspec.structs.replace(told, statement=statement(told, rules.margin))


def statement(made: TimeRatio, margin: float) -> str:
    """What the pairs show; of fewer than the noise asks for, nothing.

    A difference that surely lies within the margin is none, however sure its sign.
    """
    few = made.needed is None or made.figure.n < made.needed
    if few or made.low is None or made.high is None:
        return f"{FEW}: {counted_pairs(made.figure.n)} of {made.needed or 'an unknown number'}"
    if 1 / (1 + margin) < made.low and made.high < 1 + margin:
        return f"{SAME} of {margin:.0%}"
    sure = made.p <= 1 - made.confidence
    if made.high < 1 and sure:
        return LESS
    return MORE if made.low > 1 and sure else NO_DIFFERENCE


def drift_of(evidence: Evidence, cells: Sequence[Cell]) -> tuple[float | None, int]:
    """Largest change of the machine around blocks that count, and blocks beyond the limit."""
    records = [b.record for cell in cells for b in evidence.attempts(cell)]
    drifts = [abs(r.drift) for r in records if r.drift is not None and r.outcome == "ok"]
    known = [d for d in drifts if math.isfinite(d)]
    return max(known, default=None), sum(r.outcome == "inconclusive" for r in records)


def ratios_of(evidence: Evidence, cell: Cell, pairs: Mapping[Round, Pair]) -> dict[Round, float]:
    """Of the pairs that have one."""
    made = {key: pair_ratio(evidence, cell, pair) for key, pair in pairs.items()}
    return {key: value for key, value in made.items() if value is not None}
