"""Trees out of several proposals, and how many of their nodes are worth their rows."""

from __future__ import annotations

from collections.abc import Sequence

from slipstream.drafters.base import ROOT, Distribution, Draft

INDIFFERENT = 0.02  # of the gain that is given up for fewer nodes


def union(drafts: Sequence[Draft], values: Sequence[Sequence[float]]) -> tuple[Draft, list[float]]:
    """All proposed paths in one tree; nodes of no value are left out.

    A node that several propose belongs to the first of them and has the best of their values.

    Args:
        drafts: in order of precedence.
        values: per draft, node -> P(its path is accepted), at most that of its parent.
    """
    merged = _Merged()
    for draft, worth in zip(drafts, values, strict=True):
        merged.add(draft, worth)
    return merged.draft(), merged.shared_values()


class _Merged:
    def __init__(self) -> None:
        self.nodes: dict[tuple[int, int], int] = {}
        self.parents: list[int] = []
        self.tokens: list[int] = []
        self.methods: list[str] = []
        self.stated: list[float] = []
        self.distributions: list[Distribution | None] = []
        self.values: list[float] = []

    def add(self, draft: Draft, worth: Sequence[float]) -> None:
        places = {ROOT: ROOT}
        for node, (token, parent, value) in enumerate(
            zip(draft.tokens, draft.parents, worth, strict=True)
        ):
            if value <= 0.0 or parent not in places:
                continue
            key = (places[parent], token)
            if key not in self.nodes:
                self._append(draft, node, key, value)
            places[node] = self.nodes[key]
            self.values[places[node]] = max(self.values[places[node]], value)

    def _append(self, draft: Draft, node: int, key: tuple[int, int], value: float) -> None:
        self.nodes[key] = len(self.tokens)
        self.parents.append(key[0])
        self.tokens.append(draft.tokens[node])
        self.methods.append(draft.methods[node])
        self.values.append(value)
        if draft.probabilities:
            self.stated.append(draft.probabilities[node])
        else:  # of a drafter that says nothing, what experience says
            above = self.values[key[0]] if key[0] >= 0 else 1.0
            self.stated.append(min(value / above, 1.0))
        self.distributions.append(draft.distributions[node] if draft.distributions else None)

    def draft(self) -> Draft:
        drawn = any(distribution is not None for distribution in self.distributions)
        return Draft(
            tuple(self.tokens),
            tuple(self.parents),
            tuple(self.methods),
            tuple(self.stated),
            tuple(self.distributions) if drawn else (),
        )

    def shared_values(self) -> list[float]:
        """Siblings exclude each other: where drafters disagree their claims are scaled down."""
        above = [1.0 if parent < 0 else self.values[parent] for parent in self.parents]
        claims: dict[int, float] = {}
        for parent, value, most in zip(self.parents, self.values, above, strict=True):
            claims[parent] = claims.get(parent, 0.0) + value / most
        values: list[float] = []
        for parent, value, most in zip(self.parents, self.values, above, strict=True):
            fair = 1.0 if parent < 0 else values[parent]
            values.append(fair * value / (most * max(claims[parent], 1.0)))
        return values


def in_draft_order(draft: Draft, values: Sequence[float]) -> list[float]:
    """No node is worth more than its earlier sibling, so what is kept of siblings is a prefix."""
    least: dict[int, float] = {}
    ordered: list[float] = []
    for parent, value in zip(draft.parents, values, strict=True):
        above = ordered[parent] if parent >= 0 else 1.0
        ordered.append(min(value, above, least.get(parent, 1.0)))
        least[parent] = ordered[-1]
    return ordered


def best_count(
    values: Sequence[float], seconds: Sequence[float], tokens: float, draft_s: float
) -> tuple[int, float]:
    """How many nodes give the most tokens per second, and the best rate.

    With the nodes in order of value this is the best point of the whole curve, so it needs no
    convex hull of the pass times: a dear row followed by cheap ones is passed over or taken whole.
    Of nearly equal points the one with the fewest nodes is taken: estimates of deep paths err most.

    Args:
        values: P(path accepted) of the candidates, falling.
        seconds: of the pass with 0, 1, 2, .. of them, at least as many as fit.
        tokens: expected without any of them: one for each sequence of the pass, and more.
        draft_s: already spent on drafting in this step.
    """
    plain = best = tokens / (seconds[0] + draft_s)
    steps = [(0, plain)]  # counts that are better than all before
    for count, (value, elapsed) in enumerate(zip(values, seconds[1:], strict=False), 1):
        tokens += value
        if tokens > best * (elapsed + draft_s):
            best = tokens / (elapsed + draft_s)
            steps.append((count, best))
    enough = best - INDIFFERENT * (best - plain)
    return next(count for count, rate in steps if rate >= enough), best
