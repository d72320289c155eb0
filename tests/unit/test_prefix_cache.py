"""The prefix cache over a paged memory: what is taken, kept, replaced and given up."""

from __future__ import annotations

import random
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from paged_memory import GRAPH, WINDOW, read, step_arrays, write
from slipstream.engine.prefix_cache import SHORTEST, WAIT, PrefixCache, agreement
from slipstream.engine.sequence import SequenceState
from slipstream.graph import Graph
from slipstream.memory.attention import AttentionMemory

NO_WINDOW = Graph(GRAPH.ops[1:2], "test", 4, 4, 512)


def text(seed: int, count: int) -> list[int]:
    return random.Random(seed).choices(range(200), k=count)


def marks_of(tokens: Sequence[int]) -> list[int]:
    """One per token, which depends on all tokens up to it, as a key does."""
    found, crc = [], 0
    for token in tokens:
        crc = zlib.crc32(bytes([token]), crc)
        found.append(2 * (crc % 30_000))
    return found


def compute(memory: AttentionMemory, handle: int, tokens: Sequence[int], count: int) -> None:
    """Add the keys of the next tokens, and check those that the first and the last row read."""
    start = memory.length(handle)
    marks = marks_of(tokens[: start + count])
    layout = memory.layout(*step_arrays([(handle, list(range(-1, count - 1)))]))
    write(memory, layout, marks[start:])
    for number, group in enumerate(memory.groups):
        window = group.window or len(marks)
        for row in {0, count - 1}:
            expected = marks[: start + row + 1][-window:]
            assert read(memory, layout, row, number) == expected
    memory.commit(handle, range(count))


def computed(memory: AttentionMemory, tokens: Sequence[int]) -> int:
    handle = memory.open()
    compute(memory, handle, tokens, len(tokens))
    return handle


@dataclass
class Runner:
    """What the cache reads of a ``SequenceState``."""

    session: str
    tokens: list[int]
    prompt_tokens: int
    handle: int = -1
    committed: int = 0
    shareable: bool = True

    @property
    def prompt_left(self) -> int:
        return max(self.prompt_tokens - self.committed, 0)


def states(runners: Sequence[Runner]) -> list[SequenceState]:
    return cast(list[SequenceState], runners)


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


def cached(
    entries: int = 4, pages: int | None = None, graph: Graph = NO_WINDOW
) -> PrefixCache:
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


CONTEXT, PARALLEL = 320, 3


