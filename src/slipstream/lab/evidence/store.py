"""The records of a run: append-only JSON lines, synced one by one, whole after any kill.

A record is in the file or it is not: a line is written with its newline and synced before the run
goes on, and a last line without a newline is cut off when the file is opened again. Requests of a
block that has no block record belong to an attempt that was aborted; they stay in the file and
``counted`` leaves them out.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final

import msgspec

from slipstream.errors import OperationError, RequestError
from slipstream.lab.contract.records import (
    BlockRecord,
    FindingRecord,
    Line,
    ObservedRecord,
    RequestRecord,
)
from slipstream.lab.evidence.seals import Kept, encoded, kept, sealed

RECORDS: Final = "records.jsonl"
MOST_LINE_BYTES: Final = 16 << 20

_decoder: Final = msgspec.json.Decoder(Line)


def read_records(path: Path) -> list[Line]:
    """Every whole line of a records file; a torn last one is left out. No file is no record.

    Raises:
        RequestError: a line is no record, has a value that cannot be, or is longer than 16 MiB.
    """
    return [x.line for x in read_kept(path)]


def read_kept(path: Path) -> list[Kept]:
    """As ``read_records``, each with the digest of its bytes."""
    return _read(path)[0]


def _read(path: Path) -> tuple[list[Kept], int]:
    """The records, and the bytes up to the end of the last whole line."""
    lines: list[Kept] = []
    whole = 0
    if not path.exists():
        return lines, whole
    with path.open("rb") as file:
        while raw := file.readline(MOST_LINE_BYTES + 1):
            if not raw.endswith(b"\n"):
                if len(raw) > MOST_LINE_BYTES:
                    raise _bad(path, len(lines) + 1, f"a line of more than {MOST_LINE_BYTES} bytes")
                break
            lines.append(kept(_decoded(path, len(lines) + 1, raw), raw))
            whole += len(raw)
    return lines, whole


def _decoded(path: Path, number: int, raw: bytes) -> Line:
    try:
        return _decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise _bad(path, number, str(problem)) from None


def _require_readable(raw: bytes) -> None:
    """A value that could not be read back would spoil the whole file."""
    try:
        _decoder.decode(raw)
    except msgspec.DecodeError as problem:
        remedy = "The program under measurement told it; leave its condition out."
        raise OperationError("a record with values that can be", str(problem), remedy) from None


def _bad(path: Path, number: int, found: str) -> RequestError:
    return RequestError(
        f"a record of the lab in line {number} of {path.name}",
        found,
        "The file was changed by something else; restore it, or begin a run in a new folder.",
    )


def blocks_of(lines: Iterable[Line]) -> dict[tuple[int, int], BlockRecord]:
    """(block, attempt) -> its record."""
    return {(x.block, x.attempt): x for x in lines if isinstance(x, BlockRecord)}


def counted(lines: Sequence[Line]) -> list[Line]:
    """Without the requests of attempts that were aborted (no block record)."""
    ended = blocks_of(lines)
    return [x for x in lines if not isinstance(x, RequestRecord) or (x.block, x.attempt) in ended]


def measured(lines: Sequence[Line]) -> list[RequestRecord]:
    """Requests that figures are made of: of attempts that count, without warm-ups and probes."""
    ended = blocks_of(lines)
    return [
        x
        for x in lines
        if isinstance(x, RequestRecord)
        and not x.warm_up
        and (block := ended.get((x.block, x.attempt))) is not None
        and block.outcome != "repeated"
    ]


def next_attempt(lines: Iterable[Line], block: int) -> int:
    """One more than any attempt of the block that left a line, aborted ones included."""
    seen = (
        x.attempt for x in lines if isinstance(x, RequestRecord | BlockRecord) and x.block == block
    )
    return 1 + max(seen, default=0)


class Store:
    """The open records file of one run; a second process that opens it is refused.

    Attributes:
        lines: every record of the file, in its order.
        cut_bytes: of a torn last line, cut off at opening.

    Raises:
        OperationError: another process has it open, or it cannot be written.
        RequestError: a line is no record.
    """

    def __init__(self, folder: Path, *, sync: Callable[[int], object] = os.fsync) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / RECORDS
        self._sync = sync
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError as problem:
            raise OperationError(f"to write `{path}`", str(problem), "Check the folder.") from None
        try:
            _lock(self._file, path)
            self._kept, whole = _read(path)
            self.lines = [x.line for x in self._kept]
            self.cut_bytes = os.fstat(self._file).st_size - whole
            if self.cut_bytes:
                os.ftruncate(self._file, whole)
            self._sync(self._file)
            _sync_folder(folder, sync)
        except BaseException:
            os.close(self._file)
            raise

    def append(self, line: Line) -> None:
        """Write one record and wait until it is on the disk.

        Raises:
            OperationError: the disk is full, or the line is longer than 16 MiB.
        """
        raw = encoded(line)
        if len(raw) > MOST_LINE_BYTES:
            found = f"one of {len(raw)} bytes"
            raise OperationError("a record of at most 16 MiB", found, "Ask for fewer tokens.")
        _require_readable(raw)
        self._write(raw)
        self._kept.append(kept(line, raw))
        self.lines.append(line)

    def append_block(self, record: BlockRecord) -> None:
        """Append the record that ends a block, sealed; errors as ``append``."""
        self.append(sealed(self._kept, record))

    @property
    def kept(self) -> Sequence[Kept]:
        """``lines`` with the digests of their bytes."""
        return self._kept

    def append_new(self, line: FindingRecord | ObservedRecord) -> bool:
        """Append it unless the file says the same already; a resumed run doubles nothing."""
        known = self._says(line)
        if not known:
            self.append(line)
        return not known

    def _says(self, line: FindingRecord | ObservedRecord) -> bool:
        """Whether a record of the file is this one, whenever it was made."""
        if isinstance(line, FindingRecord):
            return line in self.lines
        same = _without_time(line)
        found = (x for x in self.lines if isinstance(x, ObservedRecord))
        return any(_without_time(x) == same for x in found)

    def _write(self, raw: bytes) -> None:
        start = os.fstat(self._file).st_size
        try:
            rest = memoryview(raw)
            while rest:
                rest = rest[os.write(self._file, rest) :]
            self._sync(self._file)
        except OSError as problem:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, start)
            raise OperationError(
                f"room for a record in `{RECORDS}`", str(problem), "Free some disk, then resume."
            ) from None

    def close(self) -> None:
        """Let go of the file. Idempotent."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _without_time(line: ObservedRecord) -> ObservedRecord:
    return msgspec.structs.replace(line, at="")


def _lock(file: int, path: Path) -> None:
    """Hold the file until it is closed or the process ends, however it ends."""
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise OperationError(
            f"to be the only run in `{path.parent}`",
            "another one that writes its records",
            "Wait for it to end, or name another folder with --out.",
        ) from None


def _sync_folder(folder: Path, sync: Callable[[int], object]) -> None:
    """A new file's name is on the disk only when its folder is."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        sync(handle)
    finally:
        os.close(handle)
