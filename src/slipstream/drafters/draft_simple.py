"""draft-simple: a second, smaller model drafts, with a memory of its own.

As llama.cpp's method of that name, with its parameters and defaults. Where that code departs from
its intent, or more is possible, the intent is implemented:

- ``p_min`` is compared with the softmax probability over all ids, not over the best ten;
- drafted tokens stay in the draft model's memory, so an accepted one is not computed again (there,
  every draft is computed a second time);
- the model reads a sequence when it is first asked to draft, not along with every target pass, and
  no more than the newest ``draft_window`` tokens: a parked draft model costs nothing;
- tokens are chosen by the target's own sampler (options, noise, grammar), so that more of them are
  accepted above temperature 0; end-of-generation tokens are never drafted;
- alternatives: ``draft_branches`` above 1 makes trees. ``n_max`` bounds the tokens on a path.

Where a text outgrows the draft model's context, the model goes on with the newest half of it
(``draft_memory``). With ``draft_vocab`` N it drafts over ids below N: byte-pair and SentencePiece
vocabularies number their tokens by frequency.

For rejection sampling nothing may be dropped because of the token drawn, so then ``n_min`` is kept
by not stopping at ``p_min`` before that many tokens, not by dropping shorter proposals.

A request may name a ``p_min`` of its own: nothing follows a place where the likeliest token has
less, and nodes whose estimate is less are left out, as they would not be verified.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec

from slipstream.drafters.base import ROOT, BaseDrafter, Draft, DraftRequest
from slipstream.drafters.draft_memory import DraftMemory, Lane, Pace, Row, Track
from slipstream.drafters.draft_tokens import Rules, drawn, guessed
from slipstream.drafters.draft_tree import Child, DraftTree
from slipstream.drafters.resources import DraftModel, Resources
from slipstream.errors import OptionError, PairingError, SlipstreamError
from slipstream.options import SamplingOptions, SpeculationOptions
from slipstream.sampling import SamplerState


@dataclass(frozen=True)
class _Place:
    """Where a node's logits were computed: the lane, its length there, and the sampler."""

    lane: Lane
    length: int
    state: SamplerState


class DraftSimple(BaseDrafter):
    """
    Args:
        memory: of the draft model.
        rules: how tokens are chosen.
        n_max: most tokens on a path.
        n_min: shorter proposals are dropped.
    """

    name = "draft-simple"

    def __init__(self, memory: DraftMemory, rules: Rules, n_max: int = 3, n_min: int = 0) -> None:
        self.memory = memory
        self.rules = rules
        self.n_max = n_max
        self.n_min = n_min

    def open(self, sequence: int, tokens: Sequence[int], scope: str) -> None:
        del tokens, scope
        self.memory.open(sequence)

    def pending(self, sequence: int, tokens: Sequence[int]) -> int:
        """See ``Priced``."""
        return self.memory.pending(sequence, tokens)

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        able = [request for request in requests if self._able(request)]
        texts = [(request.sequence, request.tokens) for request in able]
        found = self.memory.catch_up(texts)
        growing = [
            _Growing(self, request, lane, row)
            for request, (lane, row) in zip(able, found, strict=True)
        ]
        for _ in range(self.n_max - 1):
            work = [(tree, node, lane) for tree in growing for node, lane in tree.ripe()]
            if not work:
                break
            rows = self.memory.read([(lane, [tree.tree.token(n)]) for tree, n, lane in work])
            for (tree, node, lane), row in zip(work, rows, strict=True):
                tree.grow(node, lane, row)
        drafts = {tree.request.sequence: tree.draft() for tree in growing}
        return [drafts.get(request.sequence, Draft()) for request in requests]

    def _able(self, request: DraftRequest) -> bool:
        most = min(self.n_max, request.n_max)
        return most >= max(self.n_min, request.n_min, 1)

    def fork(self, source: int, target: int) -> None:
        self.memory.fork(source, target)

    def close(self, sequence: int) -> None:
        self.memory.close(sequence)


