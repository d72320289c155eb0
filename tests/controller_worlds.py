"""Worlds with known costs and acceptance in which controllers are run without an engine."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count

from slipstream.drafters.base import Draft
from slipstream.engine.controller import Controller, Decision, Proposal, Room

# Ratios t(R) / t(1) of docs/performance.md, and of a machine with byte dot products (kernels.md)
AVX2 = {1: 1.0, 2: 1.07, 4: 1.36, 8: 2.76, 16: 4.96, 64: 18.4}
VNNI = {1: 1.0, 2: 1.02, 4: 1.08, 8: 1.25, 16: 2.1, 64: 8.3}
DEAR_ROWS = {1: 1.0, 2: 2.0, 64: 64.0}  # nothing is shared: no draft can pay
STEP_S = 0.04
AROUND_S = 1.5e-4  # of planning, choosing and learning, per step; half of it before the pass
WRONG = 1 << 20  # added to a token that is not the target's

Acceptance = Callable[[int], float]
"""Position -> P(a drafter foresees the token there, given all before)."""


def ratio(curve: Mapping[int, float], rows: int) -> float:
    """Linear between the points of a curve."""
    points = sorted(curve)
    low = max(point for point in points[:-1] if point <= rows)
    high = points[points.index(low) + 1]
    way = (rows - low) / (high - low)
    return curve[low] + way * (curve[high] - curve[low])


@dataclass
class Source:
    """A drafter that is right at fixed positions, drawn once.

    Args:
        acceptance: P(its first choice is right), see above.
        claimed: the probability it states; None = none.
        call_s, node_s, pending_s: its true costs.
        present: positions at which it proposes anything.
        second: P(its second choice is right); above 0 it proposes trees, the likeliest nodes first.
        most: nodes of a proposal.
        heeds: whether it stops where by its own claim a further token is not worth its time.
    """

    name: str
    acceptance: Acceptance
    claimed: Acceptance | None = None
    call_s: float = 1e-4
    node_s: float = 0.0
    pending_s: float = 0.0
    present: Callable[[int], bool] = lambda _: True
    second: float = 0.0
    most: int = 48
    seed: int = 1
    heeds: bool = False
    _drawn: dict[tuple[int, int], float] = field(default_factory=dict)
    _read: dict[int, int] = field(default_factory=dict)

    def choice(self, sequence: int, position: int) -> int:
        """Which of its choices is right: 0, 1, or 2 for none."""
        key = (sequence, position)
        if key not in self._drawn:
            self._drawn[key] = random.Random(f"{self.seed} {self.name} {key}").random()
        first = self.acceptance(position)
        return 0 if self._drawn[key] < first else 1 if self._drawn[key] < first + self.second else 2

    def propose(self, sequence: int, position: int, cap: int, worth: float = 0.0) -> Draft:
        """Below a wrong node everything is wrong."""
        nodes = min(self.most, cap) if self.present(position) else 0
        if self.claimed and self.heeds:
            nodes = min(nodes, self._worthwhile(self.claimed, position, worth))
        if self.second:
            return self._tree(sequence, position, nodes)
        tokens, wrong = [], False
        for at in range(position, position + nodes):
            wrong = wrong or self.choice(sequence, at) != 0
            tokens.append(at + (WRONG if wrong else 0))
        claims = [self.claimed(position + i) for i in range(nodes)] if self.claimed else []
        return Draft.chain(tokens, self.name, claims)

    def _worthwhile(self, claimed: Acceptance, position: int, worth: float) -> int:
        score, nodes = 1.0, 0
        while nodes < self.most and (not nodes or score >= worth):
            score *= claimed(position + nodes)
            nodes += 1
        return nodes

    def _tree(self, sequence: int, position: int, nodes: int) -> Draft:
        tokens: list[int] = []
        parents: list[int] = []
        claims: list[float] = []
        waiting = [(-1.0, 0, -1, position, True)]  # -value, order, parent, position, true so far
        order = count()
        while waiting and len(tokens) < nodes:
            value, _, parent, at, true = heappop(waiting)
            for rank, claim in enumerate((self.acceptance(at), self.second)):
                if len(tokens) == nodes:
                    break
                right = true and self.choice(sequence, at) == rank
                tokens.append(at if right else at + WRONG * (1 + rank))
                parents.append(parent)
                claims.append(claim)
                heappush(waiting, (value * claim, next(order), len(tokens) - 1, at + 1, right))
        return Draft(tuple(tokens), tuple(parents), (self.name,) * len(tokens), tuple(claims))

    def seconds(self, sequence: int, position: int, nodes: int) -> float:
        pending = position - self._read.get(sequence, 0)
        self._read[sequence] = position
        return self.call_s + self.node_s * nodes + self.pending_s * max(pending, 0)


@dataclass
class Run:
    """What came of a simulation.

    Attributes:
        seconds: of passes, drafters and bookkeeping, without noise.
        plain_s: of plain decoding for the same tokens.
        decisions: as the controller saw them, noise included.
        emitted: of all sequences.
    """

    seconds: float = 0.0
    plain_s: float = 0.0
    emitted: int = 0
    decisions: list[Decision] = field(default_factory=list)

    @property
    def speed_up(self) -> float:
        return self.plain_s / self.seconds

    def rows(self, start: int, stop: int) -> float:
        """Mean draft rows of the decisions in a range of steps."""
        part = [len(d.verified) for d in self.decisions[start:stop]]
        return sum(part) / max(len(part), 1)


@dataclass
class World:
    """
    Args:
        curve: t(R) / t(1).
        sources: in order of precedence.
        sequences: that run together.
        prompt: positions before the first token.
        noise: standard deviation of a pass's time, relative.
        interruptions: share of passes that take five times as long.
        methods: drafters that the sequences chose; None = all.
        plain: how many sequences of those chose none.
    """

    curve: Mapping[int, float]
    sources: Sequence[Source]
    sequences: int = 1
    prompt: int = 100
    noise: float = 0.08
    interruptions: float = 0.01
    scope: str = "session "
    seed: int = 7
    methods: tuple[str, ...] | None = None
    plain: int = 0

    def seconds(self, rows: int) -> float:
        return STEP_S * ratio(self.curve, rows)

    def run(self, controller: Controller, tokens: int) -> Run:
        """Decode ``tokens`` tokens per sequence."""
        chance = random.Random(self.seed)
        made = Run()
        emitted = [0] * self.sequences
        step = 0
        while any(count < tokens for count in emitted):
            step += 1
            alive = [i for i, count in enumerate(emitted) if count < tokens]
            rooms = [self._room(i, emitted[i], tokens) for i in alive]
            held, draft_s = self._propose(controller, rooms)
            verified = controller.choose(rooms, held)
            rows = len(rooms) + sum(map(len, verified))
            noise = max(chance.gauss(1.0, self.noise), 0.5)
            noise *= 5.0 if chance.random() < self.interruptions else 1.0
            made.seconds += self.seconds(rows) + draft_s + AROUND_S
            elapsed = self.seconds(rows) * noise
            for place, i in enumerate(alive):
                decision = self._decide(
                    rooms[place], held[place], verified[place], step, rows, elapsed, draft_s
                )
                made.decisions.append(decision)
                controller.observe(decision)
                emitted[i] += len(decision.tokens)
                made.plain_s += len(decision.tokens) * self.seconds(len(rooms)) / len(rooms)
        made.emitted = sum(emitted)
        return made

    def _room(self, sequence: int, emitted: int, tokens: int) -> Room:
        nodes = tokens - emitted - 1
        methods = self.methods if sequence >= self.plain else ()
        context = self.prompt + emitted
        return Room(sequence, nodes, context, False, self.scope, methods=methods)

    def _propose(
        self, controller: Controller, rooms: Sequence[Room]
    ) -> tuple[list[tuple[Proposal, ...]], float]:
        held: list[tuple[Proposal, ...]] = [() for _ in rooms]
        spent = 0.0
        for source in self.sources:
            caps = controller.plan(source.name, rooms, held)
            asked = [place for place, cap in enumerate(caps) if cap > 0]
            worth = controller.worth(source.name) if asked else 0.0
            drafts, elapsed = {}, 0.0
            for place in asked:
                room = rooms[place]
                at = room.context + 1
                drafts[place] = source.propose(room.sequence, at, caps[place], worth)
                nodes = len(drafts[place])
                cost = source.seconds(room.sequence, at, nodes)
                elapsed = max(elapsed, cost) if source.node_s else elapsed + cost
            spent += elapsed
            for place, draft in drafts.items():
                made = Proposal(source.name, caps[place], draft, elapsed, len(asked))
                held[place] += (made,)
        return held, spent

    def _decide(
        self,
        room: Room,
        proposals: tuple[Proposal, ...],
        verified: Draft,
        step: int,
        rows: int,
        elapsed: float,
        draft_s: float,
    ) -> Decision:
        truth = [room.context + 1 + i for i in range(room.nodes + 1)]
        path = verified.matched(truth[:-1])
        tokens = tuple(truth[: len(path) + 1])
        leaf = path[-1] if path else -1
        return Decision(
            time_s=0.0,
            room=room,
            proposals=proposals,
            verified=verified,
            path=path,
            tokens=tokens,
            rejected=leaf in verified.parents,
            cut_for_time=0,
            rows=rows,
            elapsed_s=elapsed,
            sequence=room.sequence,
            step=step,
            draft_s=draft_s + 0.5 * AROUND_S,
        )


@dataclass
class FixedLength:
    """Verifies drafts of one length: the policy that an oracle would fix beforehand."""

    length: int

    def worth(self, method: str) -> float:
        del method
        return 0.0

    def plan(
        self, method: str, rooms: Sequence[Room], held: Sequence[tuple[Proposal, ...]]
    ) -> list[int]:
        del method
        return [
            0 if any(len(p.draft) for p in made) else max(min(self.length, room.nodes), 0)
            for room, made in zip(rooms, held, strict=True)
        ]

    def choose(self, rooms: Sequence[Room], held: Sequence[tuple[Proposal, ...]]) -> list[Draft]:
        del rooms
        found = [[p.draft for p in made if len(p.draft)] for made in held]
        return [drafts[0].cut(self.length) if drafts else Draft() for drafts in found]

    def reason(self, sequence: int) -> str:
        del sequence
        return ""

    def observe(self, decision: Decision) -> None: ...

    def close(self, sequence: int) -> None: ...

    def forget(self, scope: str | None) -> None: ...

    def knows(self, scope: str, methods: Sequence[str] | None = None) -> bool:
        del scope, methods
        return False


def oracle(make: Callable[[], World], tokens: int) -> Run:
    """The best of the fixed lengths, 0 among them, in the same world."""
    runs = [make().run(FixedLength(length), tokens) for length in (0, 1, 2, 3, 4, 6, 8, 11, 15)]
    return max(runs, key=lambda run: run.speed_up)
