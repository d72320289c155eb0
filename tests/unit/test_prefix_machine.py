"""The prefix cache and its memory against a model: sequences start, run, end and are forgotten."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from paged_memory import GRAPH, NO_WINDOW, Runner, compute, states, text
from slipstream.engine.prefix_cache import SHORTEST, PrefixCache, agreement
from slipstream.graph import Graph
from slipstream.memory.attention import AttentionMemory

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
                self.cache.keep(runner.session, runner.tokens[: runner.committed], runner.handle)
        self.cache.forget()
        assert self.memory.bytes() == 0
        assert not any(group.references.any() for group in self.memory.groups)


TestPrefixMachine = PrefixMachine.TestCase
TestPrefixMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
