"""Drafting counts of several requests, blocks or processes, added up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from slipstream.lab.contract.records import STEPS, Counts


def summed(counts: Iterable[Counts]) -> Counts:
    """Counts of several requests; a number that one of them lacks is unknown of all."""
    given = list(counts)

    def total(values: list[int | None]) -> int | None:
        known = [v for v in values if v is not None]
        return sum(known) if values and len(known) == len(values) else None

    accepted_at, reached_at, denominator = _by_position(given)
    return Counts(
        drafted=total([c.drafted for c in given]),
        accepted=total([c.accepted for c in given]),
        steps=total([c.steps for c in given]),
        accepted_at=accepted_at,
        reached_at=reached_at,
        denominator=denominator,
        source=given[0].source if len({c.source for c in given}) == 1 else "unknown",
    )


def _by_position(given: Sequence[Counts]) -> tuple[tuple[int, ...], tuple[int, ...], str]:
    """Accepted at each position, its denominator, and what that is.

    Nothing where one of them drafted and does not tell its positions, or counts against another
    denominator: the others' positions are not those of all.
    """
    placed = [c for c in given if c.reached_at]
    denominators = {c.denominator for c in placed}
    if len(denominators) != 1:
        return (), (), ""
    denominator = denominators.pop()
    of_steps = denominator == STEPS
    rest = [c for c in given if not c.reached_at]
    if any((c.accepted if of_steps else c.drafted) != 0 for c in rest):
        return (), (), ""
    accepted_at = _sums([c.accepted_at for c in placed])
    if not of_steps:
        return accepted_at, _sums([c.reached_at for c in placed]), denominator
    # every step counts at every position, also those of requests that accepted less far
    steps = [c.steps if c.steps is not None else max(c.reached_at, default=None) for c in given]
    if None in steps:
        return (), (), ""
    reached = sum(n for n in steps if n is not None)
    return accepted_at, (reached,) * len(accepted_at), denominator


def _sums(rows: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    longest = max(map(len, rows), default=0)
    return tuple(sum(row[i] for row in rows if i < len(row)) for i in range(longest))
