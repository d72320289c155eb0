"""The sampling chain: order, filters, noise, penalties, log-probabilities."""

from __future__ import annotations

from collections import Counter
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from slipstream.errors import BackendError
from slipstream.noise import GUMBEL_SPREAD, gumbel, philox
from slipstream.options import SamplingOptions
from slipstream.sampling import (
    NumpyPrimitives,
    Primitives,
    Sampled,
    SamplerState,
    candidates,
    default_primitives,
)

HAS_NATIVE = find_spec("slipstream._native") is not None
native = pytest.param("native", marks=pytest.mark.native)


@pytest.fixture(params=["numpy", native])
def primitives(request: pytest.FixtureRequest) -> Primitives:
    if request.param == "numpy":
        return NumpyPrimitives()
    if not HAS_NATIVE:
        pytest.skip("the native core is not built")
    from slipstream.native_sampling import NativePrimitives

    return NativePrimitives("portable")


def row(*logits: float) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.array(logits, np.float32)


def state(prompt: tuple[int, ...] = (), seed: int = 1, **options: Any) -> SamplerState:
    return SamplerState(SamplingOptions(**options), prompt, seed, NumpyPrimitives())


def test_philox_known_answers() -> None:
    """The reference vectors of Random123's philox4x32-10."""
    ones = 0xFFFFFFFF
    pi = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344)
    cases = [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((ones,) * 4, (ones, ones), (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (pi, (0xA4093822, 0x299F31D0), (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)),
    ]
    for counter, key, expected in cases:
        first = np.array([counter[0]], np.uint64)
        words = philox((first, *counter[1:]), key)
        assert tuple(int(word[0]) for word in words) == expected


def test_gumbel_depends_on_every_input_and_stays_in_its_bounds() -> None:
    ids = np.arange(100_000)
    base = gumbel(7, 3, ids)
    for other in (gumbel(8, 3, ids), gumbel(7 + 2**32, 3, ids), gumbel(7, 4, ids)):
        assert np.mean(base == other) < 0.001
    assert np.any(gumbel(7, 3 + 2**32, ids) != base)
    assert np.array_equal(gumbel(7, 3, ids[500:600]), base[500:600])
    bounds = -np.log(-np.log(np.array([0.5, 2.0**32 - 0.5]) * 2.0**-32))
    assert bounds[1] - bounds[0] < GUMBEL_SPREAD
    assert stats.kstest(base, "gumbel_r").pvalue > 0.001


def test_candidates_are_ordered_by_logit_then_id() -> None:
    assert candidates(row(1, 3, 2, 3), 0, 1.0, 0.0).tolist() == [1, 3, 2, 0]
    assert candidates(row(1, 3, 2, 3), 1, 1.0, 0.0).tolist() == [1]
    assert candidates(row(1, 3, 2, 3), 99, 1.0, 0.0).tolist() == [1, 3, 2, 0]


def test_top_p_keeps_the_shortest_sufficient_prefix() -> None:
    logits = np.log(np.array([0.5, 0.3, 0.15, 0.05], np.float32))
    for top_p, kept in [(0.01, 1), (0.49, 1), (0.51, 2), (0.79, 2), (0.81, 3), (0.96, 4)]:
        assert candidates(logits, 0, top_p, 0.0).size == kept
    # renormalised over what top-k left: 0.5 / 0.8
    assert candidates(logits, 2, 0.62, 0.0).size == 1
    assert candidates(logits, 2, 0.63, 0.0).size == 2


def test_min_p_is_relative_to_the_best() -> None:
    logits = np.log(np.array([0.5, 0.3, 0.15, 0.05], np.float32))
    for min_p, kept in [(0.05, 4), (0.2, 3), (0.31, 2), (0.61, 1), (1.0, 1)]:
        assert candidates(logits, 0, 1.0, min_p).size == kept


def test_filters_ignore_temperature() -> None:
    logits = row(2, 1, 0, -1)
    for temperature in (0.1, 1.0, 10.0):
        chain = state(temperature=temperature, top_p=0.8)
        assert np.count_nonzero(chain.distribution(logits)) == 2


def test_temperature_scales_what_the_filters_left() -> None:
    found = state(temperature=0.5, top_k=2).distribution(row(2, 1, 0))
    expected = np.exp([4.0, 2.0]) / np.exp([4.0, 2.0]).sum()
    np.testing.assert_allclose(found, [*expected, 0.0], rtol=1e-12)


def test_greedy_takes_the_lowest_of_equal_ids(primitives: Primitives) -> None:
    assert primitives.argmax(row(0, 5, 5, -1)) == 1
    chain = state(temperature=0.0, top_k=3, top_p=0.5)
    assert chain.sample(row(0, 5, 5, -1)).token == 1
    assert chain.distribution(row(0, 5, 5, -1)).tolist() == [0, 1, 0, 0]


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 1.0},
        {"temperature": 0.6},
        {"temperature": 1.7, "top_k": 12},
        {"temperature": 1.0, "top_p": 0.8},
        {"temperature": 0.9, "min_p": 0.1},
        {"temperature": 0.8, "top_k": 20, "top_p": 0.9, "min_p": 0.02},
    ],
    ids=str,
)
def test_draws_follow_the_distribution(primitives: Primitives, options: dict[str, Any]) -> None:
    logits = np.random.default_rng(5).standard_normal(40).astype(np.float32) * 1.5
    chain = SamplerState(SamplingOptions(**options), (), 20, primitives)
    expected = chain.distribution(logits)
    draws = 3_000
    counts: Counter[int] = Counter()
    for _ in range(draws):
        counts[chain.sample(logits).token] += 1
        chain.index += 1
    assert all(expected[token] > 0 for token in counts)
    observed = np.array([counts[token] for token in range(40)])
    often = expected * draws >= 5
    pooled = [*observed[often], observed[~often].sum()], [*expected[often], expected[~often].sum()]
    seen, share = (np.array(values, float)[np.array(pooled[1]) > 0] for values in pooled)
    assert stats.chisquare(seen, share / share.sum() * draws).pvalue > 0.001


