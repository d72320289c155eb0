"""A replayed controller repeats its own choices exactly, from memory and from a trace on disk."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from builders import tiny_model
from drafters_for_tests import ScriptedDrafter
from engines import fake_engine, greedy, run
from fake_program import FakeProgram
from slipstream import Model
from slipstream.backends.base import Outputs as PassOutputs
from slipstream.backends.base import Step
from slipstream.drafters.base import Draft
from slipstream.engine.batch import NO_MEMORY
from slipstream.engine.controller import Controller, Decision, DoublingController, Proposal, Room
from slipstream.engine.controllers import LONE_CREDIT
from slipstream.engine.cost_controller import CREDIT, CostController
from slipstream.engine.trace_file import read_trace
from slipstream.engine.trace_format import EngineRecord, RoundRecord
from slipstream.engine.tracing import recorded_decision
from slipstream.measure.replay import DrafterTimes, Outputs, Played, Player, replay
from slipstream.measure.trace_passes import Pass, passes
from slipstream.measure.trace_policies import policy_maker
from slipstream.measure.traces import read_report

PROMPTS = ("hello hello hello", "a b a b a b a", "the law", "the law of the land of the law")


def play(path: Path, made: Controller) -> tuple[list[Decision], list[Played]]:
    """The recorded decoding decisions of a trace of one drafting engine, and the replay."""
    records = list(read_trace(path))
    [engine] = [r for r in records if isinstance(r, EngineRecord) and r.drafters]
    outputs, times = Outputs(), DrafterTimes()
    for record in records:
        if isinstance(record, RoundRecord):
            outputs.add(record.sequence, record.sampled)
    player = Player(made, outputs, times)
    recorded: list[Decision] = []
    played: list[Played] = []
    for item in passes(records):
        if isinstance(item, Pass) and item.first.engine == engine.engine:
            decisions = [recorded_decision(record) for record in item.rounds]
            recorded += [decision for decision in decisions if not decision.prompt]
            played.append(player.play(decisions, engine.drafters))
        elif not isinstance(item, Pass) and hasattr(item, "finish_reason"):
            player.close(item.sequence)
    return recorded, played


def traced(tmp_path: Path, parallel: int, **keywords: Any) -> tuple[Path, tuple[str, ...]]:
    """A trace on the reference backend, of some requests at once and others later."""
    file = tiny_model(tmp_path / "tiny.gguf", "llama", context=512)
    if keywords.get("draft_model"):
        keywords["draft_model"] = str(file)
    path = tmp_path / "t.jsonl"
    model = Model(
        str(file), backend="reference", context=512, parallel=parallel, trace=path, **keywords
    )
    options: dict[str, Any] = {"max_tokens": 60, "ignore_eos": True}
    with ThreadPoolExecutor(parallel) as pool:
        runs = [pool.submit(model.complete, prompt, **options) for prompt in PROMPTS]
        done = [run.result(timeout=120) for run in runs]
    done += [model.complete(PROMPTS[0], session=name, **options) for name in ("", "other")]
    assert [completion.statistics.warm for completion in done[-2:]] == [True, False]
    return path, done[0].statistics.drafters


CONDITIONS: dict[str, dict[str, Any]] = {
    "suffix": {"spec": "suffix"},
    "two look-ups": {"spec": "suffix,ngram-simple", "ngram_simple_size_n": 2},
    "a draft model alone": {"spec": "draft-simple", "draft_model": True},
    "auto": {"spec": "auto", "draft_model": True},
}


@pytest.mark.parametrize("parallel", [1, 3])
@pytest.mark.parametrize("name", CONDITIONS)
def test_auto_repeats_auto(tmp_path: Path, name: str, parallel: int) -> None:
    path, drafters = traced(tmp_path, parallel, **CONDITIONS[name])
    recorded, played = play(path, policy_maker("auto")(drafters))
    assert not any(flag for one in played for flag in one.censored)
    assert any(decision.proposals for decision in recorded)
    if name != "a draft model alone":  # one as large as its target does not pay
        assert any(decision.drafted for decision in recorded)
    chosen = [draft for one in played for draft in one.chosen]
    told = [decision for one in played for decision in one.decisions]
    assert len(chosen) == len(recorded)
    for draft, decision, again in zip(chosen, recorded, told, strict=True):
        kept = draft.cut(len(decision.verified))
        assert (kept.tokens, kept.parents, kept.methods) == (
            decision.verified.tokens,
            decision.verified.parents,
            decision.verified.methods,
        )
        assert len(draft) == len(decision.verified) + decision.cut_for_time
        assert again.proposals == decision.proposals
        for field in ("path", "tokens", "rejected", "rows", "prompt_rows", "elapsed_s", "draft_s"):
            assert getattr(again, field) == getattr(decision, field), field
    report = read_report(path, policy_maker("auto"))
    for outcome in report.outcomes.values():
        assert outcome.censored == 0
        assert outcome.tokens == outcome.recorded_tokens
        assert outcome.seconds == pytest.approx(outcome.recorded_seconds)


def test_auto_has_the_credit_of_the_recorded_drafters() -> None:
    for drafters, credit in (
        (("draft-simple",), LONE_CREDIT),
        (("suffix", "draft-simple"), CREDIT),
    ):
        made = policy_maker("auto")(drafters)
        assert isinstance(made, CostController)
        assert made._credit == credit


class CheapRows(FakeProgram):
    """A pass of R rows takes 1 + R / 100 of its one-row time, and a little more at each."""

    def __init__(self) -> None:
        super().__init__(order=3)
        self._passes = 0

    def run(self, step: Step) -> PassOutputs:
        self._passes += 1
        noise = 1.0 + 0.002 * (self._passes % 7)
        return replace(super().run(step), elapsed_s=0.05 * noise * (1 + 0.01 * len(step.sequences)))


def test_passes_of_prompts_alone_are_replayed_too() -> None:
    """They change what a controller takes for its number of sequences and their context."""
    prompts = [[1 + (i * k) % 7 for i in range(80)] for k in (1, 2, 3)]
    truth = [[*prompt, *greedy(prompt, 90, CheapRows())] for prompt in prompts]
    trace: list[Decision] = []
    engine = fake_engine(
        [ScriptedDrafter(truth, wrong_at=4)],
        CheapRows(),
        controller=CostController(),
        trace=lambda decision, _: trace.append(decision),
    )
    for prompt in prompts:
        run(engine, prompt, max_tokens=80)
    decided = [decision for decision in trace if not decision.prompt]
    steps = sorted({decision.step for decision in trace})
    assert len(steps) < steps[-1], "some passes held a part of a prompt only"
    expected = [decision.verified for decision in decided]
    assert replay(trace, CostController()) == expected
    assert replay(decided, CostController()) == expected
    assert any(expected)
    assert replay(trace, CostController(credit=0.2)) != expected


def a_decision(step: int, **changes: Any) -> Decision:
    draft = Draft.chain((5, 6, 7, 8), "a")
    made = Decision(
        time_s=0.0,
        room=Room(0, 40),
        proposals=(Proposal("a", 4, draft),),
        verified=draft,
        path=(0, 1),
        tokens=(5, 6, 1),
        rejected=True,
        cut_for_time=0,
        rows=5,
        elapsed_s=0.1,
        sequence=0,
        step=step,
    )
    return replace(made, **changes)


CUT: dict[str, dict[str, Any]] = {
    "for time": {"verified": Draft.chain((5, 6), "a"), "cut_for_time": 2, "rejected": False},
    "for memory": {
        "verified": Draft(),
        "path": (),
        "tokens": (5,),
        "rejected": False,
        "reason": NO_MEMORY,
    },
}


@pytest.mark.parametrize("kind", CUT)
def test_what_the_engine_cut_is_no_other_choice(kind: str) -> None:
    recorded = a_decision(1, **CUT[kind])
    outputs = Outputs()
    outputs.add(0, recorded.tokens)
    played = Player(DoublingController(), outputs, DrafterTimes()).play([recorded], ["a"])
    assert played.chosen == [Draft.chain((5, 6, 7, 8), "a")]
    assert played.decisions == [recorded]
    assert played.censored == [False]


def test_more_than_was_recorded_is_censored() -> None:
    outputs, times = Outputs(), DrafterTimes()
    outputs.add(0, (5, 6, 1, 5, 6, 1))
    player = Player(DoublingController(first=8), outputs, times)
    [censored] = player.play([a_decision(1)], ["a"]).censored
    assert censored
    played = player.play([a_decision(2, proposals=())], ["a"])
    assert (played.censored, played.chosen) == ([True], [Draft()])
    assert played.decisions[0].tokens == (5,)


class Counting(DoublingController):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def worth(self, method: str) -> float:
        self.calls.append(method)
        return 0.0


def test_worth_is_told_where_a_drafter_was_asked() -> None:
    made = Counting()
    outputs, times = Outputs(), DrafterTimes()
    outputs.add(0, (5, 6, 1) * 2)
    player = Player(made, outputs, times)
    player.play([a_decision(1)], ["a", "b"])
    player.play([a_decision(2, proposals=())], ["a", "b"])
    assert made.calls == ["a"]


def test_what_was_erased_is_erased_in_a_replay(tmp_path: Path) -> None:
    """Within a request and between two; a session's name never enters the trace."""
    file = tiny_model(tmp_path / "tiny.gguf", "llama", context=512)
    path = tmp_path / "t.jsonl"
    keywords: dict[str, Any] = {"backend": "reference", "context": 512, "spec": "suffix"}
    model = Model(str(file), trace=path, **keywords)
    options: dict[str, Any] = {"max_tokens": 200, "ignore_eos": True, "session": "mine"}
    model.complete(PROMPTS[0], **options)
    stream = model.generate(PROMPTS[0], **options)
    for _ in range(2):
        next(stream)
    model.forget("mine")
    list(stream)
    model.forget("mine")
    assert not model.complete(PROMPTS[0], **options).statistics.warm
    recorded, played = play(path, policy_maker("auto")(("suffix",)))
    assert len({decision.room.scope for decision in recorded}) == 3
    chosen = [draft for one in played for draft in one.chosen]
    for draft, decision in zip(chosen, recorded, strict=True):
        assert draft.cut(len(decision.verified)).tokens == decision.verified.tokens
        assert len(draft) == len(decision.verified) + decision.cut_for_time
    assert b"mine" not in path.read_bytes()
