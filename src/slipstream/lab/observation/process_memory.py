"""Most resident memory that a tree of processes had, sampled.

A sample is the sum of the resident sizes of a process and all that it started. Where the system
keeps each process's own maximum (Linux, ``VmHWM``) the largest of those counts too: it is exact,
so for a single process no short peak is missed. Pages that two processes share count twice.

On Linux a sample reads a few files of /proc alone (some 0.1 ms): to list all processes would take
milliseconds of the machine that is measured.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final

INTERVAL_S: Final = 0.5
MOST_PROCESSES: Final = 1024


class PeakMemory:
    """Samples from its start until ``close``.

    Args:
        pids: first processes of the trees.
    """

    def __init__(self, pids: Sequence[int], interval_s: float = INTERVAL_S) -> None:
        self._pids = tuple(pids)
        self._peak = 0
        self._over = threading.Event()
        self._interval_s = interval_s
        self._thread = threading.Thread(target=self._run, name="peak memory", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(self._interval_s):
            self.sample()

    def sample(self) -> None:
        """Look now."""
        self._peak = max(self._peak, tree_bytes(self._pids))

    def peak_bytes(self) -> int | None:
        """Largest so far; None where nothing could be read."""
        if not self._over.is_set():
            self.sample()
        return self._peak or None

    def close(self) -> None:
        """Look once more, and end."""
        if not self._over.is_set():
            self.sample()
            self._over.set()
            self._thread.join()

    def __enter__(self) -> PeakMemory:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()


def tree_bytes(pids: Sequence[int], root: Path = Path("/")) -> int:
    """Resident bytes of the processes and all below them now, at least any one's own maximum."""
    family = tree(pids, root)
    total = sum(_resident(pid, root) for pid in family)
    return max([total, *(own_peak_bytes(pid, root) for pid in family)])


def tree(pids: Sequence[int], root: Path = Path("/")) -> list[int]:
    """The processes and all below them."""
    found: dict[int, None] = {}
    left = list(pids)
    while left and len(found) < MOST_PROCESSES:
        pid = left.pop(0)
        if pid not in found:
            found[pid] = None
            left += _children(pid, root)
    return list(found)


def _children(pid: int, root: Path) -> list[int]:
    """Every thread lists the processes that it started."""
    tasks = root / f"proc/{pid}/task"
    if not (tasks / str(pid) / "children").exists():  # another system, or a kernel without it
        return list(_children_elsewhere(pid)) if root == Path("/") else []
    found: list[int] = []
    with contextlib.suppress(OSError, ValueError):
        for thread in os.listdir(tasks):
            with contextlib.suppress(OSError):
                found += map(int, (tasks / thread / "children").read_text().split())
    return found


def _children_elsewhere(pid: int) -> Iterator[int]:
    import psutil

    with contextlib.suppress(psutil.Error):
        for child in psutil.Process(pid).children():
            yield child.pid


def _resident(pid: int, root: Path) -> int:
    with contextlib.suppress(OSError, ValueError, IndexError):
        pages = int((root / f"proc/{pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    return _resident_elsewhere(pid) if not (root / "proc").exists() else 0


def _resident_elsewhere(pid: int) -> int:
    import psutil

    with contextlib.suppress(psutil.Error):
        return int(psutil.Process(pid).memory_info().rss)
    return 0


def own_peak_bytes(pid: int, root: Path = Path("/")) -> int:
    """``VmHWM`` of one process; 0 where the system does not tell."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in (root / f"proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0
