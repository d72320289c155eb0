"""The verdict per runtime x workload x condition x concurrency; there is none over all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, Literal

import msgspec

from slipstream.lab.contract.manifest import Manifest
from slipstream.lab.contract.records import FindingRecord, Line
from slipstream.lab.evidence.definitions import NOT_MEASURABLE
from slipstream.lab.judging.cells import GREEDY, MIX, NONE, Cell, Evidence, reaches
from slipstream.lab.judging.draft_findings import counts_of
from slipstream.lab.judging.findings import CHANGED, EFFECTS, Effect, detect
from slipstream.lab.judging.gate_result import GateResult
from slipstream.lab.judging.gates import judge_gates

Word = Literal["adopt", "reject", "inconclusive", "not run"]
_SWEPT: Final = "repetitive"
_UNTOLD: Final = "no block was executed"
_NO_REASONS: Final[Mapping[Cell, str]] = MappingProxyType({})


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """
    Attributes:
        word: ``adopt`` where every gate passed and no finding speaks against it; ``reject`` where
            one failed; ``inconclusive`` where none failed and one was not measurable; else
            ``not run``.
        reasons: what decided, the gravest first; of ``adopt`` the gain.
        gates: in the order of ``gates.GATES``; empty where it was not run.
        findings: names of those that reach this cell.
    """

    runtime: str
    stratum: str
    condition: str
    slots: int
    word: Word
    reasons: tuple[str, ...]
    gates: tuple[GateResult, ...] = ()
    findings: tuple[str, ...] = ()

    def gate(self, name: str) -> GateResult | None:
        return next((gate for gate in self.gates if gate.name == name), None)


def typical_measured(evidence: Evidence, cell: Cell) -> bool:
    """Whether the condition answered a long sequence that is typical of the load, of any workload.

    ``PromptIdentity.typical`` marks them: a run on short prompts alone says nothing about a load.
    """
    wanted = {p.id for p in evidence.manifest.prompts if p.typical}
    like = [c for c in evidence.cells if _alike(c, cell)]
    return any(r.prompt in wanted for c in like for r in evidence.requests(c) if not r.error)


def _alike(one: Cell, other: Cell) -> bool:
    """The same condition at the same concurrency, whatever the workload."""
    parts = (one.runtime, one.condition, one.slots, one.stage)
    return parts == (other.runtime, other.condition, other.slots, other.stage)


def judged_cells(evidence: Evidence) -> tuple[Cell, ...]:
    """Everything that the plan asks a verdict about, executed or not.

    At several slots a plan with a mix of its own has one workload, ``mix``. A runtime that is kept
    for the rollback beside others is not judged.
    """
    manifest, plan = evidence.manifest, evidence.manifest.plan
    strata = tuple(dict.fromkeys(p.stratum for p in manifest.prompts if not p.warm_up))
    names = [r.name for r in manifest.runtimes]
    studied = [name for name in names if name != plan.rollback] or names
    loaded = plan.arrivals.slots > 1 and not manifest.observation.cold
    mixed = bool(plan.arrivals.mix) or plan.arrivals.kind == "recorded"
    places = [(stratum, 1) for stratum in strata or plan.strata]
    if loaded:
        places += [(s, plan.arrivals.slots) for s in ((MIX,) if mixed else strata or plan.strata)]
    planned = [
        Cell(runtime, method.condition, stratum, slots)
        for runtime in studied
        for stratum, slots in places
        for method in manifest.methods
        if method.condition != NONE and method.runtime in ("", runtime)
    ]
    executed = [c for c in evidence.cells if c.stage == GREEDY and c.condition != NONE]
    return tuple(dict.fromkeys((*planned, *executed)))


def judge(evidence: Evidence, cell: Cell, found: Sequence[FindingRecord]) -> Verdict:
    """The verdict of one cell.

    Args:
        found: of ``findings.detect``.
    """
    near = [f for f in found if reaches(f, cell)]
    names = tuple(dict.fromkeys(f.name for f in near))
    reason = _not_run(evidence, cell, near)
    if reason:
        return _verdict(cell, "not run", [reason], findings=names)
    gates = judge_gates(evidence, cell)
    failed = [f"{g.name}: {g.observed}, asked for {g.limit}" for g in gates if g.passed is False]
    unknown = [_unmeasured(g) for g in gates if g.passed is None]
    against = failed + _by_effect(near, "reject")
    if changed := [f"{f.name}: {f.text}" for f in near if f.name == CHANGED]:
        return _verdict(cell, "inconclusive", changed, gates, names)
    open_ones = _doubts(evidence, cell) + _by_effect(near, "inconclusive") + unknown
    if against:
        return _verdict(cell, "reject", against, gates, names)
    if open_ones:
        return _verdict(cell, "inconclusive", open_ones, gates, names)
    return _verdict(cell, "adopt", [g.observed for g in gates if g.name == "time"], gates, names)


def _verdict(
    cell: Cell,
    word: Word,
    reasons: Iterable[str],
    gates: tuple[GateResult, ...] = (),
    findings: tuple[str, ...] = (),
) -> Verdict:
    return Verdict(
        runtime=cell.runtime,
        stratum=cell.stratum,
        condition=cell.condition,
        slots=cell.slots,
        word=word,
        reasons=tuple(dict.fromkeys(reasons)),
        gates=gates,
        findings=findings,
    )


def _unmeasured(gate: GateResult) -> str:
    told = [text for text in (gate.observed, gate.evidence) if text and text != NOT_MEASURABLE]
    return f"{gate.name} not measurable: {'; '.join(told)}"


def _by_effect(found: Iterable[FindingRecord], effect: Effect) -> list[str]:
    return [f"{f.name}: {f.text}" for f in found if EFFECTS.get(f.name) == effect]


def _doubts(evidence: Evidence, cell: Cell) -> list[str]:
    """What keeps a condition from being adopted although no gate measures it."""
    if not evidence.blocks(cell):
        return ["no block of it counts: each was disturbed, see `drifted`"]
    doubts = []
    if counts_of(evidence, cell).drafted is None:
        doubts.append("nothing shows that anything was drafted: the runtime tells no counts")
    if not typical_measured(evidence, cell):
        method = evidence.method(cell)
        swept = method is not None and method.stage == "ngram-sweep"
        alone = (
            f"; a sweep runs on {_SWEPT} alone, so make it a condition of its own" if swept else ""
        )
        doubts.append(f"no long sequence typical of the load among the prompts it answered{alone}")
    return doubts


def _not_run(evidence: Evidence, cell: Cell, near: Iterable[FindingRecord]) -> str:
    """Why there is nothing to judge, or empty."""
    method = evidence.method(cell)
    if method is not None and method.not_run:
        return method.not_run
    stopped = _by_effect(near, "not run")
    if stopped:
        return stopped[0]
    if evidence.was_asked(cell):
        return ""
    if not evidence.cells:
        return "the plan was not executed"
    if method is not None and method.stage == "ngram-sweep" and not _swept(evidence, cell):
        return f"a sweep runs on {_SWEPT} alone"
    why = [f"{f.name}: {f.text}" for f in near if f.stops]
    return why[0] if why else _UNTOLD


def _swept(evidence: Evidence, cell: Cell) -> bool:
    prompts = [p for p in evidence.manifest.prompts if p.stratum == cell.stratum]
    return cell.stratum == _SWEPT or any(p.kind == _SWEPT for p in prompts)


def judge_all(evidence: Evidence, reasons: Mapping[Cell, str] = _NO_REASONS) -> tuple[Verdict, ...]:
    """Every verdict that the plan asks for.

    Args:
        reasons: why the ladder did not run a cell, where it is known.
    """
    found = detect(evidence)
    made = [judge(evidence, cell, found) for cell in judged_cells(evidence)]
    alone = {(v.runtime, v.stratum, v.condition): v.word for v in made if v.slots == 1}

    def explained(verdict: Verdict) -> Verdict:
        if verdict.reasons != (_UNTOLD,):
            return verdict
        cell = Cell(verdict.runtime, verdict.condition, verdict.stratum, verdict.slots)
        word: Word = alone.get((verdict.runtime, verdict.stratum, verdict.condition), "adopt")
        known = reasons.get(cell) or (f"{word} at one slot" if _fell(verdict, word) else "")
        return msgspec.structs.replace(verdict, reasons=(known,)) if known else verdict

    return tuple(explained(verdict) for verdict in made)


def _fell(verdict: Verdict, word: Word) -> bool:
    return verdict.slots > 1 and word != "adopt"


def verdicts(
    manifest: Manifest, lines: Iterable[Line], reasons: Mapping[Cell, str] = _NO_REASONS
) -> tuple[Verdict, ...]:
    """As ``judge_all``, from the files' content."""
    return judge_all(Evidence(manifest, lines), reasons)
