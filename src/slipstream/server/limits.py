"""Limits on what a request may send, and the last resort for errors: no traceback leaves."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from slipstream.errors import OperationError, RequestError, SlipstreamError
from slipstream.server.refusals import (
    CLOSE,
    BodyTooLargeError,
    MethodError,
    NotFoundError,
    SlowBodyError,
    refuse,
)

_LOG = logging.getLogger("slipstream")
MOST_DIGITS: Final = 19  # of a Content-Length
DRAIN_S: Final = 5.0


def internal_error() -> OperationError:
    """What a client is told of a fault in this program."""
    return OperationError(
        "the request to be handled",
        "a fault in this server, which its log describes",
        "Report it, with the request that caused it.",
    )


class Limits:
    """ASGI middleware, the outermost: bodies are bounded in bytes and in seconds.

    What a handler raises becomes a reply: a ``SlipstreamError`` its own, anything else a 500 that
    says nothing; the log has it.

    Args:
        app: what is guarded.
        body_bytes: most of one body.
        body_s: most seconds from the headers to the end of the body.
    """

    def __init__(self, app: ASGIApp, *, body_bytes: int, body_s: float) -> None:
        self._app = app
        self._body_bytes = body_bytes
        self._body_s = body_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body = _Body(receive, self._body_bytes, self._body_s)
        started = closing = False

        async def sending(message: Message) -> None:
            nonlocal started, closing
            if not started and body.unfit and not body.whole:
                closing = True
                message = {**message, "headers": [*message["headers"], CLOSE]}
            started = True
            if not closing or message["type"] != "http.response.body":
                await send(message)
                return
            is_last = not message.get("more_body", False)
            await send({**message, "more_body": True})
            if is_last:  # the reply is out; a client in the midst of sending gets to read it
                await body.drain()
                await send({"type": "http.response.body", "body": b"", "more_body": False})

        try:
            body.require_length(scope)
            await self._app(scope, body.receive, sending)
        except ClientDisconnect:
            return
        except Exception as problem:
            error = _told(scope, problem)
            if not started:
                await refuse(scope, sending, error)


def _told(scope: Scope, problem: Exception) -> SlipstreamError:
    """What the client learns of an exception; what is no fault of its is logged."""
    if isinstance(problem, SlipstreamError):
        return problem
    path, method = f"`{scope['path']:.200}`", f"{scope['method']}"
    if isinstance(problem, HTTPException) and problem.status_code == 404:
        return NotFoundError("a path that this server has", path, "See /openapi.json for them.")
    if isinstance(problem, HTTPException) and problem.status_code == 405:
        allowed = dict(problem.headers or {}).get("Allow", "another method")
        return MethodError(f"{allowed} for {path}", method, "Use that method.")
    _LOG.error("%s %s failed", method, path, exc_info=problem)
    return internal_error()


class _Body:
    """The messages of one request, counted and timed until its body ends.

    Attributes:
        unfit: whether its limits were passed.
        whole: whether it is over.
    """

    def __init__(self, receive: Receive, most_bytes: int, most_s: float) -> None:
        self._receive = receive
        self._most_bytes = most_bytes
        self._left_bytes = most_bytes
        self._most_s = most_s
        self._ends_s = asyncio.get_running_loop().time() + most_s
        self.whole = False
        self.unfit = False

    def require_length(self, scope: Scope) -> None:
        """
        Raises:
            RequestError: the Content-Length is none.
            BodyTooLargeError: it is beyond the limit.
        """
        given = [value for name, value in scope["headers"] if name == b"content-length"]
        if not given:
            return
        if len(set(given)) > 1 or not (given[0].isdigit() and len(given[0]) <= MOST_DIGITS):
            self.unfit = True
            raise RequestError("one Content-Length in digits", f"{given!r:.80}", "Mend the client.")
        if int(given[0]) > self._most_bytes:
            self.unfit = True
            raise _too_large(self._most_bytes)

    async def receive(self) -> Message:
        """
        Raises:
            BodyTooLargeError, SlowBodyError: the body is beyond its limits.
        """
        if self.whole:
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._ends_s):
                message = await self._receive()
        except TimeoutError:
            self.unfit = True
            raise SlowBodyError(
                f"a body that arrives within {self._most_s:g} s", "a part of one", "Send it again."
            ) from None
        if message["type"] == "http.request":
            self._left_bytes -= len(message.get("body", b""))
            self.whole = not message.get("more_body", False)
            if self._left_bytes < 0:
                self.unfit = True
                raise _too_large(self._most_bytes)
        return message

    async def drain(self) -> None:
        """Read on for a while: closed at once, the connection would be reset."""
        left = self._most_bytes
        ends_s = min(self._ends_s, asyncio.get_running_loop().time() + DRAIN_S)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(ends_s):
                while not self.whole and left > 0:
                    message = await self._receive()
                    left -= len(message.get("body", b""))
                    self.whole = not message.get("more_body", False)


def _too_large(most: int) -> BodyTooLargeError:
    return BodyTooLargeError(
        f"a body of at most {most} bytes",
        "a larger one",
        "Shorten it, or start the server with a larger `body_limit_bytes`.",
    )
