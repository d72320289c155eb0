"""Traces on disk: whole lines at every moment, and read as a stream."""

from __future__ import annotations

import os
import stat
import weakref
from collections.abc import Iterator
from pathlib import Path

from msgspec import UNSET

from slipstream.drafters.base import GRAMMAR
from slipstream.engine.trace_format import (
    MOST_LINE_BYTES,
    VERSION,
    EngineRecord,
    Header,
    Record,
    RoundRecord,
    decode,
    encode,
)
from slipstream.errors import OperationError, OptionError, TraceError

MOST_KEPT_BYTES = 128 << 20  # of lines that a reader keeps: all but rounds
_BEGINNING = b'{"kind":"header"'


class TraceFile:
    """Writes each record as one line with one call, so that a killed run leaves whole lines.

    A file that holds an earlier trace is replaced at the first record; any other is left alone.

    Args:
        path: of the file; a device or a pipe will do.

    Raises:
        OptionError: the file holds something else than a trace.
        OperationError: it cannot be written.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)
        try:
            _refuse_other_content(self.path)
            if self.path.exists() and not self.path.is_file():
                flags = os.O_WRONLY
            self._descriptor = os.open(self.path, flags, 0o666)
        except OSError as problem:
            raise self._unwritable(problem) from None
        self._regular = stat.S_ISREG(os.fstat(self._descriptor).st_mode)
        self._size = 0
        self._begun = False
        weakref.finalize(self, os.close, self._descriptor)

    def write(self, record: Record) -> None:
        """
        Raises:
            OperationError: the disk is full, say; the file ends with the last whole line.
        """
        line = encode(record)
        try:
            if self._regular and not self._begun:
                os.ftruncate(self._descriptor, 0)
            self._begun = True
            left = memoryview(line)
            while left:
                left = left[os.write(self._descriptor, left) :]
        except OSError as problem:
            if self._regular:
                os.ftruncate(self._descriptor, self._size)
            raise self._unwritable(problem) from None
        self._size += len(line)

    def _unwritable(self, problem: OSError) -> OperationError:
        return OperationError(
            "a trace file that can be written",
            f"{self.path}: {problem.strerror or problem}",
            "Free space, or trace to another file.",
        )


def _refuse_other_content(path: Path) -> None:
    if not path.is_file():
        return
    with path.open("rb") as stream:
        found = stream.read(len(_BEGINNING))
    if found and found != _BEGINNING:
        raise OptionError(
            "`--trace` to name a new file or an earlier trace",
            f"{path}, which holds something else",
            "Name another file.",
        )


def read_trace(path: str | Path) -> Iterator[Record]:
    """The records of a file, one at a time; the first is its header.

    Raises:
        TraceError: the file cannot be read, a line is malformed, truncated or too long, or the
            order of records is not that of a trace.
    """
    try:
        with Path(path).open("rb") as stream:
            yield from _in_order(iter(lambda: stream.readline(MOST_LINE_BYTES + 1), b""))
    except OSError as problem:
        found = f"{path}: {problem.strerror or problem}"
        raise TraceError("a readable trace file", found, "Check the path.") from None


def _in_order(lines: Iterator[bytes]) -> Iterator[Record]:
    engines: dict[int, frozenset[str]] = {}
    number = kept = 0
    for number, line in enumerate(lines, 1):
        if len(line) > MOST_LINE_BYTES:
            raise TraceError(
                f"lines of at most {MOST_LINE_BYTES} bytes",
                f"line {number} is longer",
                "This is no trace of Slipstream.",
            )
        record = decode(line, number)
        _check_place(record, number, engines)
        kept += 0 if isinstance(record, RoundRecord) else len(line)
        if kept > MOST_KEPT_BYTES:
            raise TraceError(
                f"at most {MOST_KEPT_BYTES} bytes of summaries", "more", "Trace fewer requests."
            )
        yield record
    if number == 0:
        raise TraceError("a trace", "an empty file", "Trace again.")


def _check_place(record: Record, number: int, engines: dict[int, frozenset[str]]) -> None:
    """
    Args:
        engines: drafters of those introduced so far; the record's own is added.
    """
    if isinstance(record, Header) != (number == 1):
        found = "none" if number == 1 else f"another at line {number}"
        raise TraceError("one header, in the first line", found, "Trace again.")
    if isinstance(record, Header):
        if record.version != VERSION:
            raise TraceError(
                f"format {VERSION} of a trace",
                f"format {record.version}",
                "Read it with the version of Slipstream that wrote it.",
            )
    elif isinstance(record, EngineRecord):
        engines[record.engine] = frozenset(record.drafters)
    elif record.engine not in engines:
        what = "a round" if isinstance(record, RoundRecord) else "an end"
        raise TraceError(
            "engines introduced before their rounds",
            f"line {number}: {what} of engine {record.engine}",
            "Trace again.",
        )
    elif isinstance(record, RoundRecord):
        chosen = () if record.drafters is UNSET else record.drafters
        names = {asked.method for asked in record.asked}.union(record.methods, chosen)
        unknown = sorted(names - engines[record.engine] - {GRAMMAR})
        if unknown:
            raise TraceError(
                "rounds of the drafters that their engine has",
                f"line {number}: {unknown[0]!r:.80}",
                "Trace again.",
            )
