"""The engine: one loop in which every step is one target pass over all running sequences.

    caps     = controller.plan(decoding sequences)
    drafts   = controller.trim(drafter.draft(...))
    outputs  = program.run(decoding rows, drafts and prompt chunks)
    verdicts = verifier.verify(...); memory.commit(accepted paths)
    drafter.process / observe; events

It is synchronous and owned by one thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from slipstream.backends.base import Outputs, Program
from slipstream.drafters.base import Draft, Drafter
from slipstream.engine.admission import prepare
from slipstream.engine.batch import Share, assemble, decode_share, prompt_share, target_passes
from slipstream.engine.controller import Controller, DoublingController, Room
from slipstream.engine.drafting import Drafting
from slipstream.engine.events import EmittedToken, Event
from slipstream.engine.records import PassCost, decision_of, outcome_of, round_of
from slipstream.engine.scheduler import Places, Scheduler
from slipstream.engine.sequence import Request, SequenceState
from slipstream.engine.text import Detokenizer
from slipstream.errors import OutOfMemoryError, SlipstreamError
from slipstream.options import EngineOptions
from slipstream.sampling import Primitives
from slipstream.verify.base import Verdict, Verifier


class Engine:
    """
    Args:
        program: the target model, compiled for a memory.
        tokenizer: turns ids into text and knows the end-of-generation ids.
        drafter, verifier: see their contracts.
        context: most tokens of a sequence, prompt and output together.
        options: limits on sequences, rows and seconds of a pass.
        queue: most requests that wait for a place.
        places: shared by engines that use one memory; default ``options.parallel`` of its own.
        controller: default ``DoublingController()``.
        clock: seconds; injected by tests.
        primitives: sampling primitives, forced by tests.
    """

    def __init__(
        self,
        program: Program,
        tokenizer: Detokenizer,
        *,
        drafter: Drafter,
        verifier: Verifier,
        context: int,
        options: EngineOptions | None = None,
        queue: int = 64,
        places: Places | None = None,
        controller: Controller | None = None,
        clock: Callable[[], float] = time.perf_counter,
        primitives: Primitives | None = None,
    ) -> None:
        self.program = program
        self.drafter = drafter
        self.verifier = verifier
        self.context = context
        self.controller = controller or DoublingController()
        self.scheduler = Scheduler(options or EngineOptions(), queue, places)
        self._drafting = Drafting(drafter, program.graph.vocabulary)
        self._tokenizer = tokenizer
        self._clock = clock
        self._primitives = primitives
        self._events: list[Event] = []
        self._submitted = 0
        self._draft_s = 0.0

    @property
    def busy(self) -> bool:
        """Whether ``step`` has work or events to deliver."""
        return bool(self.scheduler.running or self.scheduler.waiting or self._events)

    @property
    def ready(self) -> bool:
        """Whether ``step`` gets on: not where all requests wait for places of other engines."""
        return bool(self.scheduler.running or self._events or self.scheduler.admissible)

    def submit(self, request: Request) -> int:
        """Queue a request; its events carry the id returned.

        Raises:
            RequestError, OptionError: the request is malformed.
            ContextFullError: the prompt leaves no room to generate.
            OverloadedError: the queue is full.
        """
        sequence = prepare(
            request,
            self._submitted,
            vocabulary=self.program.graph.vocabulary,
            context=self.context,
            tokenizer=self._tokenizer,
            primitives=self._primitives,
            now=self._clock(),
        )
        methods = self.drafter.name.split(",")
        sequence.statistics.drafters = tuple(name for name in methods if name != "none")
        self.scheduler.submit(sequence)
        self._submitted += 1
        return sequence.id

    def cancel(self, request: int) -> None:
        """End a request; its last event comes with the next step. Unknown ids are ignored."""
        sequence = self.scheduler.find(request)
        if sequence is not None:
            sequence.finish_reason = "cancelled"
            self._retire(sequence, text=sequence.text.finish())

    def step(self) -> list[Event]:
        """One target pass, if there is work; returns the events since the last step.

        An error that one sequence caused is an event of that sequence; the others go on.
        """
        self._admit()
        shares = self._plan()
        outputs = self._run(shares)
        if outputs is not None:
            self._settle(shares, outputs)
        events, self._events = self._events, []
        return events

    def _admit(self) -> None:
        for sequence in self.scheduler.admit():
            try:
                sequence.handle = self.program.memory.open()
            except SlipstreamError as error:
                self._fail(sequence, error)
                continue
            self._drafting.open(sequence)
            if len(sequence.tokens) >= sequence.limit:
                sequence.finish_reason = "length"
                self._retire(sequence)

    def _plan(self) -> list[Share]:
        decoding = self.scheduler.decoding()
        rooms = [Room(sequence.id, sequence.room) for sequence in decoding]
        caps = self.controller.plan(rooms)
        start = self._clock()
        proposals = self._drafting.draft(decoding, caps)
        self._draft_s = self._clock() - start
        wanted = [min(len(draft), cap) for draft, cap in zip(proposals, caps, strict=True)]
        granted = self.scheduler.affordable_drafts(wanted)
        drafts = self.controller.trim(proposals, granted)
        shares = [
            decode_share(sequence, draft, room, cap, len(proposal), wish - grant)
            for sequence, draft, room, cap, proposal, wish, grant in zip(
                decoding, drafts, rooms, caps, proposals, wanted, granted, strict=True
            )
        ]
        chunks = self.scheduler.chunks(sum(len(share.tokens) for share in shares))
        return shares + [prompt_share(sequence, count) for sequence, count in chunks]

    def _run(self, shares: list[Share]) -> Outputs | None:
        if not shares:
            return None
        try:
            return self._run_or_undraft(shares)
        except OutOfMemoryError as error:
            newest = max(shares, key=lambda share: share.sequence.id)
            self._fail(newest.sequence, error)
        except SlipstreamError as error:
            for share in shares:
                self._fail(share.sequence, error)
        return None

    def _run_or_undraft(self, shares: list[Share]) -> Outputs:
        """Run the step; where memory is short, run it again without drafts."""
        try:
            return self.program.run(assemble(shares, self.drafter.needs.hidden))
        except OutOfMemoryError:
            if not any(len(share.draft) for share in shares):
                raise
        for place, share in enumerate(shares):
            if len(share.draft):
                share.sequence.statistics.rejected_drafts["no memory for draft rows"] += 1
                shares[place] = decode_share(share.sequence, Draft(), share.room, share.cap, 0)
        return self.program.run(assemble(shares, self.drafter.needs.hidden))

    def _settle(self, shares: Sequence[Share], outputs: Outputs) -> None:
        passes = target_passes(shares, outputs)
        rows = sum(len(share.tokens) for share in shares)
        cost = PassCost(rows, outputs.elapsed_s, self._draft_s)
        prompt = any(share.prompt_rows for share in shares)
        self.scheduler.observe(rows, outputs.elapsed_s, prompt=prompt)
        verdicts = self._verify(shares, outputs)
        for share, verdict in zip(shares, verdicts, strict=True):
            if share.sequence.finish_reason is None:
                self._commit(share, verdict)
        self._drafting.process([share.sequence for share in shares], passes)
        for share, verdict in zip(shares, verdicts, strict=True):
            if verdict is None:
                continue
            try:
                self._conclude(share, verdict, cost)
            except SlipstreamError as error:
                self._fail(share.sequence, error)

    def _verify(self, shares: Sequence[Share], outputs: Outputs) -> list[Verdict | None]:
        """A verdict per share; None where nothing was to be sampled or the sequence failed."""
        verdicts: list[Verdict | None] = []
        stop = 0
        for share in shares:
            start, stop = stop, stop + len(share.logit_rows)
            verdicts.append(None)
            if start == stop:
                continue
            sequence = share.sequence
            logits = outputs.logits[start:stop]
            try:
                verdicts[-1] = self.verifier.verify(
                    share.draft, logits, sequence.sampler, sequence.ends
                )
            except SlipstreamError as error:
                self._fail(sequence, error)
        return verdicts

    def _commit(self, share: Share, verdict: Verdict | None) -> None:
        path = share.path(verdict.path if verdict else ())
        self.program.memory.commit(share.sequence.handle, path)
        share.sequence.committed += len(path)

    def _conclude(self, share: Share, verdict: Verdict, cost: PassCost) -> None:
        """Tell controller and drafter of a verdict, emit its tokens, retire what is finished."""
        sequence, statistics, now = share.sequence, share.sequence.statistics, self._clock()
        if not share.prompt_rows:
            self.controller.observe(decision_of(share, verdict, cost, now))
        outcome = outcome_of(share, verdict)
        self._drafting.observe(sequence, outcome)
        emitted, discarded = sequence.emit(verdict.sampled, outcome.accepted)
        if statistics.first_token_s is None:
            statistics.first_token_s = now
        statistics.rounds.append(round_of(share, verdict, len(emitted), discarded, cost))
        self._report(sequence, emitted)

    def _report(self, sequence: SequenceState, emitted: tuple[EmittedToken, ...]) -> None:
        text = "".join(token.text for token in emitted)
        if sequence.finish_reason is None:
            self._events.append(Event(sequence.id, emitted, text))
        else:
            self._retire(sequence, emitted, text)

    def _fail(self, sequence: SequenceState, error: SlipstreamError) -> None:
        sequence.finish_reason = "error"
        self._retire(sequence, error=error)

    def _retire(
        self,
        sequence: SequenceState,
        tokens: tuple[EmittedToken, ...] = (),
        text: str = "",
        error: SlipstreamError | None = None,
    ) -> None:
        """Free what the sequence holds and queue its last event."""
        self.scheduler.remove(sequence)
        if sequence.handle >= 0:
            self.program.memory.close(sequence.handle)
            sequence.handle = -1
        self._drafting.close(sequence)
        self.controller.close(sequence.id)
        sequence.statistics.finished_s = self._clock()
        self._events.append(
            Event(
                sequence.id,
                tokens,
                text,
                sequence.finish_reason,
                sequence.text.stop,
                error,
                sequence.statistics,
            )
        )
