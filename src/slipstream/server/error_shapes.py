"""What clients are told of an error: OpenAI's shape, Anthropic's, and the headers of both."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from slipstream.errors import SlipstreamError

ErrorShape = Callable[[SlipstreamError], Mapping[str, Any]]

ANTHROPIC_PATHS: Final = "/v1/messages"
RETRY_AFTER_S: Final = 1
_INPUT: Final = ("invalid_request_error", "invalid_request_error")
_SERVER: Final = ("server_error", "api_error")
# status -> type in OpenAI's shape, and in Anthropic's
_TYPES: Final[Mapping[int, tuple[str, str]]] = {
    401: ("authentication_error", "authentication_error"),
    403: ("permission_error", "permission_error"),
    404: ("not_found_error", "not_found_error"),
    413: ("invalid_request_error", "request_too_large"),
    429: ("rate_limit_error", "rate_limit_error"),
    503: ("unavailable_error", "overloaded_error"),
    504: ("server_error", "timeout_error"),
}
_CODES: Final = {
    "AccessError": "invalid_api_key",
    "ContextFullError": "context_length_exceeded",
    "OverloadedError": "overloaded",
    "UnavailableError": "server_stopping",
    "DeadlineError": "deadline_exceeded",
    "UnknownModelError": "model_not_found",
    "UnsupportedError": "unsupported_value",
}


def message_of(error: SlipstreamError) -> str:
    """What a client may read of an error: nothing of what happened inside the server."""
    hidden = error.http_status == 500
    text = f"expected {error.expected}. {error.remedy}" if hidden else str(error)
    return text.encode("utf-8", "replace").decode()  # a lone surrogate is no JSON


def openai_error(error: SlipstreamError, status: int | None = None) -> dict[str, Any]:
    """OpenAI's shape. ``param`` is the option at fault, where the error begins with its name.

    Args:
        status: of the reply, where it is not the error's own.
    """
    return {
        "error": {
            "message": message_of(error),
            "type": _types(status or error.http_status)[0],
            "param": _param(error),
            "code": _code(error),
        }
    }


def anthropic_error(error: SlipstreamError, status: int | None = None) -> dict[str, Any]:
    """Anthropic's shape; arguments as ``openai_error``."""
    kind = _types(status or error.http_status)[1]
    return {"type": "error", "error": {"type": kind, "message": message_of(error)}}


def shape_of(path: str) -> ErrorShape:
    """The shape that clients of a path expect."""
    return anthropic_error if path.startswith(ANTHROPIC_PATHS) else openai_error


def error_headers(error: SlipstreamError) -> dict[str, str]:
    """How to come in, and when trying again may help."""
    if error.http_status == 401:
        return {"www-authenticate": "Bearer"}
    if error.http_status in (429, 503):
        return {"retry-after": str(getattr(error, "retry_after_s", RETRY_AFTER_S))}
    return {}


def _types(status: int) -> tuple[str, str]:
    return _TYPES.get(status, _INPUT if status < 500 else _SERVER)


def _code(error: SlipstreamError) -> str | None:
    names = (kind.__name__ for kind in type(error).__mro__)
    return next((_CODES[name] for name in names if name in _CODES), None)


def _param(error: SlipstreamError) -> str | None:
    named = re.match(r"`([\w.\[\]]+)`", error.expected)
    named = named or re.fullmatch(r"`([\w.\[\]]+)`", error.found)
    return None if named is None else named[1]
