"""Who may use what of a prompt: sessions, erasure, waiting, cancelling, failures, readers."""

from __future__ import annotations

import numpy as np
import pytest

from drafters_for_tests import TestDrafter
from engines import drain, fake_engine, joined, run
from fake_program import FakeMemory, FakeProgram
from prefix_runs import BASE, LENGTH, ask, with_cache
from slipstream.backends.base import Outputs, Step
from slipstream.drafters.base import DrafterNeeds
from slipstream.engine.engine import Engine
from slipstream.engine.prefix_cache import WAIT
from slipstream.engine.sequence import Request
from slipstream.options import SamplingOptions


def test_a_session_is_not_told_from_times_but_from_what_it_reuses() -> None:
    """The same prompt in session after session, beside each other and one after the other."""
    engine = with_cache(fake_engine(parallel=3))
    for names in (("a", "b", "c"), ("d", "e", ""), ("a ", "A", "b\n")):
        outputs = ask(engine, {name: [[*BASE, 1]] for name in names})
        assert [output.statistics.reused_tokens for output in outputs] == [0, 0, 0]
        assert [output.statistics.warm for output in outputs] == [False] * 3
    [again] = ask(engine, {"b": [[*BASE, 1]]})
    assert again.statistics.reused_tokens == len(BASE)
    assert again.statistics.warm
    assert again.statistics.summary()["reused_tokens"] == len(BASE)


def test_what_a_session_erased_is_gone() -> None:
    engine = with_cache(fake_engine(parallel=2))

    def reused(session: str) -> int:
        [output] = ask(engine, {session: [[*BASE, 1]]})
        return output.statistics.reused_tokens

    assert [reused(name) for name in "aabb"] == [0, 140, 0, 140]
    engine.forget("a")
    assert [reused(name) for name in "ab"] == [0, 140]
    engine.forget()
    assert [reused(name) for name in "ab"] == [0, 0]


@pytest.mark.parametrize("session", ["a", None])
@pytest.mark.parametrize("steps", [1, 9])
def test_erasure_while_a_request_runs(session: str | None, steps: int) -> None:
    """In the middle of its prompt or of its output."""
    engine = with_cache(fake_engine(parallel=2))
    options = SamplingOptions(max_tokens=30, seed=1)
    first = engine.submit(Request([*BASE, 1], options, session="a"))
    events = [event for _ in range(steps) for event in engine.step()]
    engine.forget(session)
    beside = engine.submit(Request([*BASE, 1], options, session="a"))
    events += drain(engine)
    assert joined(events, beside).statistics.reused_tokens == 0
    assert joined(events, beside).ids == joined(events, first).ids
    engine.forget("a")
    assert engine.program.memory.bytes() == 0
    [later] = ask(engine, {"a": [[*BASE, 1]]})
    assert later.statistics.reused_tokens == 0


@pytest.mark.parametrize("parallel", [1, 2, 5])
def test_choices_of_one_prompt_compute_it_once(parallel: int) -> None:
    prompt, choices = BASE * 3, 5
    options = SamplingOptions(temperature=1.0, seed=7, max_tokens=6)

    def outputs(engine: Engine) -> list[list[int]]:
        ids = [engine.submit(Request(prompt, options, choice)) for choice in range(choices)]
        events = drain(engine)
        return [joined(events, identity).ids for identity in ids]

    program = FakeProgram()
    engine = with_cache(fake_engine(program=program, context=1000, parallel=parallel))
    assert outputs(engine) == outputs(fake_engine(context=1000, parallel=parallel))
    rows = sum(len(step.sequences) for step in program.steps)
    assert rows == len(prompt) + (choices - 1) + choices * 5


def test_a_later_prompt_waits_for_what_an_earlier_one_computes() -> None:
    program = FakeProgram()
    engine = with_cache(fake_engine(program=program, context=2000, parallel=3))
    prompts = [[*BASE * 4, 1, 2, 3], [*BASE * 2, 4, 5, 6, 7], BASE[:20]]
    outputs = ask(engine, {"a": prompts})
    assert [output.ids for output in outputs] == [
        run(fake_engine(context=2000), prompt, max_tokens=LENGTH)[0].ids for prompt in prompts
    ]
    reused = [output.statistics.reused_tokens for output in outputs]
    # the last tokens of what both have in common are not worth another pass of waiting
    assert 2 * len(BASE) - WAIT < reused[1] <= 2 * len(BASE)
    assert reused[0] == 0
    # 20 tokens are no reason to wait, and when the last one starts nobody has them
    assert reused[2] == 0
    prompt_rows = sum(len(step.sequences) for step in program.steps) - 3 * (LENGTH - 1)
    assert prompt_rows == sum(map(len, prompts)) - sum(reused)


