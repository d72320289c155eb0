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
        kept = self._keep * self._aged(now - cell[2])
        cell[:] = (cell[0] * kept + 1.0, cell[1] * kept + hit, now)

    def _aged(self, tokens: float) -> float:
        return float(0.5 ** (tokens / self._tokens)) if tokens > 0.0 else 1.0

    def counts(self, key: int, now: float) -> tuple[float, float]:
        """Trials and hits."""
        cell = self._cells.get(key)
        if cell is None:
            return 0.0, 0.0
        aged = self._aged(now - cell[2])
        return cell[0] * aged, cell[1] * aged


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
        backoff: tokens to wait for the next probe while it is parked.
        idle: steps since a node of it was accepted.
    """

    def __init__(self, method: str, shared: SharedEvidence) -> None:
        self.method = method
        self.run = UNKNOWN_RUN
        self.heard = 0
        self.asked = 0
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
        run = self.run + depth if self.run >= 0 else depth or UNKNOWN_RUN
        key = key_of(bucket, run, depth)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._estimate(bucket, run, key)
        return found

    def _estimate(self, bucket: int, run: int, key: int) -> tuple[float, float]:
        by_run = key_of(bucket, run)
        levels = (
            self._shared.counts(key_of(bucket), self._shared.now),
            self._shared.counts(by_run, self._shared.now),
            self._shared.counts(key, self._shared.now),
            self._own.counts(by_run, self._now),
        )
        value = self._base[bucket]
        for (trials, hits), strength in zip(levels, STRENGTHS, strict=True):
            value = (hits + strength * value) / (trials + strength)
        return min(value, 0.999), max(levels[1][0], levels[2][0], levels[3][0])

    def first_trials(self) -> float:
        """On how many trials it rests what is expected of a draft not yet made."""
        return self.estimate(ANY, 0)[1]

    def cautious(self, bucket: int, depth: int, caution: float) -> float:
        """The estimate less ``caution`` standard errors."""
        value, trials = self.estimate(bucket, depth)
        if caution:
            value -= caution * sqrt(value * (1.0 - value) / (trials + 1.0))
        return max(value, 0.0)

    def paths(self, draft: Draft, depth: int, caution: float) -> list[float]:
        """Node -> P(its whole path is accepted); 0 from ``depth`` on and below ``LEAST``."""
        values: list[float] = []
        depths: list[int] = []
        stated, ranks = draft.probabilities, None if draft.probabilities else buckets(draft)
        for node, parent in enumerate(draft.parents):
            above, at = (1.0, 0) if parent < 0 else (values[parent], depths[parent] + 1)
            value = 0.0
            if above and at < depth:
                bucket = ranks[node] if ranks else bisect_right(STATED, stated[node])
                value = above * self.cautious(bucket, at, caution)
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
            hits = [child for child in children if tail.draft.tokens[child] == token]
            run = tail.run + tail.depth if tail.run >= 0 else tail.depth or UNKNOWN_RUN
            for rank, child in enumerate(children):
                bucket = tail.bucket(child, rank)
                self._try(bucket, run, tail.depth, child in hits, old=old)
            self._try(ANY, run, tail.depth, bool(hits), old=old)
            if not hits:
                return right, False
            tail.node = hits[0]
            tail.depth += 1
        return len(tokens), len(tail.below(tail.node)) > 0

    def _try(self, bucket: int, run: int, depth: int, hit: bool, *, old: bool) -> None:
        """One trial; a token that a newer proposal also foretold counts for its depth only."""
        now = self._shared.now
        self._shared.learn(key_of(bucket, run, depth), hit, now)
        if not old:
            by_run = key_of(bucket, run)
            self._shared.learn(key_of(bucket), hit, now)
            self._shared.learn(by_run, hit, now)
            self._own.learn(by_run, hit, self._now)

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
                self._try(own[child], run, depth, child == accepted, old=False)
            if mine:
                self._try(ANY, run, depth, accepted in mine, old=False)
