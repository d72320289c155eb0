"""Rows that a pass has time for, and places that engines of one memory share."""

from __future__ import annotations

import pytest

from drafters_for_tests import ScriptedDrafter
from engines import check_counts, drain, fake_engine, greedy, joined, run
from fake_program import FakeProgram
from slipstream.backends.base import Outputs, Step
from slipstream.engine.controller import DoublingController
from slipstream.engine.scheduler import Places, Scheduler
from slipstream.engine.sequence import Request
from slipstream.options import EngineOptions, SamplingOptions

PROMPT = [1, 2, 3, 4, 5]


@pytest.mark.parametrize("seconds_per_row", [0.005, 0.01, 0.1, 1.0])
def test_draft_rows_keep_the_time_limit_of_a_pass(seconds_per_row: float) -> None:
    class Slow(FakeProgram):
        def run(self, step: Step) -> Outputs:
            outputs = super().run(step)
            return Outputs(outputs.logits, {}, seconds_per_row * len(step.sequences))

    prompts = [[i, *PROMPT] for i in range(4)]
    truth = [[*prompt, *greedy(prompt, 60)] for prompt in prompts]
    program = Slow()
    controller = DoublingController(fixed=True)
    engine = fake_engine(ScriptedDrafter(truth), program, parallel=4, controller=controller)
    outputs = run(engine, *prompts, max_tokens=60)
    assert [[*p, *o.ids] for p, o in zip(prompts, outputs, strict=True)] == truth
    rows = [len(step.sequences) for step in program.steps]
    # one row per sequence is the least a pass can have
    assert all(count <= max(0.25 / seconds_per_row, 4) for count in rows[1:])
    for output in outputs:
        check_counts(output)
        assert output.statistics.cut_for_time > 0
    cuts = [r.cut_for_time for o in outputs for r in o.statistics.rounds]
    assert sum(cuts) == sum(o.statistics.cut_for_time for o in outputs)


def test_a_pass_that_took_too_long_shrinks_the_next() -> None:
    class Slowing(FakeProgram):
        def run(self, step: Step) -> Outputs:
            outputs = super().run(step)
            per_row = 0.001 if len(self.steps) < 3 else 0.05
            return Outputs(outputs.logits, {}, per_row * len(step.sequences))

    program = Slowing()
    drafter = ScriptedDrafter([[*PROMPT, *greedy(PROMPT, 60)]], length=20)
    engine = fake_engine(drafter, program, controller=DoublingController(fixed=True))
    [output] = run(engine, PROMPT, max_tokens=60)
    rows = [len(step.sequences) for step in program.steps]
    assert rows[:3] == [5, 21, 21]
    assert all(count <= 5 for count in rows[3:])
    assert output.ids == greedy(PROMPT, 60)


def test_one_slow_pass_does_not_end_drafting() -> None:
    class Hiccup(FakeProgram):
        def run(self, step: Step) -> Outputs:
            outputs = super().run(step)
            return Outputs(outputs.logits, {}, 9.0 if len(self.steps) == 3 else 0.01)

    program = Hiccup()
    drafter = ScriptedDrafter([[*PROMPT, *greedy(PROMPT, 100)]], length=20)
    engine = fake_engine(drafter, program, controller=DoublingController(fixed=True))
    run(engine, PROMPT, max_tokens=100)
    rows = [len(step.sequences) for step in program.steps]
    assert rows[3] == 1
    assert max(rows[4:]) > 8


def test_the_longest_drafts_are_cut_first() -> None:
    scheduler = Scheduler(EngineOptions(prefill_chunk=20), 1)
    assert scheduler.affordable_drafts([2, 30, 9, 0]) == [2, 7, 7, 0]
    assert scheduler.affordable_drafts([4, 4]) == [4, 4]
    assert scheduler.affordable_drafts([1] * 30) == [0] * 30
    assert scheduler.affordable_drafts([]) == []


def test_engines_of_one_memory_share_its_places() -> None:
    program, places = FakeProgram(), Places(1)
    first, second = (fake_engine(program=program, places=places) for _ in range(2))
    for engine in (first, second):
        engine.submit(Request(PROMPT, SamplingOptions(max_tokens=3)))
    late = first.submit(Request(PROMPT, SamplingOptions(max_tokens=3)))
    first.step()
    assert not second.ready
    assert second.step() == []
    first.step()
    first.step()
    # the place is free, and its turn is the other engine's
    assert not first.ready
    assert second.ready
    assert len(drain(second)) == 3
    assert joined(drain(first), late).ids == greedy(PROMPT, 3)
    assert places.free == 1
