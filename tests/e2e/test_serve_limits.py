"""What a server does at its limits: full queue, clients that leave, ends of all kinds."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from builders import tiny_model
from conftest import TEMPLATE, Command
from servers import HOST, RunningServer, reference, server_events, serving, start, tiny_backend

PATIENCE_S = 60.0
LONG: dict[str, Any] = {
    "prompt": "the rain",
    "n_predict": -1,
    "ignore_eos": True,
    "stream": True,
    "temperature": 1.0,
    "seed": 1,
}
PATHS = ("/completion", "/v1/completions")


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose output goes on for longer than a test."""
    path = tmp_path_factory.mktemp("lasting") / "lasting.gguf"
    return tiny_model(path, "llama", context=1 << 16, extra={"tokenizer.chat_template": TEMPLATE})


def comes(true: Callable[[], bool]) -> bool:
    """Whether something becomes true in time."""
    limit = time.monotonic() + PATIENCE_S
    while time.monotonic() < limit:
        if true():
            return True
        time.sleep(0.05)
    return False


def busy(http: Any) -> int:
    return sum(slot["is_processing"] for slot in http.get("/slots").json())


@contextlib.contextmanager
def running_streams(http: Any, count: int, **change: Any) -> Iterator[list[Iterator[Any]]]:
    """Streams that have begun."""
    with contextlib.ExitStack() as stack:
        streams = []
        for _ in range(count):
            reply = stack.enter_context(http.stream("POST", "/completion", json=LONG | change))
            assert reply.status_code == 200
            events = server_events(reply.iter_lines())
            next(events)
            streams.append(events)
        yield streams


def test_a_full_queue_is_429_with_the_time_to_wait(lasting: Path) -> None:
    flags = ["--parallel", "1", "--queue", "1", "--metrics", *tiny_backend()]
    with serving(lasting, *flags) as server, server.client() as http:
        with running_streams(http, 1), server.client() as waiting:
            line = _begun_request(server)
            assert comes(lambda: "llamacpp:requests_deferred 1.0" in waiting.get("/metrics").text)
            for path in (*PATHS, "/v1/chat/completions", "/v1/messages"):
                key = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 3}
                body = key if "/chat" in path or "messages" in path else {"prompt": "a"}
                reply = waiting.post(path, json=body)
                assert reply.status_code == 429, reply.text
                assert int(reply.headers["retry-after"]) >= 1
                assert reply.json()["error"]["type"] == "rate_limit_error"
            assert waiting.get("/health").status_code == 200
            line.close()
        assert comes(lambda: busy(http) == 0)
        short = http.post("/completion", json={"prompt": "a", "n_predict": 2})
        assert short.status_code == 200


def _begun_request(server: RunningServer) -> socket.socket:
    """A client that waits for its turn."""
    connection = socket.create_connection((server.host, server.port))
    body = b'{"prompt": "a", "n_predict": 2}'
    head = f"POST /completion HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: {len(body)}\r\n\r\n"
    connection.sendall(head.encode() + body)
    return connection


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_frees_its_slot(lasting: Path, stream: bool) -> None:
    with serving(lasting, "--parallel", "2", *tiny_backend()) as server, server.client() as http:
        body = b'{"prompt": "a", "n_predict": -1, "ignore_eos": true, "stream": %s}' % (
            b"true" if stream else b"false"
        )
        head = f"POST /completion HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: {len(body)}\r\n\r\n"
        connection = socket.create_connection((server.host, server.port))
        connection.sendall(head.encode() + body)
        assert comes(lambda: busy(http) == 1)
        connection.close()
        assert comes(lambda: busy(http) == 0)


def test_one_that_leaves_disturbs_no_other(lasting: Path) -> None:
    wanted = reference(lasting, context=4096).complete(
        "the rain", max_tokens=400, temperature=1.0, seed=1, ignore_eos=True
    )
    flags = ["--parallel", "3", "--context", "4096", *tiny_backend()]
    with serving(lasting, *flags) as server, server.client() as http:
        with running_streams(http, 1, n_predict=400) as (events,):
            for _ in range(5):
                with running_streams(http, 1, seed=7):
                    pass
            text = "".join(data["content"] for _, data in events)
        assert wanted.text.endswith(text)
        assert len(text) > len(wanted.text) // 2
        assert comes(lambda: busy(http) == 0)


