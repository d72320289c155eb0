"""How likely draft tokens are to be accepted: learned from every proposal, verified or not.

A proposal is compared with the tokens that decoding emits anyway, so a drafter earns trust (or
loses it) without a row being spent. An estimate starts from what the drafter says of its own node
and is drawn, from coarse to fine, towards what came of such nodes:

    a <- (hits + k a) / (trials + k)

for nodes of that stated probability in the scope; of that and of its *run* (how many tokens in a
row the drafter has just foreseen, those above the node included); of that and its depth; and of
this sequence, whose counts decay fastest. Counts decay per trial and with the tokens that pass.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from math import sqrt

from slipstream.drafters import runs_a_model
from slipstream.drafters.base import ROOT, Draft

STATED = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.97)
MIDDLES = (0.01, 0.035, 0.075, 0.15, 0.27, 0.42, 0.57, 0.72, 0.85, 0.94, 0.985)
TRUST = 0.9  # in a stated probability before there is evidence
RANKS = len(MIDDLES)  # buckets of nodes without a probability, by rank among siblings
ANY = RANKS + 3  # bucket of "one of the children"
UNSTATED = {
    True: (0.65, 0.15, 0.05, 0.65),
    False: (0.4, 0.1, 0.05, 0.4),
}  # by whether it runs a model; ANY last
STRENGTHS = (4.0, 8.0, 16.0, 6.0)  # k per level
SCOPE_TRIALS, SCOPE_TOKENS = 100.0, 4000.0
OWN_TRIALS, OWN_TOKENS = 20.0, 150.0
LEAST = 0.01  # paths below are worth nothing
EVERY, UNKNOWN_RUN = -2, -1
# class of a run or depth: 0, 1, 2-3, 4-7, 8-15, 16 and more
_CLASSES = tuple(min(n.bit_length(), 5) for n in range(17))


def _class(count: int) -> int:
    return _CLASSES[count] if count < 17 else 5


def key_of(bucket: int, run: int = EVERY, depth: int = EVERY) -> int:
    """Of nodes of a bucket, perhaps of one class of runs and of depths only."""
    run_class = _class(run) + 2 if run >= 0 else run - EVERY
    depth_class = _class(depth) + 1 if depth >= 0 else 0
    return bucket << 6 | run_class << 3 | depth_class


def _place(run: int, depth: int) -> int:
    """The low bits of the key of a node at a depth of a draft, behind a run."""
    return key_of(0, run + depth if run >= 0 else depth or UNKNOWN_RUN, depth)


DEEPEST = 16  # from here on runs and depths are of one class
PLACES = tuple(tuple(_place(run, depth) for depth in range(DEEPEST + 1)) for run in range(-1, 17))
"""Run + 1 -> depth -> low bits of the key of a node; both end at ``DEEPEST``."""
ALL_RUNS, ALL_DEPTHS = ~63, ~7  # what these bits of a key leave


def buckets(draft: Draft) -> list[int]:
    """Node -> class of what its drafter says of it, or of its rank among its siblings."""
    if draft.probabilities:
        return [bisect_right(STATED, probability) for probability in draft.probabilities]
    ranks: list[int] = []
    seen: dict[int, int] = {}
    for parent in draft.parents:
        rank = seen[parent] = seen.get(parent, -1) + 1
        ranks.append(RANKS + min(rank, 2))
    return ranks


def _less(value: float, trials: float, caution: float) -> float:
    return max(value - caution * sqrt(value * (1.0 - value) / (trials + 1.0)), 0.0)


class Evidence:
    """Decayed counts of trials and hits, by key.

    Args:
        trials: that are remembered.
        tokens: after which half is forgotten.
    """

    def __init__(self, trials: float, tokens: float) -> None:
        self._keep = 1.0 - 1.0 / trials
        self._tokens = tokens
        self._cells: dict[int, list[float]] = {}  # [trials, hits, time in tokens]

    def learn(self, key: int, hit: bool, now: float) -> None:
        cell = self._cells.get(key)
        if cell is None:
            self._cells[key] = [1.0, float(hit), now]
            return
        trials, hits, before = cell
        kept = self._keep
        if now > before:
            kept *= 0.5 ** ((now - before) / self._tokens)
        cell[0] = trials * kept + 1.0
        cell[1] = hits * kept + hit
        cell[2] = now

    def counts(self, key: int, now: float) -> tuple[float, float]:
        """Trials and hits."""
        cell = self._cells.get(key)
        if cell is None:
            return 0.0, 0.0
        trials, hits, before = cell
        if now <= before:
            return trials, hits
        aged: float = 0.5 ** ((now - before) / self._tokens)
        return trials * aged, hits * aged


class SharedEvidence(Evidence):
    """Of one drafter in one scope.

    Attributes:
        now: tokens emitted in the scope.
        reach: most nodes it returned, known once it returned fewer than it was asked for.
    """

    def __init__(self) -> None:
        super().__init__(SCOPE_TRIALS, SCOPE_TOKENS)
        self.now = 0.0
        self.reach: int | None = None


class _Tail:
    """A proposal of which all that was emitted so far is known to be right."""

    def __init__(self, draft: Draft, run: int) -> None:
        self.draft = draft
        chain = draft.parents == tuple(range(-1, len(draft) - 1))
        self._children = None if chain else draft.children()
        self.run = run
        self.node = ROOT
        self.depth = 0

    def below(self, node: int) -> Sequence[int]:
        """Children in draft order."""
        if self._children is None:
            return (node + 1,) if node + 1 < len(self.draft) else ()
        return self._children.get(node, ())

    def bucket(self, node: int, rank: int) -> int:
        """As ``buckets``, of one node; ``rank`` is its place among its siblings."""
        stated = self.draft.probabilities
        return bisect_right(STATED, stated[node]) if stated else RANKS + min(rank, 2)


class Foresight:
    """How one drafter does in one sequence.

    Args:
        method: the drafter's name.
        shared: what is known of it in the scope.

    Attributes:
        run: tokens in a row that it has just foreseen; ``UNKNOWN_RUN`` where it was not asked.
        heard: tokens of the sequence that it has read.
        asked: tokens emitted when it was last asked.
        weighed: tokens emitted when asking it was last found not to pay.
        backoff: tokens to wait for the next probe while it is parked.
        idle: steps since a node of it was accepted.
    """

    def __init__(self, method: str, shared: SharedEvidence) -> None:
        self.method = method
        self.run = UNKNOWN_RUN
        self.heard = 0
        self.asked = 0
        self.weighed = -1024
        self.backoff = 32
        self.idle = 0
        self._base = tuple(TRUST * middle for middle in MIDDLES) + UNSTATED[runs_a_model(method)]
        self._shared = shared
        self._own = Evidence(OWN_TRIALS, OWN_TOKENS)
        self._now = 0.0
        self._tail: _Tail | None = None
        self._known: dict[int, tuple[float, float]] = {}

    @property
    def shared(self) -> SharedEvidence:
        return self._shared

    def estimate(self, bucket: int, depth: int) -> tuple[float, float]:
        """P(accepted | its parent was), and the trials of such nodes that it rests on."""
        key = bucket << 6 | PLACES[min(self.run, DEEPEST) + 1][min(depth, DEEPEST)]
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._estimate(key)
        return found

    def _estimate(self, key: int) -> tuple[float, float]:
        """From coarse to fine: of all nodes of the bucket, by run, by depth too, in here."""
        shared, now = self._shared.counts, self._shared.now
        bucket, by_run = key >> 6, key & ALL_DEPTHS
        of_all, of_run, of_depth, own = STRENGTHS
        trials, hits = shared(bucket << 6, now)
        value = (hits + of_all * self._base[bucket]) / (trials + of_all)
        most, hits = shared(by_run, now)
        value = (hits + of_run * value) / (most + of_run)
        trials, hits = shared(key, now)
        value = (hits + of_depth * value) / (trials + of_depth)
        most = max(most, trials)
        trials, hits = self._own.counts(by_run, self._now)
        value = (hits + own * value) / (trials + own)
        return min(value, 0.999), max(most, trials)

    def first_trials(self) -> float:
        """On how many trials it rests what is expected of a draft not yet made."""
        return self.estimate(ANY, 0)[1]

    def cautious(self, bucket: int, depth: int, caution: float) -> float:
        """The estimate less ``caution`` standard errors."""
        value, trials = self.estimate(bucket, depth)
        return _less(value, trials, caution) if caution else value

    def paths(self, draft: Draft, depth: int, caution: float) -> list[float]:
        """Node -> P(its whole path is accepted); 0 from ``depth`` on and below ``LEAST``."""
        values: list[float] = []
        depths: list[int] = []
        known, places = self._known, PLACES[min(self.run, DEEPEST) + 1]
        for bucket, parent in zip(buckets(draft), draft.parents, strict=True):
            above, at = (1.0, 0) if parent < 0 else (values[parent], depths[parent] + 1)
            value = 0.0
            if above and at < depth:
                key = bucket << 6 | places[at if at < DEEPEST else DEEPEST]
                found = known.get(key)
                if found is None:
                    found = known[key] = self._estimate(key)
                value = above * (_less(*found, caution) if caution else found[0])
            values.append(value if value >= LEAST else 0.0)
            depths.append(at)
        return values

    def chain(self, depth: int, caution: float) -> list[float]:
        """P(a draft not yet made is right for 1, 2, .. ``depth`` tokens)."""
        values, value = [], 1.0
        for at in range(depth):
            value *= self.cautious(ANY, at, caution)
            values.append(value)
        return values

    def learn(self, draft: Draft | None, tokens: Sequence[int]) -> None:
        """Score a step's proposal, and what is left of an earlier one, by the emitted tokens.

        Args:
            draft: None where the drafter was not asked.
        """
        self._now += len(tokens)
        self._known.clear()
        if self._tail is not None and not self._follow(self._tail, tokens, old=True)[1]:
            self._tail = None
        if draft is None:
            self.run = UNKNOWN_RUN
            return
        tail = _Tail(draft, self.run)
        right, alive = self._follow(tail, tokens, old=False)
        missed = not alive and len(tail.below(tail.node)) > 0
        self.run = 0 if missed or not len(draft) else max(self.run, 0) + right
        if self._tail is None and alive:
            self._tail = tail

    def _follow(self, tail: _Tail, tokens: Sequence[int], *, old: bool) -> tuple[int, bool]:
        """How many tokens it had right, and whether more of it may come true."""
        for right, token in enumerate(tokens):
            children = tail.below(tail.node)
            if not children:
                return right, False
            place = PLACES[min(tail.run, DEEPEST) + 1][min(tail.depth, DEEPEST)]
            hit = ROOT
            for rank, child in enumerate(children):
                found = tail.draft.tokens[child] == token
                if found:
                    hit = child
                self._try(tail.bucket(child, rank) << 6 | place, found, old=old)
            self._try(ANY << 6 | place, hit != ROOT, old=old)
            if hit == ROOT:
                return right, False
            tail.node = hit
            tail.depth += 1
        return len(tokens), len(tail.below(tail.node)) > 0

    def _try(self, key: int, hit: bool, *, old: bool) -> None:
        """One trial; a token that a newer proposal also foretold counts for its depth only."""
        learn, now = self._shared.learn, self._shared.now
        learn(key, hit, now)
        if not old:
            learn(key & ALL_RUNS, hit, now)
            learn(key & ALL_DEPTHS, hit, now)
            self._own.learn(key & ALL_DEPTHS, hit, self._now)

    def learn_drawn(self, verified: Draft, path: Sequence[int], rejected: bool) -> None:
        """Of drawn tokens only those that were tested count, in draft order."""
        self._known.clear()
        self.run = UNKNOWN_RUN
        self._tail = None
        children, own = verified.children(), buckets(verified)
        nodes = [ROOT, *path] if rejected else [ROOT, *path][: len(path)]
        for depth, node in enumerate(nodes):
            tested = children.get(node, [])
            accepted = path[depth] if depth < len(path) else ROOT
            if accepted in tested:
                tested = tested[: tested.index(accepted) + 1]
            mine = [child for child in tested if verified.methods[child] == self.method]
            run = depth or UNKNOWN_RUN
            for child in mine:
                self._try(key_of(own[child], run, depth), child == accepted, old=False)
            if mine:
                self._try(key_of(ANY, run, depth), accepted in mine, old=False)
