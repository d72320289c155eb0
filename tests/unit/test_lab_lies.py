"""Servers that lie, in whole runs: each lie ends in a named finding, an honest server in none.

The program is ``lying_runtime``, a process of its own behind the real runtime and the real client.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from lab_world import World, manifest_of, plan_of, tools_of
from lying_runtime import stand_in
from slipstream.lab.client.client_send import ClientSend
from slipstream.lab.contract.manifest import Manifest
from slipstream.lab.contract.plan import Artifact, ConditionPlan, RuntimePlan
from slipstream.lab.contract.records import FindingRecord
from slipstream.lab.contract.runtimes import LEAST_READY_S
from slipstream.lab.evidence.store import RECORDS, read_records
from slipstream.lab.judging.cells import Evidence
from slipstream.lab.judging.findings import detect
from slipstream.lab.judging.verdict import Verdict, judge_all
from slipstream.lab.planning.ready_made import expanded
from slipstream.lab.running.run import run
from slipstream.lab.runtimes.llama_server import LlamaServer
from slipstream.measure.workload import WorkloadPrompt

TOKENS = 48
MOD = ConditionPlan(
    name="drafting",
    stage="ngram",
    method="ngram-mod",
    parameters={"n_match": 12, "n_min": 4, "n_max": 16},
)
SIMPLE = ConditionPlan(name="drafting", stage="ngram", method="ngram-simple")
QUIET = {"path-unknown"}
"""Of a program that tells no kernel paths."""


class _Encoded(ClientSend):
    """The real client; only the ids are made up, as the target is no model."""

    def _encoded(self, prompt: WorkloadPrompt) -> tuple[int, ...]:
        return tuple(prompt.id.encode())


class _Run:
    """A whole run over a stand-in that tells these lies."""

    def __init__(
        self,
        folder: Path,
        *lies: str,
        condition: ConditionPlan = MOD,
        prompts: int = 2,
        timeout_s: float = 10.0,
        **facts: Any,
    ) -> None:
        target = folder / "model.gguf"
        target.write_bytes(b"GGUF")
        binary = stand_in(folder, *lies, **facts)
        asked = RuntimePlan(kind="llama-server", binary=str(binary))
        rules = {"repeats": 1, "timeout_s": timeout_s}
        plan = plan_of(condition, strata=["prose"], runtimes={"r": asked}, rules=rules)
        plan = msgspec.structs.replace(plan, target=Artifact(model=str(target)), context=512)
        server = LlamaServer("r", asked)
        self.manifest = _frozen(manifest_of(plan, prompts=prompts), server)
        tools = tools_of(self.manifest, World(), send=_Encoded(self.manifest))
        self.outcome = run(folder / "run", self.manifest, {"r": server}, tools=tools)
        self.evidence = Evidence(self.manifest, read_records(folder / "run" / RECORDS))

    def findings(self, name: str) -> list[FindingRecord]:
        return [f for f in detect(self.evidence) if f.name == name]

    def names(self) -> set[str]:
        return {f.name for f in detect(self.evidence)}

    def verdict(self) -> Verdict:
        (made,) = judge_all(self.evidence)
        return made


def _frozen(manifest: Manifest, server: LlamaServer) -> Manifest:
    """With the methods as the runtime has them, and outputs as long as the lies need."""
    methods = [server.method(c, manifest.plan) for c in expanded(manifest.plan)]
    prompts = [msgspec.structs.replace(p, max_tokens=TOKENS) for p in manifest.prompts]
    return msgspec.structs.replace(manifest, methods=tuple(methods), prompts=tuple(prompts))


@pytest.mark.parametrize("condition", [MOD, SIMPLE], ids=["ngram-mod", "ngram-simple"])
def test_an_honest_server_has_no_finding(tmp_path: Path, condition: ConditionPlan) -> None:
    made = _Run(tmp_path, condition=condition, prompts=8)
    assert made.names() - QUIET == ({"shared-pool"} if condition is MOD else set())
    assert made.outcome.ended == "complete"
    assert made.verdict().word == "inconclusive"


@pytest.mark.parametrize(
    ("lie", "name", "word", "facts"),
    [
        ("wrong-counts", "counts-disagree", "inconclusive", {}),
        ("wrong-drafts", "counts-disagree", "inconclusive", {}),
        ("stall", "stalled", "inconclusive", {"stall_s": 1.2, "after": 2}),
        ("diverge", "diverged", "reject", {}),
        ("crash", "crashed", "not run", {"prompts": 8}),
        ("crash", "crashed", "reject", {"prompts": 8, "drafting_alone": True}),
        ("torn", "crashed", "reject", {"drafting_alone": True}),
        ("reset", "counters-reset", "inconclusive", {}),
        ("ignored-flags", "flag-ignored", "not run", {}),
        ("noise", "drafter-is-noise", "reject", {}),
        ("router", "router", "not run", {}),
        ("wrong-model", "wrong-model", "not run", {}),
        ("other-temperature", "flag-ignored", "inconclusive", {}),
        ("short-context", "flag-ignored", "not run", {}),
        ("cached", "reused-prompt", "inconclusive", {}),
        ("missing-flag", "flag-unknown", "not run", {"condition": SIMPLE}),
        ("torn", "crashed", "not run", {}),
        ("http-500", "crashed", "not run", {}),
        ("http-400", "refused", "not run", {}),
        ("http-400", "refused", "not run", {"drafting_alone": True}),
        ("garbage", "crashed", "not run", {}),
        ("error-event", "crashed", "not run", {}),
        ("endless", "crashed", "not run", {}),
    ],
)
def test_every_lie_has_its_finding(
    tmp_path: Path, lie: str, name: str, word: str, facts: dict[str, Any]
) -> None:
    made = _Run(tmp_path, lie, **facts)
    assert made.findings(name), made.names()
    assert made.verdict().word == word, made.verdict()
    assert made.outcome.ended == "complete"


@pytest.mark.parametrize(
    ("lie", "cause", "token", "word"),
    [
        ("diverge", "defect", "its own token again", "reject"),
        ("rows", "numeric path", "this token too", "inconclusive"),
    ],
)
def test_a_divergence_has_its_place_and_its_cause(
    tmp_path: Path, lie: str, cause: str, token: str, word: str
) -> None:
    made = _Run(tmp_path, lie)
    text = made.findings("diverged")[0].text
    assert f"token 40 (gap 0.5): {cause} (block " in text
    assert f": among {len('prose/0') + 40} rows none gives {token})" in text
    assert made.verdict().word == word
    assert (cause == "numeric path") is (made.verdict().gates[0].passed is not False)


def test_a_server_that_is_never_ready_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(LEAST_READY_S, "llama-server", 0.5)
    made = _Run(tmp_path, "never-ready", timeout_s=0.5)
    assert "not ready" in made.findings("crashed")[0].text


def test_what_a_server_refuses_is_no_crash(tmp_path: Path) -> None:
    made = _Run(tmp_path, "http-400", drafting_alone=True)
    assert "HTTP 400: no such setting" in made.findings("refused")[0].text
    assert not made.findings("crashed")
