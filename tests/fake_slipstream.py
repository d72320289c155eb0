"""A server that loads nothing: it answers as Slipstream's does, well or with one fault of choice.

Its words depend on prompt, temperature and seed alone. It stands for llama-server as well, whose
/completion has the same fields. Faults begin with the ``--after``-th request of generation, so
that what is asked first, alone, is answered right.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import itertools
import json
import os
import signal
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

FAULTS = (
    "crossed",
    "lost",
    "truncated",
    "miscounted",
    "error500",
    "hang",
    "lenient",
    "mute_error",
    "bare_429",
    "slow_health",
    "ill",
    "leak",
    "stuck",
    "torn_end",
    "deaf",
    "bad_exit",
    "same_id",
    "traceback",
    "crash_on_null",
    "hang_on_escape",
    "dies_on_nan",
    "garbage_on_nan",
)
MOST_TOKENS = 5000
KNOWN = {
    *("prompt", "messages", "n_predict", "max_tokens", "temperature", "seed", "stream", "model"),
    *("stream_options", "speculative", "ignore_eos", "cache_prompt", "top_k", "session", "stop"),
    *("n_probs", "logit_bias", "logprobs", "n", "echo", "top_logprobs", "presence_penalty"),
    *("frequency_penalty", "tools", "tool_choice", "response_format", "json_schema", "min_p"),
    *("repeat_penalty", "system", "stop_sequences", "metadata", "max_completion_tokens"),
}


class RefusedError(Exception):
    """A reply that is an error: status, text."""


def no_number(name: str) -> None:
    """NaN and infinities are Python's own."""
    raise ValueError(name)


def words(body: Mapping[str, Any]) -> Iterator[str]:
    asked = body.get("messages") or body.get("prompt")
    key = json.dumps([asked, body.get("seed") if body.get("temperature") else None])
    for place in itertools.count():
        yield f" {hashlib.sha256(f'{key}/{place}'.encode()).hexdigest()[:5]}"


