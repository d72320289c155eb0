"""What the server says where no endpoint answers: who is not let in, what is too large."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec
from starlette.types import Scope, Send

from slipstream.errors import OverloadedError, RequestError, SlipstreamError
from slipstream.server.error_shapes import error_headers, shape_of

CLOSE: Final = (b"connection", b"close")


class AccessError(RequestError):
    """No API key, or an unknown one."""

    http_status = 401


class ForbiddenError(RequestError):
    """A page of another origin, or a name that this server does not have."""

    http_status = 403


class NotFoundError(RequestError):
    """No such path."""

    http_status = 404


class MethodError(RequestError):
    """A path that has no such HTTP method."""

    http_status = 405


class NotImplementedHereError(RequestError):
    """Something that llama-server does and this server does not."""

    http_status = 422


class SlowBodyError(RequestError):
    """A body that does not arrive."""

    http_status = 408


class BodyTooLargeError(RequestError):
    """A body beyond the limit."""

    http_status = 413


class HeadTooLargeError(RequestError):
    """A request's head beyond the limit."""

    http_status = 431


class BusyError(OverloadedError):
    """The queue is full.

    Attributes:
        retry_after_s: seconds after which a place is likely to be free.
    """

    def __init__(self, expected: str, found: str, remedy: str, retry_after_s: int = 1) -> None:
        super().__init__(expected, found, remedy)
        self.retry_after_s = retry_after_s


async def refuse(
    scope: Scope, send: Send, error: SlipstreamError, headers: Iterable[tuple[bytes, bytes]] = ()
) -> None:
    """A whole reply, in the shape that the path's clients expect.

    Args:
        headers: beside those of the body and of the error.
    """
    body = msgspec.json.encode(shape_of(scope["path"])(error))
    asked = ((name.encode(), value.encode()) for name, value in error_headers(error).items())
    own = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        *asked,
        *headers,
    ]
    await send({"type": "http.response.start", "status": error.http_status, "headers": own})
    await send({"type": "http.response.body", "body": body})
