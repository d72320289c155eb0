"""Rows of a verification step under both builds, and whether they stayed in the condition's range.

llama.cpp tells drafted tokens and steps, which give a mean of one slot's: with several slots a pass
holds the rows of one at least and of all at most. Slipstream tells how many passes had how many
rows, of all slots together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

from slipstream.lab.comparing.compare_data import Rows
from slipstream.lab.contract.manifest import Manifest
from slipstream.lab.contract.plan import rows_range_of
from slipstream.lab.contract.records import Counts
from slipstream.lab.evidence.count_sums import summed
from slipstream.lab.evidence.definitions import ratio, rows_per_step
from slipstream.lab.judging.cells import Block, Cell, Evidence
from slipstream.lab.judging.step_rows import step_rows
from slipstream.lab.scheduling.schedule import NONE, method_of

MEAN: Final = "a mean: drafted / steps + 1"
HISTOGRAM: Final = "a histogram of steps"
WITH_WARM_UP: Final = "a histogram of steps, warm-up included"
ONE: Final = "no drafts: one row"
UNTOLD: Final = "not told"
_COUNTED: Final = ("ok", "inconclusive")
"""Outcomes of blocks whose rows count: a disturbed machine makes steps slower, not shorter."""


def rows_of(evidence: Evidence, cell: Cell) -> Rows | None:
    """What a build's records say of a condition; None = no block of it ended."""
    blocks = [b for b in evidence.attempts(cell) if b.record.outcome in _COUNTED]
    if not blocks:
        return None
    asked = asked_rows(evidence.manifest, cell.runtime, cell.condition)
    if cell.condition == NONE:
        return _bounded(asked, 1.0, cell.slots, ONE, {})
    histogram, source = _histogram(evidence, blocks)
    if histogram:
        return _bounded(asked, _mean(histogram), 1, source, histogram)
    counts = _counts(blocks)
    rows, drew_none = rows_per_step(counts), counts.drafted == 0
    return _bounded(asked, 1.0 if drew_none else rows, cell.slots, MEAN if rows else UNTOLD, {})


def _counts(blocks: Sequence[Block]) -> Counts:
    """Drafting of all requests; of blocks, where requests do not tell."""
    made = summed(r.counts for b in blocks for r in b.requests if not r.error)
    return made if made.drafted is not None else summed(b.record.counts for b in blocks)


def asked_rows(manifest: Manifest, build: str, condition: str) -> int | None:
    """Rows of a step with the longest draft, at one slot; None = not known."""
    method = method_of(manifest, build, condition)
    most = None if method is None else method.most_proposed
    return most + 1 if isinstance(most, int) else None


def _bounded(
    asked: int | None, mean: float | None, slots: int, source: str, histogram: Mapping[str, int]
) -> Rows:
    whole = None if mean is None else mean * slots
    told = source if mean != 1.0 or source == ONE else "nothing was drafted"
    return Rows(asked=asked, mean=mean, least=mean, most=whole, source=told, histogram=histogram)


def _histogram(evidence: Evidence, blocks: Sequence[Block]) -> tuple[dict[str, int], str]:
    """Of all steps that verified something, whole passes; empty where a block does not tell."""
    told = step_rows(evidence, blocks)
    if told is None or told.blocks < told.of:
        return {}, ""
    steps = {r: n for r, n in told.histogram.items() if r.isdigit() and int(r) > 1}
    return steps, WITH_WARM_UP if told.warm_up else HISTOGRAM


def _mean(histogram: Mapping[str, int]) -> float | None:
    rows = math.fsum(int(r) * n for r, n in histogram.items())
    return ratio(rows, float(sum(histogram.values())))


def left_range(manifest: Manifest, condition: str, rows: Rows) -> str:
    """Why a condition is rejected by its rows; empty = they lie in its range, or are not known."""
    low, high = rows_range_of(manifest.plan, condition)
    if condition == NONE or (low, high) == (0, 0) or rows.least is None or rows.most is None:
        return ""
    if rows.source not in (MEAN, HISTOGRAM, WITH_WARM_UP):
        return f"{rows.source}, where steps of {_range(low, high)} rows were asked for"
    if rows.least < low or (high and rows.least > high):
        return f"{_told(rows)} rows per step, outside {_range(low, high)}"
    return ""


def unobservable(manifest: Manifest, condition: str, rows: Rows) -> str:
    """Why nobody can say whether the rows lie in the range; empty = one can."""
    low, high = rows_range_of(manifest.plan, condition)
    if condition == NONE or (low, high) == (0, 0):
        return ""
    if rows.least is None or rows.most is None:
        return "neither drafted tokens and steps nor rows of steps are told"
    if high and rows.least <= high < rows.most:
        return f"a pass of all slots had {_told(rows)} rows, and the range ends at {high}"
    return ""


def _range(low: int, high: int) -> str:
    return f"{low} to {high or 'any'}"


def _told(rows: Rows) -> str:
    ends = dict.fromkeys(f"{end:.2f}" for end in (rows.least, rows.most) if end is not None)
    return " to ".join(ends)