class Fake:
    def __init__(self, arguments: argparse.Namespace) -> None:
        self.fault: str | None = arguments.fault
        self.after: int = arguments.after
        self.delay_s: float = arguments.delay
        self.limit_bytes: int = arguments.body_limit_bytes
        self.begun = 0
        self.busy = 0
        self.emitted = 0
        self.hoard: list[bytearray] = []
        self.ending = False

    def strikes(self, *faults: str, every: int = 5) -> bool:
        """Whether one of these faults is due now."""
        due = self.begun > self.after and self.begun % every == 0
        return self.fault in faults and due

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            try:
                await self.request(reader, writer)
            except RefusedError as refusal:
                status, text = refusal.args
                self.json(writer, self.error(status, text), status)
            await writer.drain()
        writer.close()

    async def request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            first, *lines = head.split("\r\n")
            method, path, version = first.split(" ")
            assert version.startswith("HTTP/1.")
            split = (line.partition(":") for line in lines)
            headers = {name.strip().lower(): value.strip() for name, _, value in split}
            size = int(headers.get("content-length", "0"))
            assert size >= 0
        except (ValueError, AssertionError, asyncio.LimitOverrunError):
            raise RefusedError(400, "no HTTP") from None
        if size > self.limit_bytes:
            while size > 0 and (part := await reader.read(1 << 16)):
                size -= len(part)
            raise RefusedError(413, "too large")
        body = await reader.readexactly(size)
        self.spoil(head.encode("latin-1") + body)
        if self.fault == "garbage_on_nan" and b"NaN" in body:
            writer.write(b"what?\r\n")
            return
        if method == "GET":
            await self.get(path, writer)
        elif method == "POST":
            await self.post(path, self.parsed(body), writer, reader)
        else:
            raise RefusedError(405, "no such method")

    def spoil(self, data: bytes) -> None:
        """The faults that hostile bytes bring out."""
        if self.fault == "crash_on_null" and (b"\x00" in data or b"null" in data):
            raise RefusedError(500, "a fault")
        if self.fault == "traceback" and b"\\" in data:
            raise RefusedError(400, 'Traceback (most recent call last):\n  File "x.py", line 1')
        if self.fault == "dies_on_nan" and b"NaN" in data:
            os._exit(3)

    def parsed(self, body: bytes) -> dict[str, Any]:
        if self.fault == "hang_on_escape" and b"\\u" in body:
            return {"hang": True}
        try:
            value = json.loads(body, parse_constant=no_number)
            assert isinstance(value, dict)
            unknown = sorted(set(value) - KNOWN)
            assert not unknown, f"unknown key {unknown[0]}"
            assert isinstance(value.get("n_predict", 1), int)
            assert isinstance(value.get("max_tokens", 1), int)
            assert value.get("messages") or value.get("prompt"), "no prompt"
            assert isinstance(value.get("messages", []), list), "no messages"
            return value
        except (ValueError, AssertionError, RecursionError) as problem:
            if self.fault == "lenient":
                return {"prompt": "", "n_predict": 1, "max_tokens": 1}
            raise RefusedError(400, f"malformed: {problem!r}") from None

    async def get(self, path: str, writer: asyncio.StreamWriter) -> None:
        if path == "/health":
            if self.fault == "slow_health":
                await asyncio.sleep(0.2)
            ill = self.fault == "ill" and self.begun > self.after
            self.json(writer, {"status": "ok"}, 503 if ill else 200)
        elif path == "/slots":
            self.json(writer, [{"id": 0, "is_processing": self.busy > 0}])
        elif path == "/metrics":
            text = f"llamacpp:tokens_predicted_total {self.emitted}\n"
            self.head(writer, 200, "text/plain", len(text))
            writer.write(text.encode())
        else:
            raise RefusedError(404, "no such path")

    async def post(
        self,
        path: str,
        body: dict[str, Any],
        writer: asyncio.StreamWriter,
        reader: asyncio.StreamReader,
    ) -> None:
        if path not in ("/completion", *(f"/v1/{n}" for n in NAMES)):
            raise RefusedError(404, "no such path")
        self.begun += 1
        if self.strikes("hang", every=23) or "hang" in body:
            await asyncio.sleep(3600)
        if self.strikes("error500", every=11):
            raise RefusedError(500, "a fault")
        if self.ending or self.strikes("bare_429"):
            raise RefusedError(429, "busy")
        if self.fault == "leak":
            self.hoard.append(bytearray(os.urandom(1) * (1 << 20)))
        self.busy += 1
        try:
            await self.generate(path, body, writer, reader)
        finally:
            gone = reader.at_eof() or writer.is_closing()
            self.busy -= 0 if gone and self.fault == "stuck" else 1

    async def generate(
        self,
        path: str,
        body: dict[str, Any],
        writer: asyncio.StreamWriter,
        reader: asyncio.StreamReader,
    ) -> None:
        wanted = int(body.get("n_predict") or body.get("max_tokens") or 16)
        count = min(max(wanted, 1), MOST_TOKENS)
        name = "same" if self.strikes("same_id") else f"id-{self.begun}"
        strike = {kind: self.strikes(kind) for kind in ("crossed", "lost", "truncated")}
        shape = Shape(path, name, count + self.strikes("miscounted"))
        made: list[str] = []
        if body.get("stream"):
            self.head(writer, 200, "text/event-stream")
            self.chunk(writer, shape.opening())
        async for word in self.tokens(body, count, reader):
            place = len(made)
            made.append(" zzzzz" if strike["crossed"] and place == 1 else word)
            if body.get("stream") and not (strike["lost"] and place == 1):
                self.chunk(writer, shape.delta(made[-1]))
                await writer.drain()
        if strike["lost"]:
            del made[1:2]
        if not body.get("stream"):
            self.json(writer, shape.whole("".join(made)))
        else:
            self.chunk(writer, [] if strike["truncated"] else shape.closing())
            writer.write(b"0\r\n\r\n")

    async def tokens(
        self, body: dict[str, Any], count: int, reader: asyncio.StreamReader
    ) -> AsyncIterator[str]:
        for word in itertools.islice(words(body), count):
            if reader.at_eof() or (self.ending and self.fault == "torn_end"):
                raise ConnectionResetError
            await asyncio.sleep(self.delay_s)
            self.emitted += 1
            yield word

    def error(self, status: int, text: str) -> Any:
        if self.fault == "mute_error":
            return {"error": {}}
        return {"error": {"message": text, "code": status, "type": "invalid_request_error"}}

    def head(
        self, writer: asyncio.StreamWriter, status: int, kind: str, size: int | None = None
    ) -> None:
        length = "Transfer-Encoding: chunked" if size is None else f"Content-Length: {size}"
        more = "Retry-After: 1\r\n" if status == 429 and self.fault != "bare_429" else ""
        text = f"HTTP/1.1 {status} Word\r\nContent-Type: {kind}\r\n{length}\r\n{more}\r\n"
        writer.write(text.encode())

    def json(self, writer: asyncio.StreamWriter, value: Any, status: int = 200) -> None:
        data = json.dumps(value).encode()
        self.head(writer, status, "application/json", len(data))
        writer.write(data)

    @staticmethod
    def chunk(writer: asyncio.StreamWriter, messages: list[tuple[str, Any]]) -> None:
        for name, value in messages:
            data = value if isinstance(value, str) else json.dumps(value)
            text = (f"event: {name}\n" if name else "") + f"data: {data}\n\n"
            writer.write(f"{len(text.encode()):x}\r\n{text}\r\n".encode())