class _Growing:
    """One sequence's draft while it grows."""

    def __init__(self, drafter: DraftSimple, request: DraftRequest, lane: Lane, row: Row) -> None:
        self.request = request
        self._drafter = drafter
        self._track: Track = drafter.memory.tracks[request.sequence]
        # the last token of a path is not read
        room = drafter.memory.context - lane.length + 1
        depth = min(drafter.n_max, request.n_max, room)
        self.tree = DraftTree(request.n_max, depth, request.worth)
        self._places: dict[int, _Place] = {}
        self._spared = max(drafter.n_min, request.n_min) if request.drawn else 0
        self._rules = drafter.rules
        if request.p_min > drafter.rules.p_min:
            self._rules = replace(drafter.rules, p_min=request.p_min)
        self._fault = ""
        self._root(lane, row)

    def _root(self, lane: Lane, row: Row) -> None:
        try:
            self._put(ROOT, 0, _Place(lane, lane.length, _sampler(self.request)), row)
        except SlipstreamError as error:
            self._fault = str(error)

    def _put(self, node: int, depth: int, place: _Place, row: Row) -> None:
        """Let a node's children grow from its logits."""
        self._places[node] = place
        if not self.request.drawn:
            children = guessed(row, place.state, self._rules)
            self.tree.grow(node, [child for child in children if self._likely(child)])
            return
        stop = depth >= self._spared
        children = drawn(row, place.state, self._rules, self._track.draws, stop)
        self._track.draws += len(children)
        # estimates of drawn siblings fall, so the later ones go with the first that is left out
        kept = [child for child in children if self._likely(child)] if stop else children
        self.tree.grow(node, kept)

    def _likely(self, child: Child) -> bool:
        return child.estimate >= self.request.p_min

    def ripe(self) -> list[tuple[int, Lane]]:
        """Nodes to read next, each with a lane that ends at its parent."""
        found: list[tuple[int, Lane]] = []
        if self._fault:
            return found
        taken: set[int] = set()
        # one by one where tokens are drawn: so the rank of a node is settled before its own token
        # can cost another one its lane
        width = 1 if self.request.drawn else self._drafter.rules.branches
        for node in self.tree.ripe(width):
            place = self._places[self.tree.parent(node)]
            lane = place.lane
            if lane.handle in taken or lane.length != place.length:
                branch = self._drafter.memory.branch(self._track, lane, place.length)
            else:
                branch = lane
            self.tree.close(node)
            if branch is not None:
                taken.add(branch.handle)
                found.append((node, branch))
        return found

    def grow(self, node: int, lane: Lane, row: Row) -> None:
        """A sampler or grammar that fails ends this draft, not those beside it."""
        before = self._places[self.tree.parent(node)].state
        try:
            state = before.fork()
            state.advance(self.tree.token(node))
            self._put(node, self.tree.depth(node), _Place(lane, lane.length, state), row)
        except SlipstreamError as error:
            self._fault = str(error)

    def draft(self) -> Draft:
        if self._fault:
            return Draft(fault=self._fault)
        short = self.tree.deepest() < self._drafter.n_min
        return Draft() if short and not self.request.drawn else self.tree.draft(DraftSimple.name)


def _sampler(request: DraftRequest) -> SamplerState:
    """The target's sampler to play with; log-probabilities of guesses are of no use."""
    if request.sampler is None:
        return SamplerState(SamplingOptions(), (), 0)
    state = request.sampler.fork()
    if state.options.logprobs is not None:
        state.options = msgspec.structs.replace(state.options, logprobs=None)
    return state


class Unpaired(BaseDrafter):
    """Stands for a draft model that does not fit; every sequence records why, and goes on."""

    name = DraftSimple.name

    def __init__(self, fault: PairingError) -> None:
        self.fault = fault

    def open(self, sequence: int, tokens: Sequence[int], scope: str) -> None:
        del sequence, tokens, scope
        raise self.fault


def create(options: SpeculationOptions, resources: Resources) -> DraftSimple | Unpaired:
    """
    Raises:
        OptionError: there is no draft model, or its context is shorter than asked for.
    """
    if resources.draft_fault is not None:
        return Unpaired(resources.draft_fault)
    model = resources.draft_model
    if model is None:
        raise OptionError(
            f"a draft model for `{DraftSimple.name}`",
            "no `draft_model`",
            "Name one (--draft-model), or choose a method that needs none.",
        )
    branches = options.draft_branches
    ends = frozenset(resources.tokenizer.end_ids)
    rules = Rules(resources.vocabulary, branches, options.p_min, ends)
    memory = DraftMemory(
        model.compile,
        context=_context(options, resources, model),
        parallel=resources.parallel,
        window=options.draft_window,
        depth=options.longest,
        lanes=1 if branches == 1 else 2 * branches,
        ids=model.vocabulary if model.vocabulary < resources.vocabulary else None,
        pace=Pace(resources.step_rows, resources.step_time_limit_s),
    )
    return DraftSimple(memory, rules, options.longest, options.n_min)


def _context(options: SpeculationOptions, resources: Resources, model: DraftModel) -> int:
    if options.draft_context is None:
        return min(resources.context, model.context)
    if options.draft_context > model.context:
        raise OptionError(
            f"`draft_context` of at most {model.context}, for which {model.name} was trained",
            f"{options.draft_context}",
            "Lower it or leave it out.",
        )
    return options.draft_context