@pytest.mark.parametrize("path", PATHS)
def test_the_end_of_the_context_is_length(chatty: Path, path: str) -> None:
    model = reference(chatty, context=128)
    wanted = model.complete("the rain", max_tokens=-1, ignore_eos=True)
    with serving(chatty, "--context", "128", *tiny_backend()) as server, server.client() as http:
        body = {"prompt": "the rain", "max_tokens": -1, "ignore_eos": True}
        made = http.post(path, json=body).json()
        said = made if path == "/completion" else made["choices"][0]
        assert said.get("text", said.get("content")) == wanted.text
        assert wanted.finish_reason == "length"
        assert said.get("finish_reason", "length") == "length"
        assert said.get("stop_type", "limit") == "limit"
        ids = [5] * 128
        assert http.post(path, json={"prompt": ids, "max_tokens": 4}).status_code in (400, 413)
        almost = http.post(path, json={"prompt": ids[:-1], "max_tokens": 4})
        assert almost.status_code == 200


def test_a_body_and_a_prompt_beyond_their_limits(chatty: Path) -> None:
    flags = ["--body-limit-bytes", "65536", "--prompt-limit", "1000", "--context", "512"]
    with serving(chatty, *flags, *tiny_backend()) as server, server.client() as http:
        assert http.post("/completion", json={"prompt": "a" * 70_000}).status_code == 413
        long = http.post("/completion", json={"prompt": "a" * 2000, "n_predict": 1})
        assert long.status_code in (400, 413)
        assert http.post("/completion", json={"prompt": "a", "n_predict": 1}).status_code == 200


LONGEST_GAP_S = 30.0  # nobody's machine is that slow, and what these tests guard took as long
COSTLY: dict[str, tuple[str, dict[str, Any], int]] = {
    "text": ("/tokenize", {"content": "ab c" * 16_000}, 200),
    "pieces": ("/tokenize", {"content": "ab c" * 16_000, "with_pieces": True}, 200),
    "longer text": ("/tokenize", {"content": "ab c" * 1_000_000}, 400),
    "ids": ("/detokenize", {"tokens": [40, 41] * 32_000}, 200),
    "more ids": ("/detokenize", {"tokens": [40, 41] * 400_000}, 400),
    "prompt of ids": ("/completion", {"prompt": [40] * 500_000, "n_predict": 1}, 413),
    "conversation": (
        "/apply-template",
        {"messages": [{"role": "user", "content": "ab c" * 15_000}]},
        200,
    ),
    "regular expression": ("/completion", {"prompt": "a", "regex": "a" * 1_000_000}, 400),
    "ambiguous grammar": (
        "/completion",
        {
            "prompt": "a",
            "n_predict": 60,
            "grammar": "start: x\nx: x x x x | x x x | x x | "
            + " | ".join(f'"{c}"' for c in "abcdef"),
        },
        0,  # a tiny vocabulary may get through
    ),
    "schema": (
        "/completion",
        {"prompt": "a", "json_schema": {"properties": {f"k{i}": {} for i in range(20_000)}}},
        400,
    ),
}


@pytest.fixture(scope="module")
def limited(lasting: Path) -> Iterator[RunningServer]:
    flags = ["--parallel", "2", "--prompt-limit", "65536", *tiny_backend()]
    with serving(lasting, *flags) as server:
        yield server


@pytest.mark.parametrize("name", COSTLY)
def test_a_costly_request_stalls_no_other(limited: RunningServer, name: str) -> None:
    path, body, status = COSTLY[name]
    with limited.client() as http, running_streams(http, 1) as (events,):
        with ThreadPoolExecutor(1) as pool, limited.client() as other:
            done = pool.submit(other.post, path, json=body)
            longest = 0.0
            last = time.monotonic()
            while not done.done():
                _, data = next(events)
                assert not data["stop"]
                longest = max(longest, time.monotonic() - last)
                last = time.monotonic()
        reply = done.result()
        assert reply.status_code in ((status,) if status else (200, 400)), reply.text[:300]
        assert longest < LONGEST_GAP_S
        assert "error" not in data
        if reply.status_code != 200:
            assert reply.json()["error"]["type"] == "invalid_request_error"


