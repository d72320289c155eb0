"""Another drafting policy over a recorded trace: what it would have verified, accepted and taken.

Each recorded pass is replayed where it stands. The policy plans and chooses among what drafters
proposed there. Which of its nodes would be accepted follows from the tokens that the request went
on to emit; where tokens were drawn for rejection sampling, only from the recorded path. Seconds
change by those that the trace's own t(rows) gives; passes that hold prompt rows are not counted.
The time limit of a pass is not applied. What was not recorded cannot be replayed: such rounds are
counted as censored.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

from slipstream.drafters.base import Draft
from slipstream.engine.controller import Controller, Decision, Proposal, Room
from slipstream.engine.trace_format import Asked, RoundRecord
from slipstream.errors import TraceError
from slipstream.measure.trace_passes import Pass
from slipstream.measure.trace_policies import PolicyMaker
from slipstream.measure.trace_times import RowTimes

MOST_TOKENS = 1 << 26  # of all outputs of a trace


class Outputs:
    """The sampled tokens of every request, in order.

    Raises:
        TraceError: there are more than 2^26.
    """

    def __init__(self) -> None:
        self._tokens: dict[int, array[int]] = {}
        self._count = 0

    def add(self, record: RoundRecord) -> None:
        self._count += len(record.sampled)
        if self._count > MOST_TOKENS:
            found = f"more than {MOST_TOKENS} tokens"
            raise TraceError("a trace that can be replayed", found, "Trace fewer requests.")
        self._tokens.setdefault(record.sequence, array("i")).extend(record.sampled)

    def after(self, sequence: int, start: int, count: int) -> array[int]:
        return self._tokens[sequence][start : start + count]


@dataclass
class _Line:
    """Least squares of seconds over nodes."""

    count: int = 0
    x: float = 0.0
    y: float = 0.0
    xx: float = 0.0
    xy: float = 0.0

    def add(self, x: float, y: float) -> None:
        self.count += 1
        self.x, self.y = self.x + x, self.y + y
        self.xx, self.xy = self.xx + x * x, self.xy + x * y

    @property
    def slope(self) -> float:
        spread = self.xx - self.x * self.x / self.count if self.count else 0.0
        return max((self.xy - self.x * self.y / self.count) / spread, 0.0) if spread > 0 else 0.0


class DrafterTimes:
    """How the seconds of a drafter's call grow with the nodes that it proposes."""

    def __init__(self) -> None:
        self._lines: dict[str, _Line] = {}

    def add(self, record: RoundRecord) -> None:
        for asked in record.asked:
            seconds = asked.seconds / asked.shared
            self._lines.setdefault(asked.method, _Line()).add(len(asked.tokens), seconds)

    def __call__(self, asked: Asked, nodes: int) -> float:
        """Seconds of a recorded call, had it proposed so many nodes."""
        line = self._lines.get(asked.method, _Line())
        change = line.slope * (nodes - len(asked.tokens))
        return max(asked.seconds / asked.shared + change, 0.0)


