"""A controller over recorded passes: it is called as the engine called the one that ran.

Each recorded pass is replayed where it stands. The controller plans and chooses among what drafters
proposed there. Where it chooses what was recorded, it hears the recorded verdict, seconds and all,
so a controller like the recorded one repeats its choices exactly; a choice that the time limit of
the pass cut off is the recorded one too. Elsewhere, which of its nodes would be accepted follows
from the tokens that the request went on to emit (where they were drawn for rejection sampling,
only from the recorded path), seconds change by those of its rows, and no time limit is applied.
What was not recorded cannot be replayed: such decisions are counted as censored.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from slipstream.drafters.base import GRAMMAR, Draft
from slipstream.engine.batch import NO_MEMORY
from slipstream.engine.controller import Controller, Decision, Proposal, Room
from slipstream.errors import TraceError
from slipstream.measure.lines import Line

MOST_TOKENS = 1 << 26  # of all outputs

Times = Callable[[int, float], float]
"""t(rows, committed positions of a pass) in seconds."""


class Outputs:
    """The sampled tokens of every request, in order.

    Raises:
        TraceError: there are more than 2^26.
    """

    def __init__(self) -> None:
        self._tokens: dict[int, array[int]] = {}
        self._count = 0

    def add(self, sequence: int, tokens: Sequence[int]) -> None:
        self._count += len(tokens)
        if self._count > MOST_TOKENS:
            found = f"more than {MOST_TOKENS} tokens"
            raise TraceError("a trace that can be replayed", found, "Trace fewer requests.")
        self._tokens.setdefault(sequence, array("i")).extend(tokens)

    def after(self, sequence: int, start: int, count: int) -> array[int]:
        return self._tokens[sequence][start : start + count]


class DrafterTimes:
    """How the seconds of a drafter's call grow with the nodes that it proposes."""

    def __init__(self) -> None:
        self._lines: dict[str, Line] = {}

    def add(self, proposals: Sequence[Proposal]) -> None:
        for made in proposals:
            line = self._lines.setdefault(made.method, Line())
            line.add(len(made.draft), made.elapsed_s / made.shared)

    def __call__(self, made: Proposal, nodes: int) -> float:
        """Seconds of a recorded call, had it proposed so many nodes to each sequence."""
        line = self._lines.get(made.method, Line())
        change = max(line.slope, 0.0) * (nodes - len(made.draft))
        return max(made.elapsed_s + made.shared * change, 0.0)


@dataclass(frozen=True)
class Played:
    """One replayed pass; everything but ``elapsed_s`` and ``asked_s`` is per decoding sequence.

    Attributes:
        chosen: before the time limit of the pass.
        decisions: what the controller was told.
        censored: whether it wanted more of a drafter than was recorded.
        elapsed_s: of the target's pass.
        asked_s: of the drafters.
    """

    chosen: list[Draft]
    decisions: list[Decision]
    censored: list[bool]
    elapsed_s: float = 0.0
    asked_s: float = 0.0


