"""What happened between two readings of a server's counters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from slipstream.lab.contract.records import STEPS, Counts
from slipstream.lab.contract.runtimes import Metrics
from slipstream.lab.evidence.count_sums import summed

GONE: Final = "counters-reset: the counters were told before the window and not after it"


def between(before: Metrics, after: Metrics) -> tuple[Counts, tuple[str, ...]]:
    """Counts of a quiet window, and what is wrong with them, each beginning with a finding's name.

    A window is quiet when no request runs at either end of it. Counts are unknown where a reading
    is missing, a counter went back or the process started anew. A counter that is absent until it
    counts began at 0.
    """
    if not before.raw or not after.raw:
        return Counts(), (GONE,) if before.raw else ()
    faults = tuple(_resets(before, after))
    if faults:
        return Counts(), faults
    old, new = before.counts, after.counts
    steps = _less(new.steps, old.steps)
    accepted_at = _grown(old.accepted_at, new.accepted_at)
    counts = Counts(
        drafted=_less(new.drafted, old.drafted),
        accepted=_less(new.accepted, old.accepted),
        steps=steps,
        accepted_at=accepted_at,
        reached_at=() if steps is None else (steps,) * len(accepted_at),
        denominator=STEPS if accepted_at else "",
        source="unknown" if new.drafted is None else "counters",
    )
    return counts, tuple(_contradictions(counts))


def _resets(before: Metrics, after: Metrics) -> Iterator[str]:
    old, new = before.counts, after.counts
    if before.resets is not None and after.resets not in (None, before.resets):
        yield "counters-reset: the process started anew within the window"
    for name in ("drafted", "accepted", "steps"):
        earlier, later = getattr(old, name), getattr(new, name)
        if earlier is not None and (later is None or later < earlier):
            yield f"counters-reset: {name} went from {earlier} to {later}"
    for place, earlier in enumerate(old.accepted_at):
        if earlier > _at(new.accepted_at, place):
            later = _at(new.accepted_at, place)
            yield f"counters-reset: accepted at {place} went from {earlier} to {later}"


def _contradictions(counts: Counts) -> Iterator[str]:
    drafted, accepted, steps = counts.drafted, counts.accepted, counts.steps
    if drafted is not None and accepted is not None and accepted > drafted:
        yield f"counts-disagree: {accepted} draft tokens accepted of {drafted}"
    if drafted is not None and steps is not None and steps > drafted:
        yield f"counts-disagree: {steps} verification steps with {drafted} draft tokens"
    total = sum(counts.accepted_at)
    if counts.accepted_at and accepted is not None and total != accepted:
        yield f"counts-disagree: {accepted} accepted, {total} by position"


def _less(last: int | None, first: int | None) -> int | None:
    return None if last is None else last - (first or 0)


def _grown(old: tuple[int, ...], new: tuple[int, ...]) -> tuple[int, ...]:
    """Without the last positions, where nothing was accepted."""
    grown = [later - _at(old, place) for place, later in enumerate(new)]
    while grown and grown[-1] == 0:
        grown.pop()
    return tuple(grown)


def _at(values: tuple[int, ...], index: int) -> int:
    return values[index] if index < len(values) else 0


def completed(told: Counts, window: Counts) -> Counts:
    """A request's own counts, and what only the counters around it tell (steps, positions)."""
    if told.drafted is None and told.accepted is None:
        return window
    placed = told if told.accepted_at or disagreement(told, window) else window
    return Counts(
        drafted=told.drafted,
        accepted=told.accepted,
        steps=window.steps if told.steps is None else told.steps,
        accepted_at=placed.accepted_at,
        reached_at=placed.reached_at,
        denominator=placed.denominator,
        source=told.source,
    )


def disagreement(told: Counts, window: Counts) -> str:
    """What a request and the counters around it say differently; empty = nothing."""
    for name in ("drafted", "accepted", "steps"):
        ours, theirs = getattr(told, name), getattr(window, name)
        if ours is not None and theirs is not None and ours != theirs:
            return f"{name}: {ours} by the request, {theirs} by the counters around it"
    return ""


def caught_up(told: Iterable[Counts], window: Counts) -> bool:
    """Whether counters that are written after a reply hold what the requests told already."""
    drafted = [c.drafted for c in told if c.drafted is not None]
    return window.drafted is None or window.drafted >= sum(drafted)


def added(one: Counts, other: Counts) -> Counts:
    """Of two processes of one block; a number that one of them does not tell is unknown of both."""
    return summed([one, other])


class Window:
    """The counters around each request of a pass that asks one after another.

    Args:
        read: counters now, given the last reading and what was told since.
        first: the reading before the pass.
    """

    def __init__(
        self, read: Callable[[Metrics, Sequence[Counts]], Metrics], first: Metrics
    ) -> None:
        self._read = read
        self._last = first

    def counts(self, told: Counts) -> tuple[Counts, list[str]]:
        """A request's counts, completed by the counters, and what is wrong with either."""
        if not self._last.raw:
            return told, []
        before, self._last = self._last, self._read(self._last, [told])
        window, wrong = between(before, self._last)
        if window.source == "unknown":
            return told, list(wrong)
        differs = disagreement(told, window)
        noticed = [*wrong, *([f"counts-disagree: {differs}"] if differs else [])]
        return completed(told, window), noticed
