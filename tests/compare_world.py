"""Two made-up builds for a comparison: each a world of its own, asked through one client."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from lab_world import FakeRuntime, World, manifest_of, plan_of, tools_of
from slipstream.lab.client.asking import Asked
from slipstream.lab.comparing.compare import compare
from slipstream.lab.comparing.compare_data import ComparisonResult, Series
from slipstream.lab.comparing.compare_outputs import loader
from slipstream.lab.comparing.compare_stops import Watch
from slipstream.lab.contract.manifest import (
    ArtifactIdentity,
    Manifest,
    MethodIdentity,
    RuntimeIdentity,
)
from slipstream.lab.contract.plan import Arrivals, Comparison, ConditionPlan, Plan, RuntimePlan
from slipstream.lab.contract.records import Line, ObservedRecord
from slipstream.lab.contract.runtimes import Endpoint
from slipstream.lab.evidence.store import RECORDS, read_records
from slipstream.lab.running.outcome import Outcome
from slipstream.lab.running.run import run

INSIDE = ConditionPlan(
    name="few-rows",
    stage="ngram",
    method="ngram-mod",
    parameters={"ngram_mod_n_match": 8, "ngram_mod_n_min": 7, "ngram_mod_n_max": 7},
    rows_range=(6, 16),
)
OUTSIDE = msgspec.structs.replace(
    INSIDE,
    name="many-rows",
    parameters={"ngram_mod_n_match": 8, "ngram_mod_n_min": 23, "ngram_mod_n_max": 23},
    rows_range=(17, 0),
)
HELP_A = """\
----- common params -----

-c,    --ctx-size N                     size of the context (default: 4096)
--spec-draft-p-min P                    minimum probability (default: 0.75)
--old-flag                              only here
-fa,   --flash-attn [on|off|auto]       attention (default: 'auto')
"""
HELP_B = """\
----- common params -----

-c,    --ctx-size N                     size of the context (default: 4096)
--spec-draft-p-min P                    minimum probability (default: 0.00)
--new-flag N                            only here (default: 3)
-fa,   --flash-attn [on|off]            attention (default: 'auto')
"""
CPU = {"system": "AVX2 = 1"}
METAL = {"gpu family": "MTLGPUFamilyApple9", "simdgroup matrix": "true", "tensor API": "false"}
Texts = tuple[str | None, str | None]


def build_world(**given: Any) -> World:
    """A build that drafts 7 tokens a step with few rows and 23 with many."""
    made: dict[str, Any] = {
        "drafted": {"none": 0, "few-rows": 28, "many-rows": 92},
        "steps": {"none": 0, "few-rows": 4, "many-rows": 4},
    }
    return World(**made | given)


def comparison_plan(**given: Any) -> Plan:
    slots = given.pop("slots", 1)
    plan = plan_of(
        INSIDE,
        OUTSIDE,
        strata=("repetitive",),
        rules={"repeats": 6, "margin": 0.03, **given.pop("rules", {})},
        runtimes={name: RuntimePlan(kind="llama-server", binary=name) for name in ("a", "b")},
        arrivals=Arrivals(slots=slots),
    )
    asked = Comparison(builds=("a", "b"), inside="few-rows", outside="many-rows")
    return msgspec.structs.replace(plan, **{"drafts": {}, "comparison": asked, **given})


def identity(name: str, **given: Any) -> RuntimeIdentity:
    text = HELP_A if name == "a" else HELP_B
    made: dict[str, Any] = {
        "binary_sha256": name * 64,
        "commit": f"c{name}",
        "backend": "CPU",
        "help_sha256": hashlib.sha256(text.encode()).hexdigest(),
        "help_file": f"help-{name}.txt",
    }
    return RuntimeIdentity(name=name, kind="llama-server", **made | given)


def comparison_manifest(plan: Plan | None = None, **given: Any) -> Manifest:
    plan = plan or comparison_plan()
    made = manifest_of(plan)
    target = ArtifactIdentity(
        role="target", file="target.gguf", sha256="aa", weight_types=("q4_k", "q6_k", "f32")
    )
    changes: dict[str, Any] = {
        "runtimes": (identity("a"), identity("b")),
        "artifacts": (target,),
        "pairings": (),
        "methods": tuple(_methods(made.methods)),
    }
    return msgspec.structs.replace(made, **changes | given)


def _methods(given: Sequence[MethodIdentity]) -> list[MethodIdentity]:
    most = {"none": 0, "few-rows": 7, "many-rows": 23}
    return [
        msgspec.structs.replace(m, runtime=build, most_proposed=most[m.condition])
        for build in ("a", "b")
        for m in given
    ]


class Build(FakeRuntime):
    """A program of one world, which tells what its device can do."""

    def __init__(self, name: str, world: World, told: Mapping[str, Any]) -> None:
        super().__init__(name, world)
        self.told = told

    def observed(self, method: MethodIdentity) -> ObservedRecord:
        own = super().observed(method)
        made: dict[str, Any] = {"capability": CPU, "effective": {"context": 4096}}
        return msgspec.structs.replace(own, **made | dict(self.told))


@dataclass
class Pair:
    """Two builds, and what their run comes to.

    Attributes:
        told: build -> fields of its observed records.
        changed: files that are found to be others, from the block of that number on.
    """

    a: World = field(default_factory=build_world)
    b: World = field(default_factory=build_world)
    manifest: Manifest = field(default_factory=comparison_manifest)
    told: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    changed: tuple[str, ...] = ()
    after: int = 0
    tools: dict[str, Any] = field(default_factory=dict)

    def run(self, folder: Path) -> tuple[Outcome, list[Line]]:
        worlds = {"a": self.a, "b": self.b}
        runtimes = {n: Build(n, w, self.told.get(n, {})) for n, w in worlds.items()}
        looked = 0

        def changed(_: Manifest) -> tuple[str, ...]:
            nonlocal looked
            looked += 1
            return self.changed if looked > self.after else ()

        async def send(endpoint: Endpoint, asked: Asked) -> Any:
            return await worlds[endpoint.url.removeprefix("fake://")].send(endpoint, asked)

        given = {
            "send": send,
            "boundary": Watch(folder, changed),
            "digests": lambda name: {"runtime": name * 64, "target": "aa"},
            **self.tools,
        }
        for build, text in zip(self.manifest.runtimes, (HELP_A, HELP_B), strict=True):
            folder.mkdir(exist_ok=True)
            (folder / build.help_file).write_text(text)
        (folder / "manifest.json").write_bytes(self.manifest.canonical())
        tools = tools_of(self.manifest, self.a, **given)
        outcome = run(folder, self.manifest, runtimes, tools=tools)
        return outcome, read_records(folder / RECORDS)

    def compared(self, folder: Path, texts: Texts = (HELP_A, HELP_B)) -> ComparisonResult:
        """Run, and what is said of it."""
        _, lines = self.run(folder)
        return compare(self.manifest, lines, loader(folder), texts)


def of(
    made: ComparisonResult, condition: str, stratum: str = "repetitive", slots: int = 1
) -> Series:
    """The series of a condition."""
    (found,) = (
        s for s in made.series if (s.condition, s.stratum, s.slots) == (condition, stratum, slots)
    )
    return found
