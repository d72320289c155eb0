"""The engine's side of drafters, which are not trusted: a failure costs drafts, never output."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from slipstream.drafters.base import (
    GRAMMAR,
    Draft,
    Drafter,
    DrafterNeeds,
    DraftRequest,
    Outcome,
    Pool,
    TargetPass,
)
from slipstream.engine.controller import Controller, Proposal, Room
from slipstream.engine.drafts import admitted, checked, likely, long_enough
from slipstream.engine.drawn import is_drawn
from slipstream.engine.sequence import SequenceState
from slipstream.errors import BackendError, PairingError, SlipstreamError
from slipstream.graph import Graph


class Drafting:
    """Passes calls on. A sequence for which a drafter failed goes on without that drafter.

    Every reason is counted in the sequence's ``rejected_drafts``. A call for several sequences that
    fails is repeated for each alone, so that a failure costs one of them its drafts only.

    Args:
        drafters: in order of precedence.
        vocabulary: number of token ids of the target.
        clock: seconds.
        fast_forward: whether tokens that a grammar dictates are proposed, before all drafters.

    Attributes:
        names: of the drafters; what a grammar dictates comes before them all and is none.
    """

    def __init__(
        self,
        drafters: Sequence[Drafter],
        vocabulary: int,
        clock: Callable[[], float],
        fast_forward: bool = True,
    ) -> None:
        self.drafters = tuple(drafters)
        self.vocabulary = vocabulary
        self.names = tuple(drafter.name for drafter in self.drafters)
        self.needs = DrafterNeeds(
            hidden=frozenset().union(*(drafter.needs.hidden for drafter in self.drafters)),
            logits=any(drafter.needs.logits for drafter in self.drafters),
            target_memory=any(drafter.needs.target_memory for drafter in self.drafters),
            target_embedding=any(drafter.needs.target_embedding for drafter in self.drafters),
        )
        self._clock = clock
        self._fast_forward = fast_forward

    def _forces(self, sequence: SequenceState) -> bool:
        wanted = self._fast_forward and sequence.drafts
        return wanted and sequence.sampler.constraint is not None

    def _chosen(self, sequence: SequenceState) -> list[Drafter]:
        """What a drafter was not chosen for, it is never told of."""
        return [drafter for drafter in self.drafters if drafter.name in sequence.methods]

    def open(self, sequence: SequenceState) -> None:
        """Open it in the drafters chosen for it."""
        chosen = self._chosen(sequence)
        sequence.statistics.warm = any(
            pool.tokens > 0
            for drafter in chosen
            for scope, pool in _pools(drafter).items()
            if scope == sequence.scope
        )
        for drafter in chosen:
            sequence.drafters.add(drafter.name)
            try:
                drafter.open(sequence.id, sequence.tokens, sequence.scope)
            except SlipstreamError as error:
                sequence.drafters.discard(drafter.name)
                _count(sequence, _failure(drafter, error))

    def propose(
        self, sequences: Sequence[SequenceState], rooms: Sequence[Room], controller: Controller
    ) -> list[tuple[Proposal, ...]]:
        """The proposals for each sequence, of the drafters that the controller asks."""
        held = self._dictated(sequences, rooms, controller)
        for drafter in self.drafters:
            if not any(drafter.name in sequence.methods for sequence in sequences):
                continue
            caps = controller.plan(drafter.name, rooms, held)
            asked = [
                place
                for place, cap in enumerate(caps)
                if cap > 0 and drafter.name in sequences[place].drafters
            ]
            start = self._clock()
            worth = controller.worth(drafter.name) if asked else 0.0
            requests = [_request(sequences[i], caps[i], rooms[i], worth) for i in asked]
            drafts = self._ask(drafter, [sequences[i] for i in asked], requests)
            elapsed = self._clock() - start
            for place, draft in zip(asked, drafts, strict=True):
                held[place] += (Proposal(drafter.name, caps[place], draft, elapsed, len(asked)),)
        return held

    def _dictated(
        self, sequences: Sequence[SequenceState], rooms: Sequence[Room], controller: Controller
    ) -> list[tuple[Proposal, ...]]:
        """Per sequence, the proposal of its grammar; nothing where it has none."""
        held: list[tuple[Proposal, ...]] = [() for _ in sequences]
        asked = [place for place, sequence in enumerate(sequences) if self._forces(sequence)]
        if not asked:
            return held
        caps = controller.plan(GRAMMAR, [rooms[place] for place in asked], [()] * len(asked))
        for place, cap in zip(asked, caps, strict=True):
            if cap > 0:
                start = self._clock()
                draft = _forced(sequences[place], cap)
                held[place] = (Proposal(GRAMMAR, cap, draft, self._clock() - start),)
        return held

    def _ask(
        self, drafter: Drafter, sequences: Sequence[SequenceState], requests: list[DraftRequest]
    ) -> list[Draft]:
        """A checked draft per sequence; empty where it was malformed or the drafter failed."""
        drafts: list[Draft] = []
        try:
            drafts += drafter.draft(requests) if requests else ()
        except SlipstreamError as error:
            if len(sequences) > 1:
                pairs = zip(sequences, requests, strict=True)
                return [self._ask(drafter, [one], [request])[0] for one, request in pairs]
            self._lose(drafter, sequences[0], error)
            return [Draft()]
        if len(drafts) != len(sequences):
            for sequence in sequences:
                _count(sequence, f"{drafter.name}: another number of drafts than requests")
            return [Draft() for _ in sequences]
        return [
            self._checked(drafter, sequence, request, draft)
            for sequence, request, draft in zip(sequences, requests, drafts, strict=True)
        ]

    def _checked(
        self, drafter: Drafter, sequence: SequenceState, request: DraftRequest, draft: Draft
    ) -> Draft:
        """Of what it gave, that which may be verified; every other reason is counted."""
        found, fault = checked(draft, self.vocabulary, drafter.name)
        if fault is None:
            found, fault = admitted(found, sequence.sampler.constraint)
        if fault is not None:
            _count(sequence, fault)
        spared = request.n_min if request.drawn else 0
        found = likely(found, request.p_min, spared=spared, drawn=request.drawn)
        if long_enough(found, request.n_min) or (request.drawn and is_drawn(found)):
            return found
        _count(sequence, f"{drafter.name}: a proposal shorter than n_min")
        return Draft()

    def hidden(self, sequences: Sequence[SequenceState]) -> frozenset[str]:
        """The hidden outputs that drafters of these sequences need."""
        return frozenset().union(
            *(
                drafter.needs.hidden
                for drafter in self.drafters
                if drafter.needs.hidden and any(drafter.name in s.drafters for s in sequences)
            )
        )

    def process(self, passes: Sequence[tuple[SequenceState, TargetPass]]) -> None:
        """Tell the drafters of each sequence what its pass computed."""
        for drafter in self.drafters:
            pairs = [pair for pair in passes if drafter.name in pair[0].drafters]
            if pairs:
                self._process(drafter, pairs)

    def _process(self, drafter: Drafter, pairs: Sequence[tuple[SequenceState, TargetPass]]) -> None:
        try:
            drafter.process([target_pass for _, target_pass in pairs])
        except SlipstreamError as error:
            if len(pairs) == 1:
                self._lose(drafter, pairs[0][0], error)
                return
            for pair in pairs:
                self._process(drafter, [pair])

    def observe(
        self,
        sequence: SequenceState,
        draft: Draft,
        path: tuple[int, ...],
        tokens: tuple[int, ...],
        proposals: Sequence[Proposal],
    ) -> None:
        """Tell every drafter of the verdict on a step."""
        proposed = {proposal.method: len(proposal.draft) for proposal in proposals}
        for drafter in self.drafters:
            if drafter.name in sequence.drafters:
                outcome = Outcome(draft, path, tokens, proposed.get(drafter.name, 0))
                self._observe(drafter, sequence, outcome)

    def _observe(self, drafter: Drafter, sequence: SequenceState, outcome: Outcome) -> None:
        try:
            drafter.observe(sequence.id, outcome)
        except SlipstreamError as error:
            self._lose(drafter, sequence, error)

    def close(
        self, sequence: SequenceState, *, forget: bool = False, private: bool = False
    ) -> None:
        """
        Args:
            forget: whether what was learned in its scope goes with it.
            private: whether that goes before it closes too, for closing may save it for others.
        """
        for drafter in self._chosen(sequence):
            if private:
                self._erase(drafter, sequence)
            if drafter.name in sequence.drafters:
                self._close(drafter, sequence)
            if forget:
                self._erase(drafter, sequence)

    def _erase(self, drafter: Drafter, sequence: SequenceState) -> None:
        failure = _forget(drafter, sequence.scope)
        if failure is not None:
            _count(sequence, failure)

    def forget(self, scopes: Sequence[str | None]) -> None:
        """Erase what every drafter learned in some scopes; None = in all.

        Raises:
            BackendError: a drafter failed; the others have forgotten.
        """
        faults = [_forget(drafter, scope) for drafter in self.drafters for scope in scopes]
        fault = next(filter(None, faults), None)
        if fault is not None:
            raise BackendError("drafters that forget", fault, "Stop using that drafter.")

    def remembered(self) -> list[tuple[str, str, Pool]]:
        """Drafter, scope and extent of what it learned there."""
        return [
            (drafter.name, scope, pool)
            for drafter in self.drafters
            for scope, pool in _pools(drafter).items()
        ]

    def _close(self, drafter: Drafter, sequence: SequenceState) -> None:
        sequence.drafters.discard(drafter.name)
        try:
            drafter.close(sequence.id)
        except SlipstreamError as error:
            _count(sequence, _failure(drafter, error))

    def _lose(self, drafter: Drafter, sequence: SequenceState, error: SlipstreamError) -> None:
        _count(sequence, _failure(drafter, error))
        self._close(drafter, sequence)


def require_outputs(drafters: Sequence[Drafter], graph: Graph) -> None:
    """
    Raises:
        PairingError: a drafter wants a hidden output that the target's graph does not have for
            every row.
    """
    known = {
        name
        for name, value in graph.outputs().items()
        if value.row_set == "all" and name != "logits"
    }
    for drafter in drafters:
        unknown = sorted(map(str, drafter.needs.hidden - known))
        if unknown:
            raise PairingError(
                f"{drafter.name} to need hidden outputs of this model ({_ranges(known)})",
                f"`{unknown[0]}`",
                "Ask for one of these; logits come with `needs.logits`.",
            )


def _forced(sequence: SequenceState, most: int) -> Draft:
    """Tokens that are certain, unless the grammar's mask cuts the text otherwise."""
    assert sequence.sampler.constraint is not None
    tokens = sequence.sampler.constraint.forced(most)
    return Draft.chain(tokens, GRAMMAR, [1.0] * len(tokens))


