"""The gates: pure functions of evidence and cell -> passed, failed or not measurable.

A gate is one function here; ``GATES`` names them in the order in which reports show them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final

from slipstream.lab.contract.manifest import UNKNOWN, ArtifactIdentity, Manifest
from slipstream.lab.contract.plan import SAME
from slipstream.lab.contract.records import Line, RequestRecord
from slipstream.lab.evidence.definitions import (
    NOT_MEASURABLE,
    Figure,
    figure,
    memory_added_bytes,
    ratio,
    total_s,
)
from slipstream.lab.evidence.noise import FEWEST_PAIRS, Spread
from slipstream.lab.judging.cells import GREEDY, MIX, NONE, ROLLBACK, Cell, Evidence, output_of
from slipstream.lab.judging.gate_result import GateResult, combined
from slipstream.lab.judging.output_gate import output_gate
from slipstream.lab.judging.shared_pools import known_scope
from slipstream.lab.judging.tail_gate import tail_gate
from slipstream.lab.judging.time_gate import spread_of, time_gate

Gate = Callable[[Evidence, Cell], GateResult]
_MIB: Final = 1 << 20
_SIGMAS: Final = 3.0


def memory_gate(evidence: Evidence, cell: Cell) -> GateResult:
    """Highest peak of the condition's processes over that of ``none``."""
    margin = evidence.manifest.plan.rules.memory_margin_bytes
    added = memory_added_bytes(_peaks(evidence, cell.none), _peaks(evidence, cell))
    return GateResult(
        name="memory",
        passed=None if added is None else added <= margin,
        observed=NOT_MEASURABLE if added is None else f"{added / _MIB:+.1f} MiB over none",
        limit=f"at most {margin / _MIB:+.1f} MiB",
        evidence="peak resident memory of the runtime's processes"
        + (", which it does not let us see" if added is None else ""),
        values={} if added is None else {"added_bytes": float(added)},
    )


def _peaks(evidence: Evidence, cell: Cell) -> Iterable[int | None]:
    blocks = evidence.attempts(cell)
    return [
        *(b.record.peak_rss_bytes for b in blocks),
        *(r.peak_rss_bytes for b in blocks for r in b.requests),
    ]


def pinned_gate(evidence: Evidence, cell: Cell) -> GateResult:
    """Program, target and draft model known by digest, with licence and distribution terms."""
    lacks = [
        part
        for name, artifact in evidence.artifacts(cell).items()
        for part in _unpinned(name, artifact)
    ]
    runtime = evidence.runtime(cell.runtime)
    if runtime is None or runtime.binary_sha256 == UNKNOWN:
        lacks.append(f"digest of {cell.runtime}")
    changed = [f for f in evidence.recorded_of(cell) if f.name == "identity-changed"]
    unknown = f"unknown: {', '.join(lacks)}" if lacks else ""
    return GateResult(
        name="pinned",
        passed=False if changed else (None if lacks else True),
        observed="; ".join(f.text for f in changed) or unknown or "all known",
        limit="SHA-256, licence and terms of program, target and draft model",
        evidence=unknown or f"manifest {evidence.manifest.digest[:16]}",
    )


def _unpinned(name: str, artifact: ArtifactIdentity | None) -> list[str]:
    if artifact is None:
        return [f"the {name} model"]
    parts = {"digest": artifact.sha256, "licence": artifact.licence, "terms": artifact.terms}
    return [f"{part} of the {name}" for part, value in parts.items() if value in ("", UNKNOWN)]


def rollback_gate(evidence: Evidence, cell: Cell) -> GateResult:
    """The kept build and artifacts with ``none`` once more: same digests, output and time.

    The blocks have the stage ``rollback``; an observed record of the condition ``rollback`` tells
    the digests found then, as ``effective["sha256:ROLE"]``, and ``sha256:runtime``. Of a workload
    that is a mix, those of its parts count.
    """
    kept = evidence.manifest.plan.rollback
    kept = cell.runtime if kept == SAME else kept
    alike = [c for c in evidence.cells if (c.runtime, c.condition, c.slots) == (kept, NONE, 1)]
    wanted = [c for c in alike if cell.stratum in (c.stratum, MIX)]
    again = [r for c in wanted if c.stage == ROLLBACK for r in evidence.all_requests(c)]
    before = [r for c in wanted if c.stage == GREEDY for r in evidence.answered(c)]
    why = _no_rollback(evidence, kept, bool(again), bool(before))
    if why:
        return GateResult(
            name="rollback",
            passed=None,
            observed=NOT_MEASURABLE,
            limit="same digests, same greedy output, time within drift",
            evidence=why,
        )
    return combined(
        "rollback",
        [
            _digests(evidence, cell, kept),
            _same_output(evidence, before, again),
            _time(evidence, cell, *(_timed(evidence, wanted, s) for s in (GREEDY, ROLLBACK))),
        ],
    )


def _timed(evidence: Evidence, cells: Iterable[Cell], stage: str) -> list[RequestRecord]:
    """Requests of undisturbed blocks."""
    return [r for c in cells if c.stage == stage for r in evidence.requests(c)]


def _no_rollback(evidence: Evidence, kept: str, again: bool, before: bool) -> str:
    """Why there is nothing to measure, or empty."""
    runtime = evidence.runtime(kept)
    if not kept:
        return "the plan keeps no previous build; `none` in the new one only measures drift"
    if runtime is None or runtime.kind == "openai":
        return f"{kept} cannot be started again"
    if not again:
        return f"{kept} was not started again"
    return "" if before else f"{kept} did not run before"


