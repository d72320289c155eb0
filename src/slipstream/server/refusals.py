"""What the server says where no endpoint answers: who is not let in, what is too large, what fails.

Bodies have OpenAI's shape, and Anthropic's below ``/v1/messages``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
from starlette.types import Scope, Send

from slipstream.errors import OverloadedError, RequestError, SlipstreamError

Headers = Iterable[tuple[bytes, bytes]]
CLOSE: Final = (b"connection", b"close")
ANTHROPIC_PATHS: Final = "/v1/messages"


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


class SlowBodyError(RequestError):
    """A body that does not arrive."""

    http_status = 408


class BodyTooLargeError(RequestError):
    """A body beyond the limit."""

    http_status = 413


class BusyError(OverloadedError):
    """The queue is full, or the server is stopping.

    Attributes:
        retry_after_s: seconds after which a place is likely to be free.
    """

    def __init__(self, expected: str, found: str, remedy: str, retry_after_s: int = 1) -> None:
        super().__init__(expected, found, remedy)
        self.retry_after_s = retry_after_s


# status -> type of the error in OpenAI's replies, and in Anthropic's
_TYPES: Final[Mapping[int, tuple[str, str]]] = {
    401: ("authentication_error", "authentication_error"),
    403: ("permission_error", "permission_error"),
    404: ("not_found_error", "not_found_error"),
    413: ("invalid_request_error", "request_too_large"),
    429: ("rate_limit_error", "rate_limit_error"),
    503: ("unavailable_error", "overloaded_error"),
}
_INPUT: Final = ("invalid_request_error", "invalid_request_error")
_SERVER: Final = ("server_error", "api_error")


def refusal_body(path: str, error: SlipstreamError, status: int | None = None) -> bytes:
    """The JSON that tells an error to the client of a path."""
    status = status or error.http_status
    text = _message(error)
    openai, anthropic = _TYPES.get(status, _INPUT if status < 500 else _SERVER)
    value: dict[str, Any]
    if path.startswith(ANTHROPIC_PATHS):
        value = {"type": "error", "error": {"type": anthropic, "message": text}}
    else:
        told = {"message": text, "type": openai, "param": None, "code": status}
        value = {"error": told}
    return msgspec.json.encode(value)


def _message(error: SlipstreamError) -> str:
    """What a client may read of an error: nothing of what happened inside the server."""
    hidden = error.http_status == 500
    text = f"expected {error.expected}. {error.remedy}" if hidden else str(error)
    return text.encode("utf-8", "replace").decode()  # a lone surrogate is no JSON


def refusal_headers(error: SlipstreamError) -> list[tuple[bytes, bytes]]:
    """Those that an error asks for."""
    if isinstance(error, AccessError):
        return [(b"www-authenticate", b"Bearer")]
    if isinstance(error, OverloadedError):
        seconds = int(getattr(error, "retry_after_s", 1))
        return [(b"retry-after", str(seconds).encode())]
    return []


async def refuse(
    scope: Scope,
    send: Send,
    error: SlipstreamError,
    headers: Headers = (),
    status: int | None = None,
) -> None:
    """A whole reply.

    Args:
        headers: beside those of the body and of the error.
        status: default: the error's.
    """
    body = refusal_body(scope["path"], error, status)
    await send(
        {
            "type": "http.response.start",
            "status": status or error.http_status,
            "headers": [
                (b"content-type", b"application/json"),
                (b"content-length", str(len(body)).encode()),
                *refusal_headers(error),
                *headers,
            ],
        }
    )
    await send({"type": "http.response.body", "body": body})
