"""Times of blocks and ratios of their pairs: what the time gate and the noise are made of."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from slipstream.lab.contract.plan import ComparisonRule
from slipstream.lab.contract.records import RequestRecord
from slipstream.lab.evidence.definitions import ratio, throughput_tok_s, total_s
from slipstream.lab.judging.cells import Block, Cell, Evidence, by_occurrence, output_of


def block_ratio(evidence: Evidence, cell: Cell, pair: tuple[Block, Block]) -> float | None:
    """Speed-up, or ratio of throughputs, of one pair of blocks; above 1 = better than ``none``.

    Total times are summed over the requests that both answered, with the same output, fit for a
    figure.
    """
    if evidence.of_throughput(cell):
        before, after = (throughput_tok_s([block.requests]) for block in pair)
        return ratio(after, before)
    unfit = evidence.degenerate(cell)
    rule = evidence.manifest.plan.rules.comparison
    before_by, after_by = (by_occurrence(block.requests) for block in pair)
    first = second = 0.0
    for key, other in after_by.items():
        none = before_by.get(key)
        if none is None or key[0] in unfit or not _same(none, other, rule):
            continue
        one, two = total_s(none), total_s(other)
        if one is not None and two is not None:
            first, second = first + one, second + two
    return ratio(first, second)


def _same(none: RequestRecord, other: RequestRecord, rule: ComparisonRule) -> bool:
    given = output_of(none, rule)
    return bool(given) and given == output_of(other, rule)


def block_measure(evidence: Evidence, cell: Cell) -> Callable[[Block], float | None]:
    """Seconds of a block of ``none`` (or the inverse of its throughput), for its spread."""

    def seconds(block: Block) -> float | None:
        if evidence.of_throughput(cell):
            return ratio(1.0, throughput_tok_s([block.requests]))
        times = [total_s(r) for r in block.requests]
        known = [t for t in times if t is not None]
        return math.fsum(known) if known and len(known) == len(times) else None

    return seconds


def block_ratios(evidence: Evidence, cell: Cell) -> list[float]:
    """One per pair of blocks that has one."""
    made = (block_ratio(evidence, cell, pair) for pair in evidence.pairs(cell))
    return [value for value in made if value is not None]


def block_times(evidence: Evidence, cell: Cell) -> Sequence[float]:
    """Of the blocks of ``none``, in the order they ran."""
    measure = block_measure(evidence, cell)
    made = (measure(block) for block in evidence.blocks(cell.none))
    return [value for value in made if value is not None]
