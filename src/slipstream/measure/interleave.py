"""Run two or more conditions in turns, so that drift of the machine hits them alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Timing:
    """One timed call: which condition, in which round, when it began and how long it took."""

    condition: str
    round: int
    start_s: float
    elapsed_s: float


def mirrored_order(conditions: Sequence[str], rounds: int) -> list[tuple[int, str]]:
    """(round, condition) pairs: A B in even rounds, B A in odd ones, so A B B A A B B A …

    A linear drift then adds the same amount to each condition over any two rounds.
    """
    order: list[tuple[int, str]] = []
    for number in range(rounds):
        turn = list(conditions) if number % 2 == 0 else list(reversed(conditions))
        order += [(number, name) for name in turn]
    return order


def interleave(
    conditions: Mapping[str, Callable[[], object]],
    rounds: int,
    *,
    warm_up: int = 1,
    clock: Callable[[], float] = time.perf_counter,
    switch: Callable[[str], object] | None = None,
) -> list[Timing]:
    """Time each condition once per round in mirrored order.

    Args:
        conditions: name -> the call to time.
        rounds: timed rounds.
        warm_up: untimed calls of each condition before the first round.
        clock: seconds, monotonic.
        switch: called with the name before each call, for example to stop the other engine.
    """

    def call(name: str) -> tuple[float, float]:
        if switch is not None:
            switch(name)
        begin = clock()
        conditions[name]()
        return begin, clock() - begin

    for _ in range(warm_up):
        for name in conditions:
            call(name)
    timings = []
    for number, name in mirrored_order(list(conditions), rounds):
        begin, elapsed = call(name)
        timings.append(Timing(name, number, begin, elapsed))
    return timings


def by_condition(timings: Sequence[Timing]) -> dict[str, list[Timing]]:
    """Timings of each condition, in round order."""
    groups: dict[str, list[Timing]] = {}
    for timing in sorted(timings, key=lambda t: t.round):
        groups.setdefault(timing.condition, []).append(timing)
    return groups
