"""Lookup files of ngram-cache on disk: read with a bound, replaced in one step, under a lock."""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from slipstream.drafters.lookup_format import decode, encode, refuse
from slipstream.drafters.lookup_rows import Rows, merged, rows_of
from slipstream.drafters.ngram_counts import NgramCounts
from slipstream.errors import InputError, OperationError

STATIC_BYTES = 256 << 20
UPDATED_PAIRS = 1 << 19  # of n-gram and follower in a file that is updated
UPDATED_BYTES = 28 * UPDATED_PAIRS  # a pair takes at most a record of its own, 7 int32
LOCK_WAIT_S = 1.0


def read(path: Path, vocabulary: int, most_bytes: int = STATIC_BYTES) -> Rows:
    """
    Args:
        vocabulary: token ids are below it.
        most_bytes: a larger file is refused unread.

    Raises:
        InputError: the file is missing, too large, malformed, or of another vocabulary.
    """
    try:
        content = _content(path, most_bytes)
    except (OSError, ValueError) as error:
        raise InputError(
            f"a readable lookup file `{path}`", _reason(error), "Name another file."
        ) from error
    return decode(content, vocabulary, str(path))


def _content(path: Path, most_bytes: int) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe must not wait for a writer
    try:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            refuse(str(path), "a run of records", "no regular file")
        if facts.st_size > most_bytes:
            refuse(str(path), f"at most {most_bytes} bytes", f"{facts.st_size}")
        with open(descriptor, "rb", closefd=False) as stream:
            return stream.read(facts.st_size)
    finally:
        os.close(descriptor)


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def read_or_empty(path: Path, vocabulary: int) -> Rows:
    """A file that is updated: a missing one is empty; errors as ``read``."""
    if not path.exists():
        return rows_of(NgramCounts())
    return read(path, vocabulary, UPDATED_BYTES)


def require_updatable(path: Path) -> None:
    """
    Raises:
        InputError: the file is read-only, or its directory is missing or may not be written.
    """
    try:
        directory = path.resolve().parent
        possible = directory.is_dir() and os.access(directory, os.W_OK | os.X_OK)
    except (OSError, RuntimeError, ValueError):
        possible = False
    if not possible:
        raise InputError(
            "a directory that can be written, for a lookup file that is updated",
            f"`{path.parent}`",
            "Make the directory, or name another file.",
        )
    if path.is_file() and not (path.stat().st_mode & 0o222 and os.access(path, os.W_OK)):
        raise InputError(
            "a lookup file that may be written, since it is updated",
            f"`{path}`, which is read-only",
            "Allow writing, or name a file that is only read (`ngram_cache_static`).",
        )


def update(path: Path, vocabulary: int, learned: NgramCounts) -> None:
    """Add counts to a file. Those who update it at the same time, also other processes, take turns.

    Raises:
        InputError: the file has become malformed; it is left as it is.
        OperationError: it could not be replaced.
    """
    path = path.resolve()
    try:
        with _locked(path.parent):
            rows = merged(read_or_empty(path, vocabulary), rows_of(learned), UPDATED_PAIRS)
            _replace(path, encode(rows))
    except OSError as error:
        raise OperationError(
            f"to update the lookup file `{path}`",
            _reason(error),
            "What this request taught was not saved.",
        ) from error


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """A directory's lock, which leaves no file behind and ends with the process."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        deadline = time.monotonic() + LOCK_WAIT_S
        while not _try_lock(descriptor):
            if time.monotonic() > deadline:
                raise TimeoutError(f"another program has locked it for {LOCK_WAIT_S} s")
            time.sleep(0.005)
        yield
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _replace(path: Path, content: bytes) -> None:
    """A file that is new is its owner's alone, for it holds pieces of texts."""
    temporary = path.with_name(f"{path.name}.new")
    temporary.unlink(missing_ok=True)
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o600
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "wb") as stream:
        os.fchmod(descriptor, mode)
        stream.write(content)
        stream.flush()
        os.fsync(descriptor)
    temporary.replace(path)
