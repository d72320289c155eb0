"""The gate of output: that of ``none`` under greedy decoding, then task quality under sampling."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from slipstream.lab.contract.records import RequestRecord
from slipstream.lab.evidence.definitions import NOT_MEASURABLE, sign_test
from slipstream.lab.evidence.output_verdict import DIVERGED, EQUAL, NOT_COMPARED
from slipstream.lab.judging.cells import SAMPLER, Cell, Evidence, output_of
from slipstream.lab.judging.gate_result import GateResult, combined

_NAME: Final = "output"
_GREEDY_LIMIT: Final = (
    "equal to none; where a near-tie or the numeric path explains it, the checks of the task"
)
_SAMPLER_LIMIT: Final = "as many outputs pass the checks of their task as with none"


@dataclass(frozen=True)
class Compared:
    """Outputs of one cell beside those of ``none``.

    Attributes:
        equal: how many are.
        diverged: those that are not.
        missing: prompts that ``none`` answered and the condition has no comparable output of.
    """

    equal: int
    diverged: tuple[RequestRecord, ...]
    missing: tuple[str, ...]


def verdict_of(record: RequestRecord, kept: frozenset[str], digest: str) -> str:
    """By digests where both sides have one, else as the run noted it.

    Args:
        kept: digests of ``none``'s outputs of the prompt; several where it is not repeatable.
    """
    if record.error:
        return NOT_COMPARED
    if digest and kept:
        return EQUAL if digest in kept else DIVERGED
    return record.verdict


def compared(evidence: Evidence, cell: Cell) -> Compared:
    """Every output of the condition with those of ``none`` for the same prompt.

    Those of disturbed blocks too: what disturbs a block changes its times, never an output. At
    several slots, ``none`` at one slot counts too.
    """
    rule = evidence.manifest.plan.rules.comparison
    kept: Mapping[str, set[str]] = defaultdict(set)
    for source in {cell.none, Cell(cell.runtime, "none", cell.stratum, 1, cell.stage)}:
        for record in evidence.answered(source):
            kept[record.prompt] |= {output_of(record, rule)} - {""}
    found: dict[str, list[RequestRecord]] = {EQUAL: [], DIVERGED: [], NOT_COMPARED: []}
    for record in evidence.answered(cell):
        verdict = verdict_of(record, frozenset(kept[record.prompt]), output_of(record, rule))
        found.get(verdict, found[NOT_COMPARED]).append(record)
    answered = {r.prompt for r in found[EQUAL] + found[DIVERGED]}
    wanted = dict.fromkeys(r.prompt for r in evidence.answered(cell.none))
    missing = tuple(prompt for prompt in wanted if prompt not in answered)
    return Compared(len(found[EQUAL]), tuple(found[DIVERGED]), missing)


def output_gate(evidence: Evidence, cell: Cell) -> GateResult:
    """Greedy outputs, and those of the plan's own sampler if it has one."""
    greedy = _greedy(evidence, cell)
    if not evidence.manifest.plan.sampling.sampler:
        return greedy
    return combined(_NAME, [greedy, _sampled(evidence, cell)])


def _greedy(evidence: Evidence, cell: Cell) -> GateResult:
    made = compared(evidence, cell)
    unexplained = [r for r in made.diverged if not evidence.causes.explained(r)]
    if made.diverged:
        passed = False if unexplained else _quality(evidence, cell, made.diverged)
    else:
        passed = True if made.equal and not made.missing else None
    total = made.equal + len(made.diverged)
    return GateResult(
        name=_NAME,
        passed=passed,
        observed=f"{made.equal} of {total} outputs equal" if total else NOT_MEASURABLE,
        limit=_GREEDY_LIMIT,
        evidence=_grounds(evidence, cell, made) if total else "no output could be compared",
        values={"equal": float(made.equal), "compared": float(total)},
    )


def _grounds(evidence: Evidence, cell: Cell, made: Compared) -> str:
    first: dict[str, str] = {}
    for record in made.diverged:
        where = record.divergence
        at = "at an unknown place" if where is None else f"at {where.at}"
        gap = "" if where is None or where.gap is None else f", gap {where.gap:.4g}"
        why = evidence.causes.told(record)
        first.setdefault(record.prompt, f"{record.prompt} {at}{gap}: {why}")
    rule = evidence.manifest.plan.rules.comparison
    parts = [f"compared by {rule}", *first.values()]
    if made.missing:
        parts.append(f"not compared: {', '.join(made.missing)}")
    loose = _unrepeatable(evidence, cell)
    if loose:
        parts.append(f"none itself gave several outputs of {', '.join(loose)}")
    return "; ".join(parts)


def _unrepeatable(evidence: Evidence, cell: Cell) -> list[str]:
    rule = evidence.manifest.plan.rules.comparison
    kept: Mapping[str, set[str]] = defaultdict(set)
    for record in evidence.answered(cell.none):
        kept[record.prompt] |= {output_of(record, rule)} - {""}
    return [prompt for prompt, digests in kept.items() if len(digests) > 1]


def _checks(record: RequestRecord) -> dict[str, bool]:
    """Judgements of the task itself: an exact match says nothing about it."""
    return {name: passed for name, passed in record.judged.items() if name != "exact"}


def _quality(evidence: Evidence, cell: Cell, diverged: tuple[RequestRecord, ...]) -> bool | None:
    """Whether explained divergences leave the task's checks as they were; None = no checks."""
    before: dict[str, dict[str, bool]] = {}
    for record in evidence.answered(cell.none):
        before.setdefault(record.prompt, _checks(record))
    answers: list[bool | None] = []
    for record in diverged:
        wanted, got = before.get(record.prompt, {}), _checks(record)
        both = [got.get(name) for name, passed in wanted.items() if passed]
        known = bool(wanted) and bool(got) and None not in both
        answers.append(False if False in both else (True if known else None))
    if False in answers:
        return False
    return None if None in answers else True


def _sampled(evidence: Evidence, cell: Cell) -> GateResult:
    """Pairs of the same prompt and repeat in which just one of the two passes its checks.

    Sampling is noisy: failed only where a sign test shows that the condition loses, passed where
    it loses no more than it wins, else not measurable.
    """
    sampled = Cell(cell.runtime, cell.condition, cell.stratum, cell.slots, SAMPLER)
    better, worse, pairs = 0, 0, 0
    for before, after in evidence.pairs(sampled):
        first = {r.prompt: _passes(r) for r in before.requests}
        for record in after.requests:
            one, two = first.get(record.prompt), _passes(record)
            if one is None or two is None:
                continue
            pairs, better, worse = pairs + 1, better + (two > one), worse + (one > two)
    allowed = 1 - evidence.manifest.plan.rules.confidence
    shown = worse > better and sign_test(worse, better) <= allowed
    passed = None if not pairs else (False if shown else (True if worse <= better else None))
    return GateResult(
        name=_NAME,
        passed=passed,
        observed=f"with the sampler {better} better, {worse} worse of {pairs}"
        if pairs
        else NOT_MEASURABLE,
        limit=_SAMPLER_LIMIT,
        evidence="" if pairs else "no checked outputs of the plan's sampler",
    )


def _passes(record: RequestRecord) -> bool | None:
    checks = _checks(record)
    return all(checks.values()) if checks and not record.error else None
