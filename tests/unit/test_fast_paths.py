"""Fast paths of drafting and of the controller do what their definitions say."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from heapq import heappop
from statistics import median

import pytest

from controller_worlds import AVX2, STEP_S, Source, World
from slipstream.drafters.base import Draft
from slipstream.drafters.suffix_calibration import Calibration
from slipstream.drafters.suffix_edits import LIKELY, Edits
from slipstream.drafters.suffix_index import SEPARATOR
from slipstream.drafters.suffix_tree import DraftTree, Occurrence
from slipstream.engine import costs
from slipstream.engine.acceptance import (
    ALL_DEPTHS,
    ALL_RUNS,
    ANY,
    LEAST,
    STRENGTHS,
    UNKNOWN_RUN,
    Foresight,
    SharedEvidence,
    buckets,
    key_of,
)
from slipstream.engine.cost_controller import LOOK, CostController
from slipstream.engine.drafts import MOST_NODES, checked
from slipstream.measure.replay import replay


class SlowForesight(Foresight):
    """Estimates and trials by keys that are made anew for each."""

    def estimate(self, bucket: int, depth: int) -> tuple[float, float]:
        run = self.run + depth if self.run >= 0 else depth or UNKNOWN_RUN
        shared, now = self._shared.counts, self._shared.now
        levels = (
            shared(key_of(bucket), now),
            shared(key_of(bucket, run), now),
            shared(key_of(bucket, run, depth), now),
            self._own.counts(key_of(bucket, run), self._now),
        )
        value = self._base[bucket]
        for (trials, hits), strength in zip(levels, STRENGTHS, strict=True):
            value = (hits + strength * value) / (trials + strength)
        return min(value, 0.999), max(trials for trials, _ in levels[1:])

    def cautious(self, bucket: int, depth: int, caution: float) -> float:
        value, trials = self.estimate(bucket, depth)
        return max(value - caution * math.sqrt(value * (1.0 - value) / (trials + 1.0)), 0.0)

    def paths(self, draft: Draft, depth: int, caution: float) -> list[float]:
        values: list[float] = []
        for bucket, parent, at in zip(buckets(draft), draft.parents, draft.depths(), strict=True):
            above = 1.0 if parent < 0 else values[parent]
            value = above * self.cautious(bucket, at, caution) if at < depth else 0.0
            values.append(value if value >= LEAST else 0.0)
        return values

    def _follow(self, tail, tokens, *, old):  # type: ignore[no-untyped-def]
        for right, token in enumerate(tokens):
            children = tail.below(tail.node)
            if not children:
                return right, False
            hits = [child for child in children if tail.draft.tokens[child] == token]
            run = tail.run + tail.depth if tail.run >= 0 else tail.depth or UNKNOWN_RUN
            for rank, child in enumerate(children):
                self._learn(tail.bucket(child, rank), run, tail.depth, child in hits, old)
            self._learn(ANY, run, tail.depth, bool(hits), old)
            if not hits:
                return right, False
            tail.node, tail.depth = hits[0], tail.depth + 1
        return len(tokens), len(tail.below(tail.node)) > 0

    def _learn(self, bucket: int, run: int, depth: int, hit: bool, old: bool) -> None:
        now = self._shared.now
        self._shared.learn(key_of(bucket, run, depth), hit, now)
        if not old:
            self._shared.learn(key_of(bucket), hit, now)
            self._shared.learn(key_of(bucket, run), hit, now)
            self._own.learn(key_of(bucket, run), hit, self._now)


def random_tree(chance: random.Random, stated: bool, branching: bool) -> Draft:
    """Some token of it is often 1, which is often right."""
    nodes = chance.choice((0, 1, 3, 8, 30))
    taken: set[tuple[int, int]] = set()
    tokens: list[int] = []
    parents: list[int] = []
    for node in range(nodes):
        parent = chance.randrange(-1, node) if branching else node - 1
        token = chance.choice((1, 1, 1, 2, 3))
        if (parent, token) in taken:
            token = 100 + node
        taken.add((parent, token))
        tokens.append(token)
        parents.append(parent)
    claims = tuple(chance.random() for _ in tokens) if stated else ()
    return Draft(tuple(tokens), tuple(parents), ("suffix",) * nodes, claims)


@pytest.mark.parametrize("stated", [True, False])
@pytest.mark.parametrize("branching", [True, False])
def test_estimates_are_those_of_the_definition(stated: bool, branching: bool) -> None:
    chance = random.Random(f"{stated} {branching}")
    fast, slow = (kind("suffix", SharedEvidence()) for kind in (Foresight, SlowForesight))
    for _ in range(400):
        draft = random_tree(chance, stated, branching) if chance.random() < 0.8 else None
        tokens = [chance.choice((1, 1, 1, 2, 5)) for _ in range(chance.choice((1, 1, 3, 25)))]
        for one in (fast, slow):
            one.learn(draft, tokens)
            one.shared.now += len(tokens)
        assert (fast.run, fast.shared._cells) == (slow.run, slow.shared._cells)
        assert fast._own._cells == slow._own._cells
        asked = random_tree(chance, stated, branching)
        for caution in (0.0, 1.7):
            assert fast.paths(asked, 20, caution) == slow.paths(asked, 20, caution)
            assert fast.chain(6, caution) == slow.chain(6, caution)
        assert fast.first_trials() == slow.first_trials()
    assert fast.run >= 0 or draft is None


def test_masks_of_keys_leave_out_runs_and_depths() -> None:
    for bucket in (0, 3, ANY):
        for run in (UNKNOWN_RUN, 0, 5, 16, 40):
            for depth in (0, 1, 9, 40):
                key = key_of(bucket, run, depth)
                assert key & ALL_DEPTHS == key_of(bucket, run)
                assert key & ALL_RUNS == key_of(bucket)


def test_curve_and_level_are_those_of_the_definition() -> None:
    chance, times = random.Random(2), costs.PassTimes()
    for _ in range(60):
        rows = chance.choice((1, 2, 5, 17, 64))
        times.observe(rows, 0, 0.04 * (1.0 + 0.1 * rows * chance.random()), plain=rows == 1)
        if times.known:
            assert times.level == median(seconds for seconds, _ in times._levels)
        values = times._values
        line = [values[low] + way * (values[low + 1] - values[low]) for low, way in costs._PLACES]
        assert times._extras == [0.0, *line]


def slow_fault(tokens: Sequence[int], parents: Sequence[int], vocabulary: int) -> bool:
    pairs = list(zip(parents, tokens, strict=True))
    inside = all(0 <= token < vocabulary for token in tokens)
    ordered = all(-1 <= parent < node for node, parent in enumerate(parents))
    return not inside or not ordered or len(set(pairs)) < len(pairs)


def test_checks_of_chains_and_trees_agree_with_the_definition() -> None:
    chance, faults = random.Random(4), 0
    for _ in range(2000):
        nodes = chance.choice((0, 1, 2, 5))
        tokens = [chance.randrange(-1, 12) if chance.random() < 0.1 else 5 for _ in range(nodes)]
        parents = list(range(-1, nodes - 1))
        if nodes and chance.random() < 0.3:
            parents[chance.randrange(nodes)] = chance.randrange(-2, nodes)
        found, fault = checked(Draft(tuple(tokens), tuple(parents)), 10, "a")
        assert (fault is not None) == slow_fault(tokens, parents, 10)
        assert len(found) == (0 if fault else nodes)
        faults += fault is not None
    assert 100 < faults < 1900
    longest = checked(Draft.chain([1] * MOST_NODES, "a"), 10, "a")
    assert longest == (Draft.chain([1] * MOST_NODES, "a"), None)


@pytest.mark.parametrize("wrong", [math.nan, -0.1, 1.1, math.inf, -math.inf, None, "1"])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_an_estimate_that_is_none_is_seen_wherever_it_stands(wrong: float, place: int) -> None:
    estimates = [0.5, 0.0, 1.0]
    assert checked(Draft.chain([1, 2, 3], "a", estimates), 10, "a")[1] is None
    estimates[place] = wrong
    assert checked(Draft.chain([1, 2, 3], "a", estimates), 10, "a")[1]


def test_a_cut_is_the_tree_of_the_first_nodes() -> None:
    chance = random.Random(5)
    for _ in range(100):
        draft = random_tree(chance, chance.random() < 0.5, True)
        for nodes in range(len(draft) + 2):
            assert draft.cut(nodes) == draft.kept(range(min(nodes, len(draft))))


class SlowTree(DraftTree):
    """Every node by way of the heap."""

    def _go_on(self, occurrence: Occurrence, depth: int, path: float, nodes: int) -> None:
        self._expand([occurrence], len(self.tokens) - 1, depth, path)
        while self._open and len(self.tokens) < nodes:
            value, _, token, parent, probability, claim, supporters, below = heappop(self._open)
            self.tokens.append(token)
            self.parents.append(parent)
            self.probabilities.append(probability)
            self.claims.append(claim)
            self._expand(supporters, len(self.tokens) - 1, below + 1, -value)


def test_a_lone_occurrence_is_followed_as_by_way_of_the_heap() -> None:
    chance, longest = random.Random(6), 0
    for _ in range(400):
        calibration = Calibration()
        for _ in range(50):
            calibration.learn(chance.randrange(100), 1.0, hit=chance.random() < 0.9)
        text = [chance.randrange(6) for _ in range(30)]
        if chance.random() < 0.5:
            text.append(SEPARATOR)
        found = [
            Occurrence(text, chance.randrange(len(text)), chance.randrange(1, 70), kind)
            for kind in chance.sample(range(4), chance.choice((1, 1, 2, 3)))
        ]
        least = chance.choice((0.1, 0.0001))
        made = [kind(found, calibration, 48, 4, least) for kind in (DraftTree, SlowTree)]
        fast, slow = ((t.tokens, t.parents, t.probabilities, t.claims) for t in made)
        assert fast == slow
        longest = max(longest, len(made[0].tokens))
    assert longest == 48


def slow_applied(edits: Edits, tokens: Sequence[int], place: int, most: int) -> list[int]:
    made: list[int] = []
    while len(made) < most and place < len(tokens):
        likely = [edit for edit in edits.at(tokens, place) if edit.ratio > LIKELY]
        made += likely[0].emitted if likely else [tokens[place]]
        place += len(likely[0].replaced) if likely else 1
    return made


def test_expected_edits_are_made_as_defined() -> None:
    chance, changed = random.Random(7), 0
    for _ in range(300):
        edits, tokens = Edits(), [chance.randrange(5) for _ in range(60)]
        for _ in range(chance.randrange(12)):
            one, other = (
                tuple(chance.randrange(5) for _ in range(chance.randrange(1, 4))) for _ in "ab"
            )
            edits.learn(one, other)
        edits.left_out(tokens, 0, chance.randrange(20))
        made, ratio = edits.applied(tokens, 3, 30)
        assert made == slow_applied(edits, tokens, 3, 30)
        assert (ratio > LIKELY) or made == tokens[3:33]
        changed += ratio > 0.0
    assert 30 < changed < 300


def never(_: int) -> float:
    return 0.0


@pytest.mark.parametrize("call_s", [1e-4, 5e-4, 2e-3])
def test_looking_where_it_was_never_of_use_becomes_cheap(call_s: float) -> None:
    """A look of under ``LOOK`` of a step is always taken."""
    made = World(AVX2, [Source("suffix", never, call_s=call_s)]).run(CostController(), 2500)
    late = made.decisions[-1000:]
    looks = sum(bool(decision.proposals) for decision in late)
    assert looks * call_s <= 1.1 * LOOK * STEP_S * len(late)
    assert looks >= 1000 // 33
    assert (looks >= 999) == (call_s <= LOOK * STEP_S)
    assert replay(made.decisions, CostController()) == [d.verified for d in made.decisions]


def test_seldom_looking_sees_a_copy_that_begins() -> None:
    copied = Source("suffix", lambda place: float(place >= 700), call_s=5e-4)
    made = World(AVX2, [copied]).run(CostController(), 1000)
    late = [decision for decision in made.decisions if decision.room.context >= 720]
    assert all(decision.proposals for decision in late[1:-2])
    assert sum(len(d.tokens) for d in late) >= 2.0 * len(late)
