"""Drafters that are hostile, broken or silent cost their drafts and nothing else."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from drafters_for_tests import (
    MALFORMED,
    HostileDrafter,
    MalformedDrafter,
    ScriptedDrafter,
    TestDrafter,
)
from engines import check_counts, fake_engine, greedy, run
from fake_program import FakeMemory, FakeProgram, FakeTokenizer
from slipstream.cli.statistics import silent_lines
from slipstream.drafters.base import Draft, DraftRequest, TargetPass
from slipstream.engine.controller import DoublingController, Held, Room
from slipstream.engine.statistics import Statistics
from slipstream.errors import BackendError

PROMPT = [1, 2, 3, 4, 5]


def test_draft_rows_that_do_not_fit_are_left_out() -> None:
    truth = greedy(PROMPT, 60)
    end = max(set(truth), key=truth.index)
    length = truth.index(end) + 1
    program = FakeProgram(memory=FakeMemory(len(PROMPT) + length - 1))
    tokenizer = FakeTokenizer(end_ids=frozenset({end}))
    drafter = HostileDrafter(24, 1, [[*PROMPT, *truth]])
    [output] = run(fake_engine(drafter, program, tokenizer), PROMPT, max_tokens=-1)
    assert output.ids == truth[:length]
    assert output.statistics.rejected_drafts["no memory for draft rows"] > 0


@pytest.mark.parametrize("kind", MALFORMED)
def test_malformed_drafts_are_rejected_with_a_reason(kind: str) -> None:
    [output] = run(fake_engine(MalformedDrafter(24, [kind])), PROMPT, max_tokens=10)
    assert output.ids == greedy(PROMPT, 10)
    statistics = output.statistics
    assert statistics.drafted == 0
    [(reason, count)] = statistics.rejected_drafts.items()
    assert reason
    assert count == 8  # every step but the prefill and the last, which has no room


class Misbehaving(TestDrafter):
    def __init__(self, fails: bool) -> None:
        super().__init__()
        self.fails = fails

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        assert requests
        if self.fails:
            raise BackendError("a draft", "nothing", "Try again.")
        return []


@pytest.mark.parametrize("fails", [True, False])
def test_a_failing_drafter_costs_only_its_drafts(fails: bool) -> None:
    [output] = run(fake_engine(Misbehaving(fails)), PROMPT, max_tokens=10)
    assert output.ids == greedy(PROMPT, 10)
    # one that failed is not asked again
    assert sum(output.statistics.rejected_drafts.values()) == (1 if fails else 8)
    assert all("test" in reason for reason in output.statistics.rejected_drafts)


class Broken(ScriptedDrafter):
    """Fails in one of its calls."""

    def __init__(self, call: str, truth: Sequence[int]) -> None:
        super().__init__([truth])
        setattr(self, call, self._fail)

    def _fail(self, *_: object) -> None:
        raise BackendError("a working drafter", "another", "Try again.")


@pytest.mark.parametrize("call", ["open", "process", "observe", "close"])
def test_a_drafter_that_fails_elsewhere_does_not_harm_the_output(call: str) -> None:
    truth = greedy(PROMPT, 10)
    [output] = run(fake_engine(Broken(call, [*PROMPT, *truth])), PROMPT, max_tokens=10)
    assert output.ids == truth
    assert output.finish_reason == "length"
    assert sum(output.statistics.rejected_drafts.values()) == 1


def test_drafters_that_never_fired_are_named() -> None:
    [output] = run(fake_engine(TestDrafter()), PROMPT, max_tokens=4)
    assert output.statistics.never_fired == ("test",)
    assert output.statistics.acceptance_rate is None
    assert output.statistics.mean_acceptance_length is None
    [output] = run(fake_engine(), PROMPT, max_tokens=4)
    assert output.statistics.never_fired == ()


class FailsForOne(ScriptedDrafter):
    """Fails where a text of the call begins with a bad token."""

    def __init__(self, call: str, outputs: Sequence[Sequence[int]]) -> None:
        super().__init__(outputs)
        self.call = call
        self.bad: set[int] = set()

    def open(self, sequence: int, tokens: Sequence[int], scope: str) -> None:
        super().open(sequence, tokens, scope)
        if tokens[0] == 7:
            self.bad.add(sequence)

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        self._check("draft", [request.sequence for request in requests])
        return super().draft(requests)

    def process(self, passes: Sequence[TargetPass]) -> None:
        self._check("process", [heard.sequence for heard in passes])
        super().process(passes)

    def _check(self, call: str, sequences: Sequence[int]) -> None:
        if call == self.call and self.bad.intersection(sequences):
            raise BackendError("a good text", "that of client B", "Try again.")


@pytest.mark.parametrize("call", ["draft", "process"])
def test_a_failure_of_one_sequence_costs_no_other_its_drafter(call: str) -> None:
    prompts = [PROMPT, [7, 3], [2, 2, 9]]
    truths = [greedy(prompt, 30) for prompt in prompts]
    drafter = FailsForOne(call, [[*p, *t] for p, t in zip(prompts, truths, strict=True)])
    outputs = run(fake_engine(drafter, parallel=3), *prompts, max_tokens=30)
    assert [output.ids for output in outputs] == truths
    for output in outputs:
        check_counts(output)
    first, guilty, last = [output.statistics for output in outputs]
    for other in (first, last):
        assert other.rejected_drafts == {}
        assert other.accepted == other.drafted > 10
    assert guilty.accepted == 0
    [(reason, count)] = guilty.rejected_drafts.items()
    assert reason.startswith("scripted failed")
    assert "client B" in reason
    assert count == 1
    assert drafter.closed[0] == 1


class Faulty(TestDrafter):
    def propose(self, request: DraftRequest) -> Draft:
        return Draft.chain([1], self.name) if request.tokens[0] == 1 else Draft(fault="no luck")


def test_a_fault_costs_one_draft_and_is_counted() -> None:
    outputs = run(fake_engine(Faulty(), parallel=2), PROMPT, [7, 3], max_tokens=10)
    assert [output.ids for output in outputs] == [greedy(PROMPT, 10), greedy([7, 3], 10)]
    assert outputs[0].statistics.drafted > 0
    assert outputs[0].statistics.rejected_drafts == {}
    assert outputs[1].statistics.rejected_drafts == {"test failed: no luck": 8}


class Silent(TestDrafter):
    name = "silent"


class AsksNobody(DoublingController):
    def plan(self, method: str, rooms: Sequence[Room], held: Held) -> list[int]:
        caps = super().plan(method, rooms, held)
        return [0] * len(caps) if method == "silent" else caps


def test_a_drafter_that_was_not_asked_is_not_said_to_have_proposed_nothing() -> None:
    drafters = [TestDrafter(), Silent()]
    [output] = run(fake_engine(drafters, controller=AsksNobody()), PROMPT, max_tokens=4)
    statistics = output.statistics
    assert statistics.never_fired == ("test", "silent")
    assert statistics.never_asked == ("silent",) == statistics.summary()["never_asked"]
    assert silent_lines(statistics) == [
        "test: drafter never fired in 4 passes: it proposed nothing",
        "silent: drafter not asked in 4 passes: it was not expected to pay",
    ]


def test_a_grammar_that_dictated_nothing_is_not_blamed() -> None:
    statistics = Statistics(5, 0, 0.0, drafters=("grammar", "a"))
    assert (statistics.never_fired, statistics.never_asked) == (("a",), ("a",))
    statistics.rejected_drafts["a failed: broken"] += 1
    assert silent_lines(statistics) == []