class Player:
    """
    Args:
        controller: a new one.
        outputs: all that the replayed requests emitted.
        drafter_times: for drafts that are cut short.
        times: of passes of other rows than those recorded; None = rows cost nothing.
    """

    def __init__(
        self,
        controller: Controller,
        outputs: Outputs,
        drafter_times: DrafterTimes,
        times: Times | None = None,
    ) -> None:
        self._controller = controller
        self._outputs = outputs
        self._drafter_times = drafter_times
        self._times = times
        self._done: dict[int, int] = {}
        self._scopes: dict[int, str] = {}
        self._step = 0

    def play(self, made: Sequence[Decision], drafters: Sequence[str]) -> Played:
        """
        Args:
            made: the decisions of one pass, at least one.
            drafters: of the engine, in order of precedence.
        """
        decoding = [decision for decision in made if not decision.prompt]
        if made[0].step > self._step + 1 or not decoding:
            self._controller.choose([], [])  # passes of prompts alone leave no decisions
        self._step = made[0].step
        played = self._play(decoding, drafters) if decoding else Played([], [], [])
        for decision in made:
            self._done[decision.sequence] = self._position(decision) + len(decision.tokens)
        return played

    def close(self, sequence: int, *, private: bool = False) -> None:
        """A request is over.

        Args:
            private: whether what was learned of it was erased with it.
        """
        self._controller.close(sequence)
        self._done.pop(sequence, None)
        scope = self._scopes.pop(sequence, None)
        if private and scope is not None:
            self._controller.forget(scope)

    def _follow(self, room: Room) -> None:
        """An open sequence whose scope has another number: what the old one held was erased."""
        before = self._scopes.get(room.sequence, room.scope)
        if before != room.scope:
            self._controller.forget(before)
        self._scopes[room.sequence] = room.scope

    def _position(self, decision: Decision) -> int:
        return self._done.get(decision.sequence, 0)

    def _play(self, decoding: Sequence[Decision], drafters: Sequence[str]) -> Played:
        for decision in decoding:
            self._follow(decision.room)
        held, censored = self._held(decoding, drafters)
        chosen = self._controller.choose([decision.room for decision in decoding], held)
        same = [_as_recorded(draft, made) for draft, made in zip(chosen, decoding, strict=True)]
        verified = [
            draft.cut(len(decision.verified)) if alike else draft
            for draft, decision, alike in zip(chosen, decoding, same, strict=True)
        ]
        first, context = decoding[0], sum(decision.room.context for decision in decoding)
        drafted = sum(len(decision.verified) for decision in decoding)
        rows = first.rows - drafted + sum(map(len, verified))
        change = 0.0
        if self._times is not None:
            change = self._times(rows, context) - self._times(first.rows, context)
        elapsed = max(first.elapsed_s + change, 0.0)
        recorded_s, asked_s = _asked_s([d.proposals for d in decoding]), _asked_s(held)
        decisions = [
            replace(
                decision if alike else self._verdict(decision, draft),
                verified=draft,
                proposals=proposals,
                rows=rows,
                elapsed_s=elapsed,
                draft_s=max(decision.draft_s + (asked_s - recorded_s), 0.0),
            )
            for decision, draft, alike, proposals in zip(
                decoding, verified, same, held, strict=True
            )
        ]
        for decision in decisions:
            self._controller.observe(decision)
        return Played(chosen, decisions, censored, elapsed, asked_s)

    def _held(
        self, decoding: Sequence[Decision], drafters: Sequence[str]
    ) -> tuple[list[tuple[Proposal, ...]], list[bool]]:
        """Per sequence the proposals the controller asks for, and whether more was wanted.

        The calls are those of ``engine.drafting``.
        """
        held: list[tuple[Proposal, ...]] = [() for _ in decoding]
        censored = [False for _ in decoding]
        for method in (GRAMMAR, *drafters):
            recorded = {
                place: proposal
                for place, decision in enumerate(decoding)
                for proposal in decision.proposals
                if proposal.method == method
            }
            places = list(recorded if method == GRAMMAR else range(len(decoding)))
            if not places:
                continue
            rooms = [decoding[place].room for place in places]
            if not any(room.opens(method) for room in rooms):
                continue
            caps = self._controller.plan(method, rooms, [held[place] for place in places])
            wanted = {place: cap for place, cap in zip(places, caps, strict=True) if cap > 0}
            if method != GRAMMAR and wanted.keys() & recorded.keys():
                self._controller.worth(method)
            for place, cap in wanted.items():
                proposal = recorded.get(place)
                censored[place] |= proposal is None or _cut_short(proposal, cap)
                if proposal is not None:
                    held[place] += (self._asked(proposal, cap),)
        return held, censored

    def _asked(self, proposal: Proposal, cap: int) -> Proposal:
        if cap >= proposal.cap:
            return proposal if cap == proposal.cap else replace(proposal, cap=cap)
        draft = proposal.draft.cut(cap)
        elapsed = self._drafter_times(proposal, len(draft))
        return replace(proposal, cap=cap, draft=draft, elapsed_s=elapsed)

    def _verdict(self, decision: Decision, draft: Draft) -> Decision:
        """That which the controller's draft would have met."""
        ahead = self._known(decision, len(draft))
        path = draft.matched(ahead[:-1])
        leaf = path[-1] if path else -1
        return replace(
            decision,
            path=path,
            tokens=tuple(ahead[: len(path) + 1]),
            rejected=leaf in draft.parents,
            cut_for_time=0,
        )

    def _known(self, decision: Decision, depth: int) -> Sequence[int]:
        """The tokens that follow, of which the last is never accepted.

        A request's last token ends it: as an end token or at the limit it is no accepted one.
        """
        if decision.room.drawn:
            return decision.tokens
        return self._outputs.after(decision.sequence, self._position(decision), depth + 1)


def _as_recorded(draft: Draft, decision: Decision) -> bool:
    """Whether a choice is the recorded one, of which the engine may have cut the end for time.

    A record has no estimates of verified nodes.
    """
    verified = decision.verified
    if decision.reason == NO_MEMORY:
        return len(draft) > 0
    if len(draft) != len(verified) + decision.cut_for_time:
        return False
    made = draft.cut(len(verified))
    return (made.tokens, made.parents, made.methods) == (
        verified.tokens,
        verified.parents,
        verified.methods,
    )


def _asked_s(held: Sequence[Sequence[Proposal]]) -> float:
    return sum(proposal.elapsed_s / proposal.shared for made in held for proposal in made)


def _cut_short(proposal: Proposal, cap: int) -> bool:
    """Whether the drafter gave all it was asked for, and the controller asks for more."""
    return cap > len(proposal.draft) >= proposal.cap


def replay(
    decisions: Sequence[Decision], controller: Controller, drafters: Sequence[str] | None = None
) -> list[Draft]:
    """What a new controller chooses to verify of what was proposed, per decoding decision.

    Args:
        decisions: of one engine, in order; those of one pass follow one another.
        drafters: in order of precedence; None = those that were ever asked.
    """
    names = _order(decisions) if drafters is None else drafters
    outputs, times = Outputs(), DrafterTimes()
    for decision in decisions:
        outputs.add(decision.sequence, decision.tokens)
        times.add(decision.proposals)
    player = Player(controller, outputs, times)
    return [
        draft
        for _, together in groupby(enumerate(decisions), _pass)
        for draft in player.play([decision for _, decision in together], names).chosen
    ]


def _pass(numbered: tuple[int, Decision]) -> tuple[int, int]:
    """Decisions that carry no step are passes of their own."""
    place, decision = numbered
    return (decision.step, -1) if decision.step else (0, place)


def _order(decisions: Sequence[Decision]) -> list[str]:
    """The methods in order of precedence, as far as the record shows it."""
    order: list[str] = []
    for decision in decisions:
        place = 0
        for proposal in decision.proposals:
            if proposal.method not in order:
                order.insert(place, proposal.method)
            place = order.index(proposal.method) + 1
    return [method for method in order if method != GRAMMAR]
