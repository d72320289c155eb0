"""Ctrl-C and a closed pipe: prompt, quiet, with the exit code that shells expect."""

from __future__ import annotations

import os
import pty
import select
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from conftest import Command

PROMPT_S = 5.0  # a loaded machine; a native call lasts 0.25 s at most
ENDLESS = ("--ignore-eos", "-n", "-1")


@pytest.fixture(autouse=True)
def _interruptible() -> Iterator[None]:
    """A shell's background job ignores SIGINT, and so would every process that it starts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupted(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGINT)
    begin = time.monotonic()
    out, err = process.communicate(timeout=60)
    assert time.monotonic() - begin < PROMPT_S
    assert process.returncode == 130, (out, err)
    assert b"Traceback" not in err
    assert err.endswith(b"interrupted\n")


def test_run(slipstream: Command, tiny: Path, backend: Sequence[str]) -> None:
    process = slipstream.start(
        *("run", tiny, *backend, "-p", "hello", *ENDLESS, "--temp", "1"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.read(1)
    interrupted(process)


def test_bench(slipstream: Command, tiny: Path) -> None:
    process = slipstream.start(
        *("bench", "rows", tiny, "--backend", "reference", "--rounds", "100000"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    process.stderr.readline()
    interrupted(process)


def test_pull_from_a_server_that_says_nothing(slipstream: Command) -> None:
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
            interrupted(process)


def test_closed_pipe(slipstream: Command, tiny: Path) -> None:
    with slipstream.start(
        *("run", tiny, "--backend", "reference", "-p", "hello", *ENDLESS, "--temp", "1"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(1)
        process.stdout.close()
        err = process.stderr.read()
        assert process.wait(timeout=60) == 141
    assert b"Traceback" not in err
    assert b"Exception ignored" not in err


class Terminal:
    """A process on a pseudo-terminal."""

    def __init__(self, slipstream: Command, *arguments: str | Path) -> None:
        self._ours, theirs = pty.openpty()
        streams = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
        self.process = slipstream.start(*arguments, **streams, start_new_session=True)
        os.close(theirs)

    def read_until(self, *parts: bytes) -> bytes:
        shown = b""
        deadline = time.monotonic() + 60
        while not all(part in shown for part in parts):
            ready, _, _ = select.select([self._ours], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, shown[-500:]
            shown += os.read(self._ours, 65536)
        return shown

    def type(self, text: bytes) -> None:
        os.write(self._ours, text)

    def interrupt(self) -> None:
        os.killpg(self.process.pid, signal.SIGINT)


@pytest.fixture
def chat(slipstream: Command, chatty: Path) -> Terminal:
    terminal = Terminal(
        slipstream, "chat", chatty, "--backend", "reference", "--ignore-eos", "--temp", "1"
    )
    terminal.read_until(b"> ")
    return terminal


def test_chat_stops_the_reply_and_goes_on(chat: Terminal) -> None:
    for _ in range(2):
        chat.type(b"hello\n")
        chat.read_until(b"hello\r\n")
        time.sleep(0.5)
        chat.interrupt()
        chat.read_until(b"stopped", b"> ")
    chat.type(b"\x04")
    assert chat.process.wait(timeout=60) == 0


def test_chat_at_the_prompt(chat: Terminal) -> None:
    # Between the prompt and its wait for a key, readline holds an interrupt back until a key.
    time.sleep(0.5)
    chat.interrupt()
    chat.read_until(b"interrupted")
    assert chat.process.wait(timeout=60) == 130
