"""The draft tree that the occurrences of a suffix suggest.

As in SuffixDecoding (arXiv:2411.04975), the tree grows greedily by the path probability

    D(node) = D(parent) P(node),      D(root) = 1,

so that for a number of nodes it has the greatest score, the sum of D: the expected number of
accepted tokens. There P(node) is the share of occurrences of one suffix that go on with the node,
and the suffix with the best score is chosen. Here occurrences of all suffixes vote in one tree,
each with the odds w = a / (1 - a) that its continuation came true so far (suffix_calibration.py),
so a long match outvotes short ones, and several that agree may outvote it:

    P(node) = a(best of its supporters, their number) * (sum of w over its supporters)
                                                      / (sum of w over all at the parent)

A match of m tokens is one of m + d for a node at depth d, because its path agreed too.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from slipstream.drafters.suffix_calibration import SINGLE, Calibration, bucket_of
from slipstream.drafters.suffix_index import MATCH_MAX

SUPPORTERS = 4  # of a node that are followed further, the best ones


class Occurrence(NamedTuple):
    """A place where the text may go on.

    Attributes:
        tokens: a text; negative ids are its end.
        place: index of the first token of the continuation.
        length: tokens of match.
        kind: see suffix_calibration.py.
        odds: of an edited copy against all other occurrences together; 0 = no edited copy.
    """

    tokens: Sequence[int]
    place: int
    length: int
    kind: int
    odds: float = 0.0


class DraftTree:
    """Grows when made.

    Args:
        occurrences: the better of equals first.
        nodes: most nodes.
        branches: most children of a node.
        least: path probability below which nothing is proposed.

    Attributes:
        tokens, parents, probabilities: as in ``Draft``.
        claims: node -> (bucket, share of the weight), for the calibration.
    """

    def __init__(
        self,
        occurrences: Sequence[Occurrence],
        calibration: Calibration,
        nodes: int,
        branches: int,
        least: float,
    ) -> None:
        self.tokens: list[int] = []
        self.parents: list[int] = []
        self.probabilities: list[float] = []
        self.claims: list[tuple[int, float]] = []
        self._calibration = calibration
        self._branches = branches
        self._least = least
        self._pushed = 0
        # (-D, serial, token, parent, P, claim, supporters, depth)
        self._open: list[
            tuple[float, int, int, int, float, tuple[int, float], Sequence[Occurrence], int]
        ] = []
        self._expand(occurrences, -1, 0, 1.0)
        while self._open and len(self.tokens) < nodes:
            path, _, token, parent, probability, claim, supporters, depth = heappop(self._open)
            self.tokens.append(token)
            self.parents.append(parent)
            self.probabilities.append(probability)
            self.claims.append(claim)
            self._expand(supporters, len(self.tokens) - 1, depth + 1, -path)

    def _expand(
        self, occurrences: Sequence[Occurrence], parent: int, depth: int, path: float
    ) -> None:
        """Open the children of a node."""
        if len(occurrences) == 1:
            tokens, place, length, kind, _ = occurrences[0]
            place += depth
            if place < len(tokens) and tokens[place] >= 0:
                bucket = SINGLE[kind][min(length + depth, MATCH_MAX)]
                self._push(tokens[place], parent, path, (bucket, 1.0), occurrences, depth)
            return
        groups = self._groups(occurrences, depth)
        total = sum(group.weight for group in groups.values())
        ranked = sorted(groups.items(), key=lambda item: -item[1].weight)
        for token, group in ranked[: self._branches]:
            best, members = group.best, group.members
            bucket = bucket_of(best.kind, best.length + depth, len(members))
            claim = (bucket, group.weight / total)
            self._push(token, parent, path, claim, members[:SUPPORTERS], depth)

    def _groups(self, occurrences: Sequence[Occurrence], depth: int) -> dict[int, _Group]:
        """Occurrences by the token they go on with."""
        odds = self._calibration.odds
        groups: dict[int, _Group] = {}
        edited: list[tuple[_Group, Occurrence]] = []
        total = 0.0
        for occurrence in occurrences:
            tokens, place, length, kind, edit = occurrence
            place += depth
            if place >= len(tokens) or (token := tokens[place]) < 0:
                continue
            group = groups.get(token)
            if group is None:
                group = groups[token] = _Group(occurrence)
            group.members.append(occurrence)
            if edit:
                edited.append((group, occurrence))
                continue
            weight = odds[SINGLE[kind][min(length + depth, MATCH_MAX)]]
            total += weight
            group.weight += weight
            if weight > group.heaviest:
                group.heaviest, group.best = weight, occurrence
        for group, occurrence in edited:
            group.weight += occurrence.odds * (total or 1.0)
        return groups

    def _push(
        self,
        token: int,
        parent: int,
        path: float,
        claim: tuple[int, float],
        supporters: Sequence[Occurrence],
        depth: int,
    ) -> None:
        probability = claim[1] * self._calibration.estimates[claim[0]]
        path *= probability
        if path < self._least:
            return
        self._pushed += 1
        item = (-path, self._pushed, token, parent, probability, claim, supporters, depth)
        heappush(self._open, item)

    def children(self) -> dict[int, list[int]]:
        """Node (-1 = root) -> its children, the most likely first."""
        children: dict[int, list[int]] = {}
        for node, parent in enumerate(self.parents):
            children.setdefault(parent, []).append(node)
        return children


class _Group:
    __slots__ = ("best", "heaviest", "members", "weight")

    def __init__(self, first: Occurrence) -> None:
        self.best = first
        self.heaviest = 0.0
        self.weight = 0.0
        self.members: list[Occurrence] = []
