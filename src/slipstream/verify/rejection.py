"""Rejection sampling: the output has the distribution of plain decoding, not its tokens.

Sources: Y. Leviathan, M. Kalman, Y. Matias, "Fast Inference from Transformers via Speculative
Decoding", ICML 2023 (arXiv 2211.17192), algorithm 1; C. Chen et al., "Accelerating Large Language
Model Decoding with Speculative Sampling", 2023 (arXiv 2302.01318). For several candidates at one
place see X. Miao et al., "SpecInfer", 2023 (arXiv 2305.09781), and docs/decisions/0007.

p is the distribution of the whole sampler chain at a row. The children of a node are examined in
draft order. Candidate x, drawn from q, is accepted with probability min(1, p(x) / q'(x)), where q'
is q without the siblings that were rejected before; a point mass has q' = 1 at x. After a
rejection p becomes norm(max(0, p - q')); when all are rejected the token is drawn from what is
left. Whatever x is, and whatever its siblings were, the token emitted there is distributed as p.

That needs noise that no drafter looked at. Drafters may know the noise of plain sampling, and
where one of them is silent because of it another may be asked, so nothing is drawn with it here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slipstream.drafters.base import ROOT, Distribution, Draft
from slipstream.noise import ACCEPTANCE, REMAINDER, in_stream, uniform
from slipstream.sampling import Row, Sampled, SamplerState, check_finite
from slipstream.verify.base import Verdict
from slipstream.verify.matching import Matching

Weights = NDArray[np.float64]


@dataclass(frozen=True)
class Candidate:
    """A child and what it was drawn from, given its rejected siblings.

    Attributes:
        ids: int64 [n]; every other id has probability 0.
        weights: float64 [n], proportional to probabilities.
        total: their sum.
        weight: that of the child's own token.
    """

    token: int
    ids: NDArray[np.int64]
    weights: Weights
    total: float
    weight: float

    @property
    def probability(self) -> float:
        return self.weight / self.total


def point_mass(token: int) -> Candidate:
    return Candidate(token, np.array([token]), np.ones(1), 1.0, 1.0)


def candidate(draft: Draft, node: int, rejected: Sequence[int]) -> Candidate:
    """
    Args:
        rejected: tokens of the siblings that were rejected before it.
    """
    token = draft.tokens[node]
    source = draft.distributions[node] if draft.distributions else None
    if source is None:
        return point_mass(token)
    weights = source.probabilities
    places = [_place(source, sibling) for sibling in rejected]
    if any(place is not None for place in places):
        weights = weights.copy()
        weights[[place for place in places if place is not None]] = 0.0
    own = _place(source, token)
    if own is None or not weights[own] > 0.0:
        return point_mass(token)  # it was not drawn from there; any fixed token is a point mass
    return Candidate(token, source.ids, weights, float(weights.sum()), float(weights[own]))


def _place(source: Distribution, token: int) -> int | None:
    place = int(np.searchsorted(source.ids, token))
    return place if place < source.ids.size and source.ids[place] == token else None


class Remainder:
    """What is left of p, up to a factor.

    Args:
        probabilities: float64 [vocabulary], owned from now on.
    """

    def __init__(self, probabilities: Weights) -> None:
        self.weights = probabilities
        self.total = float(probabilities.sum())

    def probability(self, token: int) -> float:
        return float(self.weights[token]) / self.total

    def subtract(self, q: Candidate) -> None:
        """p <- norm(max(0, p - q')).

        Where nothing is left p stays: exact arithmetic would have accepted the candidate, and
        every token of p can be emitted.
        """
        # a slice takes a third of the time of as many ids
        whole = q.ids.size == self.weights.size
        places: slice | NDArray[np.int64] = slice(None) if whole else q.ids
        before = self.weights[places].copy()
        after = before - q.weights * (self.total / q.total)
        self.weights[places] = np.maximum(after, 0.0, out=after)
        total = float(self.weights.sum())
        if total > 0.0:
            self.total = total
        else:
            self.weights[places] = before

    def draw(self, u: float) -> int:
        """The token at quantile ``u``, 0 <= u < 1; never one of weight 0."""
        cumulative = np.cumsum(self.weights)
        return int(np.searchsorted(cumulative, u * cumulative[-1], side="right"))


class Rejection:
    name = "rejection"
    lossless = True
    seed_exact = False

    def __init__(self) -> None:
        self._greedy = Matching()

    def verify(
        self, draft: Draft, logits: NDArray[np.float32], state: SamplerState, ends: Sequence[int]
    ) -> Verdict:
        """Accept a child or draw what is left, node by node; temperature 0 is verified by matching.

        An end id stops the walk: it is the next token, never an accepted one, even where it was
        an accepted candidate.
        """
        if state.options.temperature == 0.0:
            return self._greedy.verify(draft, logits, state, ends)
        path: list[int] = []
        sampled: list[Sampled] = []
        children = draft.children()
        tested, node = 0, ROOT
        while True:
            nodes = children.get(node, [])
            child, drawn = self._emitted(draft, nodes, logits[node + 1], state)
            tested += len(nodes) if child is None else nodes.index(child) + 1
            sampled.append(drawn)
            state.advance(drawn.token)
            if child is None or drawn.token in ends:
                return Verdict(tuple(path), tuple(sampled), tested, bool(nodes))
            path.append(child)
            node = child

    def _emitted(
        self, draft: Draft, nodes: Sequence[int], row: Row, state: SamplerState
    ) -> tuple[int | None, Sampled]:
        """The accepted child, if any, and the token of this index.

        Where all candidates are point masses the rule is that of matching: x is emitted with
        probability p(x), another token with its share of the rest. That takes no distribution.
        """
        sources = [draft.distributions[node] for node in nodes] if draft.distributions else []
        if all(source is None for source in sources):
            drawn = state.sample(row, REMAINDER)
            equal = [node for node in nodes if draft.tokens[node] == drawn.token]
            return (equal[0] if equal else None), drawn
        check_finite(row)
        left = Remainder(state.distribution(row))
        rejected: list[int] = []
        for node in nodes:
            found = candidate(draft, node, rejected)
            if self._accepts(left, found, state, len(rejected)):
                return node, state.described(row, found.token)
            left.subtract(found)
            rejected.append(found.token)
        u = uniform(state.seed, in_stream(state.index, REMAINDER))
        return None, state.described(row, left.draw(u))

    @staticmethod
    def _accepts(left: Remainder, found: Candidate, state: SamplerState, number: int) -> bool:
        u = uniform(state.seed, in_stream(state.index, ACCEPTANCE), number)
        return u * found.probability < left.probability(found.token)
