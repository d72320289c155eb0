"""The application around endpoints: routes by module, guards in their order, heads of requests."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from asgi import ask
from slipstream.errors import OperationError
from slipstream.server import http_protocol
from slipstream.server.app import guarded
from slipstream.server.auth import Keys
from slipstream.server.http_protocol import MOST_HEAD_BYTES, TimedProtocol
from slipstream.server.lifecycle import listening, url_of
from slipstream.server_options import ServerOptions

KEY = "a-key-of-twenty-four-chars"
PAGE = "http://localhost:3000"


async def fine(scope: Scope, receive: Receive, send: Send) -> None:
    await PlainTextResponse("fine")(scope, receive, send)


def status(options: ServerOptions, path: str = "/x", keys: Keys | None = None, **more: Any) -> int:
    return ask(guarded(fine, options, keys or Keys()), path, **more).status


def test_a_private_server_knows_its_names() -> None:
    private = ServerOptions()
    assert status(private, headers=[("host", "127.0.0.1:8080")]) == 200
    assert status(private, headers=[("host", "evil.example")]) == 403
    public = ServerOptions(host="0.0.0.0", allow_public=True)
    assert status(public, headers=[("host", "my.example")]) == 200
    with_key = [("host", "any.example"), ("x-api-key", KEY)]
    assert status(private, keys=Keys([KEY]), headers=with_key) == 200


def test_pages_need_to_be_allowed() -> None:
    headers = [("host", "localhost:8080"), ("origin", PAGE)]
    assert status(ServerOptions(), headers=headers) == 403
    reply = ask(guarded(fine, ServerOptions(cors_origins=(PAGE,)), Keys()), "/x", headers=headers)
    assert reply.status == 200
    assert reply.headers["access-control-allow-origin"] == PAGE


def test_a_browsers_question_needs_no_key() -> None:
    options = ServerOptions(cors_origins=(PAGE,))
    asked = [
        ("host", "localhost:8080"),
        ("origin", PAGE),
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "authorization"),
    ]
    reply = ask(guarded(fine, options, Keys([KEY])), "/x", method="OPTIONS", headers=asked)
    assert reply.status == 200
    assert reply.headers["access-control-allow-origin"] == PAGE
    assert status(options, keys=Keys([KEY]), headers=asked[:2]) == 401


def test_limits_come_first() -> None:
    options = ServerOptions(body_limit_bytes=1024)
    long = [("content-length", "2000")]
    assert status(options, keys=Keys([KEY]), headers=long, method="POST") == 413


def test_an_open_path_needs_no_key() -> None:
    guard = guarded(fine, ServerOptions(), Keys([KEY]), ["/page.js"])
    assert ask(guard, "/page.js").status == 200
    assert ask(guard, "/other.js").status == 401


def test_an_address_that_cannot_be_had() -> None:
    with listening(ServerOptions(port=0)) as bound:
        port = bound.getsockname()[1]
        assert url_of(bound) == f"http://127.0.0.1:{port}"
        bound.listen()
        with pytest.raises(OperationError, match=f"port {port}"):
            listening(ServerOptions(port=port))


Address = tuple[str, int]


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[Address]:
    """A server whose heads must arrive within a third of a second."""
    monkeypatch.setattr(http_protocol, "HEAD_S", 0.3)
    with Running(fine) as found:
        yield found


class Running:
    """A uvicorn server on a thread."""

    def __init__(self, application: ASGIApp) -> None:
        self._bound = listening(ServerOptions(port=0))
        config = uvicorn.Config(
            application, http=TimedProtocol, ws="none", lifespan="off", log_config=None
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._server.serve([self._bound]))
        )

    def __enter__(self) -> Address:
        self._thread.start()
        while not self._server.started:
            time.sleep(0.01)
        host, port = self._bound.getsockname()
        return host, port

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join()


def read(connection: socket.socket) -> bytes:
    data = b""
    while part := connection.recv(1 << 16):
        data += part
    return data


def connected(address: Address) -> socket.socket:
    return socket.create_connection(address, timeout=60)


def test_a_connection_without_a_request_is_closed(address: Address) -> None:
    with connected(address) as connection:
        assert read(connection) == b""


def test_a_head_that_does_not_end_is_closed(address: Address) -> None:
    with connected(address) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n")
        assert read(connection) == b""


def test_a_head_that_is_too_long_is_refused(
    address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_protocol, "HEAD_S", 60.0)  # its length alone is at fault
    with connected(address) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nX: ")
        taken = 0
        with contextlib.suppress(ConnectionError):  # it need not take them all
            while taken < 2 * MOST_HEAD_BYTES:
                taken += connection.send(b"a" * (MOST_HEAD_BYTES // 4))
        assert answered_or_closed(connection)


def answered_or_closed(connection: socket.socket) -> bool:
    """Whether the server refuses what it got, or takes no more of it.

    A reply may be lost where the client was still sending: the close then resets the connection.
    """
    try:
        return read(connection).startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 431 "))
    except ConnectionError:
        return True


def test_a_kept_connection_is_not_timed_between_requests(address: Address) -> None:
    request = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
    with connected(address) as connection:
        for _ in range(2):
            connection.sendall(request)
            answer = b""
            while not answer.endswith(b"fine"):
                answer += connection.recv(1 << 16)
            assert answer.startswith(b"HTTP/1.1 200 ")
            time.sleep(0.5)
        connection.sendall(request[:9])
        assert read(connection) == b""


def test_an_answer_that_takes_long_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "HEAD_S", 0.2)

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.sleep(0.6)
        await PlainTextResponse("slow")(scope, receive, send)

    with Running(slow) as address, connected(address) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert read(connection).endswith(b"slow")
