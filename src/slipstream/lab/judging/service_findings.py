"""Findings about a server as a server: it stalls, crashes, answers something else, drifts."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator, Sequence
from typing import Final

from slipstream.lab.contract.records import FindingRecord, RequestRecord
from slipstream.lab.evidence.refusals import REFUSED, is_refusal
from slipstream.lab.judging.cells import (
    GREEDY,
    NONE,
    Block,
    Cell,
    Evidence,
    degenerate_reason,
)
from slipstream.lab.judging.output_gate import compared

_STALL_S: Final = 1.0
_STALL_TIMES: Final = 20
_OTHERS: Final = ("stalled: ", "flag-ignored: ", "router: ", "wrong-model: ", "identity-changed: ")
"""What else a block can fail of."""


def finding(
    evidence: Evidence, cell: Cell, name: str, text: str, *, stops: bool = False
) -> FindingRecord:
    return FindingRecord(
        run=evidence.manifest.run,
        name=name,
        text=text,
        runtime=cell.runtime,
        condition=cell.condition,
        stratum=cell.stratum,
        slots=cell.slots,
        stops=stops,
    )


def stalled(evidence: Evidence) -> Iterator[FindingRecord]:
    """A stream that stood still: a gap of 1 s and 20 usual ones, or a timeout."""
    for cell in evidence.cells:
        for record in evidence.all_requests(cell):
            text = _stall(record)
            if text:
                yield finding(evidence, cell, "stalled", f"{record.prompt}: {text}")
                break


def _stall(record: RequestRecord) -> str:
    if record.timed_out:
        return f"timed out after {len(record.token_times_s)} pieces"
    gaps = _gaps(record.token_times_s)
    if len(gaps) < 3:
        return ""
    longest = max(gaps)
    if longest < max(_STALL_S, _STALL_TIMES * statistics.median(gaps)):
        return ""
    return f"{longest:.1f} s without a token, after {gaps.index(longest) + 1}"


def _gaps(times: Sequence[float]) -> list[float]:
    return [b - a for a, b in itertools.pairwise(times)]


def diverged(evidence: Evidence) -> Iterator[FindingRecord]:
    """A greedy output that is not that of ``none``; the first one is named."""
    for cell in evidence.cells:
        if cell.condition == NONE or cell.stage != GREEDY:
            continue
        made = compared(evidence, cell)
        if made.diverged:
            text = _divergence(evidence, made.diverged, made.equal)
            yield finding(evidence, cell, "diverged", text)


def _divergence(evidence: Evidence, diverged: Sequence[RequestRecord], equal: int) -> str:
    first, total = diverged[0], len(diverged) + equal
    text = f"{len(diverged)} of {total} outputs; {first.prompt}"
    if first.divergence is None:
        return text
    where = first.divergence
    gap = "no logits" if where.gap is None else f"gap {where.gap:.4g}"
    return f"{text} leaves none at token {where.at} ({gap}): {evidence.causes.told(first)}"


def crashed(evidence: Evidence) -> Iterator[FindingRecord]:
    """A block that failed and nothing else is to blame, or one in which no request after an error
    was answered."""
    yield from _failed(evidence, "crashed", refused=False)


def refused(evidence: Evidence) -> Iterator[FindingRecord]:
    """As ``crashed``, of requests that the server understood and did not take."""
    yield from _failed(evidence, REFUSED, refused=True)


def _failed(evidence: Evidence, name: str, *, refused: bool) -> Iterator[FindingRecord]:
    for cell in evidence.cells:
        for block in evidence.attempts(cell):
            text = _failure(block, refused=refused)
            if text:
                yield finding(evidence, cell, name, f"block {block.record.block}: {text}")
                break


def _failure(block: Block, *, refused: bool) -> str:
    wrong = [r for r in block.requests if r.error and not r.timed_out]
    errors = [r for r in wrong if is_refusal(r.error) == refused]
    where = f"at request {errors[0].index}: {errors[0].error:.200}" if errors else ""
    if block.record.outcome == "failed":
        if block.record.reason.startswith(f"{REFUSED}: ") != refused:
            return ""
        if block.record.reason.startswith(_OTHERS):
            return ""
        return where or f"{block.record.reason:.200}" or "it failed"
    after = [r for r in block.requests if errors and r.index >= errors[0].index]
    return where if len(after) > 1 and all(r.error for r in after) else ""


def drifted(evidence: Evidence) -> Iterator[FindingRecord]:
    """Blocks that the machine's drift, or other programs, make useless."""
    for cell in evidence.cells:
        every = {b.record.block for b in evidence.attempts(cell)}
        lost = [b.record for b in evidence.attempts(cell) if b.record.outcome == "inconclusive"]
        if lost:
            why = f"block {lost[-1].block}: {lost[-1].reason}" if lost[-1].reason else "drift"
            text = f"{len(lost)} of {len(every)} blocks left out, disturbed twice; {why}"
            yield finding(evidence, cell, "drifted", text)


def degenerate_output(evidence: Evidence) -> Iterator[FindingRecord]:
    """Text that no figure should rest on."""
    for cell in evidence.cells:
        found = {
            record.prompt: degenerate_reason(record)
            for record in evidence.requests(cell)
            if degenerate_reason(record)
        }
        if found:
            told = "; ".join(f"{prompt}: {why}" for prompt, why in found.items())
            yield finding(evidence, cell, "degenerate-output", told[:400])


def path_unknown(evidence: Evidence) -> Iterator[FindingRecord]:
    """Nothing that ran showed which kernels did; a release or a policy table does not count."""
    for runtime, condition in dict.fromkeys((c.runtime, c.condition) for c in evidence.cells):
        cell = Cell(runtime, condition, "", 0)
        paths = {path for o in evidence.observations(cell) for path in o.kernel_paths}
        if not paths - {"unknown"}:
            yield finding(evidence, cell, "path-unknown", "no kernel path was observed")
