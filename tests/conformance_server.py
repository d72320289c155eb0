"""A server in a thread that keeps its contract while it drafts, or breaks it in one place.

It has Slipstream's ways, llama.cpp's, or nothing but OpenAI's (``flavour``).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from conformance_telling import Teller
from conformance_writing import MARKER, BadRequestError

KNOWN = {
    "model", "messages", "max_tokens", "temperature", "stream", "stream_options", "stop", "seed",
    "logprobs", "top_logprobs", "frequency_penalty", "response_format",
}  # fmt: skip
OWN = {
    "slipstream": {"grammar", "speculative", "session", "ignore_eos"},
    "llama.cpp": {"grammar", "speculative.n_max", "cache_prompt", "ignore_eos"},
    "plain": set[str](),
}
TOKEN_S = 0.002
CONTEXT = 4096
_CHOICES = {"speculative", "speculative.n_max"}


class ConformanceServer(Teller):
    def read(self, data: bytes) -> dict[str, Any]:
        try:
            body = json.loads(data)
        except ValueError:
            raise BadRequestError("no JSON") from None
        allowed = KNOWN | (OWN[self.flavour] if self.chooses else OWN[self.flavour] - _CHOICES)
        unknown = sorted(set(body) - allowed)
        if unknown and "ignored-key" not in self.lies:
            name = "a key" if "unnamed-key" in self.lies else f"`{unknown[0]}`"
            raise BadRequestError(f"{name} is unknown")
        messages = body.get("messages")
        if not isinstance(messages, list) or not messages:
            raise BadRequestError("`messages` is no list")
        if not isinstance(body.get("temperature", 1), int | float):
            raise BadRequestError("`temperature` is no number")
        return dict(body)

    def get(self, path: str) -> tuple[int, Any]:
        if path == "/v1/models":
            return 200, {"object": "list", "data": [{"id": "m"}]}
        if self.flavour != "plain" and path == "/props":
            return 200, self.props()
        if self.flavour != "plain" and path == "/slots":
            return 200, [{"id": n, "is_processing": n < self.running} for n in range(4)]
        return 404, _error("not found", "not_found_error")

    def props(self) -> dict[str, Any]:
        found = {
            "total_slots": 4,
            "default_generation_settings": {"n_ctx": CONTEXT},
            "build_info": "b1-fake",
        }
        if self.flavour == "slipstream":
            found["slipstream"] = {"draft_methods": {"suffix": {"offered": True}}}
        return found

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        over = (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError)
        with contextlib.suppress(*over):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            method, path, _ = head.split("\r\n")[0].split(" ")
            sizes = [x for x in head.lower().split("\r\n") if x.startswith("content-length")]
            data = await reader.readexactly(int(sizes[0].split(":")[1]) if sizes else 0)
            if self.key and f"Bearer {self.key}\r\n" not in head:
                value = _error("no key", "authentication_error")
                _send(writer, 401, json.dumps(value).encode(), "application/json")
            elif not await self.hostile(data, writer):
                await self.serve(method, path, data, writer)
            await writer.drain()
        writer.close()

    async def hostile(self, data: bytes, writer: asyncio.StreamWriter) -> bool:
        """Ways of no honest server; whether that was the answer.

        With ``later`` it is honest until a request is of more than four tokens.
        """
        posted = bool(data)
        if "later" in self.lies and b'"max_tokens": 4,' in data:
            return False
        if "html" in self.lies and (posted or "later" not in self.lies):
            _send(writer, 200, b"<html><body>hello</body></html>", "text/html")
        elif "silent" in self.lies and posted:
            await asyncio.sleep(60)
        elif "closing" in self.lies and posted:
            pass
        elif "endless-body" in self.lies and posted:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
            while True:
                writer.write(b"[" * 65536)
                await writer.drain()
        elif "endless-events" in self.lies and posted:
            _open(writer)
            while True:
                _chunk(writer, b'data: {"id": "c1", "choices": []}\n\n')
                await writer.drain()
        elif "deep" in self.lies and posted:
            _send(writer, 200, b'{"choices": ' + b"[" * 200_000, "application/json")
        elif ("types" if posted else "odd-facts") in self.lies:
            _send(writer, 200, json.dumps(_ODD).encode(), "application/json")
        else:
            return False
        return True

    async def serve(
        self, method: str, path: str, data: bytes, writer: asyncio.StreamWriter
    ) -> None:
        if method == "GET":
            status, value = self.get(path)
            return _send(writer, status, json.dumps(value).encode(), "application/json")
        if path != "/v1/chat/completions":
            value = _error("not found", "not_found_error")
            return _send(writer, 404, json.dumps(value).encode(), "application/json")
        try:
            body = self.read(data)
            self.running += 1
            try:
                await self.reply(body, writer)
            finally:
                self.running -= 1
        except BadRequestError as problem:
            self.refuse(str(problem), writer)
        return None

    def refuse(self, message: str, writer: asyncio.StreamWriter) -> None:
        if "html-error" in self.lies and message == "no JSON":
            return _send(writer, 400, b"<html>Bad request</html>", "text/html")
        status = 400
        if "messages" in message:
            status = 200 if "error-200" in self.lies else status
            status = 500 if "error-500" in self.lies else status
        value = _error(message, "invalid_request_error")
        if "temperature" in message and "no-error-type" in self.lies:
            del value["error"]["type"]
        return _send(writer, status, json.dumps(value).encode(), "application/json")

    async def reply(self, body: Mapping[str, Any], writer: asyncio.StreamWriter) -> None:
        prompt = body["messages"][0]["content"]
        await asyncio.sleep(0.005 if MARKER in prompt else 0)  # so that requests do overlap
        written = self.write(body)
        cached = self.cached(body, prompt)
        if not body.get("stream"):
            value = self.whole(body, written, cached)
            return _send(writer, 200, json.dumps(value).encode(), "application/json")
        _open(writer)
        slow = prompt.startswith("Count")
        for chunk in self.chunks(body, written, cached):
            if not writer.is_closing():
                _chunk(writer, f"data: {json.dumps(chunk)}\n\n".encode())
            elif "goes-on" not in self.lies:
                return None
            await asyncio.sleep(TOKEN_S if slow else 0)
        if not ("no-done" in self.lies and written.most == 48 and written.drafted):
            _chunk(writer, b"data: [DONE]\n\n")
        writer.write(b"0\r\n\r\n")
        return None


_ODD = {
    "choices": [{"message": {"content": 5}, "finish_reason": {}, "logprobs": {"content": [7]}}],
    "usage": {"completion_tokens": 1e300, "prompt_tokens": True, "total_tokens": "x"},
    "data": {"id": 3},
    "timings": {"draft_n": -1, "draft_n_accepted": [], "acceptance_at": {}},
    "speculative": ["none"],
    "error": [],
    "slipstream": {"draft_methods": [1]},
    "total_slots": "many",
    "build_info": 7,
}


def _error(message: str, kind: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": None, "code": None}}


def _send(writer: asyncio.StreamWriter, status: int, data: bytes, kind: str) -> None:
    head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\n\r\n"
    writer.write(head.encode() + data)


def _open(writer: asyncio.StreamWriter) -> None:
    kind = "Content-Type: text/event-stream\r\nTransfer-Encoding: chunked"
    writer.write(f"HTTP/1.1 200 OK\r\n{kind}\r\n\r\n".encode())


def _chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(b"%x\r\n%s\r\n" % (len(data), data))


@contextlib.contextmanager
def conforming(*lies: str, **ways: Any) -> Iterator[str]:
    """A server for a while, in a thread; gives its URL. ``ways`` as ``Writer``."""
    server = ConformanceServer(*lies, **ways)
    told: queue.SimpleQueue[tuple[str, Callable[[], object]]] = queue.SimpleQueue()

    async def serve() -> None:
        over = asyncio.Event()
        loop = asyncio.get_running_loop()
        listening = await asyncio.start_server(server.handle, "127.0.0.1", 0)
        host, port = listening.sockets[0].getsockname()[:2]
        told.put((f"http://{host}:{port}", lambda: loop.call_soon_threadsafe(over.set)))
        await over.wait()
        listening.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    url, stop = told.get()
    try:
        yield url
    finally:
        stop()
        thread.join()
