"""The controller that is never slower: it verifies what pays, measured in seconds.

Every step it takes the nodes that give the most expected tokens per second: the value of a node is
the probability that its path is accepted (``acceptance.py``), the price is t(rows, context) of the
pass and the time of the drafters (``costs.py``), and all sequences share the rows. No node is a
legal answer. What speculation cost and saved is kept (``ledger.py``): what rests on little evidence
is paid from a purse of under 1 % of plain time and of what was saved, and a scope in debt has to
be sure of a gain. A drafter that runs a model is asked where that pays (``asking.py``), and parked
otherwise.

It reads no clock and draws nothing: ``measure.replay`` repeats its choices from a trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, sqrt

from slipstream.drafters.base import Draft
from slipstream.engine.asking import ENOUGH, LENGTHS, Ask, Asking, Candidate, heeds
from slipstream.engine.controller import (
    Decision,
    Held,
    Proposal,
    Room,
)
from slipstream.engine.costs import FEW, INTERRUPTED, DraftTimes, PassTimes
from slipstream.engine.drawn import drawn_proposals, weighable
from slipstream.engine.experience import Experience, View
from slipstream.engine.tree import best_count, in_draft_order, union

MOST_NODES = 48  # of a proposal
MOST_WEIGHED = 16  # of a proposal against a draft not yet made
MOST_ROWS = 64  # of draft nodes in a pass
FIRST_ROWS = 3  # of draft nodes in the first pass that has any; later at most so many times
GROWTH = 2  # the rows of the largest pass so far, for a first guess at their price may be wrong
HOPE = 0.4  # of the expected price: what rows must be worth to be tried
TRIALS = 3.0  # times that the price of trying more rows must be in the purse
MOST_WORTH = 0.7
FOLLOWS = 0.85
MOST_ASKED = 16  # nodes of a draft model that stops by itself where nothing more is worth it
MARGIN = 1.01  # least gain in speed for which rows are spent
CREDIT = 0.003  # of the plain time to come
LONE_CREDIT = 0.05  # where every drafter runs a model: without a trial none would ever be used
CREDIT_TOKENS = 512  # most tokens to come that are counted on
LOOK = 0.004  # of a step: what looking may take on average where it has been of no use for long
LONG = 64  # tokens
FREE = 0.01  # of a step: what a look-up may take to be asked always
PARKED = 32  # tokens after which a drafter that runs a model is not weighed at every token
WEIGHED = 4  # tokens from one weighing of it to the next
NOTHING = Draft()
BOOKKEEPING_S = 5e-4  # most per step that is believed; the rest was an interruption


class CostController:
    """
    Args:
        credit: share of the coming plain time that may be lost before anything was saved; at least
            ``LONE_CREDIT`` for a sequence that chose drafters all of which run a model.
    """

    def __init__(self, credit: float = CREDIT) -> None:
        self.times = PassTimes()
        self.experience = Experience()
        self._credit = credit
        self._drafters: dict[str, DraftTimes] = {}
        self._step = 0
        self._sequences = 1
        self._drafting = 1  # sequences among them for which something may be drafted
        self._context = 0
        self._probing: set[tuple[int, str]] = set()
        self._parked: dict[int, str] = {}
        self._reasons: dict[int, str] = {}
        self._rates: dict[str, float] = {}  # tokens per second that asking a drafter promises
        self._worths: dict[str, float] = {}
        self._heeding: set[str] = set()  # drafters whose last draft stopped at what was worth it
        self._trees: dict[int, tuple[tuple[Proposal, ...], tuple[Draft, list[float]]]] = {}

    def plan(self, method: str, rooms: Sequence[Room], held: Held) -> list[int]:
        if self._drafter(method).dear:
            return self._plan_dear(method, rooms, held)
        return [
            self._plan_cheap(method, room)
            if room.opens(method) and not self._settled(room, made)[1]
            else 0
            for room, made in zip(rooms, held, strict=True)
        ]

    def _drafter(self, method: str) -> DraftTimes:
        found = self._drafters.get(method)
        if found is None:
            found = self._drafters[method] = DraftTimes(method)
        return found

    def worth(self, method: str) -> float:
        """A node's time in the drafter and as a row, in tokens that decoding gives in it so far.

        The token that follows is right with about ``FOLLOWS`` where its path is.
        """
        if not self._drafter(method).dear or not self.times.known:
            return 0.0
        price = self._price(method, 2)
        worth = self._worths[method] = min(price / FOLLOWS, MOST_WORTH)
        return worth

    def _price(self, method: str, nodes: int) -> float:
        """Of one more node behind so many, in tokens that decoding gives in its time."""
        drafter, rows = self._drafter(method), self._sequences + nodes
        node_s = drafter.seconds(1, self.times.level) - drafter.seconds(0, self.times.level)
        row_s = self.times.seconds(rows + 1) - self.times.seconds(rows)
        rate = max(self._rates.get(method, 0.0), 1.0 / self.times.level)
        return (node_s + row_s) * rate

    def _plan_cheap(self, method: str, room: Room) -> int:
        """Asked even where nothing will be verified, to learn how it does; seldom if in debt."""
        if room.nodes <= 0:
            return 0
        view = self.experience.of(room)
        foresight = view.foresight(method)
        idle, looked_s = foresight.idle, self._drafter(method).seconds(0, 0.0)
        silent = view.tokens - foresight.asked
        if foresight.run > 0:  # it was right just now
            return min(room.nodes, MOST_NODES)
        free = idle <= 8 or looked_s <= FREE * self.times.level
        if not free and silent < 1 << min(idle // 8, 5) and self._purse_s(view, room) < 0.0:
            self._refuse(room, method, "budget")
            return 0
        if silent < self._interval(looked_s, view):
            self._refuse(room, method, "seldom of use")
            return 0
        return min(room.nodes, MOST_NODES)

    def _interval(self, looked_s: float, view: View) -> int:
        """Tokens from one look to the next where look-ups have been of no use for long.

        A look at every k-th token costs c / k, and misses k / 2 tokens of a text that is copied
        once in so many tokens as there have been without use: together least at the root of
        2 c times that. No longer than it takes to make looking cheap.
        """
        if view.uncovered < LONG or not self.times.known:
            return 0
        share = looked_s / self.times.seconds(self._sequences, self._context)
        if share <= LOOK:
            return 0
        return min(int(sqrt(2.0 * share * view.uncovered)), ceil(share / LOOK))

    def _plan_dear(self, method: str, rooms: Sequence[Room], held: Held) -> list[int]:
        open_rooms = [
            place
            for place, (room, made) in enumerate(zip(rooms, held, strict=True))
            if self._may_ask(method, room, made)
        ]
        if not open_rooms or not self.times.known:
            return [0] * len(rooms)
        trees = [self._tree(room, made) for room, made in zip(rooms, held, strict=True)]
        values = [sorted(filter(None, worth), reverse=True)[:MOST_WEIGHED] for _, worth in trees]
        context = sum(room.context + 1 for room in rooms)
        asking = Asking(self.times, self._drafter(method), values, self._steady_s(held), context)
        candidates = [self._candidate(method, place, rooms[place]) for place in open_rooms]
        caps = [0] * len(rooms)
        answers, self._rates[method] = asking.decide(candidates)
        for one, ask in zip(candidates, answers, strict=True):
            caps[one.place] = self._cap(method, rooms[one.place], ask)
            self._note(method, rooms[one.place], ask)
        return caps

    def _may_ask(self, method: str, room: Room, made: tuple[Proposal, ...]) -> bool:
        if not room.opens(method) or room.nodes <= 0 or self._waits(method, room):
            return False
        return not self._settled(room, made)[1]

    def _waits(self, method: str, room: Room) -> bool:
        """Whether it is parked for long and was weighed just now: what decides moves slowly."""
        view = self.experience.of(room)
        foresight = view.foresight(method)
        parked = view.tokens - foresight.asked >= PARKED
        if not parked or view.tokens - foresight.weighed >= WEIGHED:
            return False
        self._refuse(room, method, "parked")
        return True

    def _cap(self, method: str, room: Room, ask: Ask) -> int:
        """A drafter that stops where nothing is worth it may go on while it is sure."""
        if not ask.nodes or ask.probe or room.drawn or method not in self._heeding:
            return ask.nodes
        nodes = ask.nodes
        while nodes < min(MOST_ASKED, room.nodes) and self._price(method, nodes) < MOST_WORTH:
            nodes += 1
        return nodes

    def _candidate(self, method: str, place: int, room: Room) -> Candidate:
        view = self.experience.of(room)
        foresight = view.foresight(method)
        pending = room.context + 1 - foresight.heard
        trials = foresight.first_trials()
        caution = self._caution(view, room)
        if pending > FEW and trials >= ENOUGH:  # reading is an investment: no wishful thinking
            caution = max(caution, 1.0)
        reach = foresight.shared.reach or MOST_NODES
        parked = view.tokens - foresight.asked
        return Candidate(
            place=place,
            chain=foresight.chain(min(room.nodes, reach, LENGTHS[-1]), caution),
            trials=trials,
            pending=pending,
            coming=view.coming(room.tokens),
            purse_s=self._purse_s(view, room),
            parked_s=parked * self._plain_s(),
            probe_due=parked >= foresight.backoff and view.uncovered > 0,
            alone=room.drawn,
        )

    def _note(self, method: str, room: Room, ask: Ask) -> None:
        if ask.probe:
            self._probing.add((room.sequence, method))
        if not ask.nodes:
            view = self.experience.of(room)
            view.foresight(method).weighed = view.tokens
            self._refuse(room, method, ask.reason)

    def _refuse(self, room: Room, method: str, reason: str) -> None:
        before = self._parked.get(room.sequence)
        told = f"{method} {reason}"
        self._parked[room.sequence] = f"{before}, {told}" if before else told

    def choose(self, rooms: Sequence[Room], held: Held) -> list[Draft]:
        self._sequences = max(len(rooms), 1)  # a pass may hold a prompt alone
        self._drafting = max(sum(_drafts(*pair) for pair in zip(rooms, held, strict=True)), 1)
        self._context = sum(room.context + 1 for room in rooms)
        chosen, proposed = [NOTHING] * len(rooms), [0] * len(rooms)
        if any(proposal.draft.tokens for made in held for proposal in made):
            chosen, proposed = self._chosen(rooms, held)
        self._reasons = {
            room.sequence: "" if draft.tokens else self._reason(room, made, nodes)
            for room, draft, made, nodes in zip(rooms, chosen, held, proposed, strict=True)
            if _drafts(room, made)
        }
        self._parked.clear()
        self._trees.clear()
        return chosen

    def _chosen(self, rooms: Sequence[Room], held: Held) -> tuple[list[Draft], list[int]]:
        """Per sequence, what is verified, and the number of nodes that might have been."""
        trees = [self._tree(room, made) for room, made in zip(rooms, held, strict=True)]
        chosen = self._drawn(rooms, held)
        ranked = sorted(
            [
                (-value, place, node)
                for place, (_, values) in enumerate(trees)
                if not chosen[place].tokens
                for node, value in enumerate(values)
                if value > 0.0
            ]
        )
        kept: list[list[int]] = [[] for _ in rooms]
        count = self._worth([-value for value, _, _ in ranked], rooms, held, chosen)
        for _, place, node in ranked[:count]:
            kept[place].append(node)
        for place, nodes in enumerate(kept):
            if nodes:
                tree, prefix = trees[place][0], nodes == list(range(len(nodes)))
                chosen[place] = tree.cut(len(nodes)) if prefix else tree.kept(nodes)
        return chosen, [len(tree.tokens) for tree, _ in trees]

    def _drawn(self, rooms: Sequence[Room], held: Held) -> list[Draft]:
        """What is settled of drawn drafts, before other rows are weighed; see ``drawn``."""
        left = self._most_rows(rooms)
        chosen: list[Draft] = []
        for room, made in zip(rooms, held, strict=True):
            draft, count = self._settled(room, made)
            chosen.append(draft.cut(min(count, left)))
            left -= len(chosen[-1])
        return chosen

    def _settled(self, room: Room, made: tuple[Proposal, ...]) -> tuple[Draft, int]:
        """The first drawn draft of which anything is worth verifying, and how many nodes of it.

        Of a drafter that runs a model that is what it was asked for: ``plan`` has weighed it.
        """
        for proposal in drawn_proposals(room, made):
            most = min(proposal.cap, room.nodes, MOST_NODES)
            if not self._drafter(proposal.method).dear:
                most = min(most, self._foreseen(proposal.method, room))
            if most > 0 and self.times.known:
                return proposal.draft, most
        return Draft(), 0

    def _foreseen(self, method: str, room: Room) -> int:
        """Nodes of a draft not yet made that pay, were its sequence alone."""
        view = self.experience.of(room)
        most = min(room.nodes, MOST_WEIGHED)
        if not self.times.known or most <= 0:
            return 0
        chain = view.foresight(method).chain(most, self._caution(view, room))
        seconds = self.times.table(1, most, room.context + 1)
        count, rate = best_count(chain, seconds, 1.0, 0.0)
        return count if rate > MARGIN / seconds[0] else 0

    def _most_rows(self, rooms: Sequence[Room]) -> int:
        """Of draft nodes in this pass."""
        if not rooms or not self.times.known:
            return 0
        n = len(rooms)
        grown = max(GROWTH * self.times.most, n + FIRST_ROWS) - n
        return max(min(MOST_ROWS, rooms[0].affordable, grown), 0)

    def _worth(
        self, values: list[float], rooms: Sequence[Room], held: Held, settled: Sequence[Draft]
    ) -> int:
        """How many of the nodes, the best first, beside those that are settled."""
        taken = sum(map(len, settled))
        more = min(len(values), self._most_rows(rooms) - taken)
        if more <= 0:
            return 0
        rows, draft_s = len(rooms) + taken, self._steady_s(held)
        tokens = len(rooms) + sum(
            sum(self._values(room, draft))
            for room, draft in zip(rooms, settled, strict=True)
            if len(draft)
        )
        seconds = self.times.table(rows, more, self._context)
        count, rate = best_count(values, seconds, tokens, draft_s)
        if rate <= MARGIN * tokens / (seconds[0] + draft_s):
            count = 0
        payers = [room for room, made in zip(rooms, held, strict=True) if _drafts(room, made)]
        return count + self._trial(values, count, rate, seconds, payers, rows)

    def _trial(
        self,
        values: Sequence[float],
        count: int,
        rate: float,
        seconds: Sequence[float],
        rooms: Sequence[Room],
        rows: int,
    ) -> int:
        """Nodes more, to see what an untried number of rows takes, where that can be afforded.

        Args:
            rooms: of the sequences whose purses pay for it.
        """
        knot = self.times.untried(rows + count)
        more = 0 if knot is None else knot - rows - count
        if not 0 < more < len(seconds) - count:
            return 0
        tokens = sum(values[count : count + more])
        price = seconds[count + more] - seconds[count]
        if tokens <= HOPE * price * rate:  # not even where they cost a fraction of what is expected
            return 0
        purse = min(self._purse_s(self.experience.of(room), room) for room in rooms)
        return more if TRIALS * (price - tokens / rate) <= purse else 0

    def _steady_s(self, held: Held) -> float:
        """Of the drafters that were asked; reading a context once is no price of this step."""
        step_s = self.times.level
        nodes: dict[str, int] = {}
        for made in held:
            for proposal in made:
                count = self._drafter(proposal.method).passes(proposal.draft)
                nodes[proposal.method] = max(nodes.get(proposal.method, 0), count)
        return sum(self._drafter(name).seconds(count, step_s) for name, count in nodes.items())

    def _tree(self, room: Room, made: tuple[Proposal, ...]) -> tuple[Draft, list[float]]:
        """The nodes that may be verified, and P(path accepted) of each; 0 = not to be verified."""
        known = self._trees.get(room.sequence)
        if known is None or known[0] is not made:
            known = self._trees[room.sequence] = made, self._merged(room, made)
        return known[1]

    def _merged(self, room: Room, made: tuple[Proposal, ...]) -> tuple[Draft, list[float]]:
        drafts = weighable(room, made)
        if not drafts or room.nodes <= 0:
            return Draft(), []
        values = [self._values(room, draft) for draft in drafts]
        if room.drawn:
            best = max(range(len(drafts)), key=lambda place: sum(values[place]))
            return drafts[best], in_draft_order(drafts[best], values[best])
        return (drafts[0], values[0]) if len(drafts) == 1 else union(drafts, values)

    def _values(self, room: Room, draft: Draft) -> list[float]:
        view = self.experience.of(room)
        caution = self._caution(view, room)
        return view.foresight(draft.methods[0]).paths(draft, room.nodes, caution)

    def _reason(self, room: Room, made: tuple[Proposal, ...], nodes: int) -> str:
        if room.nodes <= 0:
            return "limit reached"
        if not self.times.known:
            return "first pass"
        nodes += sum(len(proposal.draft) for proposal in drawn_proposals(room, made))
        reason = "no gain" if nodes else "nothing proposed" if made else ""
        parked = self._parked.get(room.sequence, "")
        return f"{reason}; {parked}" if reason and parked else reason or parked

    def reason(self, sequence: int) -> str:
        return self._reasons.get(sequence, "")

    def _plain_s(self) -> float:
        """Of one token, were all sequences of the last step decoded without drafts."""
        return self.times.seconds(self._sequences, self._context) / self._sequences

    def _purse_s(self, view: View, room: Room) -> float:
        coming = min(room.tokens, CREDIT_TOKENS) * self._plain_s()
        credit = max(self._credit, LONE_CREDIT) if view.lone else self._credit
        return view.ledger.purse_s(credit * coming)

    def _caution(self, view: View, room: Room) -> float:
        """Standard errors taken off estimates: none without debt, then one, up to three."""
        purse = self._purse_s(view, room)
        return 0.0 if purse >= 0.0 else min(1.0 - purse / self.times.level, 3.0)

    def observe(self, decision: Decision) -> None:
        room = decision.room
        if decision.step == 0 or decision.step != self._step:
            self._step = decision.step
            if not decision.prompt_rows:
                plain = decision.rows <= self._sequences
                self.times.observe(decision.rows, self._context, decision.elapsed_s, plain=plain)
        # without times there were only passes with prompts so far
        if not self.times.known or not _drafts(room, decision.proposals):
            return
        view = self.experience.of(room)
        self._account(decision, view)
        probing: frozenset[str] = frozenset()
        if self._probing:
            probing = frozenset(name for number, name in self._probing if number == room.sequence)
            self._probing -= {(room.sequence, name) for name in probing}
        view.learn(decision, probing)

    def _account(self, decision: Decision, view: View) -> None:
        ledger, step_s, spent = view.ledger, self.times.level, 0.0
        for proposal in decision.proposals:
            pending = decision.room.context + 1 - view.foresight(proposal.method).heard
            drafter = self._drafter(proposal.method)
            passes = drafter.passes(proposal.draft)
            if passes:
                self._watch(proposal, passes)
            told = drafter.observe(passes, pending, proposal.elapsed_s, step_s)
            ledger.draft_s += told / proposal.shared
            spent += proposal.elapsed_s
        around = min(max(decision.draft_s - spent, 0.0), BOOKKEEPING_S)
        ledger.bookkeeping_s += 2.0 * around / self._drafting  # learning takes as long as choosing
        plain = self._plain_s()
        ledger.plain_s += plain * len(decision.tokens)
        ledger.saved_s += plain * decision.accepted
        extra = decision.rows - decision.prompt_rows - self._sequences
        if decision.drafted and extra > 0:
            ledger.rows_s += self._rows_s(decision) * decision.drafted / extra

    def _watch(self, proposal: Proposal, passes: int) -> None:
        """Whether it stops by itself, and never goes on where it doubts."""
        if not heeds(proposal.draft, self._worths.get(proposal.method, 0.0)):
            self._heeding.discard(proposal.method)
        elif passes < proposal.cap:
            self._heeding.add(proposal.method)

    def _rows_s(self, decision: Decision) -> float:
        """What all draft rows of the pass took."""
        plain = self.times.seconds(self._sequences, self._context)
        expected = self.times.seconds(decision.rows - decision.prompt_rows, self._context)
        if decision.prompt_rows:
            return expected - plain
        return min(decision.elapsed_s, INTERRUPTED * expected) - plain

    def close(self, sequence: int) -> None:
        self._probing = {probed for probed in self._probing if probed[0] != sequence}
        self.experience.close(sequence)

    def forget(self, scope: str | None) -> None:
        self.experience.forget(scope)

    def knows(self, scope: str, methods: Sequence[str] | None = None) -> bool:
        return self.experience.knows(scope, methods)


def _drafts(room: Room, made: tuple[Proposal, ...]) -> bool:
    """Whether anything may be drafted for a sequence; another one costs nothing but its row."""
    return room.methods != () or bool(made)
