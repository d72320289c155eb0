"""Who waits for another one's prompt, and what is left of a prompt whose request ended early."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from draft_models import fake_draft_simple, recorder_of
from drafters_for_tests import TestDrafter
from engines import Output, drain, fake_engine, joined, run
from fake_program import FakeProgram
from prefix_runs import BASE, ask, with_cache
from slipstream.backends.base import Outputs, Step
from slipstream.engine.controller import DoublingController
from slipstream.engine.engine import Engine
from slipstream.engine.events import Event
from slipstream.engine.sequence import Request, Speculation
from slipstream.errors import BackendError, DeadlineError
from slipstream.options import SamplingOptions

LONG = BASE * 4
OPTIONS = SamplingOptions(max_tokens=8, seed=1)


class FailsOnce(FakeProgram):
    """Its third step fails."""

    def run(self, step: Step) -> Outputs:
        outputs = super().run(step)
        if len(self.steps) == 3:
            raise BackendError("a pass", "none", "Try again.")
        return outputs


def two(program: FakeProgram | None = None) -> tuple[Engine, int, int]:
    """An engine with a sequence that computes a prompt, and one that waits for it."""
    engine = with_cache(fake_engine(program=program, context=2000, parallel=2))
    first, second = (engine.submit(Request(LONG, OPTIONS, session="a")) for _ in range(2))
    return engine, first, second


def alone() -> Output:
    [output] = run(fake_engine(context=2000), LONG, max_tokens=8)
    return output


def test_who_waits_goes_on_when_the_other_fails() -> None:
    engine, first, second = two(FailsOnce())
    events = drain(engine)
    assert joined(events, first).finish_reason == "error"
    found = joined(events, second)
    assert found.visible() == alone().visible()
    assert found.statistics.reused_tokens == 0, "nothing of it is trusted"
    assert engine.scheduler.places.free == 2


def test_who_waits_goes_on_when_the_other_is_late() -> None:
    """What was computed of the prompt in time is kept."""
    engine = with_cache(fake_engine(context=2000, parallel=2))
    first = engine.submit(Request(LONG, OPTIONS, session="a", deadline_s=0.03))
    second = engine.submit(Request(LONG, OPTIONS, session="a"))
    events = drain(engine)
    late = joined(events, first)
    assert late.finish_reason == "error"
    assert len(late.tokens) < 8
    found = joined(events, second)
    assert found.visible() == alone().visible()
    assert found.statistics.reused_tokens > 0


def error_of(events: list[Event], identity: int) -> str:
    [error] = [event.error for event in events if event.request == identity and event.error]
    assert isinstance(error, DeadlineError)
    return str(error)


def test_who_waits_may_be_late() -> None:
    engine = with_cache(fake_engine(context=2000, parallel=2))
    first = engine.submit(Request(LONG, OPTIONS, session="a"))
    second = engine.submit(Request(LONG, OPTIONS, session="a", deadline_s=0.005))
    third = engine.submit(Request(LONG, OPTIONS, session="a", deadline_s=0.006))
    events = engine.step()
    waiting = [sequence for sequence in engine.scheduler.running if sequence.handle < 0]
    assert [sequence.id for sequence in waiting] == [second]
    events += drain(engine)
    assert "0 tokens" in error_of(events, second), "it had a place"
    assert "no place" in error_of(events, third)
    assert joined(events, first).visible() == alone().visible()
    assert engine.scheduler.places.free == 2
    assert engine.scheduler.places.running == {}


def test_a_late_request_leaves_its_prompt_for_the_next_try() -> None:
    engine = with_cache(fake_engine(context=2000))
    late = engine.submit(Request(LONG, SamplingOptions(max_tokens=900), deadline_s=0.3))
    assert joined(drain(engine), late).finish_reason == "error"
    [again] = ask(engine, {"": [LONG]}, max_tokens=8)
    assert again.statistics.reused_tokens == len(LONG) - 1
    assert again.visible() == alone().visible()


@pytest.mark.parametrize("session", ["a", None])
def test_who_waits_does_not_get_what_was_erased(session: str | None) -> None:
    engine, first, second = two()
    events = engine.step()
    engine.forget(session)
    events += drain(engine)
    for identity in (first, second):
        output = joined(events, identity)
        assert output.visible() == alone().visible()
        assert output.statistics.reused_tokens == 0
    assert engine.program.memory.bytes() == 0


@pytest.mark.parametrize("end", [lambda e, i: e.cancel(i), lambda e, _: e.forget("a")])
def test_the_waiting_wait_for_each_other_in_turn(end: Callable[[Engine, int], None]) -> None:
    """Of several that wait one takes over where the first one left off; the others wait on."""
    engine = with_cache(fake_engine(context=2000, parallel=4))
    ids = [engine.submit(Request(LONG, OPTIONS, session="a")) for _ in range(4)]
    events = engine.step()
    end(engine, ids[0])
    events += drain(engine)
    for identity in ids[1:]:
        assert joined(events, identity).visible() == alone().visible()
    assert engine.scheduler.places.free == 4


def test_a_session_erases_what_its_private_requests_left() -> None:
    drafter = TestDrafter()
    engine = with_cache(fake_engine(drafter, parallel=3))
    private = Speculation(scope="request")
    ids = [
        engine.submit(Request([*BASE, 1], OPTIONS, session=session, speculation=wanted))
        for session, wanted in (("a", private), ("a", None), ("b", private))
    ]
    events = engine.step()
    engine.forget("a")
    assert drafter.forgotten == ["session a", f"request {ids[0]}"]
    events += drain(engine)
    assert f"request {ids[2]}" in drafter.forgotten, "with its end"
    assert engine.prefixes is not None
    assert set(engine.prefixes.sessions()) == {"b"}
    assert {joined(events, identity).finish_reason for identity in ids} == {"length"}


def test_a_draft_model_reads_the_prompt_whether_the_target_does_or_not() -> None:
    """Its memory is its own: it drafts as well behind a prompt that was reused."""

    def turns(cached: bool) -> tuple[list[Output], list[tuple[int, ...]]]:
        drafter = fake_draft_simple(FakeProgram(order=2), n_max=4)
        controller = DoublingController(fixed=True)
        engine = fake_engine(drafter, FakeProgram(order=2), controller=controller)
        if cached:
            with_cache(engine)
        outputs: list[Output] = []
        for question in ([1], [2, 3], [4]):
            outputs += ask(engine, {"a": [[*BASE, *question]]})
        return outputs, recorder_of(drafter).histories

    plain, plainly_read = turns(False)
    found, read = turns(True)
    assert [output.statistics.reused_tokens for output in found] == [0, 140, 140]
    assert [output.visible() for output in found] == [output.visible() for output in plain]
    counts = [(o.statistics.drafted, o.statistics.accepted) for o in found]
    assert counts == [(o.statistics.drafted, o.statistics.accepted) for o in plain]
    assert all(accepted for _, accepted in counts)
    assert read == plainly_read
