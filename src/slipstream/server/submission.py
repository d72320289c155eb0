"""From a frame to a request of the engine."""

from __future__ import annotations

from slipstream.constraint import Constraint
from slipstream.engine.sequence import Request, Speculation
from slipstream.server import wire


def engine_request(
    frame: wire.Submit, default: wire.Speculation, constraint: Constraint | None, waited_s: float
) -> Request:
    """
    Args:
        default: what the frame leaves open.
        waited_s: seconds since its arrival, which its deadline counts.
    """
    deadline_s = frame.deadline_s
    if deadline_s is not None:
        deadline_s = max(deadline_s - waited_s, 1e-6)
    return Request(
        frame.prompt,
        frame.sampling,
        choice=frame.choice,
        session=frame.session,
        constraint=constraint,
        speculation=_speculation(frame.speculation or wire.Speculation(), default),
        deadline_s=deadline_s,
        reuse=frame.reuse,
    )


def _speculation(asked: wire.Speculation, default: wire.Speculation) -> Speculation:
    return Speculation(
        methods=default.methods if asked.methods is None else asked.methods,
        n_max=default.n_max if asked.n_max is None else asked.n_max,
        n_min=asked.n_min,
        p_min=asked.p_min,
        scope=default.scope if asked.scope is None else asked.scope,
    )
