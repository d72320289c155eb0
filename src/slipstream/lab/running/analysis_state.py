"""How far a run came, and what it did not run, with the reasons; from its records alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeGuard

from slipstream.lab.contract.manifest import Manifest
from slipstream.lab.contract.records import BlockRecord, FindingRecord, Line, RequestRecord
from slipstream.lab.evidence.store import blocks_of
from slipstream.lab.judging.cells import GREEDY, Cell, Evidence
from slipstream.lab.judging.findings import CHANGED
from slipstream.lab.judging.measured import measured
from slipstream.lab.observation.disturbance import disturbance
from slipstream.lab.running.analysis_reach import Progress, Series, State
from slipstream.lab.running.expectation import why_not_run
from slipstream.lab.scheduling.conditions import Ladder, Rung, rungs
from slipstream.lab.scheduling.schedule import PATHS, Block, blocks

_SAMPLER: Final = "sampler"
UNEXECUTED: Final = "the plan was not executed"


def progress_of(manifest: Manifest, lines: Sequence[Line]) -> Progress:
    """Blocks that ended, that may not run, and that are missing."""
    ladder = Ladder(manifest, lines)
    ended = {x.block for x in _blocks(lines) if x.outcome != "repeated"}
    planned = [b for b in blocks(manifest) if b.number in ended or _is_part(ladder, b)]
    open_blocks = [block for block in planned if block.number not in ended]
    known = known_reasons(manifest)
    locks = [ladder.lock(b) for b in open_blocks if not known(b.runtime, b.condition)]
    left = sum(lock is None or lock.waiting for lock in locks)
    elapsed = sum(x.elapsed_s for x in _blocks(lines))
    state, reason = _state(manifest, lines, left, elapsed)
    found = measured(Evidence(manifest, lines))
    return Progress(
        state=state,
        reason=reason,
        blocks=len(planned),
        ended=len(planned) - len(open_blocks),
        locked=len(open_blocks) - left,
        left=left,
        requests=sum(len(block.prompts) + len(block.warm_up) for block in planned),
        elapsed_s=elapsed,
        aborted=_aborted(lines),
        measured=len(found.figures),
        told=tuple(found.lines()),
        disturbance=disturbance(lines),
    )


def _is_part(ladder: Ladder, block: Block) -> bool:
    """Whether a block is a part of the run; one of row probes is where it has something to ask."""
    return block.kind != PATHS or bool(ladder.standing.open_places(block))


def known_reasons(manifest: Manifest) -> Callable[[str, str], str]:
    """(runtime, condition) -> why the manifest alone says it is not run; empty = it may be."""
    found = why_not_run(manifest)
    return lambda runtime, condition: found.get(
        (runtime, condition), found.get(("", condition), "")
    )


def _blocks(lines: Iterable[Line]) -> list[BlockRecord]:
    return [x for x in lines if isinstance(x, BlockRecord)]


def _aborted(lines: Sequence[Line]) -> int:
    ended = blocks_of(lines)
    requests = (x for x in lines if isinstance(x, RequestRecord))
    return sum((x.block, x.attempt) not in ended for x in requests)


def _state(
    manifest: Manifest, lines: Sequence[Line], left: int, elapsed_s: float
) -> tuple[State, str]:
    if not any(isinstance(x, RequestRecord | BlockRecord) for x in lines):
        return ("stopped", stopped) if (stopped := _ended_by(lines)) else ("not executed", "")
    if stopped := _ended_by(lines):
        return "stopped", stopped
    if not left:
        return "complete", ""
    if changed := next((x.text for x in lines if _is_named(x, CHANGED)), ""):
        return "interrupted", f"{CHANGED}: {changed}"
    budget = manifest.plan.rules.budget_s
    spent = f"the plan's budget of {budget:g} s is spent" if 0 < budget <= elapsed_s else ""
    return "interrupted", spent or "it was ended before its last block"


def _is_named(line: Line, name: str) -> TypeGuard[FindingRecord]:
    return isinstance(line, FindingRecord) and line.name == name


def _ended_by(lines: Iterable[Line]) -> str:
    """The finding that ended the whole run; empty = none did."""
    found = (x for x in lines if isinstance(x, FindingRecord) and x.stops)
    return next((f"{x.name}: {x.text}" for x in found if not (x.runtime or x.condition)), "")


def series_of(manifest: Manifest, lines: Sequence[Line]) -> tuple[Series, ...]:
    """Every series of the plan and its state, in the run's order."""
    known = known_reasons(manifest)
    return tuple(
        _series(rung, known(rung.runtime, rung.condition)) for rung in rungs(manifest, lines)
    )


def _series(rung: Rung, known: str) -> Series:
    """What the manifest knows not to run does not wait for anything."""
    locked = bool(known) and rung.state in ("to run", "waiting")
    return Series(
        runtime=rung.runtime,
        condition=rung.condition,
        stratum=rung.stratum,
        stage=rung.stage,
        slots=rung.slots,
        state="not run" if locked else rung.state,
        reason=known if locked else rung.reason,
        done=rung.done,
        of=rung.of,
    )


def reasons_of(series: Iterable[Series], progress: Progress) -> Mapping[Cell, str]:
    """Cell that has no block -> why, as the ladder or the end of the run has it."""
    return {
        Cell(x.runtime, x.condition, x.stratum, x.slots, GREEDY): _reason(x, progress)
        for x in series
        if x.stage != _SAMPLER and x.state != "done"
    }


def _reason(series: Series, progress: Progress) -> str:
    if progress.state == "not executed":
        locked = series.state == "not run" and series.reason
        return f"{UNEXECUTED}; {series.reason}" if locked else UNEXECUTED
    if series.state == "not run":
        return series.reason
    ended = f"the run was {progress.state}"
    return f"{ended} before it" + (f": {series.reason}" if series.reason else "")
