"""Replies in bytes, for what is refused before there is a request."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import msgspec


def whole_reply(status: int, value: Any, headers: Mapping[str, str] | None = None) -> bytes:
    """A reply in HTTP/1.1 with JSON, after which the connection closes."""
    body = msgspec.json.encode(value)
    lines = [
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
        "content-type: application/json",
        f"content-length: {len(body)}",
        *(f"{name}: {given}" for name, given in (headers or {}).items()),
        "connection: close",
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body
