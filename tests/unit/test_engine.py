"""The engine over a fake program: steps, scheduling, limits, seeds, cancelling, errors."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from drafters_for_tests import (
    HostileDrafter,
    ScriptedDrafter,
)
from engines import check_counts, drain, fake_engine, greedy, joined, run
from fake_program import FakeMemory, FakeProgram, FakeTokenizer
from slipstream.backends.base import Outputs, Step
from slipstream.engine.controller import DoublingController
from slipstream.engine.sequence import Request
from slipstream.errors import (
    BackendError,
    ContextFullError,
    OptionError,
    OverloadedError,
    RequestError,
)
from slipstream.options import SamplingOptions

PROMPT = [1, 2, 3, 4, 5]


def test_plain_decoding_is_the_argmax_of_every_row() -> None:
    program = FakeProgram()
    [output] = run(fake_engine(program=program), PROMPT, max_tokens=20)
    assert output.ids == greedy(PROMPT, 20)
    assert output.finish_reason == "length"
    assert output.text == "".join(FakeTokenizer().pieces[i].decode() for i in output.ids)
    assert [len(step.sequences) for step in program.steps] == [5, *[1] * 19]
    assert program.tokens.committed == {}


def test_the_true_continuation_needs_fewer_passes() -> None:
    truth = [*PROMPT, *greedy(PROMPT, 40)]
    drafter = ScriptedDrafter([truth])
    program = FakeProgram()
    [output] = run(fake_engine(drafter, program), PROMPT, max_tokens=40)
    assert output.ids == truth[5:]
    # 1 from the prefill, then 4 + 1, 8 + 1, 15 + 1 and the 9 that are left
    assert [len(step.sequences) for step in program.steps] == [5, 5, 9, 16, 9]
    assert output.statistics.target_passes == 5
    assert output.statistics.acceptance_rate == 1.0
    assert sum(token.from_draft for token in output.tokens) == 4 + 8 + 15 + 8
    check_counts(output)


def test_a_fixed_controller_verifies_the_whole_draft() -> None:
    drafter = ScriptedDrafter([[*PROMPT, *greedy(PROMPT, 40)]], length=30)
    program = FakeProgram()
    engine = fake_engine(drafter, program, controller=DoublingController(fixed=True))
    run(engine, PROMPT, max_tokens=40)
    assert [len(step.sequences) for step in program.steps] == [5, 31, 8]


def test_processing_and_observation_cover_every_pass() -> None:
    truth = [*PROMPT, *greedy(PROMPT, 12)]
    drafter = ScriptedDrafter([truth], wrong_at=2)
    [output] = run(fake_engine(drafter), PROMPT, max_tokens=12)
    assert output.ids == truth[5:]
    assert drafter.opened == drafter.closed == [0]
    assert drafter.positions[0][:5] == [0, 1, 2, 3, 4]
    assert drafter.positions[0][5:10] == [5, 6, 7, 8, 9]
    # rows 8 and 9 of the first draft were rejected, so their positions come again
    assert drafter.positions[0][10] == 8
    outcomes = drafter.outcomes[0]
    assert [token for outcome in outcomes for token in outcome.tokens] == output.ids
    assert not len(outcomes[0].draft)
    assert (len(outcomes[1].draft), outcomes[1].proposed, outcomes[1].accepted) == (4, 11, 2)


def test_sequences_share_steps_and_do_not_disturb_each_other() -> None:
    prompts = [[i, *PROMPT] for i in range(6)]
    alone = [run(fake_engine(), prompt, max_tokens=15)[0].ids for prompt in prompts]
    program = FakeProgram()
    drafter = HostileDrafter(24, 1, [[*p, *ids] for p, ids in zip(prompts, alone, strict=True)])
    outputs = run(fake_engine(drafter, program, parallel=4), *prompts, max_tokens=15)
    assert [output.ids for output in outputs] == alone
    assert max(len(set(step.sequences.tolist())) for step in program.steps) == 4
    for output in outputs:
        check_counts(output)


def test_prompts_are_cut_into_chunks_beside_decoding_rows() -> None:
    program = FakeProgram()
    engine = fake_engine(program=program, context=1000, parallel=2)
    short = engine.submit(Request(PROMPT, SamplingOptions(max_tokens=30)))
    events = engine.step()
    long_prompt = [i % 20 for i in range(300)]
    long = engine.submit(Request(long_prompt, SamplingOptions(max_tokens=5)))
    events += drain(engine)
    assert joined(events, short).ids == greedy(PROMPT, 30)
    assert joined(events, long).ids == greedy(long_prompt, 5)
    mixed = [step for step in program.steps if len(set(step.sequences.tolist())) == 2]
    # 5 + 32 rows would be one step of the first size; growth is at most twofold
    assert [len(step.sequences) for step in mixed[:3]] == [64, 128, 111]
    assert len(mixed[0].logit_rows) == 1


@pytest.mark.parametrize("seconds_per_row", [0.001, 0.01, 0.1, 1.0])
def test_chunks_adapt_to_the_time_a_row_takes(seconds_per_row: float) -> None:
    class Slow(FakeProgram):
        def run(self, step: Step) -> Outputs:
            outputs = super().run(step)
            return Outputs(outputs.logits, {}, seconds_per_row * len(step.sequences))

    program = Slow()
    run(fake_engine(program=program, context=2000), [1] * 900, max_tokens=1)
    rows = [len(step.sequences) for step in program.steps]
    assert rows[0] == 32
    assert all(count <= max(0.25 / seconds_per_row, 1) for count in rows[1:])
    assert sum(rows) == 900
    assert all(later <= 2 * earlier for earlier, later in pairwise(rows))


def test_the_context_end_is_a_length_stop() -> None:
    truth = [*PROMPT, *greedy(PROMPT, 20)]
    for context in range(6, 20):
        drafter = ScriptedDrafter([truth])
        program = FakeProgram()
        [output] = run(fake_engine(drafter, program, context=context), PROMPT, max_tokens=-1)
        assert output.ids == truth[5:context]
        assert output.finish_reason == "length"


def test_a_prompt_without_room_is_refused() -> None:
    engine = fake_engine(context=5)
    with pytest.raises(ContextFullError, match="at most 4 tokens; found 5"):
        engine.submit(Request(PROMPT, SamplingOptions()))
    assert not engine.busy


def test_malformed_requests_are_refused() -> None:
    engine = fake_engine()
    with pytest.raises(RequestError, match="at least one prompt token"):
        engine.submit(Request([], SamplingOptions()))
    for token in (-1, 24):
        with pytest.raises(RequestError, match="from 0 to 23"):
            engine.submit(Request([1, token, 2], SamplingOptions()))
    with pytest.raises(OptionError, match="logit_bias"):
        engine.submit(Request([1], SamplingOptions(logit_bias={24: 1.0})))


@pytest.mark.parametrize("prompt", [b"hello", "hello", None, 5, [1.5], ["1"], [None]])
def test_prompts_that_are_no_token_ids_are_refused(prompt: Any) -> None:
    with pytest.raises(RequestError, match="sequence of token ids"):
        fake_engine().submit(Request(prompt, SamplingOptions()))


def test_no_tokens_asked_none_given() -> None:
    program = FakeProgram()
    [output] = run(fake_engine(program=program), PROMPT, max_tokens=0)
    assert (output.ids, output.finish_reason) == ([], "length")
    assert program.steps == []
    assert output.statistics.tokens_per_pass is None
    check_counts(output)


def test_a_full_queue_is_overload() -> None:
    engine = fake_engine(queue=2)
    for _ in range(2):
        engine.submit(Request(PROMPT, SamplingOptions(max_tokens=3)))
    with pytest.raises(OverloadedError):
        engine.submit(Request(PROMPT, SamplingOptions()))
    assert len([event for event in drain(engine) if event.finish_reason]) == 2


def test_seeds_are_echoed_drawn_and_counted_up_by_choice() -> None:
    engine = fake_engine()
    options = SamplingOptions(temperature=1.0, seed=7, max_tokens=8)
    choices = [engine.submit(Request(PROMPT, options, choice)) for choice in range(2)]
    events = drain(engine)
    first, second = (joined(events, choice) for choice in choices)
    assert (first.statistics.seed, second.statistics.seed) == (7, 8)
    [same] = run(fake_engine(), PROMPT, temperature=1.0, seed=8, max_tokens=8)
    assert same.ids == second.ids != first.ids
    [drawn] = run(fake_engine(), PROMPT, temperature=1.0, seed=None, max_tokens=8)
    seed = drawn.statistics.seed
    [again] = run(fake_engine(), PROMPT, temperature=1.0, seed=seed, max_tokens=8)
    assert again.ids == drawn.ids


def test_cancelling_frees_the_sequence_and_keeps_the_others() -> None:
    engine = fake_engine(parallel=2)
    options = SamplingOptions(max_tokens=10)
    first, second, waiting = (engine.submit(Request(PROMPT, options)) for _ in range(3))
    events = engine.step()
    engine.cancel(first)
    engine.cancel(waiting)
    engine.cancel(12345)
    events += drain(engine)
    assert joined(events, first).finish_reason == "cancelled"
    assert len(joined(events, first).tokens) == 1
    assert joined(events, waiting).tokens == ()
    assert joined(events, second).ids == greedy(PROMPT, 10)
    assert engine.program.memory.bytes() == 0


class BrokenRow(FakeProgram):
    """The sequence whose history contains token 9 gets no finite logits."""

    def logits(self, history: Sequence[int]) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
        row = super().logits(history).copy()
        return np.full_like(row, np.nan) if 9 in history else row


def test_one_bad_sequence_does_not_stop_the_others() -> None:
    engine = fake_engine(program=BrokenRow(order=3), parallel=3)
    bad = engine.submit(Request([9, 1], SamplingOptions(max_tokens=4, logit_bias={9: -100.0})))
    good = engine.submit(Request(PROMPT, SamplingOptions(max_tokens=4, logit_bias={9: -100.0})))
    events = drain(engine)
    [error] = [event.error for event in events if event.request == bad]
    assert isinstance(error, BackendError)
    assert joined(events, good).finish_reason == "length"
    assert engine.program.memory.bytes() == 0


def test_without_memory_the_newest_sequence_fails_alone() -> None:
    engine = fake_engine(program=FakeProgram(memory=FakeMemory(20)), parallel=2)
    first = engine.submit(Request(PROMPT, SamplingOptions(max_tokens=9)))
    second = engine.submit(Request(PROMPT, SamplingOptions(max_tokens=9)))
    events = drain(engine)
    assert joined(events, first).ids == greedy(PROMPT, 9)
    assert joined(events, second).finish_reason == "error"


def test_events_come_once_per_step() -> None:
    drafter = ScriptedDrafter([[*PROMPT, *greedy(PROMPT, 30)]])
    engine = fake_engine(drafter)
    engine.submit(Request(PROMPT, SamplingOptions(max_tokens=30)))
    batches = []
    while engine.busy:
        batches.append(engine.step())
    assert [len(batch) for batch in batches] == [1] * len(batches)
    assert [len(batch[0].tokens) for batch in batches] == [1, 5, 9, 15]
    assert engine.step() == []
