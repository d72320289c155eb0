"""The loop of the engine process: frames in, one engine step, one frame out."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from slipstream.constraint import Constraint
from slipstream.engine.controller import Decision
from slipstream.engine.events import Event
from slipstream.engine.sequence import SequenceState
from slipstream.engine.statistics import Round, Statistics
from slipstream.errors import DeadlineError, SlipstreamError
from slipstream.server.answers import answer, kept_prefixes
from slipstream.server.channel import Channel
from slipstream.server.compiling import Compiled, Compiling, has_grammar
from slipstream.server.engine_room import EngineRoom
from slipstream.server.submission import engine_request
from slipstream.server.wire import (
    Answer,
    Ask,
    Cancel,
    Load,
    Slot,
    StepFrame,
    Stop,
    Submit,
    ToWorker,
    WireEvent,
)
from slipstream.server.wire_errors import told
from slipstream.server.wire_events import wire_event

LONGEST_SILENCE_S: Final = 0.5
FLUSH_S: Final = 5.0

Clock = Callable[[], float]


class Rounds:
    """The rounds of the step that runs.

    Attributes:
        newest: the engine's id -> its round.
    """

    def __init__(self) -> None:
        self.newest: dict[int, Round] = {}

    def tell(self, decision: Decision, made: Round) -> None:
        """The engine's ``trace``."""
        self.newest[decision.sequence] = made


@dataclass(slots=True)
class Entry:
    """A request in this process.

    Attributes:
        identity: the engine's id; None while its grammar is compiled.
        started: whether it has had a place.
        cancelled: wanted no more before the engine had it.
        queue_s: seconds that it waited for a place.
    """

    frame: Submit
    arrived_s: float
    identity: int | None = None
    started: bool = False
    cancelled: bool = False
    queue_s: float = 0.0


