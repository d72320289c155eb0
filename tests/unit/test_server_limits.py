"""Bodies are bounded in bytes and seconds; errors become replies, never tracebacks."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from asgi import Headers, Reply, ask, scope_of
from slipstream.errors import BackendError, DeadlineError, OptionError
from slipstream.server.app import _Routed
from slipstream.server.health import routes as health_routes
from slipstream.server.limits import Limits
from slipstream.server.refusals import BusyError

MOST = 100


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with the body."""
    body = await Request(scope, receive).body()
    await Response(body)(scope, receive, send)


def raising(problem: BaseException) -> ASGIApp:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        del scope, receive, send
        raise problem

    return app


def limited(app: ASGIApp = echo, body_s: float = 60.0) -> Limits:
    return Limits(app, body_bytes=MOST, body_s=body_s)


def posted(app: ASGIApp, body: list[bytes], headers: Headers = (), **keywords: Any) -> Reply:
    return ask(app, "/x", method="POST", body=body, headers=headers, **keywords)


@pytest.mark.parametrize("body", [[b""], [b"abc"], [b"a" * 60, b"", b"b" * 40]])
def test_a_body_within_the_limit_passes(body: list[bytes]) -> None:
    reply = posted(limited(), body)
    assert (reply.status, reply.body) == (200, b"".join(body))


@pytest.mark.parametrize("body", [[b"a" * 101], [b"a" * 60, b"b" * 41], [b"a"] * 101])
def test_a_longer_one_is_refused_as_it_comes(body: list[bytes]) -> None:
    reply = posted(limited(), body)
    assert reply.status == 413
    assert "at most 100 bytes" in reply.json["error"]["message"]
    assert "connection" not in reply.headers  # all of it was read


def test_one_that_says_its_length_is_refused_unread() -> None:
    reached = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        del scope, receive, send
        reached.append(1)

    reply = posted(limited(app), [b"a"] * 101, [("content-length", "101")])
    assert reply.status == 413
    assert not reached


def test_much_more_is_not_even_drained() -> None:
    reply = posted(limited(), [b"a" * MOST] * 5)
    assert reply.status == 413
    assert reply.headers["connection"] == "close"


@pytest.mark.parametrize("value", ["-1", "ten", "", "1e2", "٣", "9" * 20, "+5", " 5"])
def test_a_malformed_length_is_refused(value: str) -> None:
    scope = scope_of("/x", "POST")
    scope["headers"] = [(b"content-length", value.encode())]
    reply = Reply()

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    asyncio.run(limited()(scope, receive, reply.send))
    assert reply.status == 400
    assert "Content-Length" in reply.json["error"]["message"]


def test_two_lengths_that_differ_are_refused() -> None:
    headers = [("content-length", "1"), ("content-length", "2")]
    assert posted(limited(), [b"a"], headers).status == 400
    assert posted(limited(), [b"a"], [headers[0], headers[0]]).status == 200


def test_a_body_that_does_not_arrive_is_given_up() -> None:
    begin = time.monotonic()
    reply = posted(limited(body_s=0.1), [b"a"], endless=True)
    assert reply.status == 408
    assert reply.headers["connection"] == "close"
    assert time.monotonic() - begin < 30


def test_an_endpoint_that_answers_the_error_itself_closes_too() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await Request(scope, receive).body()
        except OptionError:
            raise AssertionError from None
        except Exception:
            await Response("mine", 413)(scope, receive, send)

    reply = posted(limited(app), [b"a" * MOST] * 5)
    assert (reply.status, reply.body) == (413, b"mine")
    assert reply.headers["connection"] == "close"


def test_reading_for_a_disconnect_afterwards_is_not_timed() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await Request(scope, receive).body()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(receive(), 0.3)
        await Response("fine")(scope, receive, send)

    assert posted(limited(app, body_s=0.1), [b"a"]).body == b"fine"


@pytest.mark.parametrize(
    ("problem", "status", "code"),
    [
        (OptionError("a", "b", "c"), 400, None),
        (DeadlineError("a", "b", "c"), 504, "deadline_exceeded"),
        (BusyError("a", "b", "c", 7), 429, "overloaded"),
        (HTTPException(404), 404, None),
        (HTTPException(405, headers={"Allow": "POST"}), 405, None),
    ],
)
def test_errors_have_their_status(problem: Exception, status: int, code: str | None) -> None:
    reply = ask(limited(raising(problem)), "/x")
    assert reply.status == status
    assert reply.json["error"]["code"] == code
    assert (reply.headers.get("retry-after") == "7") == (status == 429)


@pytest.mark.parametrize(
    "problem", [ZeroDivisionError("secret 7"), BackendError("it to run", "secret 7", "Do this.")]
)
def test_a_fault_says_nothing_of_the_inside(
    problem: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    reply = ask(limited(raising(problem)), "/v1/messages/x")
    assert reply.status == 500
    assert b"secret" not in reply.body
    assert b"Traceback" not in reply.body
    assert reply.json["type"] == "error"
    assert ("secret" in caplog.text) == isinstance(problem, ZeroDivisionError)


def test_a_failure_after_the_start_sends_no_second_reply() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        del scope, receive
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise ZeroDivisionError

    assert ask(limited(app), "/x").status == 200


def test_a_client_that_left_is_no_fault(caplog: pytest.LogCaptureFixture) -> None:
    assert ask(limited(raising(ClientDisconnect())), "/x").messages == []
    assert not caplog.text


def test_cancelling_passes() -> None:
    with pytest.raises(asyncio.CancelledError):
        ask(limited(raising(asyncio.CancelledError())), "/x")


def test_unknown_paths_and_methods() -> None:
    app = limited(_Routed([*health_routes(lambda: None)]))
    assert ask(app, "/health").json == {"status": "ok"}
    assert ask(app, "/v1/health").status == 200
    missing = ask(app, "/helth")
    assert missing.status == 404
    assert "/helth" in missing.json["error"]["message"]
    wrong = ask(app, "/health", method="POST")
    assert wrong.status == 405
    assert "GET" in wrong.json["error"]["message"]


def test_health_of_a_server_without_its_engine() -> None:
    gone = BackendError("the engine process to go on", "it ended", "Start it again.")
    reply = ask(limited(_Routed([*health_routes(lambda: gone)])), "/health")
    assert reply.status == 503
    assert reply.json["error"]["type"] == "unavailable_error"
