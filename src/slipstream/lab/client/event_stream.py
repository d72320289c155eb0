"""What a reply holds, read after it has come: head, body without its framing, events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgspec

from slipstream.lab.client.exchange import RawReply, length_of

MOST_EVENT_BYTES: Final = 8 << 20
MOST_EVENTS: Final = 1 << 18
"""Of a stream, comments and empty ones included."""
_SHOWN: Final = 200


class BrokenReplyError(ValueError):
    """What came is no HTTP reply, or only the beginning of one."""


def _start(found: bytes | str) -> str:
    return repr(found[:_SHOWN])[:_SHOWN]


class TimedBytes(NamedTuple):
    at_s: float
    data: bytes


@dataclass(frozen=True)
class Payload:
    """A reply without its framing.

    Attributes:
        status, headers: names of headers in small letters.
        parts: of the body, and when they came.
        whole: whether its end came.
    """

    status: int
    headers: Mapping[str, str]
    parts: tuple[TimedBytes, ...]
    whole: bool

    @property
    def body(self) -> bytes:
        return b"".join(part.data for part in self.parts)

    @property
    def text(self) -> str:
        return self.body.decode("utf-8", "replace")

    def json(self) -> Any:
        """The body's value; None where it is no JSON."""
        return json_of(self.body)


def json_of(data: bytes) -> Any:
    """A JSON value; None where it is none."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def payload_of(raw: RawReply) -> Payload:
    """
    Raises:
        BrokenReplyError: no head came, or it or the framing is malformed.
    """
    status, headers, rest = _head(raw)
    if "chunked" in headers.get("transfer-encoding", "").lower():
        chunks = _Chunks()
        parts = [TimedBytes(at_s, chunks.feed(data)) for at_s, data in rest]
        return Payload(status, headers, tuple(part for part in parts if part.data), chunks.ended)
    size = length_of(headers.get("content-length", "").encode())
    came = sum(len(part.data) for part in rest)
    whole = raw.ended in ("closed", "whole") if size is None else came >= size
    return Payload(status, headers, tuple(rest), whole)


def _head(raw: RawReply) -> tuple[int, dict[str, str], list[TimedBytes]]:
    held = b""
    for place, (at_s, data) in enumerate(raw.parts):
        held += data
        head, found, body = held.partition(b"\r\n\r\n")
        if not found:
            continue
        status, headers = _fields(head)
        later = [TimedBytes(*part) for part in raw.parts[place + 1 :]]
        return status, headers, [TimedBytes(at_s, body), *later] if body else later
    raise BrokenReplyError(f"no head of a reply: {_start(held)}")


def _fields(head: bytes) -> tuple[int, dict[str, str]]:
    first, *lines = head.decode("latin-1").split("\r\n")
    words = first.split(" ", 2)
    status = length_of(words[1].encode()) if len(words) > 1 else None
    if status is None or not words[0].startswith("HTTP/1."):
        raise BrokenReplyError(f"no status line: {_start(first)}")
    split = (line.partition(":") for line in lines)
    return status, {name.strip().lower(): value.strip() for name, _, value in split}


class _Chunks:
    """Removes the framing of a chunked body, however it was cut."""

    def __init__(self) -> None:
        self.ended = False
        self._held = bytearray()
        self._left = 0  # of the chunk that is open, its line end included

    def feed(self, data: bytes) -> bytes:
        self._held += data
        found = bytearray()
        while not self.ended and self._held:
            if self._left:
                found += self._taken()
            elif not self._opened():
                break
        return bytes(found)

    def _taken(self) -> bytes:
        count = min(self._left, len(self._held))
        inside = max(min(count, self._left - 2), 0)
        data = bytes(self._held[:inside])
        del self._held[:count]
        self._left -= count
        return data

    def _opened(self) -> bool:
        """Whether the size of the next chunk is there."""
        end = self._held.find(b"\r\n")
        if end < 0:
            if len(self._held) > _SHOWN:
                raise BrokenReplyError(f"no size of a chunk: {_start(bytes(self._held[:_SHOWN]))}")
            return False
        line = bytes(self._held[:end]).partition(b";")[0].strip()
        if not line or len(line) > 15 or line.strip(b"0123456789abcdefABCDEF"):
            raise BrokenReplyError(f"no size of a chunk: {_start(line)}")
        del self._held[: end + 2]
        size = int(line, 16)
        self._left = size + 2 if size else 0
        self.ended = not size
        return True


def events(parts: Iterable[TimedBytes]) -> Iterator[TimedBytes]:
    """Data of server-sent events, each when its last byte came; comments are left out.

    Raises:
        BrokenReplyError: one is longer than ``MOST_EVENT_BYTES``, they are more than
            ``MOST_EVENTS``, or the last is not complete.
    """
    messages = _Messages()
    left = MOST_EVENTS
    for at_s, data in parts:
        for message in messages.feed(data):
            left -= 1
            if left < 0:
                raise BrokenReplyError(f"more than {MOST_EVENTS} events")
            if found := _data(message):
                yield TimedBytes(at_s, found)
    if rest := messages.rest():
        raise BrokenReplyError(f"the stream ends within an event: {_start(rest)}")


class _Messages:
    """Splits a stream at its empty lines, however it was cut; each byte is looked at once."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._cr = b""  # half of a line end

    def feed(self, data: bytes) -> Iterator[bytes]:
        data = self._cr + data
        self._cr = b"\r" if data.endswith(b"\r") else b""
        begin, look = 0, max(len(self._held) - 1, 0)
        self._held += data.removesuffix(b"\r").replace(b"\r\n", b"\n")
        while (end := self._held.find(b"\n\n", look)) >= 0:
            yield bytes(self._held[begin:end])
            begin = look = end + 2
        del self._held[:begin]
        if len(self._held) > MOST_EVENT_BYTES:
            raise BrokenReplyError(f"an event of more than {MOST_EVENT_BYTES} bytes")

    def rest(self) -> bytes:
        """The beginning of what has no end; empty = nothing."""
        return bytes(self._held[:_SHOWN]) if self._held.strip() else b""


def _data(message: bytes) -> bytes:
    if len(message) > MOST_EVENT_BYTES:
        raise BrokenReplyError(f"an event of more than {MOST_EVENT_BYTES} bytes")
    lines = (line.partition(b":") for line in message.split(b"\n"))
    found = [value.removeprefix(b" ") for field, _, value in lines if field in (b"data", b"error")]
    return b"\n".join(found)