class StepLoop:
    """
    Args:
        room: what was opened; its engine tells ``rounds`` of every round.
        channel: to the other process.
        clock: the engine's.
    """

    def __init__(
        self, room: EngineRoom, channel: Channel, rounds: Rounds, clock: Clock = time.perf_counter
    ) -> None:
        self._room = room
        self._engine = room.engine
        self._channel = channel
        self._rounds = rounds
        self._clock = clock
        self._compiling = Compiling(room.compiler, channel.wake)
        self._entries: dict[int, Entry] = {}  # by number on the wire
        self._numbers: dict[int, int] = {}  # the engine's id -> number on the wire
        self._events: list[WireEvent] = []
        self._started: list[Slot] = []
        self._verified_rows: list[int] = []
        self._sent_s = clock()
        self._stopping = False

    def run(self) -> None:
        """Serve until ``Stop`` or the end of the other process; then end all requests."""
        while not self._stopping and not self._channel.closed:
            for frame in self._channel.receive(0.0 if self._engine.busy else None):
                self._take(frame)
            for number, compiled in self._compiling.finished():
                self._compiled(number, compiled)
            if self._engine.busy:
                self._step()
            self._report()
        self._end()

    def _take(self, frame: ToWorker) -> None:
        match frame:
            case Submit():
                self._submit(frame)
            case Cancel():
                self._cancel(frame.request)
            case Ask():
                self._channel.send(self._answer(frame))
            case Stop():
                self._stopping = True

    def _submit(self, frame: Submit) -> None:
        self._entries[frame.request] = entry = Entry(frame, self._clock())
        if has_grammar(frame.sampling):
            self._compiling.begin(frame.request, frame.sampling)
        else:
            self._enter(entry, None)

    def _compiled(self, number: int, compiled: Compiled) -> None:
        entry = self._entries[number]
        if entry.cancelled:
            self._conclude(number, "cancelled")
        elif isinstance(compiled, SlipstreamError):
            self._conclude(number, "error", compiled)
        else:
            self._enter(entry, compiled)

    def _enter(self, entry: Entry, constraint: Constraint | None) -> None:
        """Give a request to the engine."""
        frame, waited_s = entry.frame, self._clock() - entry.arrived_s
        try:
            if frame.deadline_s is not None and waited_s > frame.deadline_s:
                raise _late(frame, waited_s)
            request = engine_request(frame, self._room.default, constraint, waited_s)
            entry.identity = self._engine.submit(request)
        except SlipstreamError as error:
            self._conclude(frame.request, "error", error)
        else:
            self._numbers[entry.identity] = frame.request

    def _conclude(self, number: int, reason: str, error: SlipstreamError | None = None) -> None:
        """The last event of a request that the engine does not have."""
        del self._entries[number]
        wire = None if error is None else told(error)
        self._events.append(WireEvent(number, (), "", finish_reason=reason, error=wire))

    def _cancel(self, number: int) -> None:
        entry = self._entries.get(number)
        if entry is None:
            return
        if entry.identity is None:
            entry.cancelled = True
        else:
            self._engine.cancel(entry.identity)

    def _step(self) -> None:
        begin_s = self._clock()
        events = self._engine.step()
        for sequence in self._engine.scheduler.running:
            entry = self._entries[self._numbers[sequence.id]]
            if not entry.started and sequence.handle >= 0:
                self._start(entry, sequence.statistics, begin_s)
        for event in events:
            self._events.append(self._told(event, begin_s))
        if any(made.drafted for made in self._rounds.newest.values()):
            self._verified_rows.append(self._room.program.step_rows)
        self._rounds.newest.clear()

    def _start(self, entry: Entry, statistics: Statistics, begin_s: float) -> None:
        entry.started = True
        entry.queue_s = max(begin_s - statistics.submitted_s, 0.0)
        slot = Slot(entry.frame.request, statistics.reused_tokens, entry.queue_s)
        self._started.append(slot)

    def _told(self, event: Event, begin_s: float) -> WireEvent:
        number = self._numbers[event.request]
        entry, made = self._entries[number], self._rounds.newest.get(event.request)
        statistics = event.statistics
        if statistics is None:
            return wire_event(number, event, made, entry.queue_s)
        if not entry.started and statistics.rounds:  # it started and ended in this step
            self._start(entry, statistics, begin_s)
        if not entry.started:
            entry.queue_s = max(begin_s - statistics.submitted_s, 0.0)
        del self._numbers[event.request], self._entries[number]
        return wire_event(number, event, made, entry.queue_s, self._room.program.observed())

    def _report(self) -> None:
        """Tell what happened; where nothing did, that the engine still goes on."""
        now_s = self._clock()
        silent = self._engine.busy and now_s - self._sent_s >= LONGEST_SILENCE_S
        if not (self._events or self._started or silent):
            return
        events, started = tuple(self._events), tuple(self._started)
        self._events.clear()
        self._started.clear()
        self._sent_s = now_s
        load = self._load()
        self._verified_rows.clear()
        self._channel.send(StepFrame(events=events, load=load, started=started))

    def _load(self) -> Load:
        running, program = self._engine.scheduler.running, self._room.program
        return Load(
            running=len(running),
            waiting=len(self._entries) - len(running),
            context_used=sum(sequence.committed for sequence in running),
            memory_bytes=program.memory.bytes(),
            memory_limit_bytes=self._room.memory_limit_bytes,
            kept_prefixes=kept_prefixes(self._engine),
            steps=program.steps,
            rows=program.rows,
            step_s=program.step_s,
            prompt_tokens_left=self._prompt_tokens_left(running),
            verified_rows=tuple(self._verified_rows),
        )

    def _prompt_tokens_left(self, running: Sequence[SequenceState]) -> int:
        left = sum(sequence.prompt_left for sequence in running)
        if len(self._entries) == len(running):
            return left
        waiting = (entry for entry in self._entries.values() if not entry.started)
        return left + sum(len(entry.frame.prompt) for entry in waiting)

    def _answer(self, asked: Ask) -> Answer:
        try:
            return Answer(number=asked.number, value=answer(self._room, asked))
        except SlipstreamError as error:
            return Answer(number=asked.number, error=told(error))

    def _end(self) -> None:
        for number in list(self._entries):
            self._cancel(number)
        while self._engine.busy:
            self._step()
        for number in list(self._entries):
            self._conclude(number, "cancelled")
        self._report()
        self._channel.flush(FLUSH_S)


def _late(frame: Submit, waited_s: float) -> DeadlineError:
    compiled = has_grammar(frame.sampling)
    return DeadlineError(
        f"an output within {frame.deadline_s:g} s",
        f"{waited_s:.3g} s gone {'while its grammar compiled' if compiled else 'before it began'}",
        "Simplify the grammar or give more time." if compiled else "Give more time.",
    )
