"""What the grammar of one output may take beside the steps that it shares."""

from __future__ import annotations

import pytest

from slipstream.errors import GrammarError
from slipstream.grammar_budget import GrammarBudget
from slipstream.grammar_text import MOST_BYTES, require_size
from slipstream.options import SamplingOptions
from slipstream.sampling import SamplerState
from slipstream.structured import Grammars, GuidedConstraint
from structured_for_tests import CASES, constraint_of, decode, json_tokenizer, sampler


class Clock:
    """A clock of which every reading is ``step_s`` after the one before."""

    def __init__(self, step_s: float) -> None:
        self.step_s = step_s
        self.now_s = 0.0

    def __call__(self) -> float:
        self.now_s += self.step_s
        return self.now_s


def spend(budget: GrammarBudget, times: int) -> None:
    for _ in range(times):
        with budget.spending():
            pass


def test_the_allowance_and_no_more() -> None:
    budget = GrammarBudget(1.0, 0.0, Clock(0.25))
    spend(budget, 4)
    budget.require()
    spend(budget, 1)
    assert budget.spent
    with pytest.raises(GrammarError, match="ambiguous"):
        budget.require()


def test_tokens_give_back_up_to_the_allowance() -> None:
    budget = GrammarBudget(1.0, 0.25, Clock(0.25))
    for _ in range(100):  # as much as a token gives
        spend(budget, 1)
        budget.token()
        budget.require()
    for _ in range(100):
        budget.token()
    spend(budget, 4)
    budget.require()
    spend(budget, 1)
    assert budget.spent


def test_what_fails_is_paid_for_too() -> None:
    budget = GrammarBudget(1.0, 0.0, Clock(2.0))
    with pytest.raises(KeyError), budget.spending():
        raise KeyError
    assert budget.spent


def limited(step_s: float, regex: str) -> GuidedConstraint:
    grammars = Grammars(json_tokenizer(), lambda: GrammarBudget(1.0, 0.0, Clock(step_s)))
    found = grammars.constraint(SamplingOptions(regex=regex))
    assert found is not None
    return found


def test_an_output_whose_grammar_takes_too_long_ends_in_an_error() -> None:
    state = sampler(limited(0.3, "[abc]{50}"), 1)
    with pytest.raises(GrammarError, match="takes more here"):
        decode(state)
    assert 0 < state.index < 10


def test_forks_share_a_budget_and_the_first_mask_is_free() -> None:
    constraint = limited(0.6, "[abc]{50}")
    twin = constraint.fork()
    constraint.mask()  # found while compiling
    token = int(constraint.mask().argmax())
    constraint.advance(token)
    constraint.mask()
    assert twin.budget is constraint.budget
    assert constraint.budget is not None
    assert constraint.budget.spent
    twin.advance(token)
    with pytest.raises(GrammarError):
        twin.mask()
    assert twin.forced(5) == []
    assert twin.admitted([token], [-1]) == []


def test_a_grammar_within_its_budget_gives_the_same_output() -> None:
    grammars = Grammars(json_tokenizer(), lambda: GrammarBudget(1e9))
    for schema, _ in CASES.values():
        options = SamplingOptions(json_schema=schema)  # type: ignore[arg-type]
        found = grammars.constraint(options)
        plain = constraint_of(json_schema=schema)
        states: list[SamplerState] = [sampler(one, 3) for one in (found, plain)]
        assert decode(states[0]) == decode(states[1])


def test_a_grammar_with_no_first_token_is_refused_while_compiling() -> None:
    grammars = Grammars(json_tokenizer(), GrammarBudget)
    with pytest.raises(GrammarError):
        grammars.constraint(SamplingOptions(regex="日+"))


@pytest.mark.parametrize("kind", MOST_BYTES)
def test_sizes_of_texts(kind: str) -> None:
    most = MOST_BYTES[kind]
    require_size(kind, "a" * most)
    require_size(kind, "é" * (most // 2))
    for text in ("a" * (most + 1), "é" * (most // 2 + 1)):
        with pytest.raises(GrammarError, match=f"{most >> 10} KiB"):
            require_size(kind, text)


def test_an_object_of_as_many_properties_as_a_row_may_hold() -> None:
    properties = {f"k{i}": {"type": "string", "maxLength": 2} for i in range(490)}
    schema = {"type": "object", "properties": properties}
    state = sampler(constraint_of(json_schema=schema), 1)
    assert decode(state)
