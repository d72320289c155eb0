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
from slipstream.drafters.base import ROOT, Draft, Drafter, DraftRequest, Outcome
from slipstream.engine.admission import prepare
from slipstream.engine.batch import Share, assemble, decode_share, prompt_share, target_passes
from slipstream.engine.controller import Controller, Decision, DoublingController, Room
from slipstream.engine.drafts import checked
from slipstream.engine.events import EmittedToken, Event
from slipstream.engine.scheduler import Scheduler
from slipstream.engine.sequence import Request, SequenceState
from slipstream.engine.statistics import Round
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
        controller: Controller | None = None,
        clock: Callable[[], float] = time.perf_counter,
        primitives: Primitives | None = None,
    ) -> None:
        self.program = program
        self.drafter = drafter
        self.verifier = verifier
        self.context = context
        self.controller = controller or DoublingController()
        self.scheduler = Scheduler(options or EngineOptions(), queue)
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
                self.drafter.open(sequence.id, sequence.tokens)
            except SlipstreamError as error:
                self._fail(sequence, error)
                continue
            if len(sequence.tokens) >= sequence.limit:
                sequence.finish_reason = "length"
                self._retire(sequence)

    def _plan(self) -> list[Share]:
        decoding = self.scheduler.decoding()
        rooms = [Room(sequence.id, sequence.room) for sequence in decoding]
        caps = self.controller.plan(rooms)
        proposals = self._draft(decoding, caps)
        drafts = self.controller.trim(proposals, caps)
        shares = [
            decode_share(sequence, draft, room, cap, len(proposal))
            for sequence, draft, room, cap, proposal in zip(
                decoding, drafts, rooms, caps, proposals, strict=True
            )
        ]
        chunks = self.scheduler.chunks(sum(len(share.tokens) for share in shares))
        return shares + [prompt_share(sequence, count) for sequence, count in chunks]

    def _draft(self, sequences: Sequence[SequenceState], caps: Sequence[int]) -> list[Draft]:
        """A checked draft per sequence, empty where the cap is 0 or the draft was rejected."""
        asked = [i for i, cap in enumerate(caps) if cap > 0]
        drafts = [Draft() for _ in sequences]
        if not asked:
            return drafts
        start = self._clock()
        proposals, failure = self._ask([_request(sequences[i], caps[i]) for i in asked])
        self._draft_s = self._clock() - start
        for place, proposal in zip(asked, proposals, strict=True):
            drafts[place], fault = checked(proposal, self.program.graph.vocabulary)
            if fault or failure:
                sequences[place].statistics.rejected_drafts[failure or fault or ""] += 1
        return drafts

    def _ask(self, requests: Sequence[DraftRequest]) -> tuple[list[Draft], str | None]:
        nothing = [Draft() for _ in requests]
        try:
            drafts = self.drafter.draft(requests)
        except SlipstreamError as error:
            return nothing, f"the drafter failed: {error}"
        if len(drafts) != len(requests):
            return nothing, "another number of drafts than requests"
        return drafts, None

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
        if any(share.prompt_rows for share in shares):
            self.scheduler.observe(rows, outputs.elapsed_s)
        verdicts = self._verify(shares, outputs)
        for share, verdict in zip(shares, verdicts, strict=True):
            if share.sequence.finish_reason is None:
                self._commit(share, verdict)
        self.drafter.process(passes)
        for share, verdict in zip(shares, verdicts, strict=True):
            if verdict is not None:
                self._conclude(share, verdict, rows, outputs.elapsed_s)

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

    def _conclude(self, share: Share, verdict: Verdict, rows: int, elapsed_s: float) -> None:
        """Tell controller and drafter of a verdict, emit its tokens, retire what is finished."""
        sequence, draft, accepted = share.sequence, share.draft, len(verdict.path)
        reached = accepted + _rejected(draft, verdict, sequence.ends)
        now = self._clock()
        if not share.prompt_rows:
            self.controller.observe(
                Decision(
                    now,
                    sequence.id,
                    share.room.nodes,
                    share.cap,
                    share.proposed,
                    len(draft),
                    accepted,
                    reached > accepted,
                    rows,
                    elapsed_s,
                )
            )
        tokens = tuple(drawn.token for drawn in verdict.sampled)
        method = draft.method if len(draft) else "none"
        outcome = Outcome(len(draft), share.proposed, accepted, tokens, method)
        self.drafter.observe(sequence.id, outcome)
        emitted = sequence.emit(verdict.sampled, accepted)
        statistics = sequence.statistics
        if statistics.first_token_s is None:
            statistics.first_token_s = now
        statistics.rounds.append(
            Round(
                len(draft),
                verdict.tested,
                accepted,
                reached,
                len(emitted),
                len(share.tokens),
                share.proposed,
                method,
                elapsed_s,
                0.0 if share.prompt_rows else self._draft_s,
            )
        )
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
        self.drafter.close(sequence.id)
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


def _request(sequence: SequenceState, cap: int) -> DraftRequest:
    sampler = sequence.sampler
    return DraftRequest(sequence.id, sequence.tokens, cap, sampler.seed, sampler.index)


def _rejected(draft: Draft, verdict: Verdict, ends: Sequence[int]) -> bool:
    """Whether the walk ended where the draft offered children and none matched."""
    leaf = verdict.path[-1] if verdict.path else ROOT
    return verdict.next_token not in ends and leaf in draft.parents
