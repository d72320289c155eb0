"""The application around endpoints: routes by module, guards in their order, heads of requests."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import socket
import subprocess
import sys
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
from slipstream.server.http_protocol import (
    BODY_GRACE_S,
    MOST_HEAD_BYTES,
    TimedProtocol,
    protocol_for,
)
from slipstream.server.lifecycle import listening, url_of
from slipstream.server.limits import DRAIN_S
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

    def __init__(
        self,
        application: ASGIApp,
        protocol: type[TimedProtocol] = TimedProtocol,
        most: int | None = None,
    ) -> None:
        self._bound = listening(ServerOptions(port=0))
        if most is not None:
            self._bound.most = most
        config = uvicorn.Config(
            application, http=protocol, ws="none", lifespan="off", log_config=None
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


def test_a_head_that_trickles_is_closed_however_often_a_byte_comes(address: Address) -> None:
    with connected(address) as connection:
        begin = time.monotonic()
        with contextlib.suppress(ConnectionError):
            while time.monotonic() - begin < 30:
                connection.sendall(b"\r\n")  # lines that begin no request
                time.sleep(0.05)
        assert time.monotonic() - begin < 20


def test_empty_lines_do_not_keep_a_connection(address: Address) -> None:
    request = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
    with connected(address) as connection:
        connection.sendall(request)
        assert b"200 OK" in connection.recv(1 << 16)
        begin = time.monotonic()
        with contextlib.suppress(ConnectionError):
            while time.monotonic() - begin < 30:
                connection.sendall(b"\r\n")
                time.sleep(0.05)
        assert time.monotonic() - begin < 20


def test_a_body_that_trickles_is_closed_and_a_slow_one_passes() -> None:
    async def whole(scope: Scope, receive: Receive, send: Send) -> None:
        body = b""
        while (message := await receive()).get("more_body"):
            body += message["body"]
        await PlainTextResponse(body + message.get("body", b""))(scope, receive, send)

    head = b"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
    with Running(whole, protocol_for(0.7 - BODY_GRACE_S)) as address:
        with connected(address) as connection:
            connection.sendall(head % 5)
            for _ in range(5):
                time.sleep(0.05)
                connection.sendall(b"a")
            assert read(connection).endswith(b"aaaaa")
        with connected(address) as connection, contextlib.suppress(ConnectionError):
            connection.sendall(head % 1000)
            begin = time.monotonic()
            while time.monotonic() - begin < 30:
                connection.sendall(b"a")
                time.sleep(0.05)
            raise AssertionError("it goes on")


def test_a_head_that_is_too_long_is_told_so(
    address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_protocol, "HEAD_S", 60.0)
    with connected(address) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nX: " + b"a" * 200_000 + b"\r\n\r\n")
        assert refusal(connection) == (431, f"a head of at most {MOST_HEAD_BYTES} bytes")


@pytest.mark.parametrize(
    "said",
    [
        b"nonsense\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\nabc",
    ],
)
def test_what_is_no_http_is_refused_in_the_shape_of_errors(said: bytes) -> None:
    async def awaiting(scope: Scope, receive: Receive, send: Send) -> None:
        while (message := await receive())["type"] != "http.disconnect":
            assert message["type"] == "http.request"
        await fine(scope, receive, send)

    with Running(awaiting) as address, connected(address) as connection:
        connection.sendall(said)
        assert refusal(connection) == (400, "a request in HTTP/1.1")


def test_a_refused_client_is_not_told_to_go_on_with_its_body() -> None:
    """The handler asks for the body after the connection's sending side was closed."""
    told: list[str] = []

    async def awaiting(scope: Scope, receive: Receive, send: Send) -> None:
        told.append((await receive())["type"])
        await fine(scope, receive, send)

    with Running(awaiting) as address, connected(address) as connection:
        connection.sendall(
            b"POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
            b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"
        )
        assert refusal(connection) == (400, "a request in HTTP/1.1")
    assert told == ["http.disconnect"]


def test_nonsense_behind_a_request_does_not_break_into_its_reply() -> None:
    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.sleep(0.2)
        await PlainTextResponse("slow")(scope, receive, send)

    with Running(slow) as address, connected(address) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\nnonsense\r\n\r\n")
        assert read(connection).endswith(b"\r\n\r\nslow")


def refusal(connection: socket.socket) -> tuple[int, str]:
    """Status of an error in OpenAI's shape, and what was expected."""
    head, _, body = read(connection).partition(b"\r\n\r\n")
    assert b"content-type: application/json" in head
    message = json.loads(body)["error"]["message"]
    return int(head.split()[1]), message.removeprefix("expected ").partition(";")[0]


def test_a_body_announced_as_too_long_is_refused_at_once() -> None:
    """Not after the time in which what was sent anyway is read."""
    guard = guarded(fine, ServerOptions(body_limit_bytes=1024), Keys())
    head = b"POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999999999\r\n\r\n"
    with Running(guard) as address, connected(address) as connection:
        begin = time.monotonic()
        connection.sendall(head)
        answer = b""
        while not answer.endswith(b"}"):
            answer += connection.recv(1 << 16)
        assert answer.startswith(b"HTTP/1.1 413 ")
        assert time.monotonic() - begin < 0.8 * DRAIN_S


def test_connections_beyond_the_limit_are_told_so_and_room_is_found_again() -> None:
    with Running(fine, most=3) as address:
        held = [connected(address) for _ in range(3)]
        for connection in held:
            connection.sendall(b"GET / HTTP/1.1\r\nHost")
        for _ in range(40):
            with connected(address) as more:
                assert refusal(more) == (503, "at most 3 connections at a time")
        held.pop().close()
        begin = time.monotonic()
        while time.monotonic() - begin < 60:
            with connected(address) as again:
                again.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                if read(again).startswith(b"HTTP/1.1 200 "):
                    break
        else:
            raise AssertionError("no room")
        for connection in held:
            connection.close()


def test_refusals_are_logged_seldom(caplog: pytest.LogCaptureFixture) -> None:
    with Running(fine, most=0) as address:
        for _ in range(20):
            with connected(address) as connection:
                assert read(connection).startswith(b"HTTP/1.1 503 ")
    assert [record.getMessage() for record in caplog.records] == [
        "more than 0 connections at a time: refused"
    ]


def test_without_file_descriptors_clients_are_told_and_nothing_is_traced(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The limit is lowered under a running listener, whose own limit allows more."""
    with Running(fine) as address:
        clients = [socket.socket() for _ in range(8)]
        with no_descriptor_left():
            for client in clients:
                client.settimeout(60)
                client.connect(address)
                assert read(client).startswith(b"HTTP/1.1 503 ")
        with connected(address) as again:
            again.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert read(again).startswith(b"HTTP/1.1 200 ")
        for client in clients:
            client.close()
    assert len(caplog.records) == 1
    assert caplog.records[0].exc_info is None


@contextlib.contextmanager
def no_descriptor_left() -> Iterator[None]:
    """Within, this process can open nothing more."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = [os.dup(0)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (taken[0] + 64, before[1]))
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.dup(0))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        for descriptor in taken:
            os.close(descriptor)


def test_the_limit_of_descriptors_is_raised_and_leaves_some_for_the_rest() -> None:
    code = (
        "import resource; from slipstream.server.listener import most_connections;"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (100, {hard}));"
        "print(most_connections(), resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
    )
    for hard, wanted in ((100, "50 100"), (300, "236 300")):
        done = subprocess.run(
            [sys.executable, "-c", code.format(hard=hard)], capture_output=True, check=True
        )
        assert done.stdout.decode().strip() == wanted


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
