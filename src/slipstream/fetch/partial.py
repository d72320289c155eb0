"""State of an unfinished download: bytes kept between runs, the lock, disk space."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from slipstream.cache import write_atomically
from slipstream.errors import DownloadError
from slipstream.fetch.sources import Progress

# Left free on the disk beyond the bytes a download needs.
DISK_MARGIN_BYTES = 16 << 20
_LOCK_POLL_S = 0.1


class PartialState(msgspec.Struct, frozen=True):
    """Where the bytes of a partial file came from; a changed value restarts the download."""

    source: str
    validator: str | None = None


class Partial:
    """The bytes received so far of one file, in `<final>.partial/` beside the final name."""

    def __init__(self, final: Path) -> None:
        self.final = final
        self.directory = final.with_name(final.name + ".partial")
        self.data = self.directory / "data"
        self._state = self.directory / "state.json"

    def begin(self, source: str) -> int:
        """Prepare to receive from `source`; returns how many bytes of it are already here."""
        state = self.state()
        if state is None or state.source != source:
            self.clear()
            self.write_state(PartialState(source))
        return self.size()

    def state(self) -> PartialState | None:
        try:
            return msgspec.json.decode(self._state.read_bytes(), type=PartialState)
        except (OSError, msgspec.DecodeError):
            return None

    def write_state(self, state: PartialState) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        write_atomically(self._state, msgspec.json.encode(state))

    def size(self) -> int:
        return self.data.stat().st_size if self.data.exists() else 0

    def truncate(self, size_bytes: int) -> None:
        with self.data.open("ab") as stream:
            stream.truncate(size_bytes)

    def append(self) -> BinaryIO:
        return self.data.open("ab")

    def commit(self) -> None:
        """Give the verified bytes their final name, atomically."""
        with self.data.open("rb+") as stream:
            os.fsync(stream.fileno())
        self.data.replace(self.final)
        self.clear()

    def clear(self) -> None:
        if self.directory.exists():
            shutil.rmtree(self.directory)


def require_disk_space(directory: Path, needed_bytes: int) -> None:
    """Raise DownloadError unless `needed_bytes` and a margin fit on the disk of `directory`."""
    free = shutil.disk_usage(directory).free
    if free < needed_bytes + DISK_MARGIN_BYTES:
        raise DiskSpaceError(
            f"{needed_bytes + DISK_MARGIN_BYTES:,} free bytes for the download",
            f"{free:,} free bytes at {directory}",
            "Free some space, or set SLIPSTREAM_CACHE to a directory on a larger disk.",
        )


class DiskSpaceError(DownloadError):
    """The disk is too small: no other source can help."""


@contextlib.contextmanager
def exclusive(lock: Path, progress: Progress | None) -> Iterator[None]:
    """Hold an advisory lock; a dead owner's lock is released by the operating system."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("ab") as stream:
        while not _try_lock(stream):
            if progress:
                progress(0, 0, "waiting for another pull of this file")
            time.sleep(_LOCK_POLL_S)
        yield


def _try_lock(stream: BinaryIO) -> bool:
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
