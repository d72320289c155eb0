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
        tokens: a text. A negative id is its end; one without is where the sequence itself stands,
            and goes on by repeating what it has from ``place`` on.
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


Vote = tuple[int, float, Occurrence]
"""A token, the weight of the occurrence that goes on with it, and that occurrence."""


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
            if len(supporters) == 1 and not self._open:
                self._go_on(supporters[0], depth + 1, -path, nodes)
                return
            self._expand(supporters, len(self.tokens) - 1, depth + 1, -path)

    def _go_on(self, occurrence: Occurrence, depth: int, path: float, nodes: int) -> None:
        """Where one occurrence is all that is left the rest is a chain behind the last node."""
        tokens, place, length, kind, _ = occurrence
        ahead, singles, estimates = place + depth, SINGLE[kind], self._calibration.estimates
        while len(self.tokens) < nodes:
            if ahead >= len(tokens):
                ahead = place + depth % (len(tokens) - place)
            token = tokens[ahead]
            bucket = singles[min(length + depth, MATCH_MAX)]
            probability = estimates[bucket]
            path *= probability
            if token < 0 or path < self._least:
                return
            self.parents.append(len(self.tokens) - 1)
            self.tokens.append(token)
            self.probabilities.append(probability)
            self.claims.append((bucket, 1.0))
            depth += 1
            ahead += 1

    def _expand(
        self, occurrences: Sequence[Occurrence], parent: int, depth: int, path: float
    ) -> None:
        """Open the children of a node."""
        if len(occurrences) == 1:
            tokens, place, length, kind, _ = occurrences[0]
            ahead = place + depth
            if ahead >= len(tokens):
                ahead = place + depth % (len(tokens) - place)
            if tokens[ahead] >= 0:
                bucket = SINGLE[kind][min(length + depth, MATCH_MAX)]
                self._push(tokens[ahead], parent, path, (bucket, 1.0), occurrences, depth)
            return
        votes = self._votes(occurrences, depth)
        tokens_voted_for = {vote[0] for vote in votes}
        if len(tokens_voted_for) == 1:
            best = max(votes, key=_weight_of)[2]
            bucket = bucket_of(best.kind, best.length + depth, len(votes))
            members = [vote[2] for vote in votes[:SUPPORTERS]]
            self._push(votes[0][0], parent, path, (bucket, 1.0), members, depth)
        elif votes:
            self._branch(votes, parent, depth, path)

    def _votes(self, occurrences: Sequence[Occurrence], depth: int) -> list[Vote]:
        """Of the occurrences that go on."""
        odds = self._calibration.odds
        votes: list[Vote] = []
        edited, total = False, 0.0
        for occurrence in occurrences:
            tokens, place, length, kind, edit = occurrence
            ahead = place + depth
            if ahead >= len(tokens):
                ahead = place + depth % (len(tokens) - place)
            token = tokens[ahead]
            if token < 0:
                continue
            length += depth
            weight = odds[SINGLE[kind][length if length < MATCH_MAX else MATCH_MAX]]
            votes.append((token, weight, occurrence))
            if edit:
                edited = True
            else:
                total += weight
        if edited:
            votes = [
                (token, one.odds * (total or 1.0) if one.odds else weight, one)
                for token, weight, one in votes
            ]
        return votes

    def _branch(self, votes: Sequence[Vote], parent: int, depth: int, path: float) -> None:
        """Open a child per token voted for."""
        groups: dict[int, list[Vote]] = {}
        for vote in votes:
            groups.setdefault(vote[0], []).append(vote)
        weights = {token: sum(map(_weight_of, group)) for token, group in groups.items()}
        total = sum(weights.values())
        for token in sorted(groups, key=lambda token: -weights[token])[: self._branches]:
            group = groups[token]
            best = max(group, key=_weight_of)[2]
            bucket = bucket_of(best.kind, best.length + depth, len(group))
            claim = (bucket, weights[token] / total)
            members = [vote[2] for vote in group[:SUPPORTERS]]
            self._push(token, parent, path, claim, members, depth)

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


def _weight_of(vote: Vote) -> float:
    return vote[1]
