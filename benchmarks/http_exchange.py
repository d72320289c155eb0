"""A small HTTP/1.1 client for load, fuzzing and timing: it sees every byte and when it came.

One connection per request. A reply is read as it comes, its framing checked; nothing is retried.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, NamedTuple

_MOST_LINE: Final = 1 << 20
_PART: Final = 1 << 16


class Address(NamedTuple):
    host: str
    port: int


class BrokenReplyError(RuntimeError):
    """What came is no HTTP reply, or only the beginning of one."""


@dataclass(frozen=True)
class Head:
    """Status and headers, whose names are in small letters."""

    status: int
    headers: Mapping[str, str]


@dataclass(frozen=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """
        Raises:
            BrokenReplyError: the body is no JSON.
        """
        try:
            return json.loads(self.body)
        except ValueError:
            raise BrokenReplyError(f"a body that is no JSON: {self.body[:200]!r}") from None


@dataclass(frozen=True)
class ServerEvent:
    """One server-sent event; ``name`` is empty where it has none."""

    name: str
    data: bytes


def request_bytes(
    method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
) -> bytes:
    """A whole request that asks for the connection to be closed after it."""
    given = {"Host": "localhost", "Connection": "close"}
    if method != "GET":
        given |= {"Content-Type": "application/json", "Content-Length": str(len(body))}
    given |= headers or {}
    lines = [f"{method} {path} HTTP/1.1", *(f"{k}: {v}" for k, v in given.items()), "", ""]
    return "\r\n".join(lines).encode() + body


def post_json(path: str, value: Any, headers: Mapping[str, str] | None = None) -> bytes:
    return request_bytes("POST", path, json.dumps(value).encode(), headers)


class Exchange:
    """One request on a connection of its own, and its reply."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._headers: Mapping[str, str] = {}

    @classmethod
    async def open(cls, address: Address, data: bytes = b"") -> Exchange:
        """
        Args:
            data: sent at once.
        """
        reader, writer = await asyncio.open_connection(*address, limit=_MOST_LINE)
        exchange = cls(reader, writer)
        await exchange.send(data)
        return exchange

    async def send(self, data: bytes) -> None:
        """What the server refuses to read is no error here: its reply tells why."""
        with contextlib.suppress(ConnectionError):
            self._writer.write(data)
            await self._writer.drain()

    def end(self) -> None:
        """Nothing more will be sent."""
        with contextlib.suppress(OSError):
            self._writer.write_eof()

    async def head(self) -> Head:
        """
        Raises:
            BrokenReplyError: the connection ended before it, or it is malformed.
        """
        words = (await self._line()).split(" ", 2)
        if len(words) < 2 or not words[0].startswith("HTTP/1.") or not words[1].isdigit():
            raise BrokenReplyError(f"no status line: {' '.join(words)[:200]!r}")
        headers: dict[str, str] = {}
        while line := await self._line():
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        self._headers = headers
        return Head(int(words[1]), headers)

    async def _line(self) -> str:
        try:
            line = await self._reader.readuntil(b"\r\n")
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError) as problem:
            raise BrokenReplyError(f"the reply ends within its head: {problem}") from None
        return line[:-2].decode("latin-1")

    async def parts(self) -> AsyncIterator[bytes]:
        """The body as it comes, its framing removed.

        Raises:
            BrokenReplyError: it ends early.
        """
        try:
            if "chunked" in self._headers.get("transfer-encoding", "").lower():
                async for part in self._chunks():
                    yield part
            elif "content-length" in self._headers:
                async for part in self._counted(int(self._headers["content-length"])):
                    yield part
            else:
                while part := await self._reader.read(_PART):
                    yield part
        except (asyncio.IncompleteReadError, ConnectionError) as problem:
            raise BrokenReplyError(f"the body ends early: {problem}") from None

    async def _chunks(self) -> AsyncIterator[bytes]:
        while True:
            line = (await self._line()).partition(";")[0].strip()
            if not line or line.strip("0123456789abcdefABCDEF"):
                raise BrokenReplyError(f"no size of a chunk: {line[:200]!r}")
            size = int(line, 16)
            data = await self._reader.readexactly(size + 2)
            if not data.endswith(b"\r\n"):
                raise BrokenReplyError("a chunk is longer than it says")
            if not size:
                return
            yield data[:-2]

    async def _counted(self, left: int) -> AsyncIterator[bytes]:
        while left:
            part = await self._reader.read(min(left, _PART))
            if not part:
                raise BrokenReplyError(f"{left} bytes of the body are missing")
            left -= len(part)
            yield part

    async def reply(self) -> Reply:
        """All of it."""
        head = await self.head()
        return Reply(head.status, head.headers, b"".join([part async for part in self.parts()]))

    async def rest(self, most: int) -> bytes:
        """Every byte until the connection ends, framing included; at most about ``most``."""
        found = b""
        with contextlib.suppress(ConnectionError):
            while len(found) < most and (part := await self._reader.read(_PART)):
                found += part
        return found

    async def events(self) -> AsyncIterator[ServerEvent]:
        """Server-sent events as they come, after ``head``.

        Raises:
            BrokenReplyError: the body ends early, or within an event.
        """
        held = b""
        async for part in self.parts():
            *whole, held = (held + part.replace(b"\r\n", b"\n")).split(b"\n\n")
            for message in whole:
                if event := _event(message):
                    yield event
        if held.strip():
            raise BrokenReplyError(f"the stream ends within an event: {held[:200]!r}")

    def abort(self) -> None:
        """Gone without a word."""
        self._writer.transport.abort()

    async def __aenter__(self) -> Exchange:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._writer.close()
        with contextlib.suppress(ConnectionError, TimeoutError):
            await self._writer.wait_closed()


def _event(message: bytes) -> ServerEvent | None:
    """None for a comment."""
    name, data = "", []
    for line in message.split(b"\n"):
        field, _, value = line.partition(b":")
        if field == b"data":
            data.append(value.removeprefix(b" "))
        elif field == b"event":
            name = value.removeprefix(b" ").decode("latin-1")
    return ServerEvent(name, b"\n".join(data)) if data else None


async def ask(address: Address, data: bytes, *, limit_s: float) -> Reply:
    """One request, its whole reply.

    Raises:
        TimeoutError: it took longer than ``limit_s``.
        BrokenReplyError: the reply is not whole.
        ConnectionError: nobody listens.
    """
    async with asyncio.timeout(limit_s):
        async with await Exchange.open(address, data) as exchange:
            return await exchange.reply()
