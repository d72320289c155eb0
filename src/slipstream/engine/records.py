"""What is told and kept of a verified share of a step."""

from __future__ import annotations

from dataclasses import dataclass

from slipstream.drafters.base import Outcome
from slipstream.engine.batch import Share
from slipstream.engine.controller import Decision
from slipstream.engine.statistics import Round
from slipstream.verify.base import Verdict


@dataclass(frozen=True, slots=True)
class PassCost:
    """Rows and seconds of a whole pass: in the backend and, before it, in the drafter."""

    rows: int
    elapsed_s: float
    draft_s: float


def decision_of(share: Share, verdict: Verdict, cost: PassCost, now: float) -> Decision:
    return Decision(
        time_s=now,
        sequence=share.sequence.id,
        room=share.room.nodes,
        cap=share.cap,
        proposed=share.proposed,
        drafted=len(share.draft),
        accepted=len(verdict.path),
        rejected=share.rejected(verdict),
        rows=cost.rows,
        elapsed_s=cost.elapsed_s,
    )


def outcome_of(share: Share, verdict: Verdict) -> Outcome:
    return Outcome(
        drafted=len(share.draft),
        proposed=share.proposed,
        accepted=len(verdict.path),
        tokens=tuple(drawn.token for drawn in verdict.sampled),
        method=share.method,
    )


def round_of(share: Share, verdict: Verdict, emitted: int, discarded: int, cost: PassCost) -> Round:
    return Round(
        drafted=len(share.draft),
        tested=verdict.tested,
        accepted=len(verdict.path),
        reached=len(verdict.path) + share.rejected(verdict),
        sampled=len(verdict.sampled),
        emitted=emitted,
        discarded=discarded,
        rows=len(share.tokens),
        proposed=share.proposed,
        cut_for_time=share.cut_for_time,
        method=share.method,
        elapsed_s=cost.elapsed_s,
        draft_s=0.0 if share.prompt_rows else cost.draft_s,
    )
