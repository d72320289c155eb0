"""The contract of a controller: who drafts, how much of it is verified; and a plain one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from slipstream.drafters.base import GRAMMAR, Draft


@dataclass(frozen=True, slots=True)
class Room:
    """A sequence about to draft.

    Attributes:
        sequence: engine sequence id.
        nodes: most draft nodes on a path that its limits allow.
        context: its committed positions.
        drawn: whether its draft tokens are drawn for rejection sampling: what is then kept of a
            draft must not depend on the tokens drawn, only on ``Draft.probabilities``.
        scope: of what may be learned from it (as ``Drafter.open``); what a controller learns of
            one scope's texts must not change its choices in another.
        affordable: draft rows, of all sequences together, that a pass has time for.
        methods: drafters that are open for it: nothing else is to be asked. None = all of the
            engine's. What its grammar dictates is always to be had.
        coming: most tokens to come; None = one more than ``nodes``, which a request may limit.
    """

    sequence: int
    nodes: int
    context: int = 0
    drawn: bool = False
    scope: str = ""
    affordable: int = 1024
    methods: tuple[str, ...] | None = None
    coming: int | None = None

    @property
    def tokens(self) -> int:
        """Most tokens to come."""
        return self.nodes + 1 if self.coming is None else self.coming

    def opens(self, method: str) -> bool:
        """Whether a drafter is open for it."""
        return self.methods is None or method in self.methods or method == GRAMMAR


@dataclass(frozen=True, slots=True)
class Proposal:
    """One drafter's answer for one sequence.

    Attributes:
        method: the drafter's name.
        cap: nodes it was asked for.
        draft: what it gave, checked; perhaps empty.
        elapsed_s: of the call, which may have served other sequences too.
        shared: sequences that the call served.
    """

    method: str
    cap: int
    draft: Draft
    elapsed_s: float = 0.0
    shared: int = 1


@dataclass(frozen=True, slots=True)
class Decision:
    """One step of one decoding sequence: enough to repeat the controller's choices.

    Attributes:
        time_s: clock reading when the verdict was known.
        proposals: of the drafters that were asked, in order of precedence.
        verified: the tree that was verified, its nodes in the order of ``choose``.
        path: its accepted nodes.
        tokens: the accepted tokens and the next one.
        rejected: whether the walk ended at a node whose children all differed.
        cut_for_time: chosen nodes that the time limit of a pass left out.
        rows, elapsed_s: of the whole pass, which may hold other sequences.
        prompt_rows: of the whole pass.
        sequence: engine sequence id, also where the pass held the end of its prompt.
        step: number of the pass, over all sequences of the engine.
        prompt: whether its rows were the end of its prompt.
        draft_s: seconds of planning, drafting and choosing for the whole pass.
        reason: why nothing was verified; empty where something was.
    """

    time_s: float
    room: Room
    proposals: tuple[Proposal, ...]
    verified: Draft
    path: tuple[int, ...]
    tokens: tuple[int, ...]
    rejected: bool
    cut_for_time: int
    rows: int
    elapsed_s: float
    prompt_rows: int = 0
    sequence: int = -1
    step: int = 0
    prompt: bool = False
    draft_s: float = 0.0
    reason: str = ""

    @property
    def drafted(self) -> int:
        return len(self.verified)

    @property
    def accepted(self) -> int:
        return len(self.path)


Held = Sequence[tuple[Proposal, ...]]
"""Per sequence, the proposals so far in this step."""


class Controller(Protocol):
    def plan(self, method: str, rooms: Sequence[Room], held: Held) -> list[int]:
        """The most nodes to ask of one drafter, per sequence; 0 = do not ask it.

        Called once per drafter in order of precedence, so a dear drafter can be left out where a
        cheap one has proposed enough; not called where it is open for none of them. 0 where it is
        not open (``Room.opens``).
        """

    def worth(self, method: str) -> float:
        """``DraftRequest.worth``: below it a further node costs the drafter more than it gives."""

    def choose(self, rooms: Sequence[Room], held: Held) -> list[Draft]:
        """The tree to verify, per sequence: nodes of its proposals, the most valuable first.

        Every prefix of it must be a tree, for the end of it may be cut for time.
        """

    def reason(self, sequence: int) -> str:
        """Why the last ``choose`` took nothing for a sequence; empty where it took something."""

    def observe(self, decision: Decision) -> None:
        """The verdict on a sequence's step; also called when nothing was drafted."""

    def close(self, sequence: int) -> None: ...

    def forget(self, scope: str | None) -> None:
        """Erase what was learned of the texts of a scope, or of all."""

    def knows(self, scope: str, methods: Sequence[str] | None = None) -> bool:
        """Whether it has learned of the texts of a scope, so that a request starts warm there.

        Args:
            methods: what it has learned of these drafters; None = of any.
        """


@dataclass
class DoublingController:
    """Doubles a sequence's width after a fully accepted draft, falls back to what was accepted.

    The first drafter that proposes anything has the step. It knows no costs: laws and
    ``--spec-fixed`` use it.

    Args:
        first: width of a new sequence, in draft nodes.
        most: largest width.
        fixed: verify whatever was proposed, within the sequence's room.
    """

    first: int = 4
    most: int = 15
    fixed: bool = False
    _widths: dict[int, int] = field(default_factory=dict)

    def plan(self, method: str, rooms: Sequence[Room], held: Held) -> list[int]:
        return [
            self._cap(room) if room.opens(method) and not any(len(p.draft) for p in made) else 0
            for room, made in zip(rooms, held, strict=True)
        ]

    def worth(self, method: str) -> float:
        """It knows no costs."""
        del method
        return 0.0

    def _cap(self, room: Room) -> int:
        return max(room.nodes if self.fixed else min(self._width(room.sequence), room.nodes), 0)

    def _width(self, sequence: int) -> int:
        return self._widths.get(sequence, min(self.first, self.most))

    def choose(self, rooms: Sequence[Room], held: Held) -> list[Draft]:
        return [
            _first(proposals).cut(self._cap(room))
            for room, proposals in zip(rooms, held, strict=True)
        ]

    def reason(self, sequence: int) -> str:
        del sequence
        return ""

    def observe(self, decision: Decision) -> None:
        if not decision.drafted:
            return
        sequence = decision.room.sequence
        doubled = 2 * self._width(sequence)
        width = decision.accepted + 1 if decision.rejected else doubled
        self._widths[sequence] = min(width, self.most)

    def close(self, sequence: int) -> None:
        self._widths.pop(sequence, None)

    def forget(self, scope: str | None) -> None:
        """Widths belong to sequences, not to scopes."""

    def knows(self, scope: str, methods: Sequence[str] | None = None) -> bool:
        """Widths end with their sequences."""
        del scope, methods
        return False


def _first(proposals: Sequence[Proposal]) -> Draft:
    return next((p.draft for p in proposals if len(p.draft)), Draft())
