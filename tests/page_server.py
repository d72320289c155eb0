"""A server for the built-in page alone: canned replies of the endpoints that the page uses."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from slipstream.server.page import routes

ATTACK = "<img src=x onerror=\"document.title='broken in'\"><script>document.title='in'</script>"

CODE = ["Look:\n``", "`python\nx = 1\n", "``", "`\nThat ", "was `code`."]

# Steps of the reply: each token's text and whether it was drafted; draft tokens verified so far.
STEPS: list[tuple[list[tuple[str, bool]], int]] = [
    ([("One", False)], 0),
    ([(" two", True), (" three", True), (" four", False)], 3),
    ([(" five", True), (" six", False)], 6),
    ([(" seven", False)], 6),
    ([(".", True), ("", False)], 7),
]
METHODS: dict[str, Any] = {
    "suffix": {"offered": True, "parameters": {"n_max": 48}},
    "ngram-mod": {"offered": True, "parameters": {}},
    "draft-simple": {"offered": False, "reason": "no draft model was given"},
}


@dataclass
class FakeServer:
    """What it was asked, and how it behaves.

    Attributes:
        key: the API key it wants; None = none.
        bodies: of the chat requests.
        left: how many streams the client left before their end.
    """

    key: str | None = None
    bodies: list[dict[str, Any]] = field(default_factory=list)
    left: int = 0

    def application(self) -> Starlette:
        own = [
            Route("/props", self.props),
            Route("/v1/chat/completions", self.chat, methods=["POST"]),
        ]
        return Starlette(routes=[*routes(), *own])

    def refusal(self, request: Request) -> Response | None:
        if self.key in (None, request.headers.get("authorization", "").removeprefix("Bearer ")):
            return None
        return JSONResponse({"error": {"message": "expected an API key"}}, 401)

    async def props(self, request: Request) -> Response:
        facts = {"model": "tiny", "context": 2048, "isa": "avx2", "exact": True}
        value = {
            "model_alias": "tiny",
            "default_generation_settings": {"params": {"temperature": 0.0}},
            "slipstream": {**facts, "draft_methods": METHODS},
        }
        return self.refusal(request) or JSONResponse(value)

    async def chat(self, request: Request) -> Response:
        refusal = self.refusal(request)
        if refusal is not None:
            return refusal
        body = await request.json()
        self.bodies.append(body)
        asked = body["messages"][-1]["content"]
        if asked == "refuse":
            return JSONResponse({"error": {"message": "expected less; found more."}}, 400)
        return StreamingResponse(self.stream(asked), media_type="text/event-stream")

    async def stream(self, asked: str) -> AsyncIterator[bytes]:
        steps = STEPS
        if asked == "attack":
            steps = [([(ATTACK, False), (ATTACK, True)], 1)]
        elif asked == "code":
            steps = [([(text, i % 2 == 0)], i) for i, text in enumerate(CODE)]
        elif asked == "endless":
            steps = [([("on and on ", False)], 0)] * 10_000
        elif asked == "long":
            steps = [
                *STEPS * 60,
                ([("unbroken" * 60, True)], 8),
                ([("\n```\n" + "x" * 400, True)], 9),
            ]
        done, accepted, whole = 0, 0, False
        try:
            for tokens, drafted in steps:
                done += len(tokens)
                accepted += sum(from_draft for _, from_draft in tokens)
                yield event(tokens, timings(done, drafted, accepted))
                if asked == "endless":
                    await asyncio.sleep(0.02)
                if asked == "break" and done > 1:
                    yield b'data: {"error": {"message": "the engine ended"}}\n\n'
                    break
            else:
                yield event([], last_timings(done, drafted, accepted), finish="stop")
                yield b"data: [DONE]\n\n"
            whole = True
        finally:
            self.left += not whole


def event(
    tokens: list[tuple[str, bool]], timings: dict[str, Any], finish: str | None = None
) -> bytes:
    """One chunk of a chat stream."""
    text = "".join(text for text, _ in tokens)
    choice = {"index": 0, "delta": {"content": text} if tokens else {}, "finish_reason": finish}
    chunk: dict[str, Any] = {
        "object": "chat.completion.chunk",
        "choices": [choice],
        "timings": timings,
        "slipstream": {"tokens": tokens},
    }
    if finish is not None:
        chunk |= {"speculative": {"type": "suffix", "n_max": 48, "n_min": 0}, "seed": 7}
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


def timings(done: int, drafted: int, accepted: int) -> dict[str, Any]:
    found = {"prompt_n": 12, "prompt_ms": 250.0, "cache_n": 0, "predicted_n": done}
    found |= {"predicted_per_second": 41.5}
    if drafted:
        found |= {"draft_n": drafted, "draft_n_accepted": accepted}
        found |= {"reached_at": [3, 2, 1], "accepted_at": [3, 1, 0]}
    return found


def last_timings(done: int, drafted: int, accepted: int) -> dict[str, Any]:
    exact = {"target_passes": 5, "acceptance_at": [1.0, 0.5, 0.0], "method": "suffix"}
    return timings(done, drafted, accepted) | exact


@contextlib.contextmanager
def served(application: Starlette) -> Iterator[str]:
    """The address of an application that runs in a thread."""
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(application, log_config=None, lifespan="off", ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
    finally:
        server.should_exit = True
        server.force_exit = True
        thread.join()
        listener.close()
