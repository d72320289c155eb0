"""A draft as it grows: candidates with their probability of being accepted, the best of them kept.

Best first: a node's score is the product of the estimates along its path. The draft is the nodes of
highest score, so every node stands behind its parent, and every beginning of it is a good tree.
Alternatives beside an expanded node are free, for they come from the same logits; to go on behind
one of them costs a row of the draft model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from slipstream.drafters.base import ROOT, Distribution, Draft

LEAST_SCORE = 0.02
"""An alternative less likely is no candidate: a row of the target costs more than it brings."""
SHARE = 0.5
"""A node this likely, relative to the best one, is expanded in the same pass."""


@dataclass(frozen=True, slots=True)
class Child:
    """What may follow a node.

    Attributes:
        estimate: probability that it is accepted where its parent was.
        weight: of its path, not below that of a later sibling; None = the estimate.
        leaf: nothing can follow it.
        distribution: what it was drawn from, or None.
    """

    token: int
    estimate: float
    weight: float | None = None
    leaf: bool = False
    distribution: Distribution | None = None


@dataclass(slots=True)
class _Node:
    child: Child
    parent: int
    depth: int
    score: float
    closed: bool


class DraftTree:
    """
    Args:
        nodes: most nodes.
        depth: most tokens on a path.
        worth: the score below which a node is not expanded.
    """

    def __init__(self, nodes: int, depth: int, worth: float = 0.0) -> None:
        self._most = nodes
        self._depth = depth
        self._worth = worth
        self._nodes: list[_Node] = []

    def grow(self, parent: int, children: Sequence[Child]) -> None:
        """Add what may follow a node (or ``ROOT``), the likeliest first."""
        above = None if parent == ROOT else self._nodes[parent]
        depth = 1 if above is None else above.depth + 1
        for rank, child in enumerate(children):
            weight = child.estimate if child.weight is None else child.weight
            score = weight * (1.0 if above is None else above.score)
            if rank and score < LEAST_SCORE:
                continue
            closed = child.leaf or depth >= self._depth
            self._nodes.append(_Node(child, parent, depth, score, closed))

    def token(self, node: int) -> int:
        return self._nodes[node].child.token

    def depth(self, node: int) -> int:
        return self._nodes[node].depth

    def parent(self, node: int) -> int:
        return self._nodes[node].parent

    def close(self, node: int) -> None:
        """Nothing is to follow this node."""
        self._nodes[node].closed = True

    def ripe(self, width: int) -> list[int]:
        """Nodes to expand next: the best one whose children could be kept, and others like it."""
        kept = self._kept()
        found = [node for node in kept if not self._nodes[node].closed]
        if not found or (len(kept) == self._most and found[0] == kept[-1]):
            return []
        least = max(SHARE * self._nodes[found[0]].score, self._worth)
        return [node for node in found[:width] if self._nodes[node].score >= least]

    def _kept(self) -> list[int]:
        """The nodes of highest score, earlier ones first among equals."""
        order = sorted(range(len(self._nodes)), key=lambda node: -self._nodes[node].score)
        return order[: self._most]

    def deepest(self) -> int:
        """Tokens on the longest path."""
        return max((self._nodes[node].depth for node in self._kept()), default=0)

    def draft(self, method: str) -> Draft:
        """The draft in order of score: a node comes after its parent and its better siblings."""
        kept = self._kept()
        nodes = [self._nodes[node] for node in kept]
        places = {node: place for place, node in enumerate(kept)} | {ROOT: ROOT}
        drawn = any(node.child.distribution is not None for node in nodes)
        return Draft(
            tuple(node.child.token for node in nodes),
            tuple(places[node.parent] for node in nodes),
            (method,) * len(nodes),
            tuple(node.child.estimate for node in nodes),
            tuple(node.child.distribution for node in nodes) if drawn else (),
        )
