"""One HTTP/1.1 request on a connection of its own, its reply kept as it came: bytes, and when.

While a reply comes nothing of it is read but its head and its end, so that the clock is the
server's. ``event_stream`` makes sense of it afterwards.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from slipstream.errors import OptionError
from slipstream.lab.contract.address import Address

MOST_BYTES: Final = 64 << 20
MOST_HEAD_BYTES: Final = 1 << 16
MOST_PARTS: Final = 1 << 19
"""Pieces of a reply: each costs some 150 bytes, however short it is."""
NO_LIMIT: Final = 1 << 62
_END: Final = b"\r\n0\r\n\r\n"
_EVENT: Final = b"\ndata:"  # no text within JSON holds a line end
_MOST_DIGITS: Final = 15

Answered = TypeVar("Answered")


@dataclass(frozen=True)
class RawReply:
    """What came.

    Attributes:
        sent_s: clock reading when the request was handed to the system.
        parts: (clock reading, bytes) as the system gave them.
        ended: ``whole``, ``closed``, ``timeout``, ``too long``, or ``no connection: ..``.
        ended_s: clock reading.
    """

    sent_s: float
    parts: tuple[tuple[float, bytes], ...]
    ended: str
    ended_s: float


def request_bytes(
    address: Address, path: str, body: Mapping[str, Any] | None, headers: Mapping[str, str]
) -> bytes:
    """A whole request: GET where there is no body. It asks for the connection to be closed.

    Raises:
        OptionError: a header with a line end in it.
    """
    data = b"" if body is None else json.dumps(body).encode()
    host = f"[{address.host}]" if ":" in address.host else address.host
    given = {"Host": f"{host}:{address.port}", "Connection": "close", "Accept": "*/*"}
    if body is not None:
        given |= {"Content-Type": "application/json", "Content-Length": str(len(data))}
    given |= headers
    method = "GET" if body is None else "POST"
    lines = [f"{method} {address.prefix}{path} HTTP/1.1", *(f"{k}: {v}" for k, v in given.items())]
    if any("\r" in line or "\n" in line for line in lines):
        raise OptionError("headers of one line each", "a line end in one", "Check the key file.")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace") + data


def length_of(value: bytes) -> int | None:
    """A length in digits of ASCII; None = none, or one that no reply has."""
    digits = value.strip()
    return int(digits) if digits.isdigit() and len(digits) <= _MOST_DIGITS else None


class _Recorder(asyncio.Protocol):
    """
    Args:
        most_events: of a stream; more of them are one without end.
    """

    def __init__(self, most_bytes: int, most_events: int) -> None:
        self.parts: list[tuple[float, bytes]] = []
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._most_bytes = most_bytes
        self._left_events = most_events
        self._bytes = 0
        self._tail = b""
        self._head = b""
        self._body_end: int | None = None
        self._headed = False
        self._chunked = False

    def data_received(self, data: bytes) -> None:
        self.parts.append((time.perf_counter(), data))
        self._bytes += len(data)
        self._tail = (self._tail + data[-len(_END) :])[-len(_END) :]
        self._left_events -= data.count(_EVENT)
        if not self._headed:
            self._read_head(data)
        if self._bytes > self._most_bytes or self._left_events < 0 or len(self.parts) > MOST_PARTS:
            self._end("too long")
        elif self._is_whole():
            self._end("whole")

    def _is_whole(self) -> bool:
        if self._body_end is not None:
            return self._bytes >= self._body_end
        return self._chunked and self._tail == _END

    def _read_head(self, data: bytes) -> None:
        self._head += data
        head, found, _ = self._head.partition(b"\r\n\r\n")
        if not found:
            if len(self._head) > MOST_HEAD_BYTES:
                self._end("too long")
            return
        self._headed = True
        for line in head.split(b"\r\n")[1:]:
            name, _, value = line.lower().partition(b":")
            if name.strip() == b"transfer-encoding":
                self._chunked = b"chunked" in value
            elif name.strip() == b"content-length" and (size := length_of(value)) is not None:
                self._body_end = len(head) + 4 + size
        self._head = b""

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._end("closed")

    def _end(self, how: str) -> None:
        if not self.ended.done():
            self.ended.set_result(how)


async def exchange(
    address: Address,
    request: bytes,
    *,
    timeout_s: float,
    most_bytes: int = MOST_BYTES,
    most_events: int = NO_LIMIT,
) -> RawReply:
    """Send a request and keep what comes until the reply is whole, or a limit is met.

    The connection is opened before the clock starts. Nothing is raised for what a server does.
    """
    loop = asyncio.get_running_loop()
    begun = time.perf_counter()
    try:
        async with asyncio.timeout(timeout_s):
            transport, recorder = await loop.create_connection(
                lambda: _Recorder(most_bytes, most_events),
                address.host,
                address.port,
                ssl=address.tls or None,
            )
    except (OSError, TimeoutError) as problem:
        why = "timeout" if isinstance(problem, TimeoutError) else f"no connection: {problem}"
        return RawReply(begun, (), why, time.perf_counter())
    sent_s = time.perf_counter()
    try:
        transport.write(request)
        async with asyncio.timeout(max(timeout_s - (sent_s - begun), 0.001)):
            ended = await asyncio.shield(recorder.ended)
    except TimeoutError:
        ended = "timeout"
    finally:
        transport.abort()
    return RawReply(sent_s, tuple(recorder.parts), ended, time.perf_counter())


def waited(make: Callable[[], Coroutine[Any, Any, Answered]]) -> Answered:
    """The result of a coroutine, for code outside an event loop, or inside one that may wait."""
    found: list[Answered] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            found.append(asyncio.run(make()))
        except BaseException as problem:
            failed.append(problem)

    thread = threading.Thread(target=run, name="lab exchange", daemon=True)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return found[0]