def test_a_deadline_ends_a_request(lasting: Path) -> None:
    with serving(lasting, "--parallel", "1", *tiny_backend()) as server, server.client() as http:
        reply = http.post("/v1/completions", json={**LONG, "stream": False, "deadline_s": 0.5})
        assert reply.status_code == 504, reply.text
        with http.stream("POST", "/completion", json={**LONG, "deadline_s": 0.5}) as streamed:
            *_, (name, last) = server_events(streamed.iter_lines())
        assert name == "error"
        assert last["error"]["message"]
        assert comes(lambda: busy(http) == 0)


def test_another_address_needs_keys(slipstream: Command, chatty: Path) -> None:
    done = slipstream("serve", chatty, *tiny_backend(), "--host", "0.0.0.0", "--port", "0")
    assert done.returncode == 2
    assert "--api-key-file" in done.stderr
    assert "--allow-public" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_model_that_is_not_there(slipstream: Command, tmp_path: Path) -> None:
    done = slipstream("serve", tmp_path / "no.gguf", "--port", "0")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("grace_s", [0.2, 30.0])
def test_sigterm_ends_streams_cleanly(lasting: Path, grace_s: float) -> None:
    """Within the grace they end by themselves, beyond it by an error; never in the middle."""
    tokens = -1 if grace_s < 1 else 300
    flags = ["--parallel", "4", "--grace-s", str(grace_s), "--context", "32768", *tiny_backend()]
    server = start(lasting, *flags)
    try:
        family = server.processes()[1:]
        with server.client() as http, running_streams(http, 4, n_predict=tokens) as streams:
            server.terminate()
            for events in streams:
                *_, (name, last) = events
                assert name == "error" or last["stop"], last
                assert grace_s < 1 or last["stop_type"] == "limit"
        assert server.wait() == 0
        _, left = psutil.wait_procs(family, timeout=PATIENCE_S)
        assert not left
        assert "Traceback" not in server.said()
    finally:
        server.kill()


def test_a_server_that_stops_takes_no_more(lasting: Path) -> None:
    server = start(lasting, "--parallel", "2", "--grace-s", "2", *tiny_backend())
    try:
        with server.client() as http, running_streams(http, 1) as (events,):
            server.terminate()
            with contextlib.suppress(ConnectionError, OSError, *_refusals()):
                reply = http.post("/completion", json={"prompt": "a", "n_predict": 1})
                assert reply.status_code == 503
            list(events)
        assert server.wait() == 0
    finally:
        server.kill()


def _refusals() -> tuple[type[Exception], ...]:
    import httpx

    return (httpx.TransportError,)


def test_when_the_engine_dies_every_stream_is_told(lasting: Path) -> None:
    server = start(lasting, "--parallel", "2", "--context", "32768", *tiny_backend())
    try:
        with server.client() as http, running_streams(http, 2) as streams:
            worker = server.processes()[1]
            os.kill(worker.pid, signal.SIGKILL)
            for events in streams:
                *_, (name, last) = events
                assert name == "error"
                assert last["error"]["message"]
        assert server.wait() == 1
        assert "Traceback" not in server.said()
    finally:
        server.kill()


def test_ctrl_c_reaches_the_server_alone(lasting: Path) -> None:
    """The engine ignores it: the server ends the engine when its streams have ended."""
    server = start(lasting, "--parallel", "1", "--grace-s", "0.2", *tiny_backend())
    try:
        with server.client() as http, running_streams(http, 1) as (events,):
            os.kill(server.processes()[1].pid, signal.SIGINT)
            next(events)
            os.kill(server.process.pid, signal.SIGINT)
            *_, (name, last) = events
            assert name == "error" or last["stop"]
        assert server.wait() in (0, 130)
    finally:
        server.kill()
