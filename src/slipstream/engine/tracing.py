"""From the engine's decisions to records of a trace."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from msgspec import UNSET

from slipstream.drafters.base import Draft
from slipstream.engine.controller import Decision, Proposal, Room
from slipstream.engine.events import FinishReason
from slipstream.engine.statistics import Round, Statistics
from slipstream.engine.trace_file import TraceFile
from slipstream.engine.trace_format import (
    Asked,
    End,
    EngineRecord,
    Header,
    Record,
    RoundRecord,
)
from slipstream.errors import OperationError, SlipstreamError

Sink = Callable[[Record], None]
_LOG = logging.getLogger("slipstream")


MOST_SCOPES = 4096  # names remembered


class Tracing:
    """Gives records to a file or a function; a failure ends the trace, never a generation.

    Args:
        target: a path, or a function called with each record.

    Raises:
        OptionError, OperationError: the file cannot be used (see ``TraceFile``).

    Attributes:
        failure: why the trace ended early, or None.
    """

    def __init__(self, target: str | Path | Sink) -> None:
        self.failure: SlipstreamError | None = None
        self._sink: Sink = target if callable(target) else TraceFile(target).write
        self._engines = 0

    def header(self, header: Header) -> None:
        """The first record."""
        self._give(lambda: header)

    def engine(
        self, drafters: Sequence[str], verifier: str, options: Mapping[str, Any]
    ) -> EngineTracing:
        """The tracing of one more engine."""
        number, self._engines = self._engines, self._engines + 1
        introduction = EngineRecord(
            engine=number, drafters=tuple(drafters), verifier=verifier, options=dict(options)
        )
        return EngineTracing(self._give, introduction)

    def _give(self, make: Callable[[], Record]) -> None:
        if self.failure is not None:
            return
        try:
            self._sink(make())
        except SlipstreamError as error:
            self._fail(error)
        except Exception as problem:
            found = f"{type(problem).__name__}: {problem!s:.200}"
            self._fail(OperationError("a trace function that returns", found, "Mend it."))

    def _fail(self, error: SlipstreamError) -> None:
        self.failure = error
        _LOG.warning("the trace ends here: %s", error)


class EngineTracing:
    """The records of one engine; it is introduced before its first.

    Args:
        give: takes what makes a record.
        introduction: the engine's own record.
    """

    def __init__(
        self, give: Callable[[Callable[[], Record]], None], introduction: EngineRecord
    ) -> None:
        self._give_on = give
        self._introduction = introduction
        self._introduced = False
        self._scopes: dict[str, int] = {}
        self._numbers = count()

    def _scope(self, name: str) -> int:
        """A number per name; those unused for longest are forgotten, numbers never used again."""
        number = self._scopes.pop(name, None)
        self._scopes[name] = next(self._numbers) if number is None else number
        if len(self._scopes) > MOST_SCOPES:
            del self._scopes[next(iter(self._scopes))]
        return self._scopes[name]

    def forget(self, scopes: Sequence[str | None]) -> None:
        """The engine's ``forgot``: what is learned there from now on has another number."""
        for name in scopes:
            if name is None:
                self._scopes.clear()
            else:
                self._scopes.pop(name, None)

    def round(self, decision: Decision, made: Round) -> None:
        """The engine's ``trace``."""
        number = self._scope(decision.room.scope)
        self._give(lambda: round_record(self._introduction.engine, number, decision, made))

    def end(
        self,
        sequence: int,
        finish_reason: FinishReason,
        statistics: Statistics,
        reasons: Mapping[str, int],
    ) -> None:
        """The engine's ``ended``."""
        summary = statistics.summary()
        del summary["rounds"]
        chosen = statistics.drafters
        drafters = UNSET if chosen == self._introduction.drafters else chosen
        self._give(
            lambda: End(
                engine=self._introduction.engine,
                sequence=sequence,
                finish_reason=finish_reason,
                summary=summary,
                reasons=dict(reasons),
                drafters=drafters,
                private=True if statistics.private else UNSET,
            )
        )

    def _give(self, make: Callable[[], Record]) -> None:
        if not self._introduced:
            self._introduced = True
            self._give_on(lambda: self._introduction)
        self._give_on(make)


def round_record(engine: int, scope: int, decision: Decision, made: Round) -> RoundRecord:
    room = decision.room
    return RoundRecord(
        engine=engine,
        sequence=decision.sequence,
        step=decision.step,
        prompt=decision.prompt,
        time_s=decision.time_s,
        nodes=room.nodes,
        context=room.context,
        drawn=room.drawn,
        affordable=room.affordable,
        scope=scope,
        asked=tuple(map(_asked, decision.proposals)),
        tokens=decision.verified.tokens,
        parents=decision.verified.parents,
        methods=decision.verified.methods,
        path=tuple(map(int, decision.path)),
        sampled=tuple(map(int, decision.tokens)),
        rejected=decision.rejected,
        tested=made.tested,
        emitted=made.emitted,
        discarded=made.discarded,
        cut_for_time=made.cut_for_time,
        rows=made.rows,
        pass_rows=decision.rows,
        prompt_rows=decision.prompt_rows,
        draft_s=made.draft_s,
        verify_s=made.elapsed_s,
        sample_s=made.sample_s,
        commit_s=made.commit_s,
        reason=decision.reason[:1000],
        reasons=made.reasons,
        drafters=UNSET if room.methods is None else room.methods,
        coming=UNSET if room.coming is None else room.coming,
    )


def _asked(proposal: Proposal) -> Asked:
    return Asked(
        method=proposal.method,
        cap=proposal.cap,
        tokens=proposal.draft.tokens,
        parents=proposal.draft.parents,
        probabilities=tuple(map(float, proposal.draft.probabilities)),
        seconds=proposal.elapsed_s,
        shared=proposal.shared,
    )


def recorded_decision(record: RoundRecord) -> Decision:
    """What ``round_record`` was made of, as far as a record holds it.

    Missing are the name of the scope, which may be a secret, and the distributions of drawn tokens.
    """
    room = Room(
        record.sequence,
        record.nodes,
        record.context,
        record.drawn,
        f"scope {record.scope}",
        record.affordable,
        None if record.drafters is UNSET else record.drafters,
        None if record.coming is UNSET else record.coming,
    )
    return Decision(
        time_s=record.time_s,
        room=room,
        proposals=tuple(map(_proposal, record.asked)),
        verified=Draft(record.tokens, record.parents, record.methods),
        path=record.path,
        tokens=record.sampled,
        rejected=record.rejected,
        cut_for_time=record.cut_for_time,
        rows=record.pass_rows,
        elapsed_s=record.verify_s,
        prompt_rows=record.prompt_rows,
        sequence=record.sequence,
        step=record.step,
        prompt=record.prompt,
        draft_s=record.draft_s,
        reason=record.reason,
    )


def _proposal(asked: Asked) -> Proposal:
    methods = (asked.method,) * len(asked.tokens)
    draft = Draft(asked.tokens, asked.parents, methods, asked.probabilities)
    return Proposal(asked.method, asked.cap, draft, asked.seconds, asked.shared)
