"""The cost controller in the engine: speculation with it changes nothing that a user sees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from drafters_for_tests import HostileDrafter, MalformedDrafter, ScriptedDrafter, TestDrafter
from engines import Output, check_counts, drain, fake_engine, greedy, joined, named_drafters, run
from fake_program import FakeProgram
from slipstream.backends.base import Outputs, Step
from slipstream.engine.controller import Decision
from slipstream.engine.cost_controller import CostController
from slipstream.engine.sequence import Request
from slipstream.measure.replay import replay
from slipstream.options import SamplingOptions, SpeculationOptions

PROMPT = (3, 1, 4, 1, 5, 9, 2, 6)
OTHERS = ((2, 7, 1, 8), (1, 6, 1, 8, 0, 3), (5, 5, 5))


class CheapRows(FakeProgram):
    """A pass of R rows takes 1 + R / 100 of its one-row time, so drafts pay.

    A pass takes long beside the clock's readings of a millisecond.
    """

    def run(self, step: Step) -> Outputs:
        outputs = super().run(step)
        return replace(outputs, elapsed_s=0.1 * (1.0 + 0.01 * len(step.sequences)))


class DearRows(FakeProgram):
    def run(self, step: Step) -> Outputs:
        return replace(super().run(step), elapsed_s=0.05 * len(step.sequences) ** 2)


def program() -> CheapRows:
    return CheapRows(order=3)


def engine(drafters: Sequence[TestDrafter], trace: list[Decision] | None = None, **keywords):  # type: ignore[no-untyped-def]
    record = None if trace is None else (lambda decision, _: trace.append(decision))
    return fake_engine(drafters, program(), controller=CostController(), trace=record, **keywords)


def truth(prompt: Sequence[int], count: int = 120) -> list[int]:
    return [*prompt, *greedy(prompt, count, program())]


def drafter_sets(prompts: Sequence[Sequence[int]]) -> dict[str, list[TestDrafter]]:
    outputs = [truth(prompt) for prompt in prompts]
    draft_model = ScriptedDrafter(outputs, length=3)
    draft_model.name = "draft-simple"
    return {
        "right": [ScriptedDrafter(outputs)],
        "wrong in the middle": [ScriptedDrafter(outputs, wrong_at=3)],
        "hostile trees": [HostileDrafter(24, 5, outputs)],
        "hostile and dear": [HostileDrafter(24, 5, outputs), draft_model],
        "hostile and right": [HostileDrafter(24, 5, outputs), ScriptedDrafter(outputs)],
        "malformed": [MalformedDrafter(24)],
        "n-grams": list(named_drafters(["ngram-simple", "ngram-mod"], SHORT)),  # type: ignore[arg-type]
    }


SHORT = SpeculationOptions(
    type=("ngram-simple",),
    ngram_simple_size_n=2,
    ngram_mod_n_match=2,
    ngram_mod_n_min=1,
    ngram_mod_n_max=8,
)
SETS = tuple(drafter_sets([PROMPT]))


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_one_sequence_is_that_of_plain_decoding(name: str, temperature: float) -> None:
    plain = run(fake_engine(None, program()), PROMPT, max_tokens=100, temperature=temperature)
    made = run(
        engine(drafter_sets([PROMPT])[name]), PROMPT, max_tokens=100, temperature=temperature
    )
    assert made[0].visible() == plain[0].visible()
    check_counts(made[0])


@pytest.mark.parametrize("name", SETS)
def test_four_sequences_and_a_cancelled_one(name: str) -> None:
    prompts = [PROMPT, *OTHERS]
    plain = [run(fake_engine(None, program()), prompt, max_tokens=80)[0] for prompt in prompts]
    made = engine(drafter_sets(prompts)[name], parallel=4)
    ids = [made.submit(Request(p, SamplingOptions(max_tokens=80, seed=1))) for p in prompts]
    events = [event for _ in range(8) for event in made.step()]
    made.cancel(ids[2])
    events += drain(made)
    for place, identity in enumerate(ids):
        output: Output = joined(events, identity)
        check_counts(output)
        if place == 2:
            assert output.finish_reason == "cancelled"
            assert output.ids == plain[place].ids[: len(output.ids)]
        else:
            assert output.visible() == plain[place].visible()


def test_it_verifies_what_pays_and_its_choices_replay() -> None:
    trace: list[Decision] = []
    sets = drafter_sets([PROMPT, *OTHERS])
    made = engine(sets["hostile and right"], trace, parallel=4)
    outputs = run(made, PROMPT, *OTHERS, max_tokens=80)
    assert sum(output.statistics.accepted for output in outputs) > 60
    decided = [decision for decision in trace if not decision.prompt]
    chosen = replay(decided, CostController())
    pairs = list(zip(chosen, decided, strict=True))
    assert all(draft.cut(len(d.verified)) == d.verified for draft, d in pairs)
    assert all(len(draft) == len(d.verified) + d.cut_for_time for draft, d in pairs)
    assert {d.step for d in decided} == set(
        range(min(d.step for d in decided), made.passes.steps + 1)
    )
    assert all(d.draft_s > 0.0 for d in decided)


def test_a_dear_row_is_left_out() -> None:
    """Where two rows cost as much as four passes of one, no draft can pay."""
    drafter = ScriptedDrafter([truth(PROMPT)])
    trace: list[Decision] = []
    plain = fake_engine(
        drafter,
        DearRows(order=3),
        controller=CostController(),
        trace=lambda decision, _: trace.append(decision),
    )
    [output] = run(plain, PROMPT, max_tokens=100)
    assert output.statistics.drafted <= 10
    decided = [decision for decision in trace if not decision.prompt]
    assert all(bool(d.reason) == (not d.verified) for d in decided if not d.cut_for_time)


def test_what_a_request_taught_goes_with_it_where_its_scope_is_the_request() -> None:
    controller = CostController()
    made = fake_engine(
        ScriptedDrafter([truth(PROMPT)]), program(), controller=controller, scope="request"
    )
    run(made, PROMPT, max_tokens=40)
    assert not controller.experience._scopes
    made = fake_engine(ScriptedDrafter([truth(PROMPT)]), program(), controller=controller)
    run(made, PROMPT, max_tokens=40)
    assert list(controller.experience._scopes) == ["session "]