@dataclass
class Replay:
    """One policy over the decoding rounds of a trace.

    Attributes:
        make: makes a controller; each engine has its own.
        times, drafter_times, outputs: fitted on the whole trace.
        rounds: replayed, ``censored`` of them where the policy wanted more than was recorded.
        drafted, accepted, tokens, seconds: under the policy.
        recorded_tokens, recorded_seconds: of the same rounds.
    """

    make: PolicyMaker
    times: RowTimes
    drafter_times: DrafterTimes
    outputs: Outputs
    rounds: int = 0
    censored: int = 0
    drafted: int = 0
    accepted: int = 0
    tokens: int = 0
    seconds: float = 0.0
    recorded_tokens: int = 0
    recorded_seconds: float = 0.0
    _controllers: dict[int, Controller] = field(default_factory=dict)
    _done: dict[int, int] = field(default_factory=dict)

    @property
    def tok_s(self) -> float | None:
        return self.tokens / self.seconds if self.seconds > 0 else None

    @property
    def recorded_tok_s(self) -> float | None:
        return self.recorded_tokens / self.recorded_seconds if self.recorded_seconds > 0 else None

    def to_mapping(self) -> dict[str, float | int | None]:
        """Plain values, for JSON."""
        names = (
            "rounds censored drafted accepted tokens seconds tok_s "
            "recorded_tokens recorded_seconds recorded_tok_s"
        )
        return {name: getattr(self, name) for name in names.split()}

    def add(self, made: Pass, drafters: Sequence[str]) -> None:
        """
        Args:
            drafters: of its engine, in order of precedence.
        """
        decoding = made.decoding
        if decoding:
            self._replay(made, decoding, drafters)
        for record in made.rounds:
            self._done[record.sequence] = self._position(record) + len(record.sampled)

    def close(self, engine: int, sequence: int) -> None:
        """A request is over."""
        if engine in self._controllers:
            self._controllers[engine].close(sequence)

    def _position(self, record: RoundRecord) -> int:
        return self._done.get(record.sequence, 0)

    def _replay(self, made: Pass, decoding: Sequence[RoundRecord], drafters: Sequence[str]) -> None:
        engine = made.first.engine
        if engine not in self._controllers:
            self._controllers[engine] = self.make(self.times)
        controller = self._controllers[engine]
        rooms = [_room(record) for record in decoding]
        held, censored, asked_s = self._held(controller, decoding, rooms, drafters)
        drafts = controller.choose(rooms, held)
        rows = made.first.pass_rows - made.drafted + sum(map(len, drafts))
        change = self.times(rows, made.context) - self.times(made.first.pass_rows, made.context)
        elapsed = max(made.first.verify_s + change, 0.0)
        decisions = [
            self._decision(record, room, proposals, draft, rows, elapsed)
            for record, room, proposals, draft in zip(decoding, rooms, held, drafts, strict=True)
        ]
        for decision in decisions:
            controller.observe(decision)
        if made.pure:
            self._count(decoding, decisions)
            self.censored += sum(censored)
            self.recorded_seconds += made.seconds
            self.seconds += made.seconds - made.first.verify_s + elapsed - made.asked_s + asked_s

    def _count(self, decoding: Sequence[RoundRecord], decisions: Sequence[Decision]) -> None:
        self.rounds += len(decoding)
        self.recorded_tokens += sum(len(record.sampled) for record in decoding)
        self.drafted += sum(decision.drafted for decision in decisions)
        self.accepted += sum(decision.accepted for decision in decisions)
        self.tokens += sum(len(decision.tokens) for decision in decisions)

    def _held(
        self,
        controller: Controller,
        decoding: Sequence[RoundRecord],
        rooms: Sequence[Room],
        drafters: Sequence[str],
    ) -> tuple[list[tuple[Proposal, ...]], list[bool], float]:
        """Per sequence the proposals the policy asks for, and whether more was wanted; seconds."""
        held: list[tuple[Proposal, ...]] = [() for _ in decoding]
        censored = [False for _ in decoding]
        seconds = 0.0
        for method in drafters:
            caps = controller.plan(method, rooms, held)
            for place, cap in enumerate(caps):
                if cap <= 0:
                    continue
                asked = _recorded(decoding[place], method)
                censored[place] |= asked is None or _cut_short(asked, cap)
                if asked is not None:
                    draft = _draft(asked).cut(cap)
                    elapsed = self.drafter_times(asked, len(draft))
                    held[place] += (Proposal(method, cap, draft, elapsed),)
                    seconds += elapsed
        return held, censored, seconds

    def _decision(
        self,
        record: RoundRecord,
        room: Room,
        proposals: tuple[Proposal, ...],
        draft: Draft,
        rows: int,
        elapsed: float,
    ) -> Decision:
        """The verdict that the policy's draft would have met."""
        ahead = self._known(record, len(draft))
        path = draft.matched(ahead[:-1])
        tokens = tuple(ahead[: len(path) + 1])
        leaf = path[-1] if path else -1
        return Decision(
            time_s=record.time_s,
            room=room,
            proposals=proposals,
            verified=draft,
            path=path,
            tokens=tokens,
            rejected=leaf in draft.parents,
            cut_for_time=0,
            rows=rows,
            elapsed_s=elapsed,
            sequence=record.sequence,
            step=record.step,
        )

    def _known(self, record: RoundRecord, depth: int) -> Sequence[int]:
        """The tokens that follow, of which the last is never accepted.

        A request's last token ends it: as an end token or at the limit it is no accepted one.
        """
        if record.drawn:
            return record.sampled
        return self.outputs.after(record.sequence, self._position(record), depth + 1)


def _room(record: RoundRecord) -> Room:
    scope = f"scope {record.scope}"
    return Room(
        record.sequence, record.nodes, record.context, record.drawn, scope, record.affordable
    )


def _recorded(record: RoundRecord, method: str) -> Asked | None:
    return next((asked for asked in record.asked if asked.method == method), None)


def _cut_short(asked: Asked, cap: int) -> bool:
    """Whether the drafter gave all it was asked for, and the policy asks for more than that."""
    return cap > len(asked.tokens) >= asked.cap


def _draft(asked: Asked) -> Draft:
    methods = (asked.method,) * len(asked.tokens)
    return Draft(asked.tokens, asked.parents, methods, asked.probabilities)
