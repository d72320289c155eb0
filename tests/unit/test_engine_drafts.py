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
from engines import fake_engine, greedy, run
from fake_program import FakeMemory, FakeProgram, FakeTokenizer
from slipstream.drafters.base import Draft, DraftRequest
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
