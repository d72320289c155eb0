"""Replies: JSON, errors in a protocol's shape, and streams of server-sent events.

A client that goes away ends what it asked for: a stream closes its generation, and a handler is
cancelled.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from slipstream.errors import OverloadedError, SlipstreamError
from slipstream.server.bodies import read_beside
from slipstream.server.error_shapes import ErrorShape, error_headers, openai_error
from slipstream.server.order import Generation
from slipstream.server.wire import WireEvent
from slipstream.server.wire_errors import error_of

Handler = Callable[[Request, bytes], Coroutine[Any, Any, Response]]
Events = AsyncIterator[tuple[int, WireEvent]]

DONE: Final = b"data: [DONE]\n\n"
CLIENT_LEFT: Final = 499
MOST_READ_AT_ONCE: Final = 1 << 15
"""Bytes of JSON that are read sooner than a stream notices; longer bodies are read on a thread."""

_JSON: Final = "application/json"
_STREAM_HEADERS: Final = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-store",
    "x-accel-buffering": "no",  # a proxy must not gather events
}
encode_json = msgspec.json.Encoder().encode


def json_reply(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A value as JSON."""
    return Response(encode_json(value), status, headers, media_type=_JSON)


def error_reply(error: SlipstreamError, shape: ErrorShape = openai_error) -> Response:
    """An error with its status and headers."""
    return json_reply(shape(error), error.http_status, error_headers(error))


def require_no_error(event: WireEvent) -> None:
    """
    Raises:
        SlipstreamError: the event's; a request that was cancelled for the server's own reasons has
            one too.
    """
    if event.error is not None:
        raise error_of(event.error)
    if event.finish_reason == "cancelled":
        raise OverloadedError(
            "an output that runs to its end", "one that the server cancelled", "Try again later."
        )


def message(value: Any) -> bytes:
    """A server-sent event with JSON."""
    return b"data: " + encode_json(value) + b"\n\n"


def named_message(name: str, value: Any) -> bytes:
    """A server-sent event of a type."""
    return b"event: " + name.encode() + b"\ndata: " + encode_json(value) + b"\n\n"


def error_message(error: SlipstreamError, shape: ErrorShape = openai_error) -> bytes:
    """The event that ends a stream which failed."""
    return named_message("error", shape(error))


def answering(
    handler: Handler,
    shape: ErrorShape = openai_error,
    before: Callable[[bytes], None] | None = None,
) -> Callable[..., Any]:
    """A starlette endpoint: reads the body, ends the handler when the client goes away, and
    answers its errors in a protocol's shape.

    Args:
        before: refuses bodies that are not worth reading.
    """

    async def answer(request: Request) -> Response:
        try:
            body = await request.body()
            if before is not None:
                before(body)
            return await watched(request, _answered(handler, request, body))
        except ClientDisconnect:
            return Response(status_code=CLIENT_LEFT)
        except SlipstreamError as error:
            return error_reply(error, shape)

    return answer


async def _answered(handler: Handler, request: Request, body: bytes) -> Response:
    if len(body) > MOST_READ_AT_ONCE:
        body = await asyncio.to_thread(read_beside, body)
    return await handler(request, body)


async def watched(request: Request, work: Coroutine[Any, Any, Response]) -> Response:
    """The result of a handler, which is cancelled when the client goes away first.

    Args:
        request: its body was read already.
    """
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_left(request.receive))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else Response(status_code=CLIENT_LEFT)
    finally:
        await _end(working, leaving)


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _end(*tasks: asyncio.Future[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def close(iterator: Any) -> None:
    """End an asynchronous iterator early, where it can be ended."""
    if hasattr(iterator, "aclose"):
        with contextlib.suppress(Exception):
            await iterator.aclose()


async def begun(generation: Generation) -> Events:
    """The events of a generation, once the first is there: an error before any output gets its
    own status.

    Raises:
        SlipstreamError: the first event's.
    """
    events = generation.events()
    try:
        first = await anext(events)
        require_no_error(first[1])
    except BaseException:
        await close(events)
        generation.cancel()
        raise
    return _resumed(first, events)


async def _resumed(first: tuple[int, WireEvent], events: Events) -> Events:
    try:
        yield first
        async for event in events:
            yield event
    finally:
        await close(events)


def stream_reply(chunks: AsyncIterator[bytes], *, on_close: Callable[[], None]) -> Response:
    """A stream of server-sent events.

    Args:
        chunks: whole events, one or several at a time; closed when the client goes away.
        on_close: called once, however the stream ends; it must bear that all was over already.
    """
    return _EventStream(chunks, on_close)


class _EventStream(Response):
    def __init__(self, chunks: AsyncIterator[bytes], on_close: Callable[[], None]) -> None:
        self.status_code = 200
        self.background = None
        self._chunks = chunks
        self._on_close = on_close
        self.init_headers(_STREAM_HEADERS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope
        sending = asyncio.ensure_future(self._send(send))
        leaving = asyncio.ensure_future(_left(receive))
        try:
            await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                with contextlib.suppress(OSError):  # the client is gone
                    sending.result()
        finally:
            self._on_close()
            await _end(sending, leaving)

    async def _send(self, send: Callable[[Any], Awaitable[None]]) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        try:
            await send(start)
            async for chunk in self._chunks:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:  # here, for the caller may be cancelled again and again
            await close(self._chunks)
