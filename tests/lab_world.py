"""A made-up world for the lab's run: manifests, a program that may misbehave, and its answers.

Nothing sleeps and nothing is sent; times are what the world says they are.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slipstream.errors import PeerRuntimeError
from slipstream.lab.client.asking import Asked
from slipstream.lab.contract.manifest import (
    ArtifactIdentity,
    Hardware,
    Manifest,
    MethodIdentity,
    Observation,
    Pairing,
    PromptIdentity,
    RuntimeIdentity,
)
from slipstream.lab.contract.plan import (
    Arrivals,
    Artifact,
    ConditionPlan,
    Plan,
    Rules,
    RuntimePlan,
    SamplingPlan,
    Tenants,
)
from slipstream.lab.contract.records import Counts, ObservedRecord
from slipstream.lab.contract.runtimes import Endpoint, Metrics
from slipstream.lab.observation.probe import Reading
from slipstream.lab.planning.ready_made import expanded
from slipstream.lab.running.tools import Tools
from slipstream.measure.workload import WorkloadMessage, WorkloadPrompt, content_digest

SIMPLE = ConditionPlan(name="ngram-simple", stage="ngram", method="ngram-simple")
SWEEP = ConditionPlan(name="sweep", stage="ngram-sweep", parent="ngram-simple")
DRAFT = ConditionPlan(name="draft", stage="draft-simple", method="draft-simple", draft="small")
CONFIRMED = Pairing(
    draft="small",
    tokenizer="confirmed: files",
    vocabulary="confirmed: files",
    template="confirmed: files",
    architecture="confirmed: page",
)
OUTPUT_TOKENS = 20


def text_of(name: str) -> WorkloadPrompt:
    messages = (WorkloadMessage("user", f"question {name}"),)
    stratum = name.partition("/")[0]
    return WorkloadPrompt(
        id=name,
        stratum=stratum,
        messages=messages,
        max_tokens=OUTPUT_TOKENS,
        source="test",
        licence="MIT",
        sha256=content_digest(messages),
    )


def plan_of(
    *conditions: ConditionPlan,
    strata: Sequence[str] = ("repetitive", "prose"),
    rules: Mapping[str, Any] | None = None,
    runtimes: Mapping[str, RuntimePlan] | None = None,
    arrivals: Arrivals | None = None,
    tenants: Sequence[str] = (),
    sampler: Mapping[str, Any] | None = None,
    rollback: str = "",
    cold: bool = False,
) -> Plan:
    return Plan(
        name="test",
        target=Artifact(model="target.gguf"),
        drafts={"small": Artifact(model="draft.gguf")},
        runtimes=runtimes or {"fake": RuntimePlan(kind="slipstream")},
        conditions=conditions,
        strata=tuple(strata),
        rules=Rules(**{"repeats": 3, **(rules or {})}),
        arrivals=arrivals or Arrivals(),
        tenants=Tenants(names=tuple(tenants)),
        sampling=SamplingPlan(sampler=sampler or {}),
        rollback=rollback,
        cold=cold,
    )


def manifest_of(
    plan: Plan, *, prompts: int = 2, pairing: Pairing = CONFIRMED, digest: str = "aa"
) -> Manifest:
    identities = [
        _identity(text_of(name), warm_up=f"{stratum}/warm" == name)
        for stratum in plan.strata
        for name in (f"{stratum}/warm", *(f"{stratum}/{i}" for i in range(prompts)))
    ]
    return Manifest(
        run="test-run",
        created="2026-11-30T12:00:00+00:00",
        slipstream="test",
        plan=plan,
        runtimes=tuple(
            RuntimeIdentity(name=name, kind=r.kind, binary_sha256="bb")
            for name, r in plan.runtimes.items()
        ),
        artifacts=(ArtifactIdentity(role="target", file="target.gguf", sha256=digest),),
        pairings=(pairing,),
        methods=tuple(
            MethodIdentity(
                condition=c.name,
                stage=c.stage,
                method=c.method,
                parameters=dict(c.parameters),
                starting_point=c.starting_point,
                draft=c.draft,
            )
            for c in expanded(plan)
        ),
        hardware=Hardware(),
        prompts=tuple(identities),
        observation=Observation(cold=plan.cold, repeats=plan.rules.repeats),
    )


def _identity(prompt: WorkloadPrompt, *, warm_up: bool) -> PromptIdentity:
    return PromptIdentity(
        id=prompt.id,
        stratum=prompt.stratum,
        task=prompt.task,
        sha256=prompt.sha256,
        licence="MIT",
        source="test",
        max_tokens=OUTPUT_TOKENS,
        warm_up=warm_up,
    )


@dataclass(frozen=True)
class Told:
    """An answer with every field that a record takes."""

    total_s: float | None = 1.0
    sent_s: float = 0.0
    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[Mapping[str, str], ...] = ()
    ids: tuple[int, ...] = ()
    tops: tuple[tuple[tuple[int | str, float], ...], ...] = ()
    finish_reason: str = "length"
    counts: Counts = field(default_factory=Counts)
    diagnostics: tuple[str, ...] = ()
    error: str = ""
    timed_out: bool = False

    @property
    def failed(self) -> bool:
        return bool(self.error)

    def answer(self) -> Told:
        return self

    def fields(self, origin_s: float = 0.0) -> dict[str, Any]:
        del origin_s
        found: dict[str, Any] = {"sent_s": 0.0, "total_s": self.total_s, "counts": self.counts}
        found |= {"error": self.error, "timed_out": self.timed_out}
        if self.ids:
            encoded = json.dumps(self.ids).encode()
            found["ids_sha256"] = hashlib.sha256(encoded).hexdigest()
        return found | {
            "output_tokens": len(self.ids),
            "finish_reason": self.finish_reason,
            "diagnostics": self.diagnostics,
        }


def _fault(finding: str) -> PeerRuntimeError:
    """An error as those of ``runtimes.faults``, which say what a report calls them."""
    made = type("Fault", (PeerRuntimeError,), {"finding": finding} if finding else {})
    error: PeerRuntimeError = made("a server", "another thing", "Look at its log.")
    return error


@dataclass
class World:
    """How its programs behave.

    Attributes:
        seconds: condition -> total time of a request; 0.5 unless given, 1 of ``none``.
        diverges: (condition, prompt) -> token from which the output is another.
        fails: (condition, prompt) -> error of the request.
        dies_after: condition -> requests that a process answers, warm-ups included.
        refuses: condition -> finding of the error that its start ends in; empty = none named.
        drafted, steps: condition -> of each request; 8 in 4 unless given, none of ``none``.
        tells: whether requests tell their counts; the counters do in any case.
        counts_rows: whether its counters tell the rows of steps.
        gap: of the baseline's best two log-probabilities.
        shares: whether what one tenant was told helps the drafts of the next.
        among_rows: prompt -> token that a place has among a prompt's rows, where it is another.
    """

    seconds: dict[str, float] = field(default_factory=lambda: {"none": 1.0})
    diverges: dict[tuple[str, str], int] = field(default_factory=dict)
    fails: dict[tuple[str, str], str] = field(default_factory=dict)
    times_out: set[str] = field(default_factory=set)
    dies_after: dict[str, int] = field(default_factory=dict)
    refuses: dict[str, str] = field(default_factory=dict)
    ignores: dict[str, dict[str, tuple[str, str]]] = field(default_factory=dict)
    drafted: dict[str, int] = field(default_factory=lambda: {"none": 0})
    steps: dict[str, int] = field(default_factory=lambda: {"none": 0})
    tells: bool = True
    resets: bool = False
    counts_rows: bool = False
    gap: float = 1.0
    shares: bool = False
    among_rows: dict[str, int] = field(default_factory=dict)
    started: list[tuple[str, str]] = field(default_factory=list)
    stopped: int = 0
    asked: list[tuple[str, Asked]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._running: dict[str, str] = {}
        self._answered = 0
        self._met: set[str] = set()
        self.counters: dict[str, Counts] = {}
        self.rows: dict[str, Counter[str]] = {}

    def start(self, name: str, condition: str) -> None:
        if condition in self.refuses:
            raise _fault(self.refuses[condition])
        self.started.append((name, condition))
        self._running[name] = condition
        self._answered = 0
        self._met = set()
        self.counters[name] = Counts(drafted=0, accepted=0, steps=0)
        self.rows[name] = Counter()

    async def send(self, endpoint: Endpoint, asked: Asked) -> Told:
        name = endpoint.url.removeprefix("fake://")
        condition, prompt = self._running[name], asked.prompt.id
        self.asked.append((condition, asked))
        if self._answered >= self.dies_after.get(condition, 1 << 30):
            return Told(error="no connection: refused", total_s=None)
        if condition in self.times_out:
            return Told(error="timed out", timed_out=True, total_s=None)
        self._answered += 1
        if error := self.fails.get((condition, prompt)):
            return Told(error=error, total_s=None)
        counts = self._counts(condition, prompt)
        self._count(name, counts)
        ids = self._ids(condition, prompt)
        if asked.after:
            assert asked.after == ids[: len(asked.after)]
            ids = (self.among_rows.get(prompt, ids[len(asked.after)]),)
        tops = tuple(((0, -0.5), (1, -0.5 - self.gap)) for _ in ids) if asked.logprobs else ()
        return Told(
            total_s=self.seconds.get(condition, 0.5),
            text=" ".join(map(str, ids)),
            ids=ids,
            tops=tops,
            counts=counts if self.tells else Counts(),
        )

    def _ids(self, condition: str, prompt: str) -> tuple[int, ...]:
        first = int(hashlib.sha256(prompt.encode()).hexdigest()[:4], 16)
        ids = [first + i for i in range(OUTPUT_TOKENS)]
        if (at := self.diverges.get((condition, prompt))) is not None:
            ids[at:] = [9] * (OUTPUT_TOKENS - at)
        return tuple(ids)

    def _counts(self, condition: str, prompt: str) -> Counts:
        drafted, steps = self.drafted.get(condition, 8), self.steps.get(condition, 4)
        known = self.shares and prompt in self._met
        self._met.add(prompt)
        accepted = drafted if known else drafted // 4
        return Counts(drafted=drafted, accepted=accepted, steps=steps, source="request")

    def _count(self, name: str, counts: Counts) -> None:
        if counts.steps:
            self.rows[name][str((counts.drafted or 0) // counts.steps + 1)] += counts.steps
        before = self.counters[name]
        self.counters[name] = Counts(
            drafted=(before.drafted or 0) + (counts.drafted or 0),
            accepted=(before.accepted or 0) + (counts.accepted or 0),
            steps=(before.steps or 0) + (counts.steps or 0),
        )


class FakeRuntime:
    """A program of a world."""

    def __init__(self, name: str, world: World, plan: RuntimePlan | None = None) -> None:
        self.name = name
        self.plan = plan or RuntimePlan(kind="slipstream")
        self.world = world
        self.condition = ""

    def identity(self, folder: Path) -> RuntimeIdentity:
        del folder
        return RuntimeIdentity(name=self.name, kind=self.plan.kind, binary_sha256="bb")

    def method(self, condition: ConditionPlan, plan: Plan) -> MethodIdentity:
        raise NotImplementedError

    def start(self, method: MethodIdentity, manifest: Manifest, slots: int, log: Path) -> Endpoint:
        del manifest, slots
        self.world.start(self.name, method.condition)
        self.condition = method.condition
        return Endpoint(url=f"fake://{self.name}", dialect="llama", pids=(1,), log=log)

    def observed(self, method: MethodIdentity) -> ObservedRecord:
        return ObservedRecord(
            run="",
            runtime=self.name,
            condition=method.condition,
            at=str(len(self.world.asked)),
            differs=self.world.ignores.get(method.condition, {}),
        )

    def probe(
        self, method: MethodIdentity, manifest: Manifest, slots: int, log: Path
    ) -> ObservedRecord:
        del manifest, slots, log
        return self.observed(method)

    def metrics(self) -> Metrics:
        resets = float(len(self.world.asked)) if self.world.resets else 1.0
        rows = dict(self.world.rows[self.name]) if self.world.counts_rows else None
        return Metrics("counters", self.world.counters[self.name], resets, rows)

    def peak_rss_bytes(self) -> int | None:
        return 1000

    def stop(self) -> Sequence[str]:
        self.world.stopped += 1
        return ()


def judge(
    _prompt: WorkloadPrompt, text: str, baseline_text: str | None, _finish_reason: str
) -> Mapping[str, bool | None]:
    return {"exact": None if baseline_text is None else text == baseline_text, "check": True}


def tools_of(manifest: Manifest, world: World, **given: Any) -> Tools:
    made: dict[str, Any] = {
        "send": world.send,
        "judge": judge,
        "prompts": {p.id: text_of(p.id) for p in manifest.prompts},
        "probe": lambda: Reading(0.1, 0.0),
        "digests": lambda _name: {"runtime": "bb", "target": "aa"},
        "now": lambda: "2026-11-30T12:00:00+00:00",
        "pause": lambda _seconds: None,
    }
    return Tools(**made | given)


def runtimes_of(manifest: Manifest, world: World) -> dict[str, FakeRuntime]:
    return {n: FakeRuntime(n, world, r) for n, r in manifest.plan.runtimes.items()}