def test_seeds_give_independent_streams() -> None:
    logits = np.zeros(50, np.float32)
    pairs = [
        tuple(state(seed=seed + i, temperature=1.0).sample(logits).token for i in (0, 1))
        for seed in range(1500)
    ]
    assert abs(np.mean([a == b for a, b in pairs]) - 1 / 50) < 0.012


@pytest.mark.native
@pytest.mark.skipif(not HAS_NATIVE, reason="the native core is not built")
@given(
    seed=st.integers(0, 2**64 - 1),
    index=st.integers(0, 2**40),
    size=st.integers(1, 700),
    spread=st.sampled_from([0.0, 0.01, 1.0, 8.0]),
    temperature=st.sampled_from([0.05, 0.7, 1.0, 3.0]),
    top_k=st.sampled_from([0, 1, 5, 40]),
    top_p=st.sampled_from([1.0, 0.95, 0.3]),
    min_p=st.sampled_from([0.0, 0.05, 0.9]),
)
def test_native_and_numpy_draw_the_same_token(
    seed: int,
    index: int,
    size: int,
    spread: float,
    temperature: float,
    top_k: int,
    top_p: float,
    min_p: float,
) -> None:
    from slipstream.native_sampling import NativePrimitives

    generator = np.random.default_rng([seed, index])
    logits = (generator.standard_normal(size) * spread).astype(np.float32)
    native_core, slow = NativePrimitives("portable"), NumpyPrimitives()
    settings = (temperature, top_k, top_p, min_p, seed, index)
    assert native_core.sample(logits, *settings) == slow.sample(logits, *settings)
    assert native_core.argmax(logits) == slow.argmax(logits)
    assert native_core.log_sum_exp(logits) == pytest.approx(slow.log_sum_exp(logits), abs=1e-6)


def test_default_primitives_say_which_they_are() -> None:
    assert default_primitives().name == ("native" if HAS_NATIVE else "numpy")


def test_a_far_candidate_is_never_pruned_wrongly() -> None:
    logits = np.zeros(4096, np.float32)
    logits[::2] = -GUMBEL_SPREAD / 2
    for index in range(50):
        ids = np.arange(4096)
        scores = logits.astype(np.float64) + gumbel(3, index, ids)
        drawn = NumpyPrimitives().sample(logits, 1.0, 0, 1.0, 0.0, 3, index)
        assert drawn == int(np.argmax(scores))


def test_bias_comes_first() -> None:
    chain = state(prompt=(0, 0), logit_bias={0: 4.0, 2: -100.0}, repetition_penalty=2.0)
    # 1 + 4 = 5, divided by 2, so 2.5 against 2
    assert chain.sample(row(1, 2, 9)).token == 0
    assert state(logit_bias={2: -100.0}).sample(row(1, 2, 9)).token == 1


