"""A child process that serves: ready, not ready, and ended with all that it started."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from slipstream.lab.runtimes import server_process
from slipstream.lab.runtimes.faults import CrashedError
from slipstream.lab.runtimes.server_process import ServerProcess, end_left_over, free_port

CHILD = """\
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print("up", flush=True)
time.sleep(60)
"""
STUBBORN = """\
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("up", flush=True)
time.sleep(60)
"""


def started(code: str, log: Path) -> ServerProcess:
    made = ServerProcess("x", [sys.executable, "-c", code], log)
    limit = time.monotonic() + 20
    while "up" in code and b"up" not in log.read_bytes() and time.monotonic() < limit:
        time.sleep(0.02)
    return made


def test_a_program_that_ended_is_not_ready_whoever_answers_at_its_port(tmp_path: Path) -> None:
    process = started("print('a reason'); raise SystemExit(3)", tmp_path / "x.log")
    process._process.wait()
    with pytest.raises(CrashedError, match=r"(?s)exit code 3 before it was ready.*a reason"):
        process.await_ready(lambda: True, 5.0)
    assert process.end() == ("crashed: exit code 3 before it was asked to end",)
    assert process.end() == ()


def test_one_that_is_exiting_is_not_taken_for_one_that_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connections are gone a while before its exit code is there."""
    code = "import time; print('up', flush=True); time.sleep(0.4); raise SystemExit(9)"
    process = started(code, tmp_path / "x.log")
    monkeypatch.setattr(server_process, "_is_exiting", lambda pid: pid == process.pid)
    assert process.end() == ("crashed: exit code 9 before it was asked to end",)


@pytest.mark.skipif(sys.platform != "linux", reason="told by Linux alone")
def test_the_system_tells_who_is_exiting() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert server_process._is_exiting(child.pid)
    child.wait()
    assert not server_process._is_exiting(child.pid)
    assert not server_process._is_exiting(os.getpid())


def test_all_that_it_started_ends_with_it(tmp_path: Path) -> None:
    process = started(CHILD, tmp_path / "x.log")
    family = [process.pid, *(child.pid for child in psutil.Process(process.pid).children(True))]
    assert len(family) == 2
    assert process.end() == ()
    assert _gone(family)
    assert list(tmp_path.glob("*.pid")) == []


def test_one_that_does_not_end_is_killed_and_told(tmp_path: Path) -> None:
    process = started(STUBBORN, tmp_path / "x.log")
    assert process.end(grace_s=0.3) == ("crashed: it did not end within 0 s and was killed",)
    assert _gone([process.pid])


def test_an_interrupted_end_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = started(STUBBORN, tmp_path / "x.log")

    wait = process._process.wait

    def interrupted(timeout: float | None = None) -> int:
        if timeout is not None:
            raise KeyboardInterrupt
        return wait()

    monkeypatch.setattr(process._process, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        process.end()
    assert _gone([process.pid])


def test_a_corrected_clock_does_not_hide_what_was_left_over(tmp_path: Path) -> None:
    process = started(CHILD, tmp_path / "x.log")
    note = tmp_path / "x.log.pid"
    pid, created = json.loads(note.read_text())
    note.write_text(json.dumps([pid, created + 1.0]))
    assert end_left_over(tmp_path) == (process.pid,)
    assert _gone([process.pid])
    process.end()


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CrashedError, match="No such file"):
        ServerProcess("x", ["/nonexistent/program"], tmp_path / "logs" / "x.log")
    assert 0 < free_port() < 65536


def _gone(pids: list[int]) -> bool:
    limit = time.monotonic() + 10
    while time.monotonic() < limit:
        if not any(psutil.pid_exists(pid) and _lives(pid) for pid in pids):
            return True
        time.sleep(0.02)
    return False


def _lives(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False
