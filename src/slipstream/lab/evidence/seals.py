"""Seals of blocks: what was changed in or taken from the records of a run, told from them alone.

Each block record holds the number and a digest of its requests' lines, and a seal over itself and
every line since the block record before it. Lines are taken by their bytes, so a later version of
the lab that knows more fields reads the same seals. A line that stands twice counts once. Whoever
writes all seals anew is not found out: they show accidents and edits, not forgery.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from slipstream.lab.contract.records import (
    BlockRecord,
    Line,
    ObservedRecord,
    RequestRecord,
    RunRecord,
)

Key = tuple[int, int]
"""(block, attempt)."""


@dataclass(frozen=True)
class Kept:
    """A line of the file and the SHA-256 of its bytes, without newline and own seal."""

    line: Line
    digest: bytes


def encoded(line: Line) -> bytes:
    """The bytes of a line in the file."""
    return msgspec.json.encode(line, order="deterministic") + b"\n"


def kept(line: Line, raw: bytes) -> Kept:
    own = line.seal.encode() if isinstance(line, BlockRecord) else b""
    content = raw.removesuffix(b"\n")
    return Kept(line, hashlib.sha256(content.replace(own, b"") if own else content).digest())


def sealed(before: Iterable[Kept], record: BlockRecord) -> BlockRecord:
    """A block record with its seal.

    Args:
        before: every line of the file so far.
    """
    chain = _Chain()
    own: dict[int, bytes] = {}
    for line in before:
        chain.add(line)
        if isinstance(line.line, RequestRecord) and _key(line.line) == _key(record):
            own[line.line.index] = line.digest
    record = msgspec.structs.replace(
        record, requests=len(own), requests_sha256=_of_requests(own), seal=""
    )
    return msgspec.structs.replace(record, seal=chain.seal(kept(record, encoded(record))))


def broken(lines: Sequence[Kept]) -> dict[Key, str]:
    """(block, attempt) whose records are not those that were written -> what is wrong with them.

    Blocks from before there were seals, and from before a run of such was gone on with, are whole
    as far as anyone can tell.
    """
    sealing = any(isinstance(x.line, RunRecord) for x in lines)
    requests: dict[Key, dict[int, bytes]] = defaultdict(dict)
    for x in lines:
        if isinstance(x.line, RequestRecord):
            requests[_key(x.line)][x.line.index] = x.digest
    found: dict[Key, str] = {}
    chain = _Chain()
    for x in lines:
        if isinstance(x.line, BlockRecord) and not chain.knows(x):
            key = _key(x.line)
            sealing = sealing or bool(x.line.seal)
            if sealing and (why := _fault(x, requests[key], chain)):
                found.setdefault(key, why)
        chain.add(x)
    return found


def without(lines: Iterable[Line], gone: Mapping[Key, str]) -> list[Line]:
    """The records but those of these blocks, their requests and what they observed of them."""
    placed = (RequestRecord, BlockRecord, ObservedRecord)
    return [x for x in lines if not (isinstance(x, placed) and (x.block, x.attempt) in gone)]


class _Chain:
    """What the next seal is over."""

    def __init__(self) -> None:
        self._seen: set[bytes] = set()
        self._before = b""
        self._since: list[bytes] = []

    def knows(self, line: Kept) -> bool:
        return line.digest in self._seen

    def add(self, line: Kept) -> None:
        if self.knows(line):
            return
        self._seen.add(line.digest)
        if isinstance(line.line, BlockRecord) and line.line.seal:
            self._before, self._since = line.line.seal.encode(), []
        else:
            self._since.append(line.digest)

    def seal(self, record: Kept) -> str:
        parts = (self._before, *self._since, record.digest)
        return hashlib.sha256(b"".join(parts)).hexdigest()


def _fault(block: Kept, requests: Mapping[int, bytes], chain: _Chain) -> str:
    record = block.line
    assert isinstance(record, BlockRecord)
    if not record.seal or record.requests is None:
        return "its record has no seal"
    if len(requests) < record.requests:
        return f"{record.requests - len(requests)} of its {record.requests} requests are missing"
    if len(requests) > record.requests:
        return f"it has {len(requests)} requests and had {record.requests}"
    if _of_requests(requests) != record.requests_sha256:
        return "its requests were changed"
    if chain.seal(block) != record.seal:
        return "its record was changed, or something before it was taken out or changed"
    return ""


def _of_requests(digests: Mapping[int, bytes]) -> str:
    ordered = (digest for _, digest in sorted(digests.items()))
    return hashlib.sha256(b"".join(ordered)).hexdigest()


def _key(record: RequestRecord | BlockRecord) -> Key:
    return record.block, record.attempt
