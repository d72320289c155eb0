"""From a manifest and its records to everything that a report shows; a pure function."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from slipstream.lab.contract.manifest import UNKNOWN, Manifest, PromptIdentity, RuntimeIdentity
from slipstream.lab.contract.records import Line
from slipstream.lab.freezing.shareable import without_paths
from slipstream.lab.judging.cells import MIX, Cell, Evidence
from slipstream.lab.judging.findings import EFFECTS, detect
from slipstream.lab.judging.step_rows import unplaced
from slipstream.lab.judging.verdict import Verdict, judge_all
from slipstream.lab.reporting import analysis_data as shown
from slipstream.lab.reporting.analysis_answers import answers
from slipstream.lab.reporting.analysis_figures import cells_of, moments_of
from slipstream.lab.reporting.analysis_outputs import ReadOutput, divergences_of, no_outputs
from slipstream.lab.reporting.published import Claim
from slipstream.lab.running.analysis_reach import Progress, Series
from slipstream.lab.running.analysis_state import UNEXECUTED, progress_of, reasons_of, series_of

_LAYERS: Final = "layers offloaded"
_MOST_VALUES: Final = 8  # of one setting, told by several processes
_MIXED: Final = "Under the plan's own mix of workloads: does speculation pay under load?"
_NO_QUESTION: Final = "What does speculation do to the total time and to the output here?"
SCOPE: Final = (
    "One machine and these artifacts, named below by their digests. It is no evidence for other "
    "devices, models, drafters or builds.",
    "No service level is promised: limits of the plan are what it was judged by, not a guarantee.",
    "Latency of one stream and throughput under load are separate verdicts; there is no verdict "
    "over workloads together.",
    "What was not observed is `unknown`: a release tag, a build number or a policy table is a "
    "prediction.",
)
_CPU_ALONE: Final = (
    "No accelerator was known to this machine: the figures say nothing about GPUs, Metal included."
)


def analysed(
    manifest: Manifest,
    lines: Sequence[Line],
    *,
    outputs: ReadOutput = no_outputs,
    claims: Iterable[Claim] = (),
) -> shown.Analysis:
    """Everything that a report of this run shows.

    Args:
        lines: of ``records.jsonl``; none of a plan that was not executed.
        outputs: reads an output that a record names.
        claims: of ``published.claims``; shown beside ours, used for nothing.

    Returns:
        Paths of the machine are cut to their last part.
    """
    evidence = Evidence(manifest, lines)
    progress, series = progress_of(manifest, lines), series_of(manifest, lines)
    verdicts = _judged(evidence, series, progress)
    cells = cells_of(evidence)
    workloads = (
        _workload(manifest, name, verdicts, cells) for name in _workloads(manifest, verdicts)
    )
    made = shown.Analysis(
        progress=progress,
        verdicts=verdicts,
        findings=_findings(evidence),
        workloads=tuple(workloads),
        cells=cells,
        series=series,
        moments=moments_of(evidence, lines),
        seen=_seen(evidence),
        divergences=divergences_of(evidence, outputs),
        claims=tuple(claims),
        **_fixed(manifest),
    )
    return without_paths(made, manifest.plan)


def _fixed(manifest: Manifest) -> dict[str, Any]:
    """What was so before the first request."""
    plan = manifest.plan
    own = ("run", "created", "slipstream", "observation", "artifacts", "pairings", "methods")
    asked = ("name", "question", "rules", "sampling", "arrivals", "threads", "context", "rollback")
    return {
        **{part: getattr(manifest, part) for part in (*own, "hardware", "prompts")},
        **{part: getattr(plan, part) for part in asked},
        "manifest_sha256": manifest.digest,
        "scope": scope_of(manifest),
        "tenants": plan.tenants.names,
        "builds": plan.comparison.builds,
        "runtimes": tuple(_runtime(manifest, runtime) for runtime in manifest.runtimes),
    }


def verdicts_of(manifest: Manifest, lines: Sequence[Line]) -> tuple[Verdict, ...]:
    """Every verdict of a run, with the reasons for what was not run."""
    progress, series = progress_of(manifest, lines), series_of(manifest, lines)
    return _judged(Evidence(manifest, lines), series, progress)


def _judged(
    evidence: Evidence, series: Iterable[Series], progress: Progress
) -> tuple[Verdict, ...]:
    reasons = reasons_of(series, progress)

    def explained(verdict: Verdict) -> Verdict:
        """Of a plan that was not executed, also what could not be."""
        cell = Cell(verdict.runtime, verdict.condition, verdict.stratum, verdict.slots)
        if verdict.reasons != (UNEXECUTED,) or cell not in reasons:
            return verdict
        return msgspec.structs.replace(verdict, reasons=(reasons[cell],))

    return tuple(explained(verdict) for verdict in judge_all(evidence, reasons))


def scope_of(manifest: Manifest) -> tuple[str, ...]:
    """What the run is evidence for, and what it is not."""
    unknown = manifest.hardware.accelerator.startswith(("none", UNKNOWN)) or (
        not manifest.hardware.accelerator
    )
    return (*SCOPE, *((_CPU_ALONE,) if unknown else ()))


def _findings(evidence: Evidence) -> tuple[shown.Finding, ...]:
    return tuple(
        shown.Finding(
            name=f.name,
            effect=EFFECTS.get(f.name, "note"),
            text=f.text,
            runtime=f.runtime,
            condition=f.condition,
            stratum=f.stratum,
            slots=f.slots,
            stops=f.stops,
        )
        for f in detect(evidence)
    )


def _workloads(manifest: Manifest, verdicts: Iterable[Verdict]) -> list[str]:
    measured = (p.stratum for p in manifest.prompts if not p.warm_up)
    return list(dict.fromkeys((*measured, *(v.stratum for v in verdicts))))


def _workload(
    manifest: Manifest, name: str, verdicts: Sequence[Verdict], cells: Sequence[shown.Cell]
) -> shown.Workload:
    measured = [p for p in manifest.prompts if not p.warm_up]
    own = measured if name == MIX else [p for p in measured if p.stratum == name]
    kind = next((p.kind or p.stratum for p in own), name) if name != MIX else MIX
    usual = _MIXED if name == MIX else _NO_QUESTION
    return shown.Workload(
        name=name,
        kind=kind,
        question=manifest.questions.get(name, usual),
        prompts=len(own),
        typical=sum(p.typical for p in own),
        tokens=_tokens(own),
        judgements=tuple(sorted({p.judgement for p in own})),
        licences=tuple(sorted({p.licence for p in own})),
        shared=manifest.plan.share_texts or all(p.shared for p in own),
        answers=answers(name, kind, verdicts, cells),
    )


def _tokens(prompts: Sequence[PromptIdentity]) -> tuple[int, int] | None:
    known = [p.tokens + p.max_tokens for p in prompts if isinstance(p.tokens, int)]
    return (min(known), max(known)) if known and len(known) == len(prompts) else None


def _runtime(manifest: Manifest, runtime: RuntimeIdentity) -> shown.Runtime:
    fields = {f: getattr(runtime, f) for f in shown.Runtime.__struct_fields__ if f != "device"}
    asked = manifest.plan.runtimes.get(runtime.name)
    return shown.Runtime(**fields, device=dict(asked.device) if asked else {})


def _seen(evidence: Evidence) -> tuple[shown.Seen, ...]:
    """Of every program and condition that has a block or showed something, in the plan's order."""
    manifest = evidence.manifest
    told = [(o.runtime, o.condition) for o in evidence.observed]
    ran = {*told, *((c.runtime, c.condition) for c in evidence.cells)}
    planned = [(r.name, m.condition) for r in manifest.runtimes for m in manifest.methods]
    places = dict.fromkeys([*(p for p in planned if p in ran), *told])
    return tuple(_seen_of(evidence, runtime, condition) for runtime, condition in places)


