"""A drafter is not trusted: its drafts are checked before they meet the target."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan
from operator import index

import numpy as np

from slipstream.constraint import Constraint
from slipstream.drafters.base import ROOT, Distribution, Draft

MOST_NODES = 1024  # llama.cpp's bound on the length of a draft
CHAIN = tuple(range(ROOT, MOST_NODES - 1))  # parents of the longest chain
MOST_REASON = 500  # characters of a drafter's own words
TOLERANCE = 1e-6  # of the sum of a distribution


def _shape_fault(draft: Draft) -> str | None:
    if len(draft.tokens) > MOST_NODES:
        return f"more than {MOST_NODES} nodes"
    if len(draft.tokens) != len(draft.parents):
        return "tokens and parents differ in number"
    for values in (draft.probabilities, draft.distributions):
        if values and len(values) != len(draft.tokens):
            return "estimates or distributions differ in number from tokens"
    return None


def _estimate_fault(probabilities: Sequence[float]) -> str | None:
    """A comparison with a NaN is false, so it is a fault too; here their sum shows one."""
    try:
        total = sum(probabilities)
        within = not probabilities or (
            min(probabilities) >= 0.0 and max(probabilities) <= 1.0 and not isnan(total)
        )
    except TypeError:
        within = False
    return None if within else "an estimate that is no probability"


def _distribution_fault(
    token: int, distribution: Distribution | None, vocabulary: int
) -> str | None:
    if distribution is None:
        return None
    ids, probabilities = distribution.ids, distribution.probabilities
    if ids.ndim != 1 or ids.shape != probabilities.shape or not ids.size:
        return "a distribution of another shape"
    if ids[0] < 0 or ids[-1] >= vocabulary or (np.diff(ids) <= 0).any():
        return "a distribution over ids that do not ascend within the vocabulary"
    if not (probabilities >= 0.0).all() or not abs(float(probabilities.sum()) - 1.0) < TOLERANCE:
        return "a distribution whose sum is not 1"
    place = int(np.searchsorted(ids, token))
    if place == ids.size or ids[place] != token or not probabilities[place] > 0.0:
        return "a token that its distribution cannot draw"
    return None


def _is_chain(parents: Sequence[int]) -> bool:
    return parents == CHAIN[: len(parents)]


def _tree_fault(tokens: Sequence[int], parents: Sequence[int], vocabulary: int) -> str | None:
    if not tokens:
        return None
    if _is_chain(parents) and min(tokens) >= 0 and max(tokens) < vocabulary:
        return None
    seen: set[tuple[int, int]] = set()
    for node, (token, parent) in enumerate(zip(tokens, parents, strict=True)):
        if not 0 <= token < vocabulary:
            return "token id outside the vocabulary"
        if not ROOT <= parent < node:
            return "a parent does not come before its child"
        if (parent, token) in seen:
            return "siblings with the same token"
        seen.add((parent, token))
    return None


def checked(draft: Draft, vocabulary: int, method: str) -> tuple[Draft, str | None]:
    """The draft with plain integers and its method, or an empty one and why it was rejected.

    Args:
        draft: as a drafter returned it.
        vocabulary: number of token ids of the target.
        method: the drafter's name.
    """
    if draft.fault:
        return Draft(), f"{method} failed: {str(draft.fault)[:MOST_REASON]}"
    fault = _shape_fault(draft) or _estimate_fault(draft.probabilities)
    if fault is not None:
        return Draft(), fault
    try:
        tokens, parents = tuple(map(index, draft.tokens)), tuple(map(index, draft.parents))
    except TypeError:
        return Draft(), "tokens or parents are not integers"
    fault = _tree_fault(tokens, parents, vocabulary)
    for token, distribution in zip(tokens, draft.distributions, strict=False):
        fault = fault or _distribution_fault(token, distribution, vocabulary)
    if fault is not None:
        return Draft(), fault
    methods = (method,) * len(tokens)
    return Draft(tokens, parents, methods, draft.probabilities, draft.distributions), None


def admitted(draft: Draft, constraint: Constraint | None) -> tuple[Draft, str | None]:
    """The draft without what a sequence's grammar forbids, and a reason if it lost anything.

    A forbidden node that was drawn from a distribution stays: rejection sampling has to see it
    rejected, for leaving it out because of its token would bias the output.
    """
    if constraint is None or not len(draft):
        return draft, None
    allowed = set(constraint.admitted(draft.tokens, draft.parents))
    drawn = draft.distributions or (None,) * len(draft)
    nodes: dict[int, None] = {}
    for node, parent in enumerate(draft.parents):
        if node in allowed or (drawn[node] is not None and (parent == ROOT or parent in nodes)):
            nodes[node] = None
    if len(nodes) == len(draft):
        return draft, None
    return draft.kept(list(nodes)), "the grammar forbids a drafted token"


def likely(draft: Draft, p_min: float, *, spared: int, drawn: bool) -> Draft:
    """The draft without nodes whose estimate is below ``p_min`` and without what follows them.

    Args:
        spared: tokens on a path that stay whatever their estimate.
        drawn: whether its tokens may be drawn: then the later siblings of such a node go too, for
            they were drawn, or did not vanish, because of those before them.
    """
    if p_min <= 0.0 or not draft.probabilities or min(draft.probabilities) >= p_min:
        return draft
    kept: dict[int, None] = {}
    ended: set[int] = set()  # parents of which no further child is kept
    for node, (parent, depth) in enumerate(zip(draft.parents, draft.depths(), strict=True)):
        if parent in ended or not (parent == ROOT or parent in kept):
            continue
        if depth >= spared and draft.probabilities[node] < p_min:
            if drawn:
                ended.add(parent)
            continue
        kept[node] = None
    return draft.kept(list(kept))


def long_enough(draft: Draft, n_min: int) -> bool:
    """Whether its longest path has so many tokens; one without nodes is not too short."""
    return n_min <= 1 or not len(draft) or max(draft.depths()) + 1 >= n_min
