"""Each condition of a comparison under both builds: rows, outputs, acceptance and time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from slipstream.lab.comparing import compare_times
from slipstream.lab.comparing.compare_data import Contrast, Role, Rows, Series, State
from slipstream.lab.comparing.compare_outputs import Load, beside, summed_up, unrepeatable
from slipstream.lab.comparing.compare_rows import left_range, rows_of
from slipstream.lab.contract.manifest import Manifest
from slipstream.lab.contract.records import Line
from slipstream.lab.evidence.definitions import acceptance_rate, ratio
from slipstream.lab.judging.cells import GREEDY, Cell, Evidence
from slipstream.lab.judging.draft_findings import counts_of
from slipstream.lab.judging.output_gate import compared as compared_with_none
from slipstream.lab.scheduling.conditions import Rung, not_run
from slipstream.lab.scheduling.schedule import NONE, blocks
from slipstream.lab.scheduling.standing import Standing


class AllSeries:
    """
    Args:
        load: an output by the name that a record has for it.
        stopped: that the run ended at a stop condition, so that what is left is unfinished.
    """

    def __init__(
        self,
        manifest: Manifest,
        lines: Sequence[Line],
        evidence: Evidence,
        load: Load,
        *,
        stopped: bool,
    ) -> None:
        self._manifest, self._lines, self._evidence = manifest, lines, evidence
        self._stopped = stopped
        self._planned = {b.number: b for b in blocks(manifest)}
        self._standing = Standing(manifest, lines)
        self._outputs = list(beside(manifest, lines, load))
        self._loose = unrepeatable(manifest, lines)
        self._a, self._b = manifest.plan.comparison.builds

    def series(self) -> Iterator[Series]:
        """Every condition, workload and concurrency, in the run's order."""
        measured = [b for b in self._planned.values() if b.kind == "measured"]
        greedy = [b for b in measured if b.sampling == "greedy" and b.runtime == self._a]
        for key in dict.fromkeys((b.condition, b.stratum, b.slots) for b in greedy):
            yield self._one(Cell(self._a, *key, GREEDY))

    def _one(self, cell: Cell) -> Series:
        theirs = self._theirs(cell)
        pairs = compare_times.pairs_of(self._evidence, self._planned, cell, self._b)
        rows = self._rows(cell)
        ended, planned = self._rounds(cell)
        state, reason = self._state(cell, rows, ended, planned)
        if state == "compared" and not pairs:
            state, reason = "inconclusive", "no round lay within the drift limit"
        fit = state in ("compared", "unfinished")
        ratios = compare_times.ratios_of(self._evidence, cell, pairs) if fit else {}
        drift, left_out = compare_times.drift_of(self._evidence, (cell, theirs))
        counts = [counts_of(self._evidence, c) for c in (cell, theirs)]
        return Series(
            condition=cell.condition,
            role=self._role(cell.condition),
            stratum=cell.stratum,
            slots=cell.slots,
            state=state,
            reason=reason,
            rows=rows,
            outputs=summed_up(
                self._manifest, self._outputs, self._loose, cell.condition, cell.stratum, cell.slots
            ),
            time=compare_times.time_ratio(self._evidence, cell, self._b, list(ratios.values())),
            rounds=len(pairs),
            planned=planned,
            drift=drift,
            left_out=left_out,
            acceptance=(acceptance_rate(counts[0]), acceptance_rate(counts[1])),
            drafted=(counts[0].drafted, counts[1].drafted),
            equal_to_none=(self._as_none(cell), self._as_none(theirs)),
        )

    def _theirs(self, cell: Cell) -> Cell:
        return Cell(self._b, cell.condition, cell.stratum, cell.slots, cell.stage)

    def _role(self, condition: str) -> Role:
        if condition == NONE:
            return "one row"
        return "few rows" if condition == self._manifest.plan.comparison.inside else "many rows"

    def _rows(self, cell: Cell) -> tuple[Rows, Rows] | None:
        a, b = (rows_of(self._evidence, c) for c in (cell, self._theirs(cell)))
        return None if a is None or b is None else (a, b)

    def _as_none(self, cell: Cell) -> str:
        """Outputs of a build that are as without drafts."""
        if cell.condition == NONE:
            return ""
        made = compared_with_none(self._evidence, cell)
        total = made.equal + len(made.diverged)
        return f"{made.equal} of {total}" if total else ""

    def _rounds(self, cell: Cell) -> tuple[int, int]:
        """Rounds whose two blocks both ended, however, and rounds of the manifest."""
        ended: dict[tuple[str, int], set[str]] = {}
        planned: set[tuple[str, int]] = set()
        for b in self._planned.values():
            ours = (b.condition, b.stratum, b.slots) == (cell.condition, cell.stratum, cell.slots)
            if ours and b.kind == "measured" and b.sampling == GREEDY:
                planned.add((b.stage, b.repeat))
                if self._standing.record(b) is not None:
                    ended.setdefault((b.stage, b.repeat), set()).add(b.runtime)
        return sum(len(found) == 2 for found in ended.values()), len(planned)

    def _state(
        self, cell: Cell, rows: tuple[Rows, Rows] | None, ended: int, planned: int
    ) -> tuple[State, str]:
        if left := self._left(cell.condition, rows):
            return "rejected", left
        locked = [r for r in self._not_run if _is_of(r, cell) and r.reason]
        if locked and ended < planned:
            return "not run", f"{locked[0].runtime}: {locked[0].reason}"
        if ended < planned:
            return "unfinished", f"{ended} of {planned} rounds"
        return "compared", ""

    def _left(self, condition: str, rows: tuple[Rows, Rows] | None) -> str:
        """Why its rows reject a condition, for both builds alike."""
        if left := self._standing.rows(self._a, condition):
            return left
        found = zip((self._a, self._b), rows or (), strict=False)
        told = ((name, left_range(self._manifest, condition, r)) for name, r in found)
        return next((f"`{name}`: {text}" for name, text in told if text), "")

    @cached_property
    def _not_run(self) -> list[Rung]:
        return [] if self._stopped else not_run(self._manifest, self._lines)

    def contrasts(self, series: Sequence[Series]) -> Iterator[Contrast]:
        """Where both conditions have a ratio."""
        asked = self._manifest.plan.comparison
        good = {(s.condition, s.stratum, s.slots) for s in series if s.time is not None}
        for _, stratum, slots in [key for key in sorted(good) if key[0] == asked.inside]:
            cells = [Cell(self._a, c, stratum, slots) for c in (asked.inside, asked.outside)]
            inside, outside = (self._ratios(cell) for cell in cells)
            both = [ratio(inside[key], outside[key]) for key in inside if key in outside]
            known = [value for value in both if value is not None]
            made = compare_times.time_ratio(self._evidence, cells[0], self._b, known)
            if (asked.outside, stratum, slots) in good and made is not None:
                yield Contrast(stratum=stratum, slots=slots, ratio=made)

    def _ratios(self, cell: Cell) -> Mapping[compare_times.Round, float]:
        pairs = compare_times.pairs_of(self._evidence, self._planned, cell, self._b)
        return compare_times.ratios_of(self._evidence, cell, pairs)


def _is_of(rung: Rung, cell: Cell) -> bool:
    key = (rung.condition, rung.stratum, rung.slots)
    return key == (cell.condition, cell.stratum, cell.slots)
