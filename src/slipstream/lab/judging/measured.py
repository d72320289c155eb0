"""What of a run has a figure and what has none, in plain words; pure functions of its records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from slipstream.lab.evidence.definitions import total_s
from slipstream.lab.judging.block_times import block_ratios
from slipstream.lab.judging.cells import GREEDY, NONE, SAMPLER, Cell, Evidence
from slipstream.lab.judging.time_gate import no_pair

NOTHING: Final = "nothing could be measured"
_MOST_REASON: Final = 300


@dataclass(frozen=True)
class Measured:
    """
    Attributes:
        figures: cells that have a time which counts.
        lacking: cells that ran -> why they have no time, or none that stands beside ``none``.
    """

    figures: tuple[Cell, ...]
    lacking: Mapping[Cell, str]

    def lines(self) -> Iterator[str]:
        """``measured: CONDITION over WORKLOADS``, and a line for each reason why not."""
        several = len({c.runtime for c in (*self.figures, *self.lacking)}) > 1
        whole = [cell for cell in self.figures if cell not in self.lacking]
        yield f"measured: {_places(whole, several=several) or 'nothing'}"
        by_reason: dict[str, list[Cell]] = {}
        for cell, why in self.lacking.items():
            by_reason.setdefault(why, []).append(cell)
        for why, cells in by_reason.items():
            yield f"not measured: {_places(cells, several=several)}: {why}"


def measured(evidence: Evidence) -> Measured:
    """Of every condition and workload of which a block ended."""
    cells = [c for c in evidence.cells if c.stage in (GREEDY, SAMPLER)]
    timed = [c for c in cells if any(total_s(r) is not None for r in evidence.requests(c))]
    reasons = {c: _unpaired(evidence, c) if c in timed else _why(evidence, c) for c in cells}
    return Measured(tuple(timed), {cell: why for cell, why in reasons.items() if why})


def _unpaired(evidence: Evidence, cell: Cell) -> str:
    if cell.condition == NONE or block_ratios(evidence, cell):
        return ""
    return f"not beside `{NONE}`: {no_pair(evidence, cell)}"


def _why(evidence: Evidence, cell: Cell) -> str:
    """What kept a cell without a time, the gravest first."""
    attempts = evidence.attempts(cell)
    broken = [b.record.reason for b in attempts if b.record.outcome == "failed"]
    if broken:
        return f"{len(broken)} of {len(attempts)} blocks failed: {_usual(broken)}"
    errors = [r.error for r in evidence.all_requests(cell) if r.error]
    if errors:
        return f"all of {len(errors)} requests failed: {_usual(errors)}"
    if not evidence.blocks(cell):
        return "the machine disturbed each of its blocks"
    return "no request tells its time"


def _usual(texts: Iterable[str]) -> str:
    return Counter(texts).most_common(1)[0][0][:_MOST_REASON]


def _places(cells: Iterable[Cell], *, several: bool) -> str:
    by_name: dict[str, list[str]] = {}
    for cell in cells:
        name = f"{cell.condition} ({cell.runtime})" if several else cell.condition
        slots = f" at {cell.slots} slots" if cell.slots > 1 else ""
        own = " with the plan's sampler" if cell.stage == SAMPLER else ""
        by_name.setdefault(name, []).append(f"{cell.stratum}{slots}{own}")
    return "; ".join(f"{name} over {', '.join(places)}" for name, places in by_name.items())
