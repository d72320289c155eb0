"""The index of suffixes against a search by hand, both ways of learning, and the pool of texts."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.drafters import suffix_pool
from slipstream.drafters.suffix_index import MATCH_MAX, SEPARATOR, STRIDE, WALK, SuffixIndex
from slipstream.drafters.suffix_pool import SuffixPool

TOKENS = st.lists(st.sampled_from([0, 1, 2, 151643]), max_size=120)
ENGLISH = random.Random(4).choices(range(300), k=600)


def indexed(tokens: Sequence[int], shortest: int = 2) -> SuffixIndex:
    index = SuffixIndex(shortest)
    index.extend(tokens)
    return index


def agreeing(tokens: Sequence[int], end: int, query: Sequence[int]) -> int:
    """By hand: how many tokens before ``end`` equal the newest of the query."""
    length = 0
    while (
        length < min(end, len(query), MATCH_MAX) and tokens[end - 1 - length] == query[-1 - length]
    ):
        length += 1
    return length


def occurrences_by_hand(
    tokens: Sequence[int], query: Sequence[int], shortest: int, most: int, before: int
) -> dict[int, int]:
    """The definition: per key length, the newest ``WALK`` occurrences of the last tokens."""
    orders = [shortest]
    while STRIDE * orders[-1] < MATCH_MAX:
        orders.append(STRIDE * orders[-1])
    found: dict[int, int] = {}
    for order in reversed(orders):
        if len(query) < order:
            continue
        ends = [
            end
            for end in range(order, len(tokens) + 1)
            if tokens[end - order : end] == query[-order:]
        ]
        for end in reversed(ends[-WALK:]):
            if end < before and end not in found and len(found) < most:
                found[end] = agreeing(tokens, end, query)
    return found


@given(TOKENS, st.integers(1, 5), st.integers(1, 30))
def test_own_occurrences_equal_a_search_by_hand(
    tokens: list[int], shortest: int, most: int
) -> None:
    index = indexed(tokens, shortest)
    query = index.query()
    expected = occurrences_by_hand(tokens, tokens, shortest, most, len(tokens))
    found = index.occurrences(query, most, query.length)
    assert list(found.items()) == list(expected.items())


@given(TOKENS, TOKENS, st.integers(1, 3))
def test_occurrences_in_another_text_equal_a_search_by_hand(
    text: list[int], newest: list[int], shortest: int
) -> None:
    text.append(SEPARATOR)
    index = indexed(text, shortest)
    expected = occurrences_by_hand(text, newest, shortest, 8, len(text) + 1)
    found = index.occurrences(indexed(newest, shortest).query(), 8, len(text) + 1)
    assert list(found.items()) == list(expected.items())


@given(st.lists(TOKENS, max_size=5), st.integers(1, 40))
def test_learning_at_once_equals_learning_token_by_token(
    parts: list[list[int]], shortest: int
) -> None:
    slow, fast = SuffixIndex(shortest), SuffixIndex(shortest)
    for part in parts:
        slow.extend_singly(part)
        fast.extend_at_once(part)
        assert slow.query() == fast.query()
    assert slow.tokens == fast.tokens
    for one, other in zip(slow._levels, fast._levels, strict=True):
        assert one.previous == other.previous
        assert one.heads == other.heads


def test_an_index_that_outgrows_its_slots_still_finds_everything() -> None:
    generator = random.Random(1)
    tokens = [generator.randrange(40) for _ in range(5000)]
    index = SuffixIndex(2)
    for start in range(0, len(tokens), 37):
        index.extend(tokens[start : start + 37])
    assert len(index) == 5000
    query = index.query()
    expected = occurrences_by_hand(tokens, tokens, 2, 12, 5000)
    assert index.occurrences(query, 12, query.length) == expected
    assert index.bytes() < 120 * 5000


def test_a_copy_of_an_index_goes_its_own_way() -> None:
    index = indexed([1, 2, 3, 1, 2])
    twin = index.copy()
    twin.extend([3])
    index.extend([9])
    assert twin.occurrences(twin.query(), 4, 6) == {3: 3}
    assert index.occurrences(index.query(), 4, 6) == {}


def test_a_conversation_that_goes_on_is_remembered_once() -> None:
    pool = SuffixPool()
    pool.add(ENGLISH[:300])
    pool.add(ENGLISH[:500])
    assert len(pool) == 300 + 1 + 200 + MATCH_MAX + 1
    pool.add(ENGLISH[100:200])
    assert len(pool) == 300 + 1 + 200 + MATCH_MAX + 1 + 101


def test_a_pool_drops_its_oldest_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suffix_pool, "SEGMENT_TOKENS", 1000)
    monkeypatch.setattr(suffix_pool, "FIRST_SEGMENT_TOKENS", 500)
    pool = SuffixPool(2, 3000)
    generator = random.Random(2)
    texts = [[generator.randrange(10_000) for _ in range(400)] for _ in range(12)]
    for text in texts:
        pool.add(text)
        assert len(pool) <= 3000
    for number, text in enumerate(texts):
        query = indexed(text[:200]).query()
        found = [s.occurrences(query, 4, len(s) + 1) for s in pool.segments]
        assert any(found) == (number >= 5), number
    pool.add([generator.randrange(10_000) for _ in range(9000)])
    assert len(pool) == 3000


def test_a_full_pool_fits_its_promise() -> None:
    pool = SuffixPool()
    text = list(range(60_000))
    for start in range(20):
        pool.add([start, *text])
    assert len(pool) <= suffix_pool.POOL_TOKENS
    assert pool.bytes() <= 64 << 20