def _digests(evidence: Evidence, cell: Cell, name: str) -> GateResult:
    found = {
        key.removeprefix("sha256:"): value
        for o in evidence.observations(Cell(name, ROLLBACK, cell.stratum))
        for key, value in o.effective.items()
        if key.startswith("sha256:")
    }
    runtime = evidence.runtime(name)
    kept = {"runtime": UNKNOWN if runtime is None else runtime.binary_sha256}
    kept |= {
        artifact.role: artifact.sha256
        for artifact in evidence.artifacts(cell).values()
        if artifact is not None
    }
    other = [role for role in kept if role in found and found[role] != kept[role]]
    missing = [role for role in kept if role not in found or kept[role] == UNKNOWN]
    return GateResult(
        name="rollback",
        passed=False if other else (None if missing else True),
        observed=f"other digests: {', '.join(other)}"
        if other
        else (f"digests unknown: {', '.join(missing)}" if missing else "same digests"),
        limit="same digests",
    )


def _same_output(
    evidence: Evidence, before: list[RequestRecord], again: list[RequestRecord]
) -> GateResult:
    rule = evidence.manifest.plan.rules.comparison
    kept = {(r.prompt, output_of(r, rule)) for r in before if output_of(r, rule)}
    known = {prompt for prompt, _ in kept}
    compared = [r for r in again if r.prompt in known and output_of(r, rule)]
    other = {r.prompt for r in compared if (r.prompt, output_of(r, rule)) not in kept}
    failed = [r for r in again if r.error]
    return GateResult(
        name="rollback",
        passed=False if other or failed else (True if compared else None),
        observed=f"{len(compared)} outputs, {len(other)} prompts differ, {len(failed)} errors",
        limit="same greedy output",
    )


def _time(
    evidence: Evidence, cell: Cell, before: list[RequestRecord], again: list[RequestRecord]
) -> GateResult:
    """Beyond the drift limit it fails only where the noise of blocks does not explain it.

    One block is not many: it must also lie beyond all that ``none`` took before, by that limit.
    """
    limit = evidence.manifest.plan.rules.drift_limit
    old, new = (_medians(records) for records in (before, again))
    both = _in_both(old, new)
    change = ratio(sum(new[p] for p in both), sum(old[p] for p in both))
    noise = spread_of(evidence, cell)
    passed = None if change is None else abs(change - 1) <= limit
    explained = noise is None or (change is not None and _within(change, noise))
    if change is not None and not passed and (explained or not _beyond(before, again, limit)):
        passed = None
    return GateResult(
        name="rollback",
        passed=passed,
        observed=NOT_MEASURABLE if change is None else f"time {change - 1:+.1%}",
        limit=f"time within {limit:.0%}",
        evidence=f"a pair's noise is {noise.sigma:.2%}" if noise else "noise unknown",
        values={} if change is None else {"rollback_time_ratio": change},
    )


def _in_both(old: Mapping[str, object], new: Mapping[str, object]) -> list[str]:
    """Prompts of both, in one order in every process: the last bit of a sum follows it."""
    return sorted(old.keys() & new.keys())


def _within(change: float, noise: Spread) -> bool:
    return abs(math.log(change)) <= _SIGMAS * noise.sigma


def _beyond(before: list[RequestRecord], again: list[RequestRecord], limit: float) -> bool:
    """Whether every prompt's times before, five at least, leave the new ones no place."""
    old, new = _figures(before), _figures(again)
    both = _in_both(old, new)
    if any(old[p].n < FEWEST_PAIRS for p in both):
        return False
    now = sum(new[p].median for p in both)
    least, most = (sum(getattr(old[p], end) for p in both) for end in ("least", "most"))
    return not least * (1 - limit) <= now <= most * (1 + limit)


def _medians(records: list[RequestRecord]) -> Mapping[str, float]:
    """Prompt -> median of its total times."""
    return {prompt: found.median for prompt, found in _figures(records).items()}


def _figures(records: list[RequestRecord]) -> Mapping[str, Figure]:
    made = {p: figure(total_s(r) for r in records if r.prompt == p) for p in _prompts(records)}
    return {prompt: found for prompt, found in made.items() if found is not None}


def _prompts(records: Iterable[RequestRecord]) -> list[str]:
    return list(Counter(r.prompt for r in records))


def isolation_gate(evidence: Evidence, cell: Cell) -> GateResult:
    """Where the plan declares tenants: what a drafter learns must not pass between them."""
    tenants = evidence.manifest.plan.tenants.names
    if not tenants:
        return GateResult(
            name="isolation", passed=True, observed="no tenants declared", limit="none asked for"
        )
    shared = [f for f in evidence.recorded_of(cell) if f.name == "shared-pool"]
    scope, why = known_scope(evidence, cell)
    if shared:
        scope, why = "shared", "; ".join(f.text for f in shared)
    return GateResult(
        name="isolation",
        passed={"shared": False, "private": True}.get(scope),
        observed=f"drafter's memory: {scope}",
        limit=f"private to each of {len(tenants)} tenants",
        evidence=why,
    )


GATES: Final[Mapping[str, Gate]] = MappingProxyType(
    {
        "output": output_gate,
        "time": time_gate,
        "tail": tail_gate,
        "memory": memory_gate,
        "pinned": pinned_gate,
        "rollback": rollback_gate,
        "isolation": isolation_gate,
    }
)


def judge_gates(evidence: Evidence, cell: Cell) -> tuple[GateResult, ...]:
    """Every gate of one cell."""
    return tuple(gate(evidence, cell) for gate in GATES.values())


def gate_results(manifest: Manifest, lines: Iterable[Line], cell: Cell) -> tuple[GateResult, ...]:
    """As ``judge_gates``, from the files' content."""
    return judge_gates(Evidence(manifest, lines), cell)
