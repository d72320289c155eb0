"""Rejection sampling at its edges: certainty, nothing left, end tokens, bad rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from slipstream.drafters.base import Distribution, Draft
from slipstream.errors import BackendError
from slipstream.noise import ACCEPTANCE, REMAINDER, in_stream, uniform
from slipstream.options import SamplingOptions
from slipstream.sampling import NumpyPrimitives, SamplerState
from slipstream.verify.base import Verdict
from slipstream.verify.rejection import Rejection, Remainder, candidate, point_mass

VOCABULARY = 6


def state(seed: int = 0, **options: Any) -> SamplerState:
    made = SamplingOptions(**{"temperature": 1.0, **options})
    return SamplerState(made, (), seed, NumpyPrimitives())


def verify(
    draft: Draft, rows: Any, seed: int = 0, ends: tuple[int, ...] = (), **options: Any
) -> Verdict:
    logits = np.array(rows, np.float32)
    sampler = state(seed, **options)
    verdict = Rejection().verify(draft, logits, sampler, ends)
    assert sampler.index == len(verdict.sampled)
    return verdict


def tokens(verdict: Verdict) -> list[int]:
    return [drawn.token for drawn in verdict.sampled]


def source(ids: list[int], probabilities: list[float]) -> Distribution:
    return Distribution(np.array(ids, np.int64), np.array(probabilities))


FLAT = [0.0] * VOCABULARY
ONLY_2 = [0.0, 0.0, 9.0, 0.0, 0.0, 0.0]


def test_it_is_lossless_and_not_seed_exact() -> None:
    assert (Rejection.name, Rejection.lossless, Rejection.seed_exact) == ("rejection", True, False)


def test_a_certain_token_is_always_accepted_and_another_never() -> None:
    for seed in range(50):
        q = [source([2, 3], [0.4, 0.6])] if seed % 2 else []
        right = Draft.chain([2], "t", distributions=q)
        sure = verify(right, [ONLY_2, FLAT], seed, top_k=1)
        assert (sure.path, tokens(sure)[0], sure.tested) == ((0,), 2, 1)
        other = Draft.chain([3], "t", distributions=q)
        wrong = verify(other, [ONLY_2, FLAT], seed, top_k=1)
        assert (wrong.path, tokens(wrong), wrong.tested) == ((), [2], 1)


def test_siblings_that_cover_everything_leave_nothing_to_draw() -> None:
    draft = Draft(tuple(range(VOCABULARY)), (-1,) * VOCABULARY)
    everything = source(list(range(VOCABULARY)), [1 / VOCABULARY] * VOCABULARY)
    for q in ((), (None,) * 5 + (everything,)):
        covered = Draft(draft.tokens, draft.parents, distributions=q)
        counts = [verify(covered, [FLAT] * 7, seed).tested for seed in range(300)]
        assert set(counts) == set(range(1, VOCABULARY + 1))


def test_a_source_with_ids_that_the_target_excludes() -> None:
    q = source([0, 2, 4], [0.5, 0.1, 0.4])
    for seed in range(50):
        draft = Draft.chain([4], "t", distributions=[q])
        found = verify(draft, [ONLY_2, FLAT], seed, top_k=1)
        assert (found.path, tokens(found)) == ((), [2])


def test_q_is_renormalised_without_rejected_siblings() -> None:
    q = source([0, 1, 2], [0.5, 0.3, 0.2])
    draft = Draft((0, 1, 2), (-1, -1, -1), distributions=(q, q, None))
    assert candidate(draft, 0, []).probability == 0.5
    assert candidate(draft, 1, [0]).probability == pytest.approx(0.6)
    assert candidate(draft, 2, [0, 1]).probability == 1.0
    assert q.probabilities.tolist() == [0.5, 0.3, 0.2]


@pytest.mark.parametrize("ids", [[0, 1], [0, 5], [3, 4]])
def test_a_token_that_its_source_cannot_draw_is_a_point_mass(ids: list[int]) -> None:
    draft = Draft((2,), (-1,), distributions=(source(ids, [0.5, 0.5]),))
    found = candidate(draft, 0, [])
    assert (found.ids.tolist(), found.probability) == ([2], 1.0)


def test_subtraction() -> None:
    left = Remainder(np.array([0.5, 0.3, 0.2]))
    q = source([0, 1], [0.75, 0.25])
    left.subtract(candidate(Draft((0,), (-1,), distributions=(q,)), 0, []))
    assert [left.probability(token) for token in range(3)] == pytest.approx([0.0, 0.2, 0.8])
    left.subtract(point_mass(2))
    assert [left.probability(token) for token in range(3)] == [0.0, 1.0, 0.0]


def test_where_rounding_leaves_nothing_p_stays() -> None:
    p = np.array([0.1, 0.2, 0.7])
    above = source([0, 1, 2], [0.1, 0.2, 0.7 * (1 + 1e-15)])
    left = Remainder(p.copy())
    found = candidate(Draft((2,), (-1,), distributions=(above,)), 0, [])
    found = type(found)(found.token, found.ids, found.weights, 1.0, found.weight)
    left.subtract(found)
    assert left.weights.tolist() == p.tolist()
    assert {left.draw(u) for u in (0.05, 0.2, 0.9)} == {0, 1, 2}


def test_a_draw_never_falls_on_a_weight_of_zero() -> None:
    left = Remainder(np.array([0.0, 0.3, 0.0, 0.7, 0.0]))
    largest = 1.0 - 2.0**-53
    assert [left.draw(u) for u in (0.0, 0.2999, 0.3001, largest)] == [1, 1, 3, 3]
    for weight in (1e-300, 0.1, 3.0, 1e300):
        assert Remainder(np.array([weight, 0.0])).draw(largest) == 0


@pytest.mark.parametrize("drawn", [False, True], ids=["point masses", "drawn"])
def test_an_accepted_end_token_is_the_next_token(drawn: bool) -> None:
    q = [source([2], [1.0])] * 3 if drawn else []
    draft = Draft.chain([2, 2, 1], "t", distributions=q)
    found = verify(draft, [ONLY_2] * 4, top_k=1, ends=(2,))
    assert (found.path, tokens(found), found.tested) == ((), [2], 1)
    later = verify(Draft.chain([2, 1], "t"), [ONLY_2, [9.0, *FLAT[1:]], FLAT], top_k=1, ends=(0,))
    assert (later.path, tokens(later), later.tested) == ((0,), [2, 0], 2)


def test_log_probabilities_are_those_of_plain_sampling() -> None:
    row = [1.0, 3.0, 2.0, 0.0, -1.0, 0.5]
    draft = Draft.chain([1], "t", distributions=[source([1], [1.0])])
    for seed in range(10):
        found = verify(draft, [row, row], seed, logprobs=2, logit_bias={4: 5.0})
        plain = state(logprobs=2).sample(np.array(row, np.float32))
        exact = np.array(row) - np.log(np.exp(row).sum())
        for drawn in found.sampled:
            assert drawn.logprob == pytest.approx(exact[drawn.token], abs=1e-6)
            assert drawn.top == plain.top


@pytest.mark.parametrize(
    "draft",
    [
        Draft(),
        Draft.chain([1], "t"),
        Draft.chain([1], "t", distributions=[source([0, 1], [0.5, 0.5])]),
    ],
    ids=["none", "point mass", "drawn"],
)
def test_a_row_that_is_not_finite(draft: Draft) -> None:
    rows = [[0.0, np.nan, 0.0, 0.0, 0.0, 0.0]] * (1 + len(draft))
    with pytest.raises(BackendError, match="nan for token 1"):
        verify(draft, rows)


def test_a_run_is_reproducible_and_depends_on_seed_and_index() -> None:
    rows = np.random.default_rng(3).standard_normal((4, VOCABULARY)).astype(np.float32)
    draft = Draft.chain([0, 1, 2], "t")
    found = [tuple(tokens(verify(draft, rows, seed))) for seed in range(40)]
    assert found == [tuple(tokens(verify(draft, rows, seed))) for seed in range(40)]
    assert len(set(found)) > 5
    later = []
    for index in range(40):
        sampler = state(7)
        sampler.index = index
        later.append(Rejection().verify(draft, rows, sampler, ()).next_token)
    assert len(set(later)) > 2


def test_plain_noise_is_not_used() -> None:
    """What a drafter may foresee with the sampler it is given must not be what is drawn."""
    row = np.zeros((1, VOCABULARY), np.float32)
    same = [
        state(seed).sample(row[0]).token == verify(Draft(), row, seed).next_token
        for seed in range(600)
    ]
    # 4 standard errors
    assert abs(np.mean(same) - 1 / VOCABULARY) < 4 * np.sqrt(5 / 36 / 600)


def test_acceptance_and_remainder_use_different_numbers() -> None:
    numbers = [
        uniform(seed, in_stream(9, stream), number)
        for seed in (0, 1, 2**63)
        for stream in (ACCEPTANCE, REMAINDER)
        for number in range(3)
    ]
    assert len(set(numbers)) == len(numbers)
