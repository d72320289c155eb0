"""Outputs that leave those of ``none``: where, why, and the texts around the place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from slipstream.errors import SlipstreamError
from slipstream.lab.contract.records import RequestRecord
from slipstream.lab.evidence.output_verdict import first_divergence
from slipstream.lab.judging.cells import GREEDY, NONE, Cell, Evidence
from slipstream.lab.judging.output_gate import compared
from slipstream.lab.reporting import analysis_data as shown
from slipstream.lab.running.outputs import Output

ReadOutput = Callable[[str], Output]
"""Path of an output below the run's folder -> the output; raises a SlipstreamError."""

_BEFORE: Final = 60
_AFTER: Final = 80
_NO_FILES: Final = "no outputs at hand"


def no_outputs(name: str) -> Output:
    """Of a report that is made of records alone."""
    raise SlipstreamError(f"the output `{name}`", _NO_FILES, "Name the run's folder.")


def divergences_of(
    evidence: Evidence, read: ReadOutput = no_outputs
) -> tuple[shown.Divergence, ...]:
    """One per cell and prompt, of its first such request."""
    cells = (c for c in evidence.cells if c.condition != NONE and c.stage == GREEDY)
    return tuple(found for cell in cells for found in _of_cell(evidence, cell, read))


def _of_cell(evidence: Evidence, cell: Cell, read: ReadOutput) -> Iterator[shown.Divergence]:
    diverged = compared(evidence, cell).diverged
    for prompt in dict.fromkeys(r.prompt for r in diverged):
        same = [r for r in diverged if r.prompt == prompt]
        first, where = same[0], same[0].divergence
        before, none, other, withheld = _texts(evidence, cell, first, read)
        yield shown.Divergence(
            runtime=cell.runtime,
            condition=cell.condition,
            stratum=cell.stratum,
            slots=cell.slots,
            prompt=prompt,
            at=None if where is None else where.at,
            gap=None if where is None else where.gap,
            cause=evidence.causes.cause(first),
            shown_by=evidence.causes.shown_by(first),
            repeats=len(same),
            before=before,
            none=none,
            other=other,
            withheld=withheld,
        )


def _texts(
    evidence: Evidence, cell: Cell, record: RequestRecord, read: ReadOutput
) -> tuple[str, str, str, str]:
    """(what both have, how ``none`` goes on, how this one does, why they are not shown)."""
    if not may_show(evidence, record.prompt):
        return "", "", "", "imported texts are not shared"
    kept = next((r for r in evidence.requests(cell.none) if r.prompt == record.prompt), None)
    if kept is None or not (kept.output and record.output):
        return "", "", "", "no outputs were kept"
    try:
        theirs, ours = (read(r.output).whole_text for r in (kept, record))
    except SlipstreamError as problem:
        return "", "", "", problem.found
    at = first_divergence(theirs, ours)
    if at is None:
        return "", "", "", "the texts are equal; their tokens differ"
    end = at + _AFTER
    return ours[max(at - _BEFORE, 0) : at], theirs[at:end], ours[at:end], ""


def may_show(evidence: Evidence, prompt: str) -> bool:
    """Whether a text of this prompt may stand in a report that is passed on."""
    own = [p for p in evidence.manifest.prompts if p.id == prompt]
    return evidence.manifest.plan.share_texts or (bool(own) and all(p.shared for p in own))
