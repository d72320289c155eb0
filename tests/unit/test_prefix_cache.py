"""The prefix cache over a paged memory: what is taken, kept, replaced and given up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paged_memory import GRAPH, NO_WINDOW, WINDOW, Runner, compute, states, text
from slipstream.engine.prefix_cache import SHORTEST, WAIT, PrefixCache, agreement
from slipstream.graph import Graph
from slipstream.memory.attention import AttentionMemory


def computed(memory: AttentionMemory, tokens: Sequence[int]) -> int:
    handle = memory.open()
    compute(memory, handle, tokens, len(tokens))
    return handle


def running(memory: AttentionMemory, tokens: list[int], count: int, **others: Any) -> Runner:
    """A sequence that has computed ``count`` tokens of its prompt."""
    runner = Runner("a", list(tokens), len(tokens), **others)
    runner.handle, runner.committed = computed(memory, tokens[:count]), count
    return runner


def kept(cache: PrefixCache, tokens: Sequence[int], session: str = "a") -> int:
    assert isinstance(cache.memory, AttentionMemory)
    handle = computed(cache.memory, tokens)
    cache.keep(session, tokens, handle)
    return handle


def reused(cache: PrefixCache, tokens: Sequence[int], session: str = "a") -> int:
    """Tokens that a sequence starts with; it goes on with the rest, and is closed."""
    taken = cache.take(session, tokens)
    assert taken is not None
    handle, count = taken
    assert cache.memory.length(handle) == count < len(tokens)
    assert isinstance(cache.memory, AttentionMemory)
    compute(cache.memory, handle, tokens, len(tokens) - count)
    cache.memory.close(handle)
    return count


def cached(entries: int = 4, pages: int | None = None, graph: Graph = NO_WINDOW) -> PrefixCache:
    return PrefixCache(AttentionMemory(graph, 512, 2), entries, pages)


def test_the_longest_prefix_is_taken_and_the_last_token_is_not() -> None:
    cache = cached()
    whole = text(0, 200)
    kept(cache, whole[:90])
    kept(cache, [*whole[:150], *text(1, 30)])
    assert reused(cache, [*whole, 7]) == 150
    assert reused(cache, [*whole[:100], 7]) == 100
    assert reused(cache, whole[:90]) == 89
    assert reused(cache, [*whole[:90], 7]) == 90
    assert reused(cache, text(2, 100)) == 0


def test_few_tokens_are_computed() -> None:
    cache = cached()
    whole = text(0, 100)
    kept(cache, whole)
    counts = [reused(cache, [*whole[:n], 7]) for n in (0, 1, SHORTEST - 1, SHORTEST, 50)]
    assert counts == [0, 0, 0, SHORTEST, 50]
    kept(cache, text(1, SHORTEST - 1))
    assert len(cache) == 1


def test_sessions_have_nothing_in_common() -> None:
    cache = cached()
    whole = text(0, 100)
    kept(cache, whole, "a")
    assert [reused(cache, [*whole, 7], session) for session in ("b", "", "a")] == [0, 0, 100]
    kept(cache, whole, "b")
    assert cache.sessions() == {"a": 100, "b": 100}
    cache.forget("a")
    assert [reused(cache, [*whole, 7], session) for session in ("a", "b")] == [0, 100]
    cache.forget()
    assert (cache.sessions(), cache.memory.bytes()) == ({}, 0)


def test_an_entry_that_another_extends_is_replaced() -> None:
    cache = cached()
    whole = text(0, 200)
    kept(cache, whole[:100])
    kept(cache, whole)
    assert cache.sessions() == {"a": 200}
    kept(cache, whole[:150])
    kept(cache, whole)
    assert cache.sessions() == {"a": 200}
    kept(cache, whole[:150], "b")
    assert cache.sessions() == {"a": 200, "b": 150}


def test_the_one_used_longest_ago_goes_first() -> None:
    cache = cached(entries=2)
    one, two, three = (text(seed, 60) for seed in range(3))
    kept(cache, one)
    kept(cache, two)
    assert reused(cache, [*one, 7]) == 60
    kept(cache, three)
    assert [reused(cache, [*t, 7]) for t in (one, two, three)] == [60, 0, 60]
    assert cache.evict()
    assert [reused(cache, [*t, 7]) for t in (one, three)] == [0, 60]
    assert cache.evict()
    assert not cache.evict()
    assert cache.memory.bytes() == 0


def test_without_entries_nothing_is_kept() -> None:
    cache = cached(entries=0)
    kept(cache, text(0, 100))
    assert (len(cache), cache.memory.bytes()) == (0, 0)


def test_pages_bound_what_is_kept() -> None:
    cache = cached(pages=2)
    whole = text(0, 200)
    kept(cache, whole)
    assert cache.sessions() == {"a": 128}
    assert reused(cache, [*whole, 7]) == 128
    kept(cache, text(1, 60))
    assert cache.sessions() == {"a": 60}
    kept(cache, text(2, 60))
    assert cache.sessions() == {"a": 120}
    none = cached(pages=0)
    kept(none, whole)
    assert (len(none), none.memory.bytes()) == (0, 0)


def test_shared_pages_count_once() -> None:
    cache = cached(pages=4)
    prefix = text(0, 128)
    for seed in (1, 2):
        taken = cache.take("a", [*prefix, *text(seed, 60)])
        assert taken is not None
        handle, count = taken
        assert isinstance(cache.memory, AttentionMemory)
        compute(cache.memory, handle, [*prefix, *text(seed, 60)], 188 - count)
        cache.keep("a", [*prefix, *text(seed, 60)], handle)
    assert len(cache) == 2
    assert cache.memory.pages_held(k.handle for k in cache._kept) == 4


def test_a_window_limits_what_can_be_taken() -> None:
    cache = cached(graph=GRAPH)
    whole = text(0, 300)
    kept(cache, whole)
    earliest = cache.memory.earliest(cache._kept[0].handle)
    assert WINDOW < earliest < 300
    counts = [reused(cache, [*whole[:n], 7]) for n in (earliest - 1, earliest, 250)]
    assert counts == [0, earliest, 250]


def test_a_window_that_moved_on_does_not_replace() -> None:
    cache = cached(graph=GRAPH)
    whole = text(0, 300)
    kept(cache, whole[:120])
    kept(cache, whole)
    assert cache.sessions() == {"a": 420}
    assert [reused(cache, [*whole[:n], 7]) for n in (100, 290)] == [100, 290]
    bounded = cached(graph=GRAPH, pages=1)
    kept(bounded, whole)
    assert len(bounded) == 0, "none of its first page is left"


def test_what_a_memory_holds_beyond_the_tokens_is_not_used() -> None:
    cache = cached()
    memory, whole = cache.memory, text(0, 100)
    assert isinstance(memory, AttentionMemory)
    cache.keep("a", whole[:80], computed(memory, [*whole[:80], *text(1, 40)]))
    assert reused(cache, whole) == 80


def test_a_running_sequence_is_forked() -> None:
    cache = cached()
    memory = cache.memory
    assert isinstance(memory, AttentionMemory)
    prompt = text(0, 200)
    runner = running(memory, prompt, 200)
    runner.tokens += [1, 2, 3]
    for session, expected in (("a", 199), ("b", 0)):
        taken = cache.take(session, prompt, states([runner]))
        assert taken is not None
        assert taken[1] == expected
        compute(memory, taken[0], prompt, 200 - expected)
    runner.shareable = False
    assert cast(Any, cache.take("a", prompt, states([runner])))[1] == 0
    compute(memory, runner.handle, runner.tokens, 3)


def test_a_prompt_that_is_being_computed_is_waited_for() -> None:
    cache = cached()
    memory = cache.memory
    assert isinstance(memory, AttentionMemory)
    prompt = text(0, 300)
    runner = running(memory, prompt, 100)
    waiting = Runner("a", prompt, 300)
    runners = states([runner, waiting])
    assert cache.take("a", prompt, runners) is None
    assert cache.take("b", prompt, runners) is not None
    assert cast(Any, cache.take("a", [*prompt[:100], 7], runners))[1] == 100
    assert cast(Any, cache.take("a", [*prompt[: 99 + WAIT], 7], runners))[1] == 100
    assert cache.take("a", [*prompt[: 100 + WAIT], 7], runners) is None
    runner.shareable = False
    assert cast(Any, cache.take("a", prompt, runners))[1] == 0
    runner.shareable = True
    compute(memory, runner.handle, prompt, 200)
    runner.committed = 300
    assert cast(Any, cache.take("a", prompt, runners))[1] == 299


def test_who_ran_past_its_window_is_not_waited_for() -> None:
    cache = cached(graph=GRAPH)
    memory = cache.memory
    assert isinstance(memory, AttentionMemory)
    prompt = text(0, 500)
    runner = running(memory, prompt, 400)
    assert cast(Any, cache.take("a", [*prompt[:100], 7], states([runner])))[1] == 0


@given(st.lists(st.integers(0, 1), max_size=12), st.lists(st.integers(0, 1), max_size=12))
def test_agreement_is_the_common_prefix(ours: list[int], theirs: list[int]) -> None:
    count = agreement(ours, theirs)
    assert ours[:count] == theirs[:count]
    assert count == min(len(ours), len(theirs)) or ours[count] != theirs[count]


@pytest.mark.parametrize("length", [0, 1, SHORTEST - 1])
def test_short_sequences_are_closed(length: int) -> None:
    cache = cached()
    handle = cache.memory.open()
    if length:
        assert isinstance(cache.memory, AttentionMemory)
        compute(cache.memory, handle, text(0, length), length)
    cache.keep("a", text(0, length), handle)
    assert (len(cache), cache.memory.bytes()) == (0, 0)
