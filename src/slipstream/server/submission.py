"""From a frame to a request of the engine."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Final

from slipstream.constraint import Constraint
from slipstream.engine import sequence
from slipstream.engine.sequence import Request
from slipstream.server.wire import Speculation, Submit

_FIELDS: Final = frozenset(field.name for field in fields(Request))


def engine_request(
    frame: Submit, default: Speculation, constraint: Constraint | None, waited_s: float
) -> Request:
    """
    Args:
        default: what the frame leaves open.
        waited_s: seconds since its arrival, which its deadline counts.
    """
    more: dict[str, Any] = {}
    if "speculation" in _FIELDS:
        more["speculation"] = _speculation(frame.speculation or Speculation(), default)
    if "deadline_s" in _FIELDS and frame.deadline_s is not None:
        more["deadline_s"] = max(frame.deadline_s - waited_s, 1e-6)
    return Request(
        frame.prompt,
        frame.sampling,
        choice=frame.choice,
        session=frame.session,
        constraint=constraint,
        **more,
    )


def _speculation(asked: Speculation, default: Speculation) -> Any:
    kind: Any = sequence.Speculation  # type: ignore[attr-defined]
    return kind(
        methods=default.methods if asked.methods is None else asked.methods,
        n_max=default.n_max if asked.n_max is None else asked.n_max,
        n_min=asked.n_min,
        p_min=asked.p_min,
        scope=default.scope if asked.scope is None else asked.scope,
    )
