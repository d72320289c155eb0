"""What is told and kept of a verified share of a step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from slipstream.engine.batch import Share
from slipstream.engine.controller import Decision
from slipstream.engine.statistics import Round
from slipstream.verify.base import Verdict


@dataclass(slots=True)
class PassCost:
    """Rows of a whole pass, prompt rows among them, and its seconds by phase (see ``Round``).

    ``step`` is its number, over all sequences of the engine.
    """

    rows: int = 0
    prompt_rows: int = 0
    draft_s: float = 0.0
    elapsed_s: float = 0.0
    sample_s: float = 0.0
    commit_s: float = 0.0
    step: int = 0


def decision_of(share: Share, verdict: Verdict, cost: PassCost, now: float) -> Decision:
    return Decision(
        time_s=now,
        room=share.room,
        proposals=share.proposals,
        verified=share.draft,
        path=verdict.path,
        tokens=tuple(drawn.token for drawn in verdict.sampled),
        rejected=verdict.examined_leaf,
        cut_for_time=share.cut_for_time,
        rows=cost.rows,
        elapsed_s=cost.elapsed_s,
        prompt_rows=cost.prompt_rows,
        sequence=share.sequence.id,
        step=cost.step,
        prompt=bool(share.prompt_rows),
        draft_s=0.0 if share.prompt_rows else cost.draft_s,
        reason=share.reason,
    )


def round_of(
    share: Share,
    verdict: Verdict,
    emitted: int,
    discarded: int,
    cost: PassCost,
    reasons: Mapping[str, int],
) -> Round:
    methods = share.draft.methods
    return Round(
        drafted=len(share.draft),
        tested=verdict.tested,
        accepted=len(verdict.path),
        reached=len(verdict.path) + verdict.examined_leaf,
        sampled=len(verdict.sampled),
        emitted=emitted,
        discarded=discarded,
        rows=len(share.tokens),
        proposed=share.proposed,
        cut_for_time=share.cut_for_time,
        method=share.draft.method,
        asked=tuple(p.method for p in share.proposals),
        fired=tuple(p.method for p in share.proposals if len(p.draft)),
        drafted_by=dict(Counter(methods)) if methods else {},
        accepted_by=dict(Counter(methods[node] for node in verdict.path)) if verdict.path else {},
        elapsed_s=cost.elapsed_s,
        draft_s=0.0 if share.prompt_rows else cost.draft_s,
        sample_s=cost.sample_s,
        commit_s=cost.commit_s,
        reasons=dict(reasons),
    )
