"""How fast the machine is between blocks, and who else works on it.

The probe is a fixed piece of work of the lab's own, of the two kinds that decoding is made of:
reading memory and multiplying. It takes about a fifth of a second and runs while no server does.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

READ_BYTES: Final = 64 << 20
MATRIX: Final = 512
ROUNDS: Final = 9
RECENT: Final = 5
"""Blocks whose readings are the machine's speed until now."""
WATCHED_S: Final = 0.2
"""So long the lab sleeps and looks whether the processors do."""
BUSY_LIMIT: Final = 0.25
"""Share of the processors kept busy by others from which a block counts as disturbed."""


LOADED: Final = "other programs kept"
"""How the reason of a block begins that others' load disturbed."""


@dataclass(frozen=True)
class Reading:
    """One look at the machine.

    Attributes:
        seconds: lower quartile of the rounds of the fixed work, which a short interruption does not
            move; None = not this machine's business.
        other_load: share of the processors that others kept busy while the lab slept, from 0 to
            1, stolen time of a virtual machine included; None = the system does not tell.
    """

    seconds: float | None = None
    other_load: float | None = None


Probe = Callable[[], Reading]


def machine_probe(
    clock: Callable[[], float] = time.perf_counter, pause: Callable[[float], object] = time.sleep
) -> Probe:
    """A probe of this machine; its buffers are made once."""
    work = fixed_work()

    def take() -> Reading:
        load = other_load(pause)
        work()
        rounds = sorted(_timed(work, clock) for _ in range(ROUNDS))
        return Reading(rounds[ROUNDS // 4], load)

    return take


def no_probe() -> Reading:
    """Of a server on another machine: nothing here tells how fast that one is."""
    return Reading()


def fixed_work() -> Callable[[], object]:
    """Read 64 MiB once and multiply two matrices of 512 x 512 twice, in float32."""
    import numpy as np

    memory = np.ones(READ_BYTES // 4, dtype=np.float32)
    matrix = np.full((MATRIX, MATRIX), 0.5, dtype=np.float32)
    product = np.empty_like(matrix)

    def work() -> object:
        np.matmul(matrix, matrix, out=product)
        np.matmul(matrix, matrix, out=product)
        return memory.sum()

    return work


def _timed(work: Callable[[], object], clock: Callable[[], float]) -> float:
    begin = clock()
    work()
    return clock() - begin


def other_load(
    pause: Callable[[float], object] = time.sleep, own: Callable[[], float] = time.process_time
) -> float | None:
    """Share of the processors that others kept busy while this process slept.

    Args:
        own: processor seconds that this process used until now, of all its threads: those of a
            library of matrix products spin for a tenth of a second after the last product.
    """
    import psutil

    before, own_before = psutil.cpu_times(), own()
    pause(WATCHED_S)
    after, own_after = psutil.cpu_times(), own()
    spent = [max(0.0, b - a) for a, b in zip(before, after, strict=True)]
    # Linux counts a guest's time in `user` too.
    counted = dict(zip(after._fields, spent, strict=True))
    total = sum(v for name, v in counted.items() if not name.startswith("guest"))
    not_theirs = counted.get("idle", 0.0) + counted.get("iowait", 0.0) + own_after - own_before
    return min(1.0, max(0.0, 1.0 - not_theirs / total)) if total > 0 else None


def drift(readings: Sequence[Reading], earlier: Sequence[float]) -> float | None:
    """Relative change of the machine: within a block, or against the last ones, the larger one.

    Two blocks are compared with each other only where they ran on the same machine, so it is the
    last ones that count: a machine that changed its speed for good is another one, once.

    Args:
        readings: before and after the block.
        earlier: seconds of the slower probe of each block before it, in their order.
    """
    now = [r.seconds for r in readings if r.seconds is not None and r.seconds > 0]
    if not now:
        return None
    changes = [now[-1] / now[0] - 1]
    if recent := [seconds for seconds in earlier if seconds > 0][-RECENT:]:
        changes.append(max(now) / statistics.median(recent) - 1)
    return max(changes, key=abs)


def slower(readings: Sequence[Reading]) -> float | None:
    """Seconds of the slower probe."""
    return max((r.seconds for r in readings if r.seconds is not None), default=None)


def busier(readings: Sequence[Reading]) -> float | None:
    """The larger load of others."""
    return max((r.other_load for r in readings if r.other_load is not None), default=None)


def disturbed(change: float | None, load: float | None, limit: float) -> str:
    """Why a block does not count as it is; empty = it does.

    Args:
        limit: the plan's ``drift_limit``; 0 = none.
    """
    if limit > 0 and change is not None and abs(change) > limit:
        way = "slower" if change > 0 else "faster"
        return f"the machine was {abs(change):.1%} {way} around it than before (limit {limit:.0%})"
    if load is not None and load > BUSY_LIMIT:
        return f"{LOADED} {load:.0%} of the processors busy around it"
    return ""
