"""A drafter is not trusted: its drafts are checked before they meet the target."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index

from slipstream.drafters.base import ROOT, Draft, Drafter, DraftRequest
from slipstream.engine.sequence import SequenceState
from slipstream.errors import SlipstreamError

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


def collect_drafts(
    drafter: Drafter, sequences: Sequence[SequenceState], caps: Sequence[int], vocabulary: int
) -> list[Draft]:
    """A checked draft per sequence; empty where its cap is 0.

    A draft that is malformed, and every draft when the drafter fails, becomes an empty one; the
    reason is counted in the sequence's ``rejected_drafts``.
    """
    drafts = [Draft() for _ in sequences]
    asked = [place for place, cap in enumerate(caps) if cap > 0]
    if not asked:
        return drafts
    proposals, failure = _ask(drafter, [_request(sequences[i], caps[i]) for i in asked])
    for place, proposal in zip(asked, proposals, strict=True):
        drafts[place], fault = checked(proposal, vocabulary)
        reason = failure or fault
        if reason is not None:
            sequences[place].statistics.rejected_drafts[reason] += 1
    return drafts


def _request(sequence: SequenceState, cap: int) -> DraftRequest:
    sampler = sequence.sampler
    return DraftRequest(sequence.id, sequence.tokens, cap, sampler.seed, sampler.index)


def _ask(drafter: Drafter, requests: Sequence[DraftRequest]) -> tuple[Sequence[Draft], str | None]:
    nothing = [Draft() for _ in requests]
    try:
        drafts = drafter.draft(requests)
    except SlipstreamError as error:
        return nothing, f"the drafter failed: {error}"
    if len(drafts) != len(requests):
        return nothing, "another number of drafts than requests"
    return drafts, None
