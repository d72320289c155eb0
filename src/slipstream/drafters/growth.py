"""Draft trees out of counts: the nodes most likely to be reached come first.

An estimate is a count ratio, ``count / (total + 1 / context)``: of the continuations seen, this
share went so, less a little for the one not yet seen. The longer the context that had to match, the
less that is. (This project's choice; the methods that use it know no probabilities.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TypeVar

from slipstream.drafters.base import ROOT, Draft

State = TypeVar("State")
Follower = tuple[int, float, State]
"""Token, estimate that it follows, and the state after it."""


def unseen(context: int) -> float:
    """Weight of what was never seen to follow ``context`` matched tokens."""
    return 1 / context


def grow(
    root: State,
    followers: Callable[[State], Iterable[Follower[State]]],
    nodes: int,
    method: str,
) -> Draft:
    """Best first: the node whose path has the largest product of estimates comes next.

    Args:
        followers: state -> its children, most likely first.
        nodes: most nodes.
    """
    tokens: list[int] = []
    parents: list[int] = []
    estimates: list[float] = []
    # the count makes equal products come out in the order they were offered
    offers: list[tuple[float, int, int, int, float, State]] = []
    state, parent, reach, offered = root, ROOT, 1.0, 0
    while len(tokens) < nodes:
        for token, estimate, after in followers(state):
            offered += 1
            heappush(offers, (-reach * estimate, offered, parent, token, estimate, after))
        if not offers:
            break
        worth, _, above, token, estimate, state = heappop(offers)
        parent, reach = len(tokens), -worth
        tokens.append(token)
        parents.append(above)
        estimates.append(estimate)
    return Draft(tuple(tokens), tuple(parents), (method,) * len(tokens), tuple(estimates))


@dataclass(frozen=True, slots=True)
class Path:
    """A continuation that was seen ``weight`` times."""

    tokens: Sequence[int]
    weight: int


Alive = tuple[Sequence[Path], int]
"""Paths that agree so far, and how far."""


def tree(paths: Sequence[Path], context: int, branches: int, nodes: int, method: str) -> Draft:
    """Paths joined where they agree.

    Args:
        paths: at least one. With one branch only the first is proposed, and the others lower its
            estimates; else heavier children come first, and of equal ones those of earlier paths.
        context: tokens that matched before the paths begin.
        branches: most children of a node.
        nodes: most nodes.
    """
    if len(paths) == 1:
        return _chain(paths[0], context, nodes, method)

    def followers(state: Alive) -> Iterable[Follower[Alive]]:
        alive, depth = state
        total = sum(path.weight for path in alive) + unseen(context + depth)
        for token, group in _groups(alive, depth, branches):
            yield token, sum(path.weight for path in group) / total, (group, depth + 1)

    return grow((paths, 0), followers, nodes, method)


def _chain(path: Path, context: int, nodes: int, method: str) -> Draft:
    tokens = path.tokens[:nodes]
    weight = path.weight
    depths = range(context, context + len(tokens))
    return Draft.chain(tokens, method, [weight / (weight + unseen(depth)) for depth in depths])


def _groups(alive: Sequence[Path], depth: int, branches: int) -> list[tuple[int, list[Path]]]:
    """Next token -> the paths that go on with it, for each child that may be proposed."""
    groups: dict[int, list[Path]] = {}
    for path in alive:
        if depth < len(path.tokens):
            groups.setdefault(path.tokens[depth], []).append(path)
    if branches == 1:
        lead = alive[0].tokens[depth : depth + 1]
        return [(token, groups[token]) for token in lead]
    ordered = sorted(groups.items(), key=lambda group: -sum(path.weight for path in group[1]))
    return ordered[:branches]
