"""Words for an output beside that of ``none``, where it leaves it and why: one definition each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from slipstream.lab.contract.records import OutputCause

EQUAL: Final = "equal"
DIVERGED: Final = "diverged"
NOT_COMPARED: Final = ""
EXPLAINED: Final[tuple[OutputCause, ...]] = ("near-tie", "numeric path")
"""Causes that rounding accounts for; what is left to judge is the task."""


def first_divergence(none: Sequence[object], other: Sequence[object]) -> int | None:
    """Index of the first element that differs, the end of the shorter included; None = equal."""
    for index, (one, two) in enumerate(zip(none, other, strict=False)):
        if one != two:
            return index
    return None if len(none) == len(other) else min(len(none), len(other))


def cause(
    gap: float | None, tolerance: float, *, equal_at_same_rows: bool | None = None
) -> OutputCause:
    """Why two outputs part.

    Args:
        gap: of the two best logits of ``none`` at the first token that differs; None = unknown.
        tolerance: the plan's; a gap below it can go either way by rounding.
        equal_at_same_rows: whether ``none`` gives the other's token there when it computes it
            among many rows, as a verification does; None = not tried, or it told nothing.

    Returns:
        ``near-tie``; ``numeric path`` where only the row count makes the difference; ``defect``
        where the logits are known and neither explains it; ``unknown`` without logits.
    """
    if gap is not None and gap < tolerance:
        return "near-tie"
    if equal_at_same_rows:
        return "numeric path"
    return "unknown" if gap is None else "defect"
