"""Small manifests and made-up records of the lab, for tests of what is judged from them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from slipstream.lab.contract.manifest import (
    ArtifactIdentity,
    Hardware,
    Manifest,
    MethodIdentity,
    Observation,
    PromptIdentity,
    RuntimeIdentity,
)
from slipstream.lab.contract.plan import Arrivals, Artifact, Plan, Rules, RuntimePlan
from slipstream.lab.contract.records import (
    BlockRecord,
    Counts,
    Line,
    ObservedRecord,
    RequestRecord,
)

RUN = "trial-20261130-12345678"
PROMPTS = tuple(f"chat/{i}" for i in range(4))
DIGESTS = {"runtime": "a" * 64, "target": "b" * 64}
SUFFIX = MethodIdentity(
    condition="suffix", stage="ngram", method="suffix", parameters={"n_max": 16}, most_proposed=16
)

Seconds = Callable[[int, str, str], float]
"""(turn, condition, prompt) -> seconds."""


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def manifest(
    *,
    methods: Sequence[MethodIdentity] = (SUFFIX,),
    kind: Any = "slipstream",
    rules: Rules | None = None,
    slots: int = 1,
    plan: Mapping[str, Any] | None = None,
    artifacts: Sequence[ArtifactIdentity] | None = None,
) -> Manifest:
    """One runtime ``own``, one workload ``chat``; everything pinned."""
    given: dict[str, Any] = {
        "name": "trial",
        "target": Artifact(model="target.gguf"),
        "runtimes": {"own": RuntimePlan(kind=kind)},
        "strata": ("chat",),
        "rules": Rules(drift_limit=0.1) if rules is None else rules,
        "arrivals": Arrivals(slots=slots),
        "rollback": "own",
        **(plan or {}),
    }
    target = ArtifactIdentity(
        role="target", file="target.gguf", sha256=DIGESTS["target"], licence="MIT", terms="free"
    )
    none = MethodIdentity(condition="none", stage="none", method="none")
    return Manifest(
        run=RUN,
        created="2026-11-30T12:00:00+00:00",
        slipstream="0.1",
        plan=Plan(**given),
        runtimes=(RuntimeIdentity(name="own", kind=kind, binary_sha256=DIGESTS["runtime"]),),
        artifacts=(target,) if artifacts is None else tuple(artifacts),
        methods=(none, *methods),
        hardware=Hardware(cpu="a processor", cores=2, threads=2),
        prompts=tuple(
            PromptIdentity(
                id=name,
                stratum="chat",
                task="chat",
                sha256=digest(name),
                licence="MIT",
                source="here",
                tokens=2000,
                typical=True,
            )
            for name in PROMPTS
        ),
        observation=Observation(),
    )


@dataclass
class Story:
    """How a made-up run goes.

    Attributes:
        seconds: of a request.
        changed: of a request's fields, by (turn, condition, prompt).
        block: of a block's fields, by (turn, condition).
    """

    seconds: Seconds = lambda _turn, _condition, _prompt: 1.0
    prompts: Sequence[str] = PROMPTS
    changed: Callable[[int, str, str], Mapping[str, Any]] = lambda _turn, _condition, _prompt: {}
    block: Callable[[int, str], Mapping[str, Any]] = lambda _turn, _condition: {}
    conditions: Sequence[str] = ("suffix",)
    stage: str = "greedy"
    slots: int = 1
    first_block: int = 0
    more: list[Line] = field(default_factory=list)

    def lines(self, pairs: int) -> list[Line]:
        """Turns A B B A, requests before their block's record."""
        return [*self._blocks(pairs), *self.more]

    def _blocks(self, pairs: int) -> Iterator[Line]:
        number = self.first_block
        for turn in range(pairs):
            order = ["none", *self.conditions]
            for condition in order if turn % 2 == 0 else reversed(order):
                yield from self._one(number, turn, condition)
                number += 1

    def _one(self, number: int, turn: int, condition: str) -> Iterator[Line]:
        where = {
            "run": RUN,
            "block": number,
            "runtime": "own",
            "condition": condition,
            "stratum": "chat",
            "stage": self.stage,
            "slots": self.slots,
        }
        for index, prompt in enumerate(self.prompts):
            yield self._request(where, index, turn, condition, prompt)
        made = {"peak_rss_bytes": 1 << 30, "outcome": "ok", "elapsed_s": 1.0, "began": ""}
        yield BlockRecord(**{**where, **made, **self.block(turn, condition)})

    def _request(
        self, where: Mapping[str, Any], index: int, turn: int, condition: str, prompt: str
    ) -> RequestRecord:
        total = self.seconds(turn, condition, prompt)
        drafted = 0 if condition == "none" else 60
        made: dict[str, Any] = {
            "index": index,
            "prompt": prompt,
            "sent_s": 1.0,
            "first_s": 1.0 + total / 10,
            "total_s": total,
            "token_times_s": tuple(total * (i + 1) / 10 for i in range(10)),
            "prompt_tokens": 2000,
            "output_tokens": 10,
            "counts": Counts(
                drafted=drafted, accepted=drafted // 10, steps=drafted // 6, source="request"
            ),
            "text_sha256": digest(f"text of {prompt}"),
            "ids_sha256": digest(f"ids of {prompt}"),
        }
        return RequestRecord(**{**where, **made, **self.changed(turn, condition, prompt)})


def rolled_back(factor: float = 1.0, *, first_block: int = 10_000, **changed: Any) -> list[Line]:
    """The kept build with ``none`` once more, and the digests found then."""
    story = Story(
        seconds=lambda _turn, _condition, _prompt: factor,
        conditions=(),
        stage="rollback",
        first_block=first_block,
        changed=lambda _turn, _condition, _prompt: changed,
    )
    return [*story.lines(1), observed("rollback", {f"sha256:{k}": v for k, v in DIGESTS.items()})]


def observed(condition: str, effective: Mapping[str, Any], **more: Any) -> ObservedRecord:
    return ObservedRecord(
        run=RUN, runtime="own", condition=condition, at="", effective=dict(effective), **more
    )
