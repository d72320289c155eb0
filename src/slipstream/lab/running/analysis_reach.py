"""How far a run came, as reports show it."""

from __future__ import annotations

from typing import Literal

import msgspec

from slipstream.lab.observation.disturbance import Disturbance

State = Literal["not executed", "interrupted", "stopped", "complete"]


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a run came.

    Attributes:
        reason: of ``interrupted`` and ``stopped``.
        blocks: of the whole plan; ``ended`` + ``locked`` (the ladder lets them not run) + ``left``.
        requests: that the blocks of the whole plan would send, warm-ups included.
        elapsed_s: of all blocks that ended.
        aborted: requests of attempts without an end; no figure is made of them.
        measured: cells that have a figure; ``told`` says of which, and why others have none.
        disturbance: what a busy machine cost.
    """

    state: State
    reason: str
    blocks: int
    ended: int
    locked: int
    left: int
    requests: int
    elapsed_s: float
    aborted: int
    measured: int = 0
    told: tuple[str, ...] = ()
    disturbance: Disturbance = Disturbance()


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """A condition on a workload, at a rung of the ladder and a concurrency.

    Attributes:
        done, of: blocks that ended, and that the plan has.
        state: ``done``, ``to run``, ``waiting`` or ``not run``, with its reason.
    """

    runtime: str
    condition: str
    stratum: str
    stage: str
    slots: int
    state: str
    reason: str
    done: int
    of: int
