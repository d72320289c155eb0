"""A log through a pipe: bounded on disk and in memory, scanned as a whole."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from slipstream.lab.judging.findings import EFFECTS
from slipstream.lab.runtimes import kept_log
from slipstream.lab.runtimes.kept_log import KeptLog
from slipstream.lab.runtimes.server_process import ServerProcess

DRAFTED = b"draft acceptance rate = 1.00000 (   17 accepted /    20 generated)\n"


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_log, "MOST_HEAD", 4000)
    monkeypatch.setattr(kept_log, "MOST_TAIL", 3000)


class Log:
    """A log and the end that a server writes to."""

    def __init__(self, folder: Path) -> None:
        self.heard = bytearray()
        self.kept = KeptLog(folder / "x.log", self.heard.extend)
        self._end = os.dup(self.kept.write_end)
        self.kept.started()

    def write(self, data: bytes) -> None:
        with open(self._end, "wb", closefd=False) as file:
            file.write(data)

    def close(self) -> bytes:
        os.close(self._end)
        self.kept.close()
        return self.kept.path.read_bytes()


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


def test_a_short_log_is_kept_as_it_is(log: Log) -> None:
    log.write(b"error: one\n")
    assert log.kept.scan().findings == ("error: error: one",)
    log.write(b"error: two\nlast")
    log.kept.deliver()
    assert log.heard == b"error: one\nerror: two\nlast"
    assert log.kept.last(4) == b"last"
    assert log.close() == b"error: one\nerror: two\nlast"
    assert log.kept.findings() == ("error: error: one", "error: error: two")
    log.kept.close()


def test_a_log_that_fits_in_both_parts_has_no_gap(log: Log) -> None:
    given = b"".join(b"%06d\n" % n for n in range(900))
    assert 4000 < len(given) < 7000
    log.write(given)
    assert log.kept.last(100) == given[-100:]
    assert log.close() == given
    assert log.kept.findings() == ()


def test_a_long_log_is_scanned_whole_and_kept_in_part(log: Log) -> None:
    calm = b"calm\n" * 20_000
    given = b"error: first\n" + calm + b"error: amid\n" + DRAFTED + calm + b"error: final\n"
    log.write(given)
    assert len(log.kept.scan().findings) == 3
    log.kept.deliver()
    assert bytes(log.heard) == given
    left = log.close()
    assert left.startswith(given[:4000])
    assert left.endswith(given[-3000:])
    assert len(left) < 4000 + 2 * 3000 + 100
    gone = len(given) - (len(left) - len(left[left.index(b"\n[the lab") :].split(b"]\n")[0]) - 2)
    assert f"left out {gone:,} bytes here, of {len(given):,} in all".encode() in left
    cut, *others = log.kept.findings()
    assert cut.startswith(f"log-cut: {gone:,} of {len(given):,} bytes")
    assert [text.split(": ")[2] for text in others] == ["first", "amid", "final"]
    assert "log-cut" in EFFECTS


def test_a_line_without_end_costs_no_memory(log: Log) -> None:
    for _ in range(200):
        log.write(b"x" * 100_000)
    log.write(b"\nerror: after it\n")
    assert [text.split(": ")[2] for text in log.kept.scan().findings] == ["after it"]
    assert len(log.kept._tail) <= 6000
    assert len(log.close()) < 11_000


def test_a_full_disk_ends_the_file_and_not_the_server(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full:
        def write(self, _: bytes) -> int:
            raise OSError(28, "No space left on device")

        def __enter__(self) -> Full:
            return self

        def __exit__(self, *_: object) -> None:
            raise OSError(28, "No space left on device")

    log.kept._file.close()
    monkeypatch.setattr(log.kept, "_file", Full())
    log.write(b"calm\n" * 10_000 + b"error: still heard\n")
    assert [text.split(": ")[2] for text in log.kept.scan().findings] == ["still heard"]
    assert log.close() == b""


def test_a_server_that_writes_without_end_is_ended(tmp_path: Path) -> None:
    code = "import sys\nwhile True: sys.stderr.write('calm ' * 10000 + chr(10))\n"
    process = ServerProcess("x", [sys.executable, "-c", code], tmp_path / "x.log")
    limit = time.monotonic() + 20
    while process.kept._left_out < 1_000_000 and time.monotonic() < limit:
        time.sleep(0.02)
    assert "calm" in process.last_lines()
    assert len(process.last_lines()) < 4000
    assert process.end() == ()
    assert (tmp_path / "x.log").stat().st_size < 11_000
    assert process.kept.findings()[0].startswith("log-cut: ")


def test_a_child_that_got_away_does_not_hold_the_end(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys, time\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(30)'],"
        " start_new_session=True)\n"
        "print('up', flush=True)\ntime.sleep(30)\n"
    )
    process = ServerProcess("x", [sys.executable, "-c", code], tmp_path / "x.log")
    limit = time.monotonic() + 20
    while b"up" not in process.kept.last(10) and time.monotonic() < limit:
        time.sleep(0.02)
    begun = time.monotonic()
    assert process.end() == ()
    assert time.monotonic() - begun < 5