def test_penalties_are_those_of_llama_cpp() -> None:
    chain = state(
        prompt=(1, 1, 2),
        repetition_penalty=2.0,
        frequency_penalty=0.25,
        presence_penalty=0.5,
        temperature=1.0,
    )
    logits = row(1.0, 3.0, -1.0, 0.5)
    adjusted = np.array([1.0, 3.0 / 2 - 2 * 0.25 - 0.5, -1.0 * 2 - 0.25 - 0.5, 0.5])
    expected = np.exp(adjusted) / np.exp(adjusted).sum()
    np.testing.assert_allclose(chain.distribution(logits), expected, rtol=1e-6)
    assert logits.tolist() == [1.0, 3.0, -1.0, 0.5]


@pytest.mark.parametrize(("window", "best"), [(0, 0), (1, 0), (2, 1), (64, 1), (-1, 1)])
def test_the_penalty_window_slides_over_prompt_and_output(window: int, best: int) -> None:
    chain = state(prompt=(0,), presence_penalty=10.0, penalty_window=window)
    chain.advance(2)
    assert chain.sample(row(3, 2, 1)).token == best


@pytest.mark.parametrize("window", [1, 3, 5, -1])
def test_the_penalty_window_holds_the_newest_tokens(window: int) -> None:
    prompt, output = (7, 8), list(range(7))
    chain = state(prompt=prompt, penalty_window=window, presence_penalty=1.0, temperature=1.0)
    for token in output:
        chain.advance(token)
    tokens = [*prompt, *output]
    expected = sorted(set(tokens if window < 0 else tokens[-window:]))
    likely = chain.distribution(np.zeros(10, np.float32))
    assert np.flatnonzero(likely < likely.max()).tolist() == expected


def test_sampling_is_pure_until_advanced() -> None:
    chain = state(temperature=1.0, presence_penalty=0.3)
    logits = np.random.default_rng(0).standard_normal(100).astype(np.float32)
    first = chain.sample(logits)
    chain.distribution(logits)
    assert chain.sample(logits) == first
    chain.advance(first.token)
    assert chain.index == 1


def test_fork_has_the_same_future_and_no_shared_past() -> None:
    chain = state(temperature=1.0, presence_penalty=2.0, seed=5)
    logits = np.random.default_rng(0).standard_normal(30).astype(np.float32)
    for token in range(5):
        chain.advance(token)
    twin = chain.fork()
    assert twin.sample(logits) == chain.sample(logits)
    for token in range(30):
        twin.advance(token)
    assert twin.index == 35
    assert chain.index == 5
    assert chain._window == [0, 1, 2, 3, 4]


def test_logprobs_are_of_the_raw_logits() -> None:
    logits = row(1, 3, 3, 0)
    chain = state(logprobs=3, logit_bias={3: 50.0}, temperature=0.5, top_k=2)
    drawn = chain.sample(logits)
    total = np.log(np.exp(logits.astype(float)).sum())
    assert drawn.token == 3
    assert drawn.logprob == pytest.approx(0 - total)
    assert [token for token, _ in drawn.top] == [1, 2, 0]
    assert [value for _, value in drawn.top] == pytest.approx([3 - total, 3 - total, 1 - total])


def test_logprobs_only_where_asked() -> None:
    assert state().sample(row(0, 1)) == Sampled(1)
    zero = state(logprobs=0).sample(row(0, 1))
    assert zero.top == ()
    assert zero.logprob is not None
    assert len(state(logprobs=9).sample(row(0, 1)).top) == 2


def test_log_sum_exp(primitives: Primitives) -> None:
    assert primitives.log_sum_exp(row(700, 700)) == pytest.approx(700 + np.log(2))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_rows_that_are_not_finite_are_a_backend_error(
    primitives: Primitives, temperature: float, bad: float
) -> None:
    chain = SamplerState(SamplingOptions(temperature=temperature), (), 1, primitives)
    with pytest.raises(BackendError, match=f"finite logits; found {bad} for token 1"):
        chain.sample(row(0, bad, 1))


EXTREMES: list[dict[str, Any]] = [
    {"temperature": 1e-300},
    {"temperature": 1.0, "top_k": 2**40, "top_p": 1e-300},
    {"temperature": 1e-308, "min_p": 1.0},
    {"repetition_penalty": 1e-300, "temperature": 0.5},
]


@pytest.mark.parametrize("options", EXTREMES)
def test_options_at_their_bounds(primitives: Primitives, options: dict[str, Any]) -> None:
    sampler = SamplerState(SamplingOptions(**options), (1,), 3, primitives)
    assert sampler.sample(row(-5, 20, 19.9, 1)).token == 1


def test_large_finite_logits_are_finite() -> None:
    assert state().sample(row(3e38, 3.1e38, 3e38)).token == 1


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_the_culprit_among_large_logits_is_named(bad: float) -> None:
    with pytest.raises(BackendError, match="token 1"):
        state().sample(row(3e38, bad, 3e38, -np.inf))
