"""The filters without sorting give what the sorting twin gives."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.filters import kept
from slipstream.noise import GUMBEL_SPREAD
from slipstream.options import SamplingOptions
from slipstream.sampling import NumpyPrimitives, SamplerState, candidates


@given(
    seed=st.integers(0, 2**32),
    size=st.integers(1, 3000),
    spread=st.sampled_from([0.0, 0.01, 1.0, 8.0, 300.0]),
    levels=st.sampled_from([0, 2, 5]),
    top_k=st.sampled_from([0, 1, 5, 40, 5000]),
    top_p=st.sampled_from([1.0, 0.999, 0.95, 0.3, 1e-6, 0.0]),
    min_p=st.sampled_from([0.0, 1e-12, 0.05, 0.9, 1.0]),
)
def test_it_equals_its_slow_twin(
    seed: int, size: int, spread: float, levels: int, top_k: int, top_p: float, min_p: float
) -> None:
    """Rows of few levels have many ties."""
    noise = np.random.default_rng(seed).standard_normal(size) * spread
    row = (np.round(noise * levels) / levels if levels else noise).astype(np.float32)
    found = kept(row, top_k, top_p, min_p)
    expected = np.sort(candidates(row, top_k, top_p, min_p))
    np.testing.assert_array_equal(np.arange(size) if found is None else found, expected)


def test_no_mass_leaves_the_best_alone() -> None:
    row = np.array([1.0, 7.0, 3.0, 7.0], np.float32)
    found = kept(row, 0, 0.0, 0.0)
    assert found is not None
    assert found.tolist() == [1]
    assert candidates(row, 0, 0.0, 0.0).tolist() == [1]


def test_no_filter_is_said() -> None:
    row = np.zeros(10, np.float32)
    assert kept(row, 0, 1.0, 0.0) is None
    assert kept(row, 10, 1.0, 0.0) is None
    found = kept(row, 9, 1.0, 0.0)
    assert found is not None
    assert found.tolist() == list(range(9))


@pytest.mark.parametrize("options", [{}, {"top_k": 7}, {"top_p": 0.8}, {"min_p": 0.1}], ids=str)
@pytest.mark.parametrize("temperature", [1e-30, 0.3, 1.0, 100.0])
def test_the_distribution_is_a_softmax_of_what_is_kept(
    options: dict[str, float], temperature: float
) -> None:
    row = (np.random.default_rng(1).standard_normal(500) * 3).astype(np.float32)
    settings = SamplingOptions(temperature=temperature, **options)  # type: ignore[arg-type]
    found = SamplerState(settings, (), 1, NumpyPrimitives()).distribution(row)
    ids = candidates(row, settings.top_k, settings.top_p, settings.min_p)
    weights = np.exp((row[ids].astype(np.float64) - row.max()) / temperature)
    expected = np.zeros(500)
    expected[ids] = weights / weights.sum()
    np.testing.assert_allclose(found, expected, rtol=5e-9, atol=1e-11)
    assert found.sum() == pytest.approx(1.0, abs=1e-12)


def test_what_the_noise_cannot_lift_has_no_probability() -> None:
    row = np.array([30.0, 30.0 - GUMBEL_SPREAD + 0.05, 30.0 - GUMBEL_SPREAD - 0.05], np.float32)
    for temperature, possible in [(0.5, 1), (1.0, 2), (2.0, 3)]:
        settings = SamplingOptions(temperature=temperature)
        found = SamplerState(settings, (), 1, NumpyPrimitives()).distribution(row)
        assert np.count_nonzero(found) == possible