def _kind(path: str) -> str:
    """What a kernel path is of: ``matmul`` of ``matmul/q4_1/avx2/rows_1``."""
    return path.partition("/")[0]


def _seen_of(evidence: Evidence, runtime: str, condition: str) -> shown.Seen:
    own = [o for o in evidence.observed if (o.runtime, o.condition) == (runtime, condition)]
    identity = evidence.runtime(runtime)
    predicted = () if identity is None else identity.predicted_paths
    observed = _distinct(path for o in own for path in o.kernel_paths if path != UNKNOWN)
    both = bool(predicted) and bool(observed)
    kinds = {_kind(path) for path in predicted}
    other = [p for p in observed if p not in predicted] if both else []
    layers = _values(o.layers_offloaded for o in own if o.layers_offloaded is not None)
    several = {_LAYERS: _joined(layers)} if len(layers) > 1 else {}
    return shown.Seen(
        runtime=runtime,
        condition=condition,
        predicted=predicted,
        observed=observed,
        unpredicted=tuple(p for p in other if _kind(p) in kinds),
        beside=tuple(p for p in other if _kind(p) not in kinds),
        unseen=tuple(p for p in predicted if p not in observed) if both else (),
        evidence=_distinct(line for o in own for line in o.path_evidence),
        capability=_settings(o.capability for o in own),
        layers_offloaded=layers[0] if len(layers) == 1 else None,
        unplaced_rows=unplaced(evidence, runtime, condition),
        effective=_settings(o.effective | several for o in own),
        differs=_merged(o.differs for o in own),
    )


def _distinct(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))


def _merged(tables: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """What was told last of each key counts."""
    found: dict[str, Any] = {}
    for table in tables:
        found |= table
    return dict(sorted(found.items()))


def _settings(tables: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Key -> its value; where processes told several (of other concurrencies), all of them."""
    told: dict[str, list[Any]] = {}
    for table in tables:
        for key, value in table.items():
            told.setdefault(key, []).append(value)
    values = {key: _values(given) for key, given in sorted(told.items())}
    return {key: own[0] if len(own) == 1 else _joined(own) for key, own in values.items()}


def _values(given: Iterable[Any]) -> list[Any]:
    """Distinct ones in the order told, hashable or not."""
    found: list[Any] = []
    for value in given:
        if value not in found and len(found) < _MOST_VALUES:
            found.append(value)
    return found


def _joined(values: Sequence[Any]) -> str:
    return "; ".join(str(value) for value in values)
