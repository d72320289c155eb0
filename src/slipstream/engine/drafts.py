"""A drafter is not trusted: its drafts are checked before they meet the target."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index

from slipstream.drafters.base import ROOT, Draft

MOST_NODES = 1024  # llama.cpp's bound on the length of a draft


def _shape_fault(draft: Draft, vocabulary: int) -> str | None:
    if len(draft.tokens) > MOST_NODES:
        return f"more than {MOST_NODES} nodes"
    if len(draft.tokens) != len(draft.parents):
        return "tokens and parents differ in number"
    shape = (len(draft.tokens), vocabulary)
    if draft.distributions is not None and draft.distributions.shape != shape:
        return "distributions of another shape"
    return None


def _tree_fault(tokens: Sequence[int], parents: Sequence[int], vocabulary: int) -> str | None:
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


def checked(draft: Draft, vocabulary: int) -> tuple[Draft, str | None]:
    """The draft with plain integers, or an empty one and the reason it was rejected.

    Args:
        draft: as a drafter returned it.
        vocabulary: number of token ids of the target.
    """
    fault = _shape_fault(draft, vocabulary)
    if fault is None:
        try:
            tokens = tuple(index(token) for token in draft.tokens)
            parents = tuple(index(parent) for parent in draft.parents)
        except TypeError:
            return Draft(), "tokens or parents are not integers"
        fault = _tree_fault(tokens, parents, vocabulary)
        if fault is None:
            return Draft(tokens, parents, draft.distributions, draft.method), None
    return Draft(), fault
