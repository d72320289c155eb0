"""Ctrl-C and a closed pipe: prompt, quiet, with the exit code that shells expect."""

from __future__ import annotations

import os
import pty
import select
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil
import pytest

from builders import tiny_model
from conftest import TEMPLATE, Command

PROMPT_S = 5.0  # a loaded machine; a native call lasts 0.25 s at most
ATTEMPTS = 3  # that a machine stalls in each of which is not believed
PATIENCE_S = 300.0
REPLY_BYTES = 256  # more than the prompt and the echo of a message: the reply has begun
SLEEPING = 10  # looks in a row
ENDLESS = ("--ignore-eos", "-n", "-1")


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A chat model whose output goes on for longer than this process may be kept waiting."""
    path = tmp_path_factory.mktemp("lasting") / "lasting.gguf"
    return tiny_model(path, "llama", context=1 << 17, extra={"tokenizer.chat_template": TEMPLATE})


def interrupted(process: subprocess.Popen[bytes]) -> float:
    """Interrupt it, and say how many seconds it took to end."""
    process.send_signal(signal.SIGINT)
    begin = time.monotonic()
    out, err = process.communicate(timeout=PATIENCE_S)
    elapsed = time.monotonic() - begin
    assert process.returncode == 130, (out, err)
    assert b"Traceback" not in err
    assert err.endswith(b"interrupted\n")
    return elapsed


def ends_promptly(attempt: Callable[[], float]) -> bool:
    return any(attempt() < PROMPT_S for _ in range(ATTEMPTS))


def test_run(slipstream: Command, lasting: Path, backend: Sequence[str]) -> None:
    def attempt() -> float:
        process = slipstream.start(
            *("run", lasting, *backend, "-p", "hello", *ENDLESS, "--temp", "1"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdout is not None
        process.stdout.read(1)
        return interrupted(process)

    assert ends_promptly(attempt)


def test_bench(slipstream: Command, tiny: Path) -> None:
    def attempt() -> float:
        process = slipstream.start(
            *("bench", "rows", tiny, "--backend", "reference", "--rounds", "100000"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stderr is not None
        process.stderr.readline()
        return interrupted(process)

    assert ends_promptly(attempt)


def test_pull_from_a_server_that_says_nothing(slipstream: Command) -> None:
    assert ends_promptly(lambda: interrupted_pull(slipstream))


def interrupted_pull(slipstream: Command) -> float:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        silent = Command({**slipstream.environment, "HF_ENDPOINT": address})
        process = silent.start(
            *("pull", "someone/something:model.gguf"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        connection, _ = server.accept()
        with connection:
            return interrupted(process)


def test_closed_pipe(slipstream: Command, lasting: Path) -> None:
    with slipstream.start(
        *("run", lasting, "--backend", "reference", "-p", "hello", *ENDLESS, "--temp", "1"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(1)
        process.stdout.close()
        err = process.stderr.read()
        assert process.wait(timeout=PATIENCE_S) == 141
    assert b"Traceback" not in err
    assert b"Exception ignored" not in err


class Terminal:
    """A process on a pseudo-terminal."""

    def __init__(self, slipstream: Command, *arguments: str | Path) -> None:
        self._ours, theirs = pty.openpty()
        streams = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
        self.process = slipstream.start(*arguments, **streams, start_new_session=True)
        os.close(theirs)

    def read_until(self, *parts: bytes, least: int = 0) -> bytes:
        shown = b""
        deadline = time.monotonic() + PATIENCE_S
        while not all(part in shown for part in parts) or len(shown) < least:
            ready, _, _ = select.select([self._ours], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, shown[-500:]
            shown += os.read(self._ours, 65536)
        return shown

    def type(self, text: bytes) -> None:
        os.write(self._ours, text)

    def interrupt(self) -> None:
        os.killpg(self.process.pid, signal.SIGINT)

    def wait_for_a_key(self) -> None:
        """Return once it has slept for a while: at the prompt nothing else makes it sleep."""
        process, deadline = psutil.Process(self.process.pid), time.monotonic() + PATIENCE_S
        asleep = 0
        while asleep < SLEEPING:
            assert time.monotonic() < deadline
            time.sleep(0.02)
            asleep = asleep + 1 if process.status() == psutil.STATUS_SLEEPING else 0


@pytest.fixture
def chat(slipstream: Command, lasting: Path) -> Terminal:
    terminal = Terminal(
        slipstream, "chat", lasting, "--backend", "reference", "--ignore-eos", "--temp", "1"
    )
    terminal.read_until(b"> ")
    return terminal


def test_chat_stops_the_reply_and_goes_on(chat: Terminal) -> None:
    for _ in range(2):
        chat.type(b"hello\n")
        chat.read_until(b"hello\r\n", least=REPLY_BYTES)
        chat.interrupt()
        chat.read_until(b"stopped", b"> ")
    chat.type(b"\x04")
    assert chat.process.wait(timeout=PATIENCE_S) == 0


def test_chat_at_the_prompt(chat: Terminal) -> None:
    # Between the prompt and its wait for a key, readline holds an interrupt back until a key.
    chat.wait_for_a_key()
    chat.interrupt()
    chat.read_until(b"interrupted")
    assert chat.process.wait(timeout=PATIENCE_S) == 130
