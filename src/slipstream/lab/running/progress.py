"""Where a run stands and how long it takes yet: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import IO, TYPE_CHECKING, Any, Final, Protocol

from slipstream.lab.contract.records import BlockRecord, Line
from slipstream.lab.scheduling.schedule import Block

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

_LINE_S: Final = 10.0  # seconds between plain lines about requests
LONG_S: Final = 5.0
"""Seconds of waiting after which it is said what for."""


class Progress(Protocol):
    """Who is told how a run goes."""

    def block(self, label: str, done: int, blocks: int, left_s: float | None) -> None:
        """A block begins; ``done`` of ``blocks`` have ended, ``left_s`` seconds are to come."""
        ...

    def request(self, done: int, requests: int) -> None:
        """So many of the block's requests have ended."""
        ...

    def note(self, text: str) -> None:
        """Something that a watching user should know."""
        ...


class Silent:
    """Tells nobody."""

    def block(self, label: str, done: int, blocks: int, left_s: float | None) -> None:
        pass

    def request(self, done: int, requests: int) -> None:
        pass

    def note(self, text: str) -> None:
        pass


class Lines:
    """Plain lines, for a file or a pipe."""

    def __init__(self, stream: IO[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._last = clock()

    def block(self, label: str, done: int, blocks: int, left_s: float | None) -> None:
        self._print(f"block {done + 1} of {blocks}: {label} ({duration(left_s)} left)")

    def request(self, done: int, requests: int) -> None:
        if self._clock() - self._last >= _LINE_S:
            self._print(f"  {done} of {requests} requests")

    def note(self, text: str) -> None:
        self._print(f"note: {text}")

    def _print(self, text: str) -> None:
        self._last = self._clock()
        print(printable(text), file=self._stream, flush=True)


class Bar:
    """One line of Rich that is redrawn."""

    def __init__(self, rich: RichProgress) -> None:
        self._rich = rich
        self._task: TaskID = rich.add_task("", total=None, left="", requests="")

    def block(self, label: str, done: int, blocks: int, left_s: float | None) -> None:
        self._rich.update(
            self._task,
            completed=done,
            total=blocks,
            description=printable(label),
            left=f"{duration(left_s)} left",
            requests="",
        )

    def request(self, done: int, requests: int) -> None:
        self._rich.update(self._task, requests=f"{done}/{requests}")

    def note(self, text: str) -> None:
        self._rich.console.print(f"note: {printable(text)}", markup=False, highlight=False)


@contextlib.contextmanager
def shown(stream: IO[str] | None = None) -> Iterator[Progress]:
    """On ``stream`` (stderr unless given): a bar where it is a terminal, else plain lines."""
    stream = sys.stderr if stream is None else stream
    if not stream.isatty():
        yield Lines(stream)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as RichProgress

    columns: list[Any] = [
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[requests]}", markup=False),
        TextColumn("{task.fields[left]}", markup=False),
    ]
    with RichProgress(*columns, console=Console(file=stream), transient=True) as rich:
        yield Bar(rich)


@contextlib.contextmanager
def told_if_long(progress: Progress, text: str) -> Iterator[None]:
    """What is waited for, on the terminal once it takes a while."""
    timer = threading.Timer(LONG_S, progress.note, [text])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def time_left_s(ahead: Iterable[Block], lines: Iterable[Line]) -> float | None:
    """Expected seconds of the blocks to come, by what those like them took; None = none ran yet.

    A block is like another with the same runtime, condition, stratum and concurrency, else with
    the same stratum, else any.
    """
    seen: dict[tuple[str, ...], list[float]] = {}
    for record in lines:
        if isinstance(record, BlockRecord):
            for key in _likeness(record):
                seen.setdefault(key, []).append(record.elapsed_s)
    if not seen:
        return None
    total = 0.0
    for block in ahead:
        times = next(seen[key] for key in _likeness(block) if key in seen)
        total += sum(times) / len(times)
    return total


def _likeness(x: Block | BlockRecord) -> tuple[tuple[str, ...], ...]:
    return ((x.runtime, x.condition, x.stratum, str(x.slots)), (x.stratum,), ())


def duration(seconds: float | None) -> str:
    """``1 h 20 min``, ``3 min``, ``40 s``; an unknown time is said to be one."""
    if seconds is None:
        return "unknown time"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"


def printable(text: str) -> str:
    """Without control characters, which a server could drive a terminal with."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
