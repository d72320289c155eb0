"""draft-simple: what it computes, what it proposes, and that a slow twin proposes the same."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from draft_models import (
    NaiveDrafter,
    draft_simple,
    fake_draft_model,
    fake_draft_simple,
    recorder_of,
)
from engines import Output, check_counts, fake_engine, fake_resources, run
from fake_program import FakeMemory, FakeProgram
from slipstream.drafters.base import Draft, DraftRequest, Priced
from slipstream.drafters.draft_simple import DraftSimple, create
from slipstream.engine.controller import DoublingController
from slipstream.errors import GrammarError, OptionError
from slipstream.options import SamplingOptions, SpeculationOptions
from slipstream.sampling import NumpyPrimitives, SamplerState

VOCABULARY = 24
PROMPTS = [[1, 2, 3, 4, 5], [7], [5, 6, 7, 5, 6, 7, 5, 6], list(range(20)) * 2]
SAMPLINGS: list[dict[str, Any]] = [{}, {"temperature": 0.8, "top_p": 0.9, "presence_penalty": 0.5}]


def request(
    tokens: list[int], n_max: int = 100, sequence: int = 0, drawn: bool = False, **sampling: Any
) -> DraftRequest:
    options = SamplingOptions(**sampling)
    state = SamplerState(options, tokens, 3, NumpyPrimitives())
    return DraftRequest(sequence, tokens, n_max, state, drawn)


def ask(drafter: DraftSimple, tokens: list[int], n_max: int = 100, **keywords: Any) -> Draft:
    [draft] = drafter.draft([request(tokens, n_max, **keywords)])
    return draft


def opened(drafter: DraftSimple, *sequences: int) -> DraftSimple:
    for sequence in sequences or (0,):
        drafter.open(sequence, [], "")
    return drafter


def outputs(drafter: Any, first: int = 6, **sampling: Any) -> list[Output]:
    """Of all prompts at once; three tokens decide the next."""
    controller = DoublingController(first=first)
    engine = fake_engine(drafter, FakeProgram(VOCABULARY, 3), parallel=4, controller=controller)
    found = run(engine, *PROMPTS, max_tokens=40, **sampling)
    for output in found:
        check_counts(output)
        assert not output.statistics.rejected_drafts
    return found


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=["greedy", "0.8"])
def test_the_target_as_its_own_draft_model_is_always_right(sampling: dict[str, Any]) -> None:
    drafter = fake_draft_simple(FakeProgram(VOCABULARY, 3), n_max=5, draft_branches=1)
    for output in outputs(drafter, **sampling):
        assert output.statistics.accepted == output.statistics.drafted > 25
    assert drafter.memory.bytes() == 0


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=["greedy", "0.8"])
@pytest.mark.parametrize("branches", [1, 3])
@pytest.mark.parametrize("order", [1, 2, 3])
def test_nothing_is_computed_twice(order: int, branches: int, sampling: dict[str, Any]) -> None:
    """Poor and good drafts: rejected, partly and fully accepted ones."""
    drafter = fake_draft_simple(
        FakeProgram(VOCABULARY, order), n_max=5, draft_branches=branches, draft_window=1000
    )
    found = outputs(drafter, **sampling)
    histories = recorder_of(drafter).histories
    assert len(histories) == len(set(histories)) > 100
    assert sum(output.statistics.accepted for output in found) > 0


def test_only_what_is_new_is_computed_after_every_verdict() -> None:
    drafter = opened(fake_draft_simple(FakeProgram(), n_max=4, draft_branches=1))
    tokens = [1, 2, 3]
    assert drafter.pending(0, tokens) == 3
    draft = ask(drafter, tokens)
    assert recorder_of(drafter).rows == [3, 1, 1, 1]
    other = (draft.tokens[2] + 1) % VOCABULARY
    assert drafter.pending(0, [*tokens, *draft.tokens, 5]) == 2  # the last one was not read
    assert drafter.pending(0, [*tokens, *draft.tokens[:2], other]) == 1
    assert drafter.pending(0, [*tokens, *draft.tokens[:2]]) == 0  # its logits are still there
    assert isinstance(drafter, Priced)
    again = ask(drafter, [*tokens, *draft.tokens[:2]], 2)
    assert again.tokens == draft.tokens[2:]
    assert recorder_of(drafter).rows == [3, 1, 1, 1]
    ask(drafter, [*tokens, *draft.tokens[:2], other], 1)
    assert recorder_of(drafter).rows == [3, 1, 1, 1, 1]


def test_sequences_share_the_passes() -> None:
    drafter = opened(fake_draft_simple(n_max=3, draft_branches=1), 0, 1, 2)
    texts = [[1, 2, 3], [4], [5, 6]]
    drafts = drafter.draft([request(text, sequence=i) for i, text in enumerate(texts)])
    assert recorder_of(drafter).rows == [6, 3, 3]
    alone = [ask(opened(fake_draft_simple(n_max=3, draft_branches=1)), text) for text in texts]
    assert drafts == alone


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=["greedy", "0.8"])
@pytest.mark.parametrize("branches", [1, 2, 4])
def test_the_slow_twin_drafts_the_same(branches: int, sampling: dict[str, Any]) -> None:
    program = FakeProgram(VOCABULARY, 3)
    fast = fake_draft_simple(program, n_max=3, draft_branches=branches, p_min=0.1)
    slow = NaiveDrafter(program.logits, fast.rules, 3)
    pairs = zip(outputs(fast, 9, **sampling), outputs(slow, 9, **sampling))  # noqa: B905
    for quick, naive in pairs:
        assert quick.visible() == naive.visible()
        counts = [
            [(r.drafted, r.tested, r.accepted) for r in o.statistics.rounds] for o in (quick, naive)
        ]
        assert counts[0] == counts[1]


def test_alternatives_are_free_and_expanding_them_costs_a_row_each() -> None:
    drafter = opened(fake_draft_simple(n_max=2, draft_branches=3))
    draft = ask(drafter, [1, 2, 3])
    roots = [node for node, parent in enumerate(draft.parents) if parent == -1]
    assert len(roots) == 3
    assert len(draft) > len(roots)
    probabilities = [draft.probabilities[node] for node in roots]
    assert probabilities == sorted(probabilities, reverse=True)
    expanded = {parent for parent in draft.parents if parent >= 0}
    assert recorder_of(drafter).rows == [3, len(expanded)]
    assert len(drafter.memory.tracks[0].lanes) == len(expanded)


def test_a_branch_that_was_accepted_is_not_computed_again() -> None:
    drafter = opened(fake_draft_simple(n_max=2, draft_branches=3))
    draft = ask(drafter, [1, 2, 3])
    second = [node for node, parent in enumerate(draft.parents) if parent == -1][1]
    assert second in draft.parents
    [child, *_] = [n for n, parent in enumerate(draft.parents) if parent == second]
    text = [1, 2, 3, draft.tokens[second], draft.tokens[child]]
    assert drafter.pending(0, text) == 1
    ask(drafter, text, 1)
    assert len(drafter.memory.tracks[0].lanes) == 1


def test_probabilities_are_the_softmax_over_all_ids() -> None:
    program = FakeProgram()
    draft = ask(opened(fake_draft_simple(program, n_max=3, draft_branches=1)), [1, 2, 3])
    text = [1, 2, 3]
    for token, probability in zip(draft.tokens, draft.probabilities, strict=True):
        weights = np.exp(program.logits(text).astype(np.float64))
        assert token == int(np.argmax(weights))
        assert math.isclose(probability, weights[token] / weights.sum(), rel_tol=1e-5)
        text.append(token)


def test_p_min_stops_where_the_likeliest_token_is_too_unlikely() -> None:
    program = FakeProgram()
    whole = ask(opened(fake_draft_simple(program, n_max=8, draft_branches=1)), [1, 2, 3])
    least = sorted(whole.probabilities)[3]
    stopped = opened(fake_draft_simple(program, n_max=8, draft_branches=1, p_min=least))
    below = [node for node, p in enumerate(whole.probabilities) if p < least]
    assert ask(stopped, [1, 2, 3]).tokens == whole.tokens[: below[0]]


def test_n_min_drops_shorter_proposals_before_anything_is_computed_if_it_can() -> None:
    drafter = opened(fake_draft_simple(n_max=8, n_min=3, p_min=1.0))
    assert ask(drafter, [1, 2, 3], 2) == Draft()
    assert recorder_of(drafter).rows == []
    assert ask(drafter, [1, 2, 3], 8) == Draft()
    assert recorder_of(drafter).rows == [3]


def test_worth_stops_where_a_node_costs_more_than_it_gives() -> None:
    drafter = opened(fake_draft_simple(n_max=8, draft_branches=1))
    whole = ask(drafter, [1, 2, 3])
    scores = np.cumprod(whole.probabilities)
    asked = DraftRequest(0, [1, 2, 3], 8, worth=float(scores[2]))
    [draft] = opened(fake_draft_simple(n_max=8, draft_branches=1)).draft([asked])
    assert draft.tokens == whole.tokens[:4]


def test_a_long_prompt_is_read_from_its_newest_part() -> None:
    drafter = opened(fake_draft_simple(n_max=1, draft_window=32, draft_branches=1))
    prompt = [i % VOCABULARY for i in range(100)]
    assert drafter.pending(0, prompt) == 32
    ask(drafter, prompt)
    assert recorder_of(drafter).histories[-1] == (*prompt[:4], *prompt[-28:])
    for count in (1, 5, 40):
        prompt += [3] * count
        assert drafter.pending(0, prompt) == min(count, 32)
        ask(drafter, prompt)
    assert recorder_of(drafter).histories[-1] == (*prompt[:4], *prompt[-28:])


@pytest.mark.parametrize("context", [1, 2, 3, 5, 16, 40])
def test_a_text_may_outgrow_the_draft_models_context(context: int) -> None:
    drafter = fake_draft_simple(FakeProgram(VOCABULARY, 3), n_max=5, draft_context=context)
    found = outputs(drafter)
    longest = max(len(history) for history in recorder_of(drafter).histories)
    assert context // 2 < longest <= context
    if context > 5:
        assert sum(output.statistics.accepted for output in found) > 40


def test_a_full_context_goes_on_with_its_newest_half() -> None:
    drafter = opened(fake_draft_simple(n_max=2, draft_branches=1, draft_context=32))
    for length in range(20, 60):
        text = [i % VOCABULARY for i in range(length)]
        drafted = ask(drafter, text)
        assert len(drafted) == 2
    counts = recorder_of(drafter).rows
    assert counts.count(16) == 2
    assert max(counts[2:]) == 16


def test_the_time_of_a_call_is_bounded() -> None:
    class Slow(FakeProgram):
        def run(self, step: Any) -> Any:
            outputs = super().run(step)
            return type(outputs)(outputs.logits, {}, 0.02 * len(step.sequences))

    drafter = opened(fake_draft_simple(Slow(), n_max=1, draft_window=200))
    ask(drafter, [1] * 100)
    assert recorder_of(drafter).rows == [32, *[10] * 6, 8]


def test_memory_that_runs_out_costs_drafts_only() -> None:
    program = FakeProgram(VOCABULARY, 2, memory=FakeMemory(30))
    drafter = fake_draft_simple(program, n_max=4)
    engine = fake_engine(drafter, FakeProgram(VOCABULARY, 2), parallel=4)
    plain = fake_engine(None, FakeProgram(VOCABULARY, 2), parallel=4)
    expected, found = run(plain, *PROMPTS, max_tokens=30), run(engine, *PROMPTS, max_tokens=30)
    assert [output.visible() for output in found] == [output.visible() for output in expected]
    reasons = {reason for output in found for reason in output.statistics.rejected_drafts}
    assert reasons
    assert all(reason.startswith("draft-simple failed") for reason in reasons)
    assert program.memory.bytes() == 0


def test_a_sequence_is_forked_and_closed() -> None:
    drafter = opened(fake_draft_simple(n_max=3, draft_branches=1))
    draft = ask(drafter, [1, 2, 3])
    drafter.fork(0, 1)
    assert drafter.pending(1, [1, 2, 3, *draft.tokens]) == 1
    assert drafter.pending(2, [1, 2, 3]) == 3
    drafter.close(0)
    assert ask(drafter, [1, 2, 3], sequence=1) == draft
    drafter.close(1)
    drafter.close(1)
    assert drafter.memory.bytes() == 0


def test_ids_that_one_of_the_models_lacks() -> None:
    small = FakeProgram(VOCABULARY - 4)
    drafter = opened(draft_simple(fake_draft_model(small), VOCABULARY, n_max=4))
    draft = ask(drafter, [1, VOCABULARY - 1, 3], temperature=2.0)
    assert len(draft) >= 4
    assert max(draft.tokens) < VOCABULARY - 4
    assert recorder_of(drafter).histories[1] == (1, 0)
    large = FakeProgram(VOCABULARY + 40, spread=0.1)
    drafter = opened(draft_simple(fake_draft_model(large), VOCABULARY, n_max=4))
    assert max(ask(drafter, [1, 2], temperature=5.0).tokens) < VOCABULARY


def test_ends_of_generation_are_not_drafted() -> None:
    program = FakeProgram()
    drafter = opened(fake_draft_simple(program, n_max=4, draft_branches=1))
    first = ask(drafter, [1, 2, 3]).tokens[0]
    rules = type(drafter.rules)(VOCABULARY, 2, 0.0, {first})
    ended = opened(DraftSimple(fake_draft_simple(program).memory, rules, 4))
    draft = ask(ended, [1, 2, 3])
    assert draft.parents[0] == -1
    assert (first, -1) not in zip(draft.tokens, draft.parents, strict=True)
    assert ask(ended, [1, 2, 3], ignore_eos=True).tokens[0] == first


def test_what_is_missing_is_said() -> None:
    with pytest.raises(OptionError, match="draft_model"):
        create(SpeculationOptions(type=("draft-simple",)), fake_resources())
    with pytest.raises(OptionError, match="at most 64"):
        draft_simple(fake_draft_model(FakeProgram(), 64), draft_context=65)


class FailingGrammar:
    """Allows every token, and fails after so many."""

    finished = False
    may_stop = True

    def __init__(self, left: int) -> None:
        self.left = left

    def mask(self) -> Any:
        if self.left <= 0:
            raise GrammarError("a grammar within its limits", "too many states", "Simplify it.")
        return np.ones(VOCABULARY, np.bool_)

    def only(self) -> None:
        self.mask()

    def forced(self, most: int) -> list[int]:
        del most
        return []

    def admitted(self, tokens: Sequence[int], parents: Sequence[int]) -> list[int]:
        del parents
        return list(range(len(tokens)))

    def advance(self, token: int) -> None:
        del token
        self.left -= 1

    def fork(self) -> FailingGrammar:
        return FailingGrammar(self.left)


@pytest.mark.parametrize("left", [0, 2])
@pytest.mark.parametrize("drawn", [False, True])
def test_a_grammar_that_fails_costs_only_its_own_draft(left: int, drawn: bool) -> None:
    drafter = opened(fake_draft_simple(n_max=4, draft_branches=1), 0, 1, 2)
    alone = ask(drafter, [1, 2, 3], drawn=drawn)
    good, failing = (request([1, 2, 3], sequence=n, drawn=drawn) for n in (1, 2))
    assert failing.sampler is not None
    failing.sampler.constraint = FailingGrammar(left)
    first, bad = drafter.draft([good, failing])
    assert first.tokens == alone.tokens
    assert len(first) == 4
    assert bad.tokens == ()
    assert "too many states" in bad.fault


def test_no_draft_is_charged_with_compiling() -> None:
    compiled: list[tuple[int, int]] = []
    model = fake_draft_model(FakeProgram())

    def compile_(positions: int, sequences: int) -> Any:
        compiled.append((positions, sequences))
        return model.compile(positions, sequences)

    drafter = draft_simple(replace(model, compile=compile_), n_max=3)
    assert compiled == []
    opened(drafter, 0, 1)
    assert len(compiled) == 1
    ask(drafter, [1, 2, 3])
    assert len(compiled) == 1