@pytest.mark.parametrize("steps", [1, 2, 3, 8])
def test_who_waits_goes_on_when_the_other_is_cancelled(steps: int) -> None:
    """What was computed of the prompt until then is kept."""
    program = FakeProgram()
    engine = with_cache(fake_engine(program=program, context=2000, parallel=2))
    prompt = BASE * 4
    options = SamplingOptions(max_tokens=8, seed=1)
    first, second = (engine.submit(Request(prompt, options, session="a")) for _ in range(2))
    events = [event for _ in range(steps) for event in engine.step()]
    done = sum(len(step.sequences) for step in program.steps)
    engine.cancel(first)
    events += drain(engine)
    [expected] = run(fake_engine(context=2000), prompt, max_tokens=8)
    found = joined(events, second)
    assert found.ids == expected.ids
    assert joined(events, first).finish_reason == "cancelled"
    if done < len(prompt):
        assert found.statistics.reused_tokens == done
    else:
        assert found.statistics.reused_tokens == len(prompt) - 1


def test_who_waits_may_be_cancelled() -> None:
    engine = with_cache(fake_engine(context=2000, parallel=2))
    options = SamplingOptions(max_tokens=8, seed=1)
    first, second = (engine.submit(Request(BASE * 4, options, session="a")) for _ in range(2))
    events = engine.step()
    engine.cancel(second)
    events += drain(engine)
    assert joined(events, second).tokens == ()
    assert len(joined(events, first).tokens) == 8
    assert engine.scheduler.places.free == 2


class Breaking(FakeProgram):
    """Its third step fails."""

    def run(self, step: Step) -> Outputs:
        outputs = super().run(step)
        rows = outputs.logits
        return Outputs(np.full_like(rows, np.nan) if len(self.steps) == 3 else rows, {}, 0.001)


def test_what_failed_is_not_kept() -> None:
    engine = with_cache(fake_engine(program=Breaking(order=None), parallel=1))
    options = SamplingOptions(max_tokens=8, seed=1)
    request = engine.submit(Request(BASE[:20], options, session="a"))
    assert joined(drain(engine), request).finish_reason == "error"
    assert engine.program.memory.bytes() == 0


class Reader(TestDrafter):
    """Wants hidden states or logits of every row."""

    def __init__(self, needs: DrafterNeeds) -> None:
        super().__init__()
        self.needs = needs


def test_a_drafter_that_reads_the_prompt_gets_all_of_it() -> None:
    reader = Reader(DrafterNeeds(logits=True))
    engine = with_cache(fake_engine(reader, parallel=2))
    for _ in range(2):
        for output in ask(engine, {"a": [[*BASE, 1], [*BASE, 2]]}):
            assert output.statistics.reused_tokens == 0
            assert output.statistics.not_reused == "test reads the whole prompt"
            assert output.statistics.summary()["not_reused"]
    assert all(positions[:141] == list(range(141)) for positions in reader.positions.values())


def test_other_drafters_see_the_rest() -> None:
    drafter = TestDrafter()
    engine = with_cache(fake_engine(drafter, parallel=1))
    outputs = ask(engine, {"a": [[*BASE, 1], [*BASE, 2]]})
    assert [positions[0] for positions in drafter.positions.values()] == [0, 140]
    assert [output.statistics.not_reused for output in outputs] == ["", ""]


@pytest.mark.parametrize("parallel", [1, 2, 4])
def test_running_sequences_never_lack_memory_for_kept_ones(parallel: int) -> None:
    """Memory for as many whole contexts as run, and requests that fill them again and again."""
    context = 200
    program = FakeProgram(memory=FakeMemory(parallel * context))
    engine = with_cache(fake_engine(program=program, context=context, parallel=parallel))
    prompts = {
        name: [[*BASE[:start], 1, *BASE[start : start + 50]] for start in range(0, 120, 20)]
        for name in "abc"
    }
    for limit in (10, -1):
        outputs = ask(engine, prompts, max_tokens=limit)
        apart = ask(fake_engine(context=context), prompts, max_tokens=limit)
        assert [output.visible() for output in outputs] == [output.visible() for output in apart]
    assert any(output.statistics.reused_tokens for output in outputs)
