"""``slipstream serve`` as a process: how it starts, how it ends, and what ends with it."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pytest

from builders import tiny_model
from conftest import Command

BACKEND = ("--backend", "cpu" if find_spec("slipstream._native") else "reference")
STREAMING = Path(__file__).resolve().parents[1] / "streaming_server.py"
PATIENCE_S = 120.0
ENDLESS = 100_000


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose output goes on for longer than a test."""
    path = tmp_path_factory.mktemp("lasting") / "lasting.gguf"
    return tiny_model(path, "llama", context=1 << 17)


class Server:
    """A server with ``/stream``, and its first line of JSON."""

    def __init__(self, command: Command, *arguments: str | Path) -> None:
        environment = dict(command.environment)
        folder = str(STREAMING.parent)
        environment["PYTHONPATH"] = os.pathsep.join([environment["PYTHONPATH"], folder])
        self.process = subprocess.Popen(
            [
                *(sys.executable, str(STREAMING), *map(str, arguments), *BACKEND),
                *("--port", "0", "--json"),
            ],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.communicate(timeout=PATIENCE_S)[1].decode()
        self.ready: dict[str, Any] = json.loads(line)
        self.engine = psutil.Process(self.ready["engine_pid"])

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(
            self.ready["host"], self.ready["port"], timeout=PATIENCE_S
        )

    def get(self, path: str, **headers: str) -> tuple[int, Any]:
        with contextlib.closing(self.connect()) as connection:
            connection.request("GET", path, headers=headers)
            reply = connection.getresponse()
            return reply.status, json.loads(reply.read())

    def stream(self, tokens: int) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        """One that has begun."""
        connection = self.connect()
        connection.request("POST", f"/stream?n={tokens}")
        reply = connection.getresponse()
        assert reply.status == 200, reply.read()
        assert reply.readline().strip().isdigit()
        return connection, reply

    def wait(self) -> tuple[int, str]:
        """Exit code and what it said on stderr; the engine process is gone too."""
        _, err = self.process.communicate(timeout=PATIENCE_S)
        with contextlib.suppress(psutil.NoSuchProcess):
            self.engine.wait(timeout=PATIENCE_S)
        return self.process.returncode, err.decode()


@contextlib.contextmanager
def started(command: Command, *arguments: str | Path) -> Iterator[Server]:
    server = Server(command, *arguments)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.process.kill()
        server.process.communicate(timeout=PATIENCE_S)


def comes(true: Callable[[], bool]) -> None:
    limit = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < limit
        time.sleep(0.02)


def last_line(reply: http.client.HTTPResponse) -> str:
    return reply.read().decode().splitlines()[-1]


def test_it_says_that_it_is_ready(slipstream: Command, tiny: Path) -> None:
    with started(slipstream, tiny, "--context", "256") as server:
        ready = server.ready
        assert ready["ready"] is True
        assert ready["url"] == f"http://127.0.0.1:{ready['port']}"
        assert (ready["model"], ready["context"], ready["parallel"]) == ("tiny", 256, 4)
        assert ready["methods"]["suffix"]["offered"]
        assert ready["speculative"]["type"] == "none"
        assert server.get("/health") == (200, {"status": "ok"})
        assert server.get("/nothing")[0] == 404
        assert server.get("/stream")[0] == 405
        children = psutil.Process(server.process.pid).children(recursive=True)
        assert [child.pid for child in children] == [ready["engine_pid"]]
        server.process.terminate()
        assert server.wait() == (0, "")


def test_its_summary_is_plain(slipstream: Command, tiny: Path, chatty: Path) -> None:
    for model, path in ((tiny, "/v1/completions"), (chatty, "/v1/chat/completions")):
        process = slipstream.start(
            *("serve", model, *BACKEND, "--port", "0", "--alias", "mine", "--spec", "auto"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdout is not None
        lines = []
        while (line := process.stdout.readline().decode()) != "ready\n":
            assert line, process.communicate()
            lines.append(line)
        process.terminate()
        _, err = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0
        assert b"Traceback" not in err
        assert b"error" not in err
        text = "".join(lines)
        assert text.startswith("mine (llama, ")
        assert "4 sequences at a time of 4096 tokens each" in text
        assert "drafting: suffix; a request may choose" in text
        assert "this machine only" in text
        assert f"curl http://127.0.0.1:{port_of(text)}{path}" in text


def port_of(text: str) -> str:
    return text.partition("127.0.0.1:")[2].partition("\n")[0]


def test_a_streams_tokens_are_those_of_run(slipstream: Command, tiny: Path) -> None:
    done = slipstream(
        *("run", tiny, *BACKEND, "-p", "the rain in spain", "-n", "40", "--ignore-eos"),
        *("--temp", "1", "--seed", "1", "--json"),
    )
    expected = json.loads(done.stdout.splitlines()[-1])["ids"]
    with started(slipstream, tiny, "--spec", "suffix,ngram-mod") as server:
        with contextlib.closing(server.connect()) as connection:
            connection.request("POST", "/stream?n=40")
            *ids, end = connection.getresponse().read().decode().splitlines()
        assert list(map(int, ids)) == expected
        assert end == "end length"
        server.process.terminate()
        assert server.wait() == (0, "")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_streams_may_finish(
    slipstream: Command, lasting: Path, number: signal.Signals, code: int
) -> None:
    with started(slipstream, lasting) as server:
        connection, reply = server.stream(300)
        server.process.send_signal(number)
        assert last_line(reply) == "end length"
        connection.close()
        assert server.wait() == (code, "")


def test_beyond_the_grace_they_end_with_an_error(slipstream: Command, lasting: Path) -> None:
    with started(slipstream, lasting, "--grace-s", "0.2") as server:
        streams = [server.stream(ENDLESS) for _ in range(4)]
        server.process.terminate()
        for connection, reply in streams:
            assert last_line(reply).startswith("error ")
            connection.close()
        assert server.wait() == (0, "")


def test_a_second_signal_ends_at_once(slipstream: Command, lasting: Path) -> None:
    with started(slipstream, lasting) as server:
        connection, _ = server.stream(ENDLESS)
        server.process.terminate()
        time.sleep(0.5)
        assert server.process.poll() is None
        begin = time.monotonic()
        server.process.send_signal(signal.SIGINT)
        assert server.wait() == (130, "")
        assert time.monotonic() - begin < 20
        connection.close()


def test_no_new_connection_once_it_ends(slipstream: Command, lasting: Path) -> None:
    with started(slipstream, lasting) as server:
        connection, _ = server.stream(ENDLESS)
        server.process.terminate()

        def refused() -> bool:
            try:
                return server.get("/health")[0] != 200
            except OSError:
                return True

        comes(refused)
        connection.close()
        assert server.wait() == (0, "")


def test_when_the_engine_dies_it_says_so_and_ends(slipstream: Command, lasting: Path) -> None:
    with started(slipstream, lasting) as server:
        connection, reply = server.stream(ENDLESS)
        server.engine.kill()
        assert last_line(reply).startswith("error expected the engine process to go on")
        connection.close()
        status, body = server.get("/health")
        assert status == 503
        assert "engine process" in body["error"]["message"]
        code, err = server.wait()
        assert code == 1
        assert err.startswith("error: expected the engine process to go on")
        assert "Traceback" not in err


def test_the_engine_ends_with_the_server(slipstream: Command, lasting: Path) -> None:
    with started(slipstream, lasting) as server:
        connection, _ = server.stream(ENDLESS)
        server.process.kill()
        server.engine.wait(timeout=PATIENCE_S)
        connection.close()


@contextlib.contextmanager
def loading(command: Command, program: list[str], tiny: Path) -> Iterator[tuple[Any, Any]]:
    """A server whose engine process has started, and that process."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = dict(command.environment)
    folder = str(STREAMING.parent)
    environment["PYTHONPATH"] = os.pathsep.join([environment["PYTHONPATH"], folder])
    process = subprocess.Popen(
        [sys.executable, *program, str(tiny), *BACKEND, "--port", str(port)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    family = psutil.Process(process.pid)
    try:
        comes(lambda: bool(family.children()) or process.poll() is not None)
        (engine,) = family.children()
        yield process, engine
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE_S)


LOADING = [str(STREAMING.with_name("loading_server.py"))]


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130), (signal.SIGKILL, -9)]
)
@pytest.mark.parametrize("program", [LOADING, ["-m", "slipstream", "serve"]])
def test_it_may_be_ended_while_the_model_loads(
    slipstream: Command, tiny: Path, program: list[str], number: signal.Signals, code: int
) -> None:
    with loading(slipstream, program, tiny) as (process, engine):
        process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE_S)
        engine.wait(timeout=PATIENCE_S)
    assert process.returncode == code, err
    assert b"Traceback" not in err
    assert b"ready" not in out
    if number == signal.SIGTERM:
        assert err.splitlines()[-1] == b"ended before it was ready"


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")
@pytest.mark.parametrize("delay_s", [0.0, 0.05, 0.2, 0.5, 1.0])
def test_it_may_be_ended_as_soon_as_it_handles_signals(
    slipstream: Command, tiny: Path, delay_s: float
) -> None:
    environment = dict(slipstream.environment)
    process = subprocess.Popen(
        [sys.executable, "-m", "slipstream", "serve", str(tiny), *BACKEND, "--port", "0"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        comes(lambda: handles(process.pid, signal.SIGTERM))
        time.sleep(delay_s)
        family = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=PATIENCE_S)
        _, left = psutil.wait_procs(family, timeout=PATIENCE_S)
    finally:
        process.kill()
    assert process.returncode == 0, err
    assert not left
    assert b"Traceback" not in err
    assert b"ready" in out.splitlines() or err.splitlines()[-1] == b"ended before it was ready"


def handles(pid: int, number: int) -> bool:
    """Whether a process has a handler for a signal."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    caught = next(line.split()[1] for line in lines if line.startswith("SigCgt:"))
    return bool(int(caught, 16) >> (number - 1) & 1)


def test_nobody_is_let_in_while_the_model_loads(slipstream: Command, tiny: Path) -> None:
    with loading(slipstream, LOADING, tiny) as (process, engine):
        port = next(int(word) for word in reversed(process.args) if word.isdigit())
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        engine.kill()
        _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert err.decode().splitlines()[-3].startswith("error: expected the engine process to go on")
    assert b"SIGKILL" in err
    assert b"Traceback" not in err


def test_a_client_that_leaves_frees_its_place(slipstream: Command, lasting: Path) -> None:
    with started(slipstream, lasting) as server:
        connection, reply = server.stream(ENDLESS)
        assert server.get("/state")[1] == {"active": 1}
        reply.close()
        connection.close()
        comes(lambda: bool(server.get("/state")[1] == {"active": 0}))


def test_a_slow_reader_holds_up_nobody(slipstream: Command, lasting: Path) -> None:
    with started(slipstream, lasting, "--parallel", "2") as server:
        slow, _ = server.stream(ENDLESS)
        for _ in range(3):
            connection, reply = server.stream(100)
            assert last_line(reply) == "end length"
            connection.close()
        slow.close()


def test_the_queue_is_bounded(slipstream: Command, lasting: Path) -> None:
    with started(slipstream, lasting, "--parallel", "1", "--queue", "1") as server:
        running, _ = server.stream(ENDLESS)
        waiting = server.connect()
        waiting.request("POST", "/stream?n=3")
        comes(lambda: bool(server.get("/state")[1] == {"active": 2}))
        with contextlib.closing(server.connect()) as connection:
            connection.request("POST", "/stream?n=3")
            reply = connection.getresponse()
            assert reply.status == 429
            assert int(reply.headers["retry-after"]) >= 1
        running.close()
        assert last_line(waiting.getresponse()) == "end length"
        waiting.close()


def test_keys(slipstream: Command, tiny: Path, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("a-key-of-twenty-four-chars\n")
    keys.chmod(0o600)
    with started(slipstream, tiny, "--api-key-file", keys) as server:
        assert server.ready["keys"] == 1
        assert server.get("/health")[0] == 200
        assert server.get("/state")[0] == 401
        assert server.get("/state", authorization="Bearer a-key-of-twenty-four-chars")[0] == 200
        server.process.terminate()
        assert server.wait() == (0, "")


def test_garbage_is_no_failure(slipstream: Command, tiny: Path) -> None:
    with started(slipstream, tiny, "--body-limit-bytes", "2000") as server:
        address = (server.ready["host"], server.ready["port"])
        for data in (b"\x00\xff" * 50, b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"G" * 200_000):
            raw = socket.create_connection(address, timeout=PATIENCE_S)
            with raw, contextlib.suppress(OSError):
                raw.sendall(data)
                raw.shutdown(socket.SHUT_WR)
                while raw.recv(1 << 16):
                    pass
        with contextlib.closing(server.connect()) as connection:
            connection.request("POST", "/stream?n=1", body=b"x" * 3000)
            reply = connection.getresponse()
            assert reply.status == 413
            assert "at most 2000 bytes" in json.loads(reply.read())["error"]["message"]
        with contextlib.closing(server.connect()) as connection:
            connection.request("POST", "/stream?n=bad")
            reply = connection.getresponse()
            assert reply.status == 500
            assert b"Traceback" not in reply.read()
        assert server.get("/health")[0] == 200
        server.process.terminate()
        code, err = server.wait()
        assert code == 0
        assert err.count("Traceback") == 1  # in its own log: /stream's fault with n=bad


def failed(slipstream: Command, *arguments: str | Path, code: int, part: str) -> None:
    done = slipstream("serve", *arguments)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    lines = done.stderr.splitlines()
    said = [line for line in lines if not line.startswith("loading: ")]  # on a slow machine
    assert said[0].startswith("error: expected "), done.stderr
    assert part in done.stderr
    assert done.stdout == ""


def test_mistakes(slipstream: Command, tiny: Path, tmp_path: Path) -> None:
    model = [tiny, *BACKEND, "--port", "0"]
    failed(slipstream, *model, "--host", "0.0.0.0", code=2, part="--allow-public")
    failed(slipstream, *model, "--api-key-file", tmp_path / "no", code=2, part="--api-key-file")
    failed(slipstream, tmp_path / "no.gguf", code=2, part="no.gguf")
    failed(slipstream, *model, "--context", "9999999", code=2, part="at most 4096")
    failed(slipstream, *model, "--spec", "draft-simple", code=2, part="draft model")
    failed(slipstream, *model, "--host", "no.such.host.invalid", "--allow-public", code=1, part="")
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        failed(slipstream, tiny, *BACKEND, "--port", port, code=1, part=f"port {port}")