def _request(sequence: SequenceState, cap: int, room: Room, worth: float) -> DraftRequest:
    limits = sequence.limits
    return DraftRequest(
        sequence.id,
        sequence.tokens,
        cap,
        sequence.sampler,
        room.drawn,
        worth,
        limits.p_min,
        limits.n_min,
    )


def _pools(drafter: Drafter) -> Mapping[str, Pool]:
    """None where it fails: what a drafter remembers is for information."""
    try:
        return drafter.pools()
    except SlipstreamError:
        return {}


def _forget(drafter: Drafter, scope: str | None) -> str | None:
    """Why it failed, or None."""
    try:
        drafter.forget(scope)
    except SlipstreamError as error:
        return _failure(drafter, error)
    return None


def _ranges(names: set[str]) -> str:
    """The names in order, numbered ones as a range."""
    stems: dict[str, list[int]] = {}
    for name in names:
        stem, _, number = name.rpartition(".")
        if number.isdigit():
            stems.setdefault(stem, []).append(int(number))
    plain = [name for name in names if not name.rpartition(".")[2].isdigit()]
    ranges = [f"{stem}.{min(found)} to {stem}.{max(found)}" for stem, found in stems.items()]
    return ", ".join(sorted(plain) + sorted(ranges)) or "it has none"


def _failure(drafter: Drafter, error: SlipstreamError) -> str:
    return f"{drafter.name} failed: {error}"


def _count(sequence: SequenceState, reason: str) -> None:
    sequence.statistics.rejected_drafts[reason] += 1
