"""One target pass: what it holds, running it, and the verdicts on what it computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from slipstream.backends.base import Outputs, Program
from slipstream.drafters.base import Draft
from slipstream.engine.batch import NO_MEMORY, Share, assemble, decode_share, prompt_share
from slipstream.engine.controller import Controller, Proposal, Room
from slipstream.engine.drafting import Drafting
from slipstream.engine.records import PassCost
from slipstream.engine.scheduler import Scheduler
from slipstream.engine.sequence import SequenceState
from slipstream.errors import OutOfMemoryError, SlipstreamError
from slipstream.verify.base import Verdict, Verifier
from slipstream.verify.matching import Matching

PLAIN = Matching()


class Passes:
    """Rows for the running sequences: prompts, newest tokens, and the drafts that are worth it.

    Args:
        program, scheduler, drafting, controller, verifier, clock: those of the engine.

    Attributes:
        steps: passes planned so far.
    """

    def __init__(
        self,
        program: Program,
        scheduler: Scheduler,
        drafting: Drafting,
        controller: Controller,
        verifier: Verifier,
        clock: Callable[[], float],
    ) -> None:
        self._program = program
        self._scheduler = scheduler
        self._drafting = drafting
        self._controller = controller
        self._verifier = verifier
        self._clock = clock
        self.steps = 0

    def verifier_of(self, sequence: SequenceState) -> Verifier:
        """A request that wants nothing drafted gets the output of plain decoding."""
        return self._verifier if sequence.drafts else PLAIN

    def plan(self) -> tuple[list[Share], PassCost]:
        """The shares of the next pass, and what planning it took."""
        start = self._clock()
        shares = self._decoding()
        self.steps += 1
        cost = PassCost(draft_s=self._clock() - start, step=self.steps)
        chunks = self._scheduler.chunks(sum(len(share.tokens) for share in shares))
        return shares + [
            prompt_share(sequence, count, Room(-1, 0, methods=self._methods(sequence)))
            for sequence, count in chunks
        ], cost

    def _decoding(self) -> list[Share]:
        decoding = self._scheduler.decoding()
        affordable = max(self._scheduler.rows - len(decoding), 0)
        rooms = [self._room(sequence, affordable) for sequence in decoding]
        held = self._drafting.propose(decoding, rooms, self._controller)
        drafts = self._controller.choose(rooms, held)
        granted = self._scheduler.affordable_drafts([len(draft) for draft in drafts])
        return [
            self._share(*parts)
            for parts in zip(decoding, drafts, granted, rooms, held, strict=True)
        ]

    def _share(
        self,
        sequence: SequenceState,
        draft: Draft,
        granted: int,
        room: Room,
        proposals: tuple[Proposal, ...],
    ) -> Share:
        reason, cut = self._controller.reason(sequence.id), len(draft) - granted
        return decode_share(sequence, draft.cut(granted), room, proposals, cut, reason)

    def _room(self, sequence: SequenceState, affordable: int) -> Room:
        seed_exact = self.verifier_of(sequence).seed_exact
        drawn = not seed_exact and sequence.sampler.options.temperature > 0
        return Room(
            sequence.id,
            sequence.nodes,
            sequence.committed,
            drawn,
            sequence.scope,
            affordable,
            self._methods(sequence),
            None if sequence.nodes == sequence.room else sequence.room + 1,
        )

    def _methods(self, sequence: SequenceState) -> tuple[str, ...] | None:
        """Of its drafters, or None where they are all that there are."""
        return None if sequence.methods == self._drafting.names else sequence.methods

    def run(self, shares: list[Share]) -> Outputs:
        """Run the pass; where memory is short, run it again without drafts, changing ``shares``.

        Raises:
            OutOfMemoryError: not even without drafts there was enough.
            SlipstreamError: the program failed.
        """
        hidden = self._drafting.hidden([share.sequence for share in shares])
        try:
            return self._program.run(assemble(shares, hidden))
        except OutOfMemoryError:
            if not any(len(share.draft) for share in shares):
                raise
        for place, share in enumerate(shares):
            if len(share.draft):
                share.sequence.statistics.rejected_drafts[NO_MEMORY] += 1
                shares[place] = decode_share(
                    share.sequence, Draft(), share.room, share.proposals, reason=NO_MEMORY
                )
        return self._program.run(assemble(shares, hidden))

    def verify(
        self, shares: Sequence[Share], outputs: Outputs
    ) -> list[Verdict | SlipstreamError | None]:
        """A verdict per share, or why there is none; None where nothing was to be sampled."""
        verdicts: list[Verdict | SlipstreamError | None] = []
        stop = 0
        for share in shares:
            start, stop = stop, stop + len(share.logit_rows)
            verdicts.append(None)
            if start == stop:
                continue
            sequence = share.sequence
            try:
                verdicts[-1] = self.verifier_of(sequence).verify(
                    share.draft, outputs.logits[start:stop], sequence.sampler, sequence.ends
                )
            except SlipstreamError as error:
                verdicts[-1] = error
        return verdicts
