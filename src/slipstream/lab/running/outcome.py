"""How a call of a run ended, what it measured, and what it did not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from slipstream.lab.contract.manifest import Manifest
from slipstream.lab.contract.records import FindingRecord, Line
from slipstream.lab.judging.cells import Evidence
from slipstream.lab.judging.measured import measured
from slipstream.lab.observation.disturbance import Disturbance, disturbance
from slipstream.lab.scheduling.conditions import Rung, not_run

Ended = Literal["complete", "interrupted", "budget", "stopped"]


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Attributes:
        ended: ``complete``; ``interrupted`` by the user; at the plan's time ``budget``; or
            ``stopped`` by a finding that ends it. One that was interrupted can go on.
        blocks: that have ended by now; ``left`` those that would run yet.
        not_run: series that the ladder locked, each with its reason.
        findings: recorded while it ran; reports find more.
        elapsed_s: of all blocks, those of earlier calls included.
        reason: of ``stopped``.
        measured: cells that have a figure; ``told`` says of which, and why others have none.
        disturbance: what a busy machine cost; ``advice`` where that is much.
    """

    ended: Ended
    blocks: int
    left: int
    not_run: tuple[Rung, ...]
    findings: tuple[FindingRecord, ...]
    elapsed_s: float
    reason: str = ""
    measured: int = 0
    told: tuple[str, ...] = ()
    disturbance: Disturbance = field(default_factory=Disturbance)
    advice: str = ""


def outcome_of(
    manifest: Manifest,
    lines: Sequence[Line],
    ended: Ended,
    *,
    blocks: int,
    left: int,
    elapsed_s: float,
    reason: str = "",
) -> Outcome:
    """From the records of a run, and what the call that ends knows of itself."""
    found, lost = measured(Evidence(manifest, lines)), disturbance(lines)
    return Outcome(
        ended=ended,
        blocks=blocks,
        left=left,
        not_run=tuple(not_run(manifest, lines)),
        findings=tuple(x for x in lines if isinstance(x, FindingRecord)),
        elapsed_s=elapsed_s,
        reason=reason,
        measured=len(found.figures),
        told=tuple(found.lines()),
        disturbance=lost,
        advice=lost.advice(manifest.plan.rules.drift_limit) if lost.many else "",
    )
