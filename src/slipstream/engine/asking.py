"""Whether a drafter that runs a model is worth asking, and for how many nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from slipstream.drafters.base import Draft
from slipstream.engine.costs import DraftTimes, PassTimes
from slipstream.engine.tree import best_count

LENGTHS = (1, 2, 3, 4, 6, 8)
MARGIN = 1.02  # least gain in speed for which a parked drafter is taken up again
ENOUGH = 5.0  # trials on which an estimate may rest without being paid from the purse
PROBE = 2  # nodes
RICH = 10.0  # prices that the purse must hold to ask one of which nothing is known
PROBE_SHARE = 0.02  # of the plain time since it was last asked
WORTH = 0.5  # of the expected gain that reading may cost: outputs end early, estimates err
HORIZON = 2048  # most tokens over which reading a context may pay


@dataclass(frozen=True)
class Candidate:
    """A sequence for which the drafter may be asked.

    Attributes:
        place: among the sequences of the step.
        chain: P(right for 1, 2, .. tokens).
        trials: on which that rests.
        pending: tokens it has not read.
        coming: tokens for which it is expected to be needed before it has to read again.
        purse_s: what may be risked.
        parked_s: plain seconds of the tokens since it was last asked.
        probe_due: whether that is long enough, and look-ups are of no use just now.
        alone: its draft takes the place of those proposed so far, and is not joined with them.
    """

    place: int
    chain: Sequence[float]
    trials: float
    pending: int
    coming: float
    purse_s: float
    parked_s: float
    probe_due: bool
    alone: bool = False


@dataclass(frozen=True)
class Ask:
    """Nodes to ask for, or why not; ``probe`` = only to see how it does."""

    nodes: int = 0
    reason: str = ""
    probe: bool = False


class Asking:
    """One drafter in one step.

    Args:
        times, drafter: of the target's passes and of the drafter.
        held: values of the nodes proposed so far, per sequence, falling.
        held_s: seconds spent on them.
        context: positions of all sequences together.
    """

    def __init__(
        self,
        times: PassTimes,
        drafter: DraftTimes,
        held: Sequence[Sequence[float]],
        held_s: float,
        context: int,
    ) -> None:
        self._drafter = drafter
        self._held = held
        self._held_s = held_s
        self._step_s = times.seconds(1)
        most = sum(map(len, held)) + LENGTHS[-1] * len(held)
        self._seconds = times.table(len(held), min(most, 64), context)
        flat = sorted((value for values in held for value in values), reverse=True)
        self._base = best_count(flat, self._seconds, len(held), held_s)[1]

    def decide(self, candidates: Sequence[Candidate]) -> tuple[list[Ask], float]:
        """An answer per candidate, and the tokens per second that they promise.

        Of several candidates those with the best prospects are asked together.
        """
        order = sorted(candidates, key=lambda one: -one.chain[0])
        reading = any(self._drafter.catch_up(one.pending, self._step_s) for one in order)
        chosen, nodes, rate = 0, 0, self._base * (MARGIN if reading else 1.0)
        for count in _counts(len(order)):
            length, found = self._best_length(order[:count])
            if found > rate:
                chosen, nodes, rate = count, length, found
        asked = {one.place for one in order[:chosen]}
        answers = [
            self._granted(one, nodes, rate, chosen) if one.place in asked else self._probe(one)
            for one in candidates
        ]
        return answers, rate

    def _best_length(self, asked: Sequence[Candidate]) -> tuple[int, float]:
        """Nodes and their rate; two lengths in a row that are worse end the search."""
        best, rate, worse = 0, 0.0, 0
        for length in LENGTHS:
            if length > len(asked[0].chain) or worse == 2:
                break
            found = self._rate(asked, length)
            worse = 0 if found > rate else worse + 1
            if found > rate:
                best, rate = length, found
        return best, rate

    def _rate(self, asked: Sequence[Candidate], nodes: int) -> float:
        values = list(self._held)
        for one in asked:
            chain = one.chain[:nodes]
            values[one.place] = chain if one.alone else _better(self._held[one.place], chain)
        flat = sorted((value for row in values for value in row), reverse=True)
        draft_s = self._held_s + self._drafter.seconds(nodes, self._step_s)
        return best_count(flat, self._seconds, len(values), draft_s)[1]

    def _granted(self, one: Candidate, nodes: int, rate: float, asked: int) -> Ask:
        """Reading a long context must pay in the tokens to come; what rests on little is risked."""
        reading = self._drafter.catch_up(one.pending, self._step_s)
        gain = (1.0 / self._base - 1.0 / rate) * min(one.coming, HORIZON)
        if reading > WORTH * gain:
            probe = self._probe(one)
            return probe if probe.nodes else Ask(reason=f"no gain: {one.pending} tokens to read")
        risk = reading
        if one.trials < ENOUGH:
            risk += self._drafter.seconds(nodes, self._step_s) / asked
        if risk > 0.0 and risk > one.purse_s:
            return Ask(reason="budget")
        return Ask(min(nodes, len(one.chain)))

    def _probe(self, one: Candidate) -> Ask:
        reading = self._drafter.catch_up(one.pending, self._step_s)
        price = reading + self._drafter.seconds(PROBE, self._step_s)
        if 0.0 < one.trials < ENOUGH and not reading and price <= one.purse_s:
            return Ask(min(PROBE, len(one.chain)), probe=True)  # what was begun is seen through
        curious = not one.trials and RICH * price <= one.purse_s
        if not one.probe_due or not (curious or price <= PROBE_SHARE * one.parked_s):
            return Ask(reason="parked")
        if 2.0 * price > one.purse_s:
            return Ask(reason="parked: budget")
        return Ask(min(PROBE, len(one.chain)), probe=True)


def heeds(draft: Draft, worth: float) -> bool:
    """Whether a drafter went on only behind nodes that by its own word were worth it."""
    if not draft.probabilities:
        return False
    scores: list[float] = []
    for probability, parent in zip(draft.probabilities, draft.parents, strict=True):
        scores.append(probability * (scores[parent] if parent >= 0 else 1.0))
    return all(scores[parent] >= worth for parent in draft.parents if parent >= 0)


def _counts(candidates: int) -> Sequence[int]:
    """How many may be asked together: all, or the better ones."""
    counts = [candidates]
    while counts[-1] > 1:
        counts.append(counts[-1] // 2)
    return counts


def _better(held: Sequence[float], chain: Sequence[float]) -> list[float]:
    """Two falling lists as one: which of their nodes coincide is not known yet."""
    longer, shorter = (held, chain) if len(held) >= len(chain) else (chain, held)
    rest = longer[len(shorter) :]
    return [max(pair) for pair in zip(longer, shorter, strict=False)] + list(rest)