class PrefixMachine(RuleBasedStateMachine):
    """Sequences of two sessions start, wait, run, overshoot, end and are forgotten.

    Every key that a row reads is checked, a running sequence never lacks a page, and no page is
    lost.
    """

    @initialize(
        graph=st.sampled_from([GRAPH, NO_WINDOW]),
        entries=st.integers(0, 4),
        pages=st.none() | st.integers(0, 5),
    )
    def create(self, graph: Graph, entries: int, pages: int | None) -> None:
        self.memory = AttentionMemory(graph, CONTEXT, PARALLEL)
        self.cache = PrefixCache(self.memory, entries, pages)
        self.entries, self.pages = entries, pages
        self.runners: list[Runner] = []
        self.texts: dict[str, list[list[int]]] = {"a": [], "b": []}

    def able(self, *, whole: bool) -> list[Runner]:
        """Those that run, with or without something left to compute."""
        begun = [runner for runner in self.runners if runner.handle >= 0]
        return [r for r in begun if (r.committed == len(r.tokens)) is whole]

    @precondition(lambda self: len(self.runners) < PARALLEL)
    @rule(
        data=st.data(),
        session=st.sampled_from("ab"),
        seed=st.integers(0, 2),
        count=st.integers(1, 250),
    )
    def start(self, data: st.DataObject, session: str, seed: int, count: int) -> None:
        known = [t for texts in self.texts.values() for t in texts]
        base = data.draw(st.sampled_from(known), label="base") if known else []
        cut = data.draw(st.integers(0, len(base)), label="cut")
        prompt = [*base[:cut], *text(seed, count)][: CONTEXT - 10]
        self.runners.append(Runner(session, prompt, len(prompt)))
        self.begin()

    def begin(self) -> None:
        """As the engine does before every step."""
        for runner in [runner for runner in self.runners if runner.handle < 0]:
            taken = self.cache.take(runner.session, runner.tokens, states(self.runners))
            if taken is None:
                continue
            runner.handle, runner.committed = taken
            known = self.texts[runner.session]
            most = max((agreement(runner.tokens, t) for t in known), default=0)
            assert runner.committed <= most, "of another session, or forgotten"
            assert runner.committed < len(runner.tokens)
            assert runner.committed == 0 or runner.committed >= SHORTEST
            assert self.memory.length(runner.handle) == runner.committed
            known.append(runner.tokens)
        assert not self.runners or any(runner.handle >= 0 for runner in self.runners)

    @precondition(lambda self: self.able(whole=False))
    @rule(data=st.data())
    def compute(self, data: st.DataObject) -> None:
        runner = data.draw(st.sampled_from(self.able(whole=False)), label="runner")
        left = len(runner.tokens) - runner.committed
        count = data.draw(st.integers(1, left), label="rows")
        compute(self.memory, runner.handle, runner.tokens, count)
        runner.committed += count
        self.begin()

    @precondition(lambda self: self.able(whole=True))
    @rule(data=st.data(), token=st.integers(0, 1))
    def sample(self, data: st.DataObject, token: int) -> None:
        runner = data.draw(st.sampled_from(self.able(whole=True)), label="runner")
        if len(runner.tokens) < CONTEXT:
            runner.tokens.append(token)

    @precondition(lambda self: self.runners)
    @rule(data=st.data(), keep=st.booleans(), discarded=st.integers(0, 9))
    def end(self, data: st.DataObject, keep: bool, discarded: int) -> None:
        """Some verified tokens may have been cut off by a stop."""
        runner = data.draw(st.sampled_from(self.runners), label="runner")
        self.runners.remove(runner)
        if runner.handle >= 0:
            extra = min(discarded, CONTEXT - runner.committed)
            if extra and runner.committed == len(runner.tokens):
                compute(self.memory, runner.handle, [*runner.tokens, *text(9, extra)], extra)
            if keep and runner.shareable:
                tokens = runner.tokens[: runner.committed]
                self.cache.keep(runner.session, tokens, runner.handle)
            else:
                self.memory.close(runner.handle)
        self.begin()

    @rule(session=st.sampled_from(["a", "b", None]))
    def forget(self, session: str | None) -> None:
        for runner in self.runners:
            runner.shareable &= session not in (None, runner.session)
        self.cache.forget(session)
        for name in self.texts:
            if session in (None, name):
                self.texts[name] = []
        self.begin()

    @rule()
    def evict(self) -> None:
        before = len(self.cache)
        assert self.cache.evict() is (before > 0)
        assert len(self.cache) == max(before - 1, 0)

    @invariant()
    def bounds_hold(self) -> None:
        handles = [entry.handle for entry in self.cache._kept]
        assert len(handles) == len(self.cache) <= self.entries
        assert self.pages is None or self.memory.pages_held(handles) <= self.pages
        handles += [runner.handle for runner in self.runners if runner.handle >= 0]
        assert len(set(handles)) == len(handles)
        used = max(group.pages - group.free_pages for group in self.memory.groups)
        assert self.memory.pages_held(handles) == used, "a page was lost"

    def teardown(self) -> None:
        if not hasattr(self, "cache"):
            return
        for runner in self.runners:
            if runner.handle >= 0:
                self.cache.keep(
                    runner.session, runner.tokens[: runner.committed], runner.handle
                )
        self.cache.forget()
        assert self.memory.bytes() == 0
        assert not any(group.references.any() for group in self.memory.groups)


TestPrefixMachine = PrefixMachine.TestCase
TestPrefixMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@pytest.mark.parametrize("length", [0, 1, SHORTEST - 1])
def test_short_sequences_are_closed(length: int) -> None:
    cache = cached()
    handle = cache.memory.open()
    if length:
        assert isinstance(cache.memory, AttentionMemory)
        compute(cache.memory, handle, text(0, length), length)
    cache.keep("a", text(0, length), handle)
    assert (len(cache), cache.memory.bytes()) == (0, 0)
