"""The engine's side of a drafter, which is not trusted: its failure costs drafts, never output."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from slipstream.drafters.base import Draft, Drafter, DraftRequest, Outcome, TargetPass
from slipstream.engine.drafts import checked
from slipstream.engine.sequence import SequenceState
from slipstream.errors import SlipstreamError


class Drafting:
    """Passes calls on. A sequence for which a call failed goes on without drafts.

    Every reason is counted in the sequence's ``rejected_drafts``.

    Args:
        vocabulary: number of token ids of the target.
    """

    def __init__(self, drafter: Drafter, vocabulary: int) -> None:
        self.drafter = drafter
        self.vocabulary = vocabulary

    def open(self, sequence: SequenceState) -> None:
        sequence.drafting = True
        try:
            self.drafter.open(sequence.id, sequence.tokens)
        except SlipstreamError as error:
            sequence.drafting = False
            _count(sequence, _failure(error))

    def draft(self, sequences: Sequence[SequenceState], caps: Sequence[int]) -> list[Draft]:
        """A checked draft per sequence; empty where its cap is 0 or its draft was malformed."""
        asked = [i for i, cap in enumerate(caps) if cap > 0 and sequences[i].drafting]
        drafts = [Draft() for _ in sequences]
        for place, draft in zip(
            asked,
            self._ask([sequences[i] for i in asked], [caps[i] for i in asked]),
            strict=True,
        ):
            drafts[place], fault = checked(draft, self.vocabulary)
            if fault is not None:
                _count(sequences[place], fault)
        return drafts

    def _ask(self, sequences: Sequence[SequenceState], caps: Sequence[int]) -> list[Draft]:
        drafts: list[Draft] = []
        if sequences:
            requests = [_request(s, cap) for s, cap in zip(sequences, caps, strict=True)]
            self._call(sequences, lambda: drafts.extend(self.drafter.draft(requests)))
        if len(drafts) == len(sequences):
            return drafts
        for sequence in sequences:
            if sequence.drafting:
                _count(sequence, "another number of drafts than requests")
        return [Draft() for _ in sequences]

    def process(self, sequences: Sequence[SequenceState], passes: Sequence[TargetPass]) -> None:
        """
        Args:
            passes: one per sequence.
        """
        pairs = [pair for pair in zip(sequences, passes, strict=True) if pair[0].drafting]
        heard = [target_pass for _, target_pass in pairs]
        if pairs:
            self._call([sequence for sequence, _ in pairs], lambda: self.drafter.process(heard))

    def observe(self, sequence: SequenceState, outcome: Outcome) -> None:
        if sequence.drafting:
            self._call([sequence], lambda: self.drafter.observe(sequence.id, outcome))

    def close(self, sequence: SequenceState) -> None:
        if not sequence.drafting:
            return
        sequence.drafting = False
        try:
            self.drafter.close(sequence.id)
        except SlipstreamError as error:
            _count(sequence, _failure(error))

    def _call(self, sequences: Sequence[SequenceState], call: Callable[[], None]) -> None:
        try:
            call()
        except SlipstreamError as error:
            for sequence in sequences:
                _count(sequence, _failure(error))
                self.close(sequence)


def _request(sequence: SequenceState, cap: int) -> DraftRequest:
    sampler = sequence.sampler
    return DraftRequest(sequence.id, sequence.tokens, cap, sampler.seed, sampler.index)


def _failure(error: SlipstreamError) -> str:
    return f"the drafter failed: {error}"


def _count(sequence: SequenceState, reason: str) -> None:
    sequence.statistics.rejected_drafts[reason] += 1
