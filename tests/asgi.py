"""An ASGI application called by hand: messages in, one reply out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.types import ASGIApp, Message, Scope

Headers = Sequence[tuple[str, str]]


@dataclass
class Reply:
    """What came out.

    Attributes:
        chunks: bodies of the messages.
        messages: all of them.
    """

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    chunks: list[bytes] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)

    @property
    def body(self) -> bytes:
        return b"".join(self.chunks)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    async def send(self, message: Message) -> None:
        self.messages.append(message)
        if message["type"] == "http.response.start":
            assert self.status == 0, "one start"
            self.status = message["status"]
            pairs = message.get("headers", [])
            self.headers = {name.decode(): value.decode() for name, value in pairs}
        else:
            assert self.status, "a start comes first"
            self.chunks.append(message.get("body", b""))


def scope_of(path: str, method: str = "GET", headers: Headers = ()) -> Scope:
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "scheme": "http",
        "query_string": b"",
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in headers],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8080),
        "state": {},
    }


async def asked(
    app: ASGIApp,
    path: str,
    *,
    method: str = "GET",
    headers: Headers = (),
    body: Sequence[bytes] = (b"",),
    endless: bool = False,
) -> Reply:
    """The reply to a request.

    Args:
        body: in these parts.
        endless: whether more is announced and never comes.
    """
    parts = list(body)
    reply = Reply()

    async def receive() -> Message:
        if parts:
            part = parts.pop(0)
            return {"type": "http.request", "body": part, "more_body": bool(parts) or endless}
        await asyncio.Event().wait()
        raise AssertionError

    await app(scope_of(path, method, headers), receive, reply.send)
    return reply


def ask(app: ASGIApp, path: str, **keywords: Any) -> Reply:
    """As ``asked``, in an event loop of its own."""
    return asyncio.run(asked(app, path, **keywords))
