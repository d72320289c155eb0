"""Work on texts beside the event loop: on a few threads, and given up once nobody waits for it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Final, TypeVar

SHORT_THREADS: Final = 2
LONG_THREADS: Final = max(1, (os.cpu_count() or 1) // 4)  # most cores are the engine's
LONG: Final = 1 << 14
"""Characters or ids from which work has threads of its own, so that short work never waits."""

Found = TypeVar("Found")
GoOn = Callable[[], None]
"""Called between slices; raises where nobody waits for the rest."""


class AbandonedWorkError(Exception):
    """Nobody waits for the result any more."""


class Beside:
    """Threads of one server."""

    def __init__(self) -> None:
        self._short = ThreadPoolExecutor(SHORT_THREADS, thread_name_prefix="text")
        self._long = ThreadPoolExecutor(LONG_THREADS, thread_name_prefix="long text")
        self._closed = False

    def close(self) -> None:
        """End what runs at its next slice."""
        self._closed = True
        for pool in (self._short, self._long):
            pool.shutdown(wait=False, cancel_futures=True)

    async def run(self, work: Callable[[GoOn], Found], size: int) -> Found:
        """The result of some work; where the caller is cancelled it ends at its next slice.

        Args:
            size: characters or ids that it reads.
        """
        gone = Event()

        def go_on() -> None:
            if gone.is_set() or self._closed:
                raise AbandonedWorkError

        pool = self._short if size < LONG else self._long
        try:
            return await asyncio.get_running_loop().run_in_executor(pool, work, go_on)
        finally:
            gone.set()
