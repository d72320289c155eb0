"""Uniform numbers, and the streams that keep uses of one index apart."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from slipstream.noise import (
    ACCEPTANCE,
    PRETENCE,
    REMAINDER,
    TOKENS,
    _first_words,
    gumbel,
    in_stream,
    philox,
    uniform,
)

STREAMS = (TOKENS, ACCEPTANCE, REMAINDER, PRETENCE)
word = st.integers(0, 2**32 - 1)


@given(counter=st.tuples(word, word, word, word), key=st.tuples(word, word))
def test_plain_integers_give_the_words_of_arrays(
    counter: tuple[int, int, int, int], key: tuple[int, int]
) -> None:
    first = np.array([counter[0]], np.uint64)
    words = philox((first, *counter[1:]), key)
    assert _first_words(counter, key) == (int(words[0][0]), int(words[1][0]))


def test_uniform_numbers_are_uniform_and_below_one() -> None:
    numbers = np.array([uniform(3, index, index % 5) for index in range(20_000)])
    assert numbers.min() >= 0.0
    assert numbers.max() < 1.0
    assert stats.kstest(numbers, "uniform").pvalue > 0.001


def test_a_uniform_number_depends_on_every_input() -> None:
    inputs = [(7, 3, 0), (8, 3, 0), (7 + 2**32, 3, 0), (7, 4, 0), (7, 3 + 2**32, 0), (7, 3, 1)]
    assert len({uniform(*given) for given in inputs}) == len(inputs)


def test_streams_differ_and_the_first_is_what_plain_sampling_draws_with() -> None:
    assert len(set(STREAMS)) == len(STREAMS)
    assert in_stream(12, TOKENS) == 12
    ids = np.arange(10_000)
    noise = [gumbel(5, in_stream(12, stream), ids) for stream in STREAMS]
    for first in range(len(STREAMS)):
        for second in range(first):
            correlation = np.corrcoef(noise[first], noise[second])[0, 1]
            assert abs(correlation) < 4 / np.sqrt(ids.size)


@pytest.mark.parametrize("stream", STREAMS)
def test_an_index_in_a_stream_is_64_bits(stream: int) -> None:
    assert in_stream(2**40, stream) < 2**64
