"""Plans and manifests for tests of runtimes: one target file, rules that do not wait long."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from slipstream.lab.contract.manifest import (
    ArtifactIdentity,
    Hardware,
    Manifest,
    MethodIdentity,
    Observation,
)
from slipstream.lab.contract.plan import Artifact, ConditionPlan, Plan, Rules, RuntimePlan

NONE = ConditionPlan(name="none", stage="none")
NGRAM = ConditionPlan(
    name="ngram", stage="ngram", method="ngram-mod",
    parameters={"n_match": 12, "n_min": 4, "n_max": 16},
)  # fmt: skip


def plan_of(target: Path | str, runtime: RuntimePlan, **changes: Any) -> Plan:
    """A plan with one runtime."""
    settings = {"context": 512, "threads": 1, "rules": Rules(timeout_s=20.0), **changes}
    return Plan(name="x", target=Artifact(model=str(target)), runtimes={"r": runtime}, **settings)


def manifest_of(plan: Plan, *methods: MethodIdentity, target_sha256: str = "unknown") -> Manifest:
    """A manifest with what a runtime reads of it."""
    target = ArtifactIdentity(role="target", file=plan.target.model, sha256=target_sha256)
    return Manifest(
        run="run-1", created="2026-11-30T12:00:00+00:00", slipstream="0.1.0", plan=plan,
        runtimes=(), artifacts=(target,), methods=methods, hardware=Hardware(), prompts=(),
        observation=Observation(),
    )  # fmt: skip
