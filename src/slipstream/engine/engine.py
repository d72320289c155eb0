"""The engine: one loop in which every step is one target pass over all running sequences.

    drafts   = controller.choose(what each drafter proposes within controller.plan)
    outputs  = program.run(decoding rows, drafts and prompt chunks)
    verdicts = verifier.verify(...); memory.commit(accepted paths)
    drafters: process, observe; controller.observe; events

It is synchronous and owned by one thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count

from slipstream.backends.base import Outputs, Program
from slipstream.drafters.base import Drafter
from slipstream.engine.admission import prepare
from slipstream.engine.batch import Share, target_passes
from slipstream.engine.controller import Controller, Decision, DoublingController
from slipstream.engine.drafting import Drafting, require_outputs
from slipstream.engine.events import EmittedToken, Event, FinishReason
from slipstream.engine.handles import close_memory, open_memory
from slipstream.engine.passes import Passes
from slipstream.engine.prefix_cache import PrefixCache
from slipstream.engine.records import PassCost, decision_of, round_of
from slipstream.engine.scheduler import Places, Scheduler
from slipstream.engine.sequence import Request, SequenceState
from slipstream.engine.statistics import Round, Statistics
from slipstream.engine.text import Detokenizer
from slipstream.errors import DeadlineError, OptionError, OutOfMemoryError, SlipstreamError
from slipstream.options import DraftScope, EngineOptions
from slipstream.sampling import Primitives
from slipstream.verify.base import Verdict, Verifier

Trace = Callable[[Decision, Round], None]
Forgot = Callable[[Sequence[str | None]], None]
Ended = Callable[[int, FinishReason, Statistics, Mapping[str, int]], None]
"""Sequence, why it ended, its statistics, and reasons for drafts not verified that no round has."""


class Engine:
    """
    Args:
        program: the target model, compiled for a memory.
        tokenizer: turns ids into text and knows the end-of-generation ids.
        drafters: see their contract; in order of precedence.
        verifier: see its contract.
        context: most tokens of a sequence, prompt and output together.
        options: limits on sequences, rows and seconds of a pass.
        queue: most requests that wait for a place.
        places: shared by engines that use one memory; default ``options.parallel`` of its own.
        prefixes: of the program's memory, shared likewise; None = every prompt is computed whole.
        controller: default ``DoublingController()``.
        trace: receives every decision and the round it became.
        ended: told of every request that is over.
        forgot: told of scopes that were erased; None = all.
        identities: of sequences; shared by engines whose ids must differ.
        scope: the widest scope in which drafters may learn.
        clock: seconds; injected by tests.
        primitives: sampling primitives, forced by tests.
        fast_forward: whether tokens that a grammar dictates are drafted.
    """

    def __init__(
        self,
        program: Program,
        tokenizer: Detokenizer,
        *,
        drafters: Sequence[Drafter] = (),
        verifier: Verifier,
        context: int,
        options: EngineOptions | None = None,
        queue: int = 64,
        places: Places | None = None,
        prefixes: PrefixCache | None = None,
        controller: Controller | None = None,
        trace: Trace | None = None,
        ended: Ended | None = None,
        forgot: Forgot | None = None,
        identities: Iterator[int] | None = None,
        scope: DraftScope = "session",
        clock: Callable[[], float] = time.perf_counter,
        primitives: Primitives | None = None,
        fast_forward: bool = True,
    ) -> None:
        self.program = program
        self.verifier = verifier
        self.context = context
        self.controller = controller or DoublingController()
        self.scheduler = Scheduler(options or EngineOptions(), queue, places)
        self.prefixes = prefixes
        self.drafting = Drafting(drafters, program.graph.vocabulary, clock, fast_forward)
        require_outputs(drafters, program.graph)
        self._trace = trace
        self._ended = ended
        self._forgot = forgot
        self._identities = count() if identities is None else identities
        self._scope: DraftScope = scope
        self._tokenizer = tokenizer
        self._clock = clock
        self._primitives = primitives
        self._events: list[Event] = []
        self.passes = Passes(
            program, self.scheduler, self.drafting, self.controller, verifier, clock
        )

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
            next(self._identities),
            vocabulary=self.program.graph.vocabulary,
            context=self.context,
            tokenizer=self._tokenizer,
            primitives=self._primitives,
            now=self._clock(),
            drafters=self.drafting.names,
            scope=self._scope,
        )
        verifier = self.passes.verifier_of(sequence)
        if request.constraint is not None and not verifier.lossless:
            raise OptionError(
                "no grammar with synthetic acceptance, whose output is invalid",
                "both",
                "Leave out `synth_len` and `synth_rates`, or the grammar.",
            )
        sequence.statistics.drafters = sequence.methods
        sequence.statistics.private = sequence.reach == "request"
        sequence.statistics.verified_by(verifier, request.sampling.temperature)
        self.scheduler.submit(sequence)
        return sequence.id

    def forget(self, session: str | None = None) -> None:
        """Erase what drafters learned and prompts kept in a session, or in all.

        Open sequences learn anew, and leave no prompt. Where all sessions share what is learned
        (scope ``all``), all of it goes.

        Raises:
            BackendError: a drafter failed; the others have forgotten.
        """
        for sequence in self.scheduler.running:
            if session in (None, sequence.session):
                sequence.shareable = False
        if self.prefixes is not None:
            self.prefixes.forget(session)
        scopes: list[str | None] = [None]
        if session is not None and self._scope != "all":
            shared = [f"session {session}"] if self._scope == "session" else []
            own = [s.scope for s in self.scheduler.running if s.session == session]
            scopes = [*dict.fromkeys((*shared, *own))]
        for scope in scopes:
            self.controller.forget(scope)
        if self._forgot is not None:
            self._forgot(scopes)
        self.drafting.forget(scopes)

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
        self._expire()
        self._admit()
        shares, cost = self.passes.plan()
        outputs = self._run(shares)
        if outputs is not None:
            self._settle(shares, outputs, cost)
        events, self._events = self._events, []
        return events

    def _expire(self) -> None:
        for sequence in self.scheduler.expired(self._clock):
            emitted = len(sequence.tokens) - sequence.prompt_tokens
            placed = sequence.statistics.admitted_s is not None
            found = f"{emitted} tokens" if placed else "no place for it yet"
            remedy = "Allow more time, or ask for less."
            error = DeadlineError("an output before the request's deadline", found, remedy)
            sequence.finish_reason = "error"
            self._retire(sequence, text=sequence.text.finish(), error=error)

    def _admit(self) -> None:
        for sequence in self.scheduler.admit():
            sequence.statistics.admitted_s = self._clock()
            self.drafting.open(sequence)
            if sequence.methods:
                known = self.controller.knows(sequence.scope, sequence.methods)
                sequence.statistics.warm |= known
            if len(sequence.tokens) >= sequence.limit:
                sequence.finish_reason = "length"
                self._retire(sequence)
        for sequence in [s for s in self.scheduler.running if s.handle < 0]:
            try:
                open_memory(
                    sequence,
                    self.program.memory,
                    self.prefixes,
                    self.drafting.drafters,
                    self.scheduler.running,
                )
            except SlipstreamError as error:
                self._fail(sequence, error)

    def _run(self, shares: list[Share]) -> Outputs | None:
        if not shares:
            return None
        try:
            return self.passes.run(shares)
        except OutOfMemoryError as error:
            newest = max(shares, key=lambda share: share.sequence.id)
            self._fail(newest.sequence, error)
        except SlipstreamError as error:
            for share in shares:
                self._fail(share.sequence, error)
        return None

    def _settle(self, shares: Sequence[Share], outputs: Outputs, cost: PassCost) -> None:
        cost.rows = sum(len(share.tokens) for share in shares)
        cost.prompt_rows = sum(share.prompt_rows for share in shares)
        cost.elapsed_s = outputs.elapsed_s
        self.scheduler.observe(cost.rows, cost.elapsed_s, prompt_rows=cost.prompt_rows)
        start = self._clock()
        passes = target_passes(shares, outputs, logits=self.drafting.needs.logits)
        verdicts = self._verdicts(shares, outputs)
        cost.sample_s = self._clock() - start
        for share, verdict in zip(shares, verdicts, strict=True):
            if share.sequence.finish_reason is None:
                self._commit(share, verdict)
        self.drafting.process(passes)
        concluded = [
            (share, verdict)
            for share, verdict in zip(shares, verdicts, strict=True)
            if verdict is not None
        ]
        decisions = [self._observe(share, verdict, cost) for share, verdict in concluded]
        cost.commit_s = self._clock() - start - cost.sample_s
        for (share, verdict), decision in zip(concluded, decisions, strict=True):
            try:
                self._conclude(share, verdict, decision, cost)
            except SlipstreamError as error:
                self._fail(share.sequence, error)

    def _verdicts(self, shares: Sequence[Share], outputs: Outputs) -> list[Verdict | None]:
        """A verdict per share; None where nothing was to be sampled or the sequence failed."""
        found: list[Verdict | None] = []
        for share, verdict in zip(shares, self.passes.verify(shares, outputs), strict=True):
            if isinstance(verdict, SlipstreamError):
                self._fail(share.sequence, verdict)
            found.append(None if isinstance(verdict, SlipstreamError) else verdict)
        return found

    def _commit(self, share: Share, verdict: Verdict | None) -> None:
        path = share.path(verdict.path if verdict else ())
        self.program.memory.commit(share.sequence.handle, path)
        share.sequence.committed += len(path)

    def _observe(self, share: Share, verdict: Verdict, cost: PassCost) -> Decision:
        """Tell controller and drafters of a verdict."""
        decision = decision_of(share, verdict, cost, self._clock())
        if not share.prompt_rows:
            self.controller.observe(decision)
        self.drafting.observe(
            share.sequence, share.draft, verdict.path, decision.tokens, share.proposals
        )
        return decision

    def _conclude(self, share: Share, verdict: Verdict, decision: Decision, cost: PassCost) -> None:
        """Emit a verdict's tokens, retire what is finished."""
        sequence, statistics = share.sequence, share.sequence.statistics
        emitted, discarded = sequence.emit(verdict.sampled, len(verdict.path))
        if statistics.first_token_s is None:
            statistics.first_token_s = decision.time_s
        made = round_of(share, verdict, len(emitted), discarded, cost, sequence.untold())
        statistics.rounds.append(made)
        if self._trace is not None:
            self._trace(decision, made)
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
        close_memory(sequence, self.program.memory, self.prefixes, error)
        own = sequence.statistics.private
        self.drafting.close(sequence, forget=own, private=own and self._scope != "request")
        self.controller.close(sequence.id)
        if own:
            self.controller.forget(sequence.scope)
        sequence.statistics.finished_s = self._clock()
        sequence.statistics.complete = sequence.complete
        if self._ended is not None and sequence.finish_reason is not None:
            reasons = sequence.untold()
            self._ended(sequence.id, sequence.finish_reason, sequence.statistics, reasons)
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
