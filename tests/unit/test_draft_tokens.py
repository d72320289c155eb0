"""Tokens from draft logits: guessed with the target's sampler, or drawn with their distribution."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import chisquare

from slipstream.drafters.draft_tokens import ABSENT, STREAM, Rules, drawn, fitted, guessed
from slipstream.drafters.draft_tree import DraftTree
from slipstream.noise import gumbel
from slipstream.options import SamplingOptions
from slipstream.sampling import NumpyPrimitives, SamplerState, default_primitives

ROW = np.array([1.0, 2.0, 0.5, -1.0, 1.7], np.float32)


def rules(vocabulary: int = 5, branches: int = 3, p_min: float = 0.0, **keywords: Any) -> Rules:
    return Rules(vocabulary, branches, p_min, keywords.get("ends", ()))


def sampler(seed: int = 1, **options: Any) -> SamplerState:
    return SamplerState(SamplingOptions(**options), [2, 2], seed, NumpyPrimitives())


def softmax(row: np.ndarray[Any, Any], temperature: float = 1.0) -> np.ndarray[Any, Any]:
    weights = np.exp(row.astype(np.float64) / temperature)
    return weights / weights.sum()


def test_greedy_guesses_are_the_best_logits_after_penalties() -> None:
    children = guessed(ROW, sampler(), rules())
    assert [child.token for child in children] == [1, 4, 0]
    np.testing.assert_allclose([c.estimate for c in children], softmax(ROW)[[1, 4, 0]], rtol=1e-6)
    biased = guessed(ROW, sampler(logit_bias={3: 50.0}), rules())
    assert [child.token for child in biased] == [3, 1, 4]
    assert biased[0].estimate == pytest.approx(softmax(ROW)[3])
    assert biased[0].weight == biased[1].estimate


@pytest.mark.parametrize("seed", range(20))
def test_the_guess_above_temperature_0_is_the_targets_own_draw(seed: int) -> None:
    state = sampler(seed, temperature=1.5, min_p=0.01)
    children = guessed(ROW, state, rules(branches=5))
    perturbed = ROW / 1.5 + gumbel(seed, 0, np.arange(5))
    assert [child.token for child in children] == list(np.argsort(-perturbed))
    assert state.index == 0


def test_ids_of_one_vocabulary_only() -> None:
    wide = fitted(ROW, 8)
    assert wide.tolist() == [*ROW.tolist(), ABSENT, ABSENT, ABSENT]
    assert np.isfinite(np.sum(np.full(300_000, ABSENT)))
    for options in ({}, {"temperature": 100.0}, {"temperature": 1e-30}, {"logit_bias": {7: 100.0}}):
        for primitives in (NumpyPrimitives(), default_primitives()):
            state = SamplerState(SamplingOptions(**options), [7], 3, primitives)  # type: ignore[arg-type]
            children = guessed(ROW, state, rules(8, 8))
            assert sorted(child.token for child in children) == list(range(5))
    assert [child.token for child in guessed(ROW, sampler(), rules(3))] == [1, 0, 2]


def test_ends_are_not_guessed_unless_they_are_ignored() -> None:
    assert [c.token for c in guessed(ROW, sampler(), rules(ends=(1,)))] == [4, 0]
    kept = guessed(ROW, sampler(ignore_eos=True), rules(ends=(1,)))
    assert [child.token for child in kept] == [1, 4, 0]
    for child in drawn(ROW, sampler(temperature=1.0), rules(branches=5, ends=(1, 2)), 0, True):
        assert child.leaf == (child.token in (1, 2))


def test_p_min_is_compared_with_the_likeliest_token() -> None:
    top = float(softmax(ROW)[1])
    hot = sampler(4, temperature=50.0)
    for found in (
        lambda least: guessed(ROW, hot, rules(p_min=least)),
        lambda least: drawn(ROW, hot, rules(p_min=least), 0, True),
    ):
        assert found(top - 1e-4)
        assert not found(top + 1e-4)
    assert drawn(ROW, hot, rules(p_min=1.0), 0, False)


@pytest.mark.parametrize("options", [{}, {"top_k": 4}, {"presence_penalty": 1.0, "top_p": 0.97}])
def test_drawn_tokens_follow_their_distributions(options: dict[str, Any]) -> None:
    """Joint counts of two siblings, without replacement, over 6,000 draws."""
    state = sampler(temperature=0.7, **options)
    expected = state.distribution(ROW)
    counts = np.zeros((5, 5))
    for draw in range(6_000):
        first, second = drawn(ROW, state, rules(branches=2), 2 * draw, True)
        counts[first.token, second.token] += 1
    joint = expected[:, None] * expected[None, :] / (1 - expected)[:, None]
    np.fill_diagonal(joint, 0.0)
    assert counts[joint == 0].sum() == 0
    assert chisquare(counts[joint > 0], 6_000 * joint[joint > 0]).pvalue > 1e-3


def test_distributions_are_those_of_the_sampler_without_earlier_siblings() -> None:
    state = sampler(temperature=0.7)
    children = drawn(ROW, state, rules(8, 8), 7, True)
    assert len({child.token for child in children}) == len(children) == 5
    left = state.distribution(fitted(ROW, 8))
    for child in children:
        assert child.distribution is not None
        ids, shares = child.distribution.ids, child.distribution.probabilities
        assert (np.diff(ids) > 0).all()
        assert shares.sum() == pytest.approx(1, abs=1e-12)
        np.testing.assert_allclose(shares, left[ids] / left.sum())
        assert child.token in ids
        left[child.token] = 0.0


def test_estimates_of_drawn_tokens_do_not_depend_on_them() -> None:
    state = sampler(temperature=1.0)
    every = [drawn(ROW, state, rules(), 3 * draw, True) for draw in range(30)]
    assert len({tuple(child.token for child in children) for children in every}) > 5
    estimates = {tuple(child.estimate for child in children) for children in every}
    assert len(estimates) == 1
    [found] = estimates
    assert found[0] == pytest.approx(float(np.square(softmax(ROW)).sum()))
    assert sorted(found, reverse=True) == list(found)


def test_noise_of_draws_is_not_the_targets() -> None:
    state = sampler(9, temperature=1.0)
    tokens = [drawn(ROW, state, rules(), draw, True)[0].token for draw in range(200)]
    again = [drawn(ROW, state, rules(), draw, True)[0].token for draw in range(200)]
    assert tokens == again
    assert STREAM not in (0, 1, 2, 3)
    targets = []
    for _ in range(200):
        targets.append(state.sample(ROW).token)
        state.advance(targets[-1])
    agree = np.mean(np.array(tokens) == np.array(targets))
    assert abs(agree - float(np.square(softmax(ROW)).sum())) < 0.12


def test_a_tree_keeps_the_nodes_of_highest_score() -> None:
    tree = DraftTree(4, 2)
    tree.grow(-1, guessed(ROW, sampler(), rules(branches=5)))
    assert tree.ripe(2) == [0, 1]
    tree.grow(0, guessed(ROW, sampler(), rules(branches=5)))
    best = softmax(ROW)
    draft = tree.draft("x")
    scores = [best[1], best[4], best[1] * best[1], best[0]]
    order = np.argsort(-np.array(scores), kind="stable")
    assert draft.tokens == tuple(np.array([1, 4, 1, 0])[order])
    assert draft.depths().count(1) == 1
    assert tree.deepest() == 2
    assert tree.ripe(2)[0] == 0
    tree.close(0)
    assert tree.ripe(1) == [1]
