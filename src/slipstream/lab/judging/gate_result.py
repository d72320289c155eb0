"""What a gate says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec


class GateResult(msgspec.Struct, frozen=True, kw_only=True):
    """
    Attributes:
        name: one of ``gates.GATES``.
        passed: None = not measurable, which is never a pass.
        observed, limit: in words, for tables.
        evidence: what it rests on, and what was left out.
        values: the figures behind it, for charts and JSON.
    """

    name: str
    passed: bool | None
    observed: str
    limit: str
    evidence: str = ""
    values: Mapping[str, float] = {}


def combined(name: str, parts: Sequence[GateResult]) -> GateResult:
    """Failed if a part failed, passed if all passed."""
    answers = [part.passed for part in parts]
    unknown = None if None in answers else True
    return GateResult(
        name=name,
        passed=False if False in answers else unknown,
        observed="; ".join(part.observed for part in parts),
        limit="; ".join(part.limit for part in parts),
        evidence="; ".join(part.evidence for part in parts if part.evidence),
        values={key: value for part in parts for key, value in part.values.items()},
    )