NAMES = ("completions", "chat/completions", "messages")


class Shape:
    """How one endpoint says it; all outputs end by ``length``."""

    def __init__(self, path: str, name: str, count: int) -> None:
        self.path, self.name, self.count = path, name, count

    def opening(self) -> list[tuple[str, Any]]:
        if self.path != "/v1/messages":
            return []
        return [("message_start", {"type": "message_start", "message": {"id": self.name}})]

    def delta(self, text: str) -> list[tuple[str, Any]]:
        if self.path == "/completion":
            return [("", {"content": text, "stop": False})]
        if self.path == "/v1/messages":
            delta = {"type": "text_delta", "text": text}
            return [("content_block_delta", {"type": "content_block_delta", "delta": delta})]
        said = {"text": text} if self.path == "/v1/completions" else {"delta": {"content": text}}
        return [("", {"id": self.name, "choices": [{**said, "finish_reason": None}]})]

    def closing(self) -> list[tuple[str, Any]]:
        if self.path == "/completion":
            return [("", {**self.whole(""), "stop": True})]
        if self.path == "/v1/messages":
            usage = {"output_tokens": self.count}
            delta = {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}}
            stop = {"type": "message_stop"}
            return [("message_delta", {**delta, "usage": usage}), ("message_stop", stop)]
        said = {"text": ""} if self.path == "/v1/completions" else {"delta": {}}
        usage = {"completion_tokens": self.count}
        return [
            ("", {"id": self.name, "choices": [{**said, "finish_reason": "length"}]}),
            ("", {"id": self.name, "choices": [], "usage": usage}),
            ("", "[DONE]"),
        ]

    def whole(self, text: str) -> dict[str, Any]:
        if self.path == "/completion":
            timings: dict[str, Any] = {"predicted_n": self.count, "prompt_n": 3, "draft_n": 4}
            timings |= {"draft_n_accepted": 3, "predicted_ms": 10.0, "prompt_ms": 2.0}
            named = {"content": text, "stop_type": "limit", "tokens_predicted": self.count}
            return {**named, "timings": timings}
        if self.path == "/v1/messages":
            block = {"type": "text", "text": text}
            usage = {"output_tokens": self.count}
            named = {"id": self.name, "content": [block], "stop_reason": "max_tokens"}
            return {**named, "usage": usage}
        said = {"text": text} if self.path == "/v1/completions" else {"message": {"content": text}}
        choice = {**said, "finish_reason": "length"}
        usage = {"completion_tokens": self.count}
        return {"id": self.name, "choices": [choice], "usage": usage}


async def serve(arguments: argparse.Namespace) -> int:
    fake, ended = Fake(arguments), asyncio.Event()
    server = await asyncio.start_server(fake.connected, arguments.host, arguments.port)
    port = server.sockets[0].getsockname()[1]
    if arguments.json:
        print(json.dumps({"ready": True, "host": arguments.host, "port": port}), flush=True)

    def end() -> None:
        if fake.fault != "deaf":
            fake.ending = True
            ended.set()

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, end)
    await ended.wait()
    while fake.busy > 0 and fake.fault != "stuck":
        await asyncio.sleep(0.01)
    return 5 if fake.fault == "bad_exit" else 0


def main() -> None:
    parser = argparse.ArgumentParser(prog="fake", allow_abbrev=False)
    parser.add_argument("model", nargs="?")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--fault", choices=FAULTS)
    parser.add_argument("--after", type=int, default=40)
    parser.add_argument("--delay", type=float, default=0.001)
    parser.add_argument("--body-limit-bytes", type=int, default=1 << 20)
    arguments, _ = parser.parse_known_args()
    raise SystemExit(asyncio.run(serve(arguments)))


if __name__ == "__main__":
    main()
