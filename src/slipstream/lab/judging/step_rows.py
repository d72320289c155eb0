"""How many verification steps had how many rows, block by block, where a runtime counts them.

A process tells the steps since its start. Those before the pass (warm-up) are taken away, and the
rest is added up over the processes of a block, and over the blocks that the caller asks about: no
block stands for another, and what two blocks tell alike is there twice.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from slipstream.lab.contract.records import ObservedRecord
from slipstream.lab.judging.cells import Block, Evidence
from slipstream.lab.observation.metrics_text import told_rows

Histogram = Mapping[str, int]
"""Rows of a step -> steps."""


class StepRows(msgspec.Struct, frozen=True, kw_only=True):
    """Steps of several blocks, added up.

    Attributes:
        histogram: rows -> steps; with several slots a step holds the rows of all its requests.
        blocks: that tell theirs, of so many.
        warm_up: that a block's own steps could not be told from those of its warm-up.
    """

    histogram: dict[str, int]
    blocks: int
    of: int
    warm_up: bool = False


def step_rows(evidence: Evidence, blocks: Sequence[Block]) -> StepRows | None:
    """Of the blocks' passes, without warm-up where that is known; None where none of them tells.

    A block of an earlier version, whose observed records do not name it, is read from the raw
    counters around its pass.
    """
    placed = _by_block(evidence.observed)
    told = [_of_block(evidence, placed, block) for block in blocks]
    known = [one for one in told if one is not None]
    if not known:
        return None
    whole: Counter[str] = Counter()
    for histogram, _ in known:
        whole.update(histogram)
    return StepRows(
        histogram=_ordered(whole),
        blocks=len(known),
        of=len(blocks),
        warm_up=any(warm_up for _, warm_up in known),
    )


def unplaced(evidence: Evidence, runtime: str, condition: str) -> tuple[Histogram, ...]:
    """What processes told since their start, warm-up included, whose blocks nobody knows.

    Earlier versions recorded them so, and equal ones once, so that they do not add up. Empty where
    blocks tell theirs.
    """
    where = (runtime, condition)
    cells = [c for c in evidence.cells if (c.runtime, c.condition) == where]
    if any(step_rows(evidence, evidence.attempts(cell)) for cell in cells):
        return ()
    own = [o for o in evidence.observed if (o.runtime, o.condition) == where and o.block is None]
    return tuple(_ordered(o.rows_histogram) for o in own if o.rows_histogram)


def _by_block(observed: Iterable[ObservedRecord]) -> dict[tuple[int, int], list[ObservedRecord]]:
    found: dict[tuple[int, int], list[ObservedRecord]] = defaultdict(list)
    for record in observed:
        if record.block is not None:
            found[record.block, record.attempt].append(record)
    return found


def _of_block(
    evidence: Evidence, placed: Mapping[tuple[int, int], Sequence[ObservedRecord]], block: Block
) -> tuple[Histogram, bool] | None:
    """Its steps, and whether warm-up is among them; None = not told, or a counter went back."""
    processes = placed.get((block.record.block, block.record.attempt), ())
    if not processes:
        made = None if evidence.manifest.observation.cold else _of_raw(block)
        return None if made is None else (made, False)
    whole: Counter[str] = Counter()
    for process in processes:
        made = _grown(process.rows_before or {}, process.rows_histogram)
        if made is None:
            return None
        whole.update(made)
    return whole, any(process.rows_before is None for process in processes)


def _of_raw(block: Block) -> Histogram | None:
    """From the counters before and after the pass of a block's only process."""
    before, after = (
        told_rows(text) for text in (block.record.metrics_before, block.record.metrics_after)
    )
    return None if before is None or after is None else _grown(before, after)


def _grown(before: Histogram, after: Histogram) -> Histogram | None:
    steps = {rows: after.get(rows, 0) - before.get(rows, 0) for rows in {*before, *after}}
    if any(n < 0 for n in steps.values()):
        return None
    return {rows: n for rows, n in steps.items() if n}


def _ordered(histogram: Histogram) -> dict[str, int]:
    def size(rows: str) -> tuple[int, str]:
        return (int(rows), "") if rows.isdecimal() and len(rows) < 10 else (1 << 40, rows)

    return dict(sorted(histogram.items(), key=lambda pair: size(pair[0])))
