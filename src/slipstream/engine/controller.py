"""How many draft rows a step verifies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from slipstream.drafters.base import Draft


@dataclass(frozen=True, slots=True)
class Room:
    """A sequence about to draft, and the most draft nodes that its limits allow."""

    sequence: int
    nodes: int


@dataclass(frozen=True, slots=True)
class Decision:
    """One verified step of one sequence: enough to repeat the controller's choices.

    Attributes:
        time_s: clock reading when the verdict was known.
        room, cap: draft nodes that the limits allowed and that the controller asked for.
        proposed, drafted: nodes that the drafter gave and that were verified.
        accepted: length of the accepted path.
        rejected: whether the walk ended at a depth whose children all differed.
        rows, elapsed_s: of the whole pass, which may hold other sequences.
    """

    time_s: float
    sequence: int
    room: int
    cap: int
    proposed: int
    drafted: int
    accepted: int
    rejected: bool
    rows: int
    elapsed_s: float


class Controller(Protocol):
    def plan(self, rooms: Sequence[Room]) -> list[int]:
        """The most draft nodes to ask for, per sequence; 0 = do not draft."""

    def trim(self, drafts: Sequence[Draft], caps: Sequence[int]) -> list[Draft]:
        """The part of each draft to verify: a prefix of at most its cap."""

    def observe(self, decision: Decision) -> None:
        """The verdict on a sequence's step; also called when nothing was drafted."""

    def close(self, sequence: int) -> None: ...


class DoublingController:
    """Doubles a sequence's width after a fully accepted draft, falls back to what was accepted.

    Args:
        first: width of a new sequence, in draft nodes.
        most: largest width.
        fixed: verify whatever was proposed, within the sequence's room.
        trace: receives every decision.
    """

    def __init__(
        self,
        first: int = 4,
        most: int = 15,
        *,
        fixed: bool = False,
        trace: Callable[[Decision], None] | None = None,
    ) -> None:
        self.first = min(first, most)
        self.most = most
        self.fixed = fixed
        self._trace = trace
        self._widths: dict[int, int] = {}

    def plan(self, rooms: Sequence[Room]) -> list[int]:
        if self.fixed:
            return [max(room.nodes, 0) for room in rooms]
        return [max(min(self._width(room.sequence), room.nodes), 0) for room in rooms]

    def _width(self, sequence: int) -> int:
        return self._widths.get(sequence, self.first)

    def trim(self, drafts: Sequence[Draft], caps: Sequence[int]) -> list[Draft]:
        return [
            draft if len(draft) <= cap else draft.cut(cap)
            for draft, cap in zip(drafts, caps, strict=True)
        ]

    def observe(self, decision: Decision) -> None:
        if self._trace is not None:
            self._trace(decision)
        if not decision.drafted:
            return
        doubled = 2 * self._width(decision.sequence)
        width = decision.accepted + 1 if decision.rejected else doubled
        self._widths[decision.sequence] = min(width, self.most)

    def close(self, sequence: int) -> None:
        self._widths.pop(sequence, None)


def replay(decisions: Sequence[Decision], controller: Controller) -> list[int]:
    """The caps that ``controller`` chooses on the recorded steps, in order."""
    caps = []
    for decision in decisions:
        caps += controller.plan([Room(decision.sequence, decision.room)])
        controller.observe(decision)
    return caps
