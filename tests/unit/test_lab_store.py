"""The records file: every cut of it, a second writer, and what is counted of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from slipstream.errors import OperationError, RequestError
from slipstream.lab.contract.records import (
    BlockRecord,
    FindingRecord,
    Line,
    ObservedRecord,
    RequestRecord,
)
from slipstream.lab.evidence.store import (
    RECORDS,
    Store,
    counted,
    measured,
    next_attempt,
    read_records,
)


def _request(block: int, index: int, *, attempt: int = 1, warm_up: bool = False) -> RequestRecord:
    return RequestRecord(
        run="r",
        block=block,
        attempt=attempt,
        index=index,
        runtime="fake",
        condition="none",
        stratum="prose",
        prompt=f"prose/{index}",
        warm_up=warm_up,
    )


def _block(block: int, *, attempt: int = 1, outcome: str = "ok") -> BlockRecord:
    return BlockRecord(
        run="r",
        block=block,
        attempt=attempt,
        runtime="fake",
        condition="none",
        stratum="prose",
        began="2026-11-30T12:00:00+00:00",
        elapsed_s=1.0,
        outcome=outcome,
    )


LINES: list[Line] = [
    _request(0, 0, warm_up=True),
    _request(0, 1),
    _block(0),
    FindingRecord(run="r", name="stalled", text="Störung"),
    _request(1, 0),
]


def _filled(folder: Path) -> bytes:
    with Store(folder) as store:
        for line in LINES:
            store.append(line)
    return (folder / RECORDS).read_bytes()


def test_every_record_comes_back(tmp_path: Path) -> None:
    _filled(tmp_path)
    assert read_records(tmp_path / RECORDS) == LINES


def test_a_file_cut_at_any_byte_loses_the_torn_line_alone(tmp_path: Path) -> None:
    whole = _filled(tmp_path / "whole")
    ends = [i + 1 for i, byte in enumerate(whole) if byte == ord("\n")]
    folder = tmp_path / "cut"
    folder.mkdir()
    for cut in range(len(whole) + 1):
        (folder / RECORDS).write_bytes(whole[:cut])
        kept = sum(end <= cut for end in ends)
        with Store(folder, sync=lambda _handle: None) as store:
            assert store.lines == LINES[:kept], cut
            assert store.cut_bytes == cut - ([0, *ends][kept])
            store.append(LINES[-1])
        assert read_records(folder / RECORDS) == [*LINES[:kept], LINES[-1]], cut


def test_zeros_of_a_lost_write_are_cut_off(tmp_path: Path) -> None:
    whole = _filled(tmp_path)
    (tmp_path / RECORDS).write_bytes(whole + bytes(4096))
    with Store(tmp_path) as store:
        assert store.lines == LINES
    assert (tmp_path / RECORDS).read_bytes() == whole


def test_each_line_is_synced_before_the_next(tmp_path: Path) -> None:
    sizes: list[int] = []
    with Store(tmp_path, sync=lambda handle: sizes.append(os.fstat(handle).st_size)) as store:
        opened = len(sizes)
        for line in LINES:
            store.append(line)
    ends = [i + 1 for i, b in enumerate((tmp_path / RECORDS).read_bytes()) if b == ord("\n")]
    assert sizes[opened:] == ends


@pytest.mark.parametrize(
    "line",
    [
        b"nonsense\n",
        b"{}\n",
        b'{"is":"request"}\n',
        b'{"is":"verdict","run":"r"}\n',
        b"\xff\xfe\n",
        b"[" * 100_000 + b"\n",
    ],
)
def test_a_line_that_is_no_record_is_named(tmp_path: Path, line: bytes) -> None:
    whole = _filled(tmp_path)
    (tmp_path / RECORDS).write_bytes(whole + line)
    with pytest.raises(RequestError, match=f"line {len(LINES) + 1}"):
        Store(tmp_path)
    assert (tmp_path / RECORDS).read_bytes() == whole + line


def test_a_line_without_end_is_refused_in_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slipstream.lab.evidence.store.MOST_LINE_BYTES", 1000)
    (tmp_path / RECORDS).write_bytes(b"x" * 5000)
    with pytest.raises(RequestError, match="1000 bytes"):
        Store(tmp_path)


def test_one_run_at_a_time(tmp_path: Path) -> None:
    with Store(tmp_path), pytest.raises(OperationError, match="another one"):
        Store(tmp_path)
    Store(tmp_path).close()


def test_the_folder_is_free_after_a_kill(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from slipstream.lab.evidence.store import Store\n"
        "from slipstream.lab.contract.records import FindingRecord\n"
        "store = Store(Path(sys.argv[1]))\n"
        "store.append(FindingRecord(run='r', name='stalled', text='x'))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False, timeout=60)
    assert ended.returncode == -9
    with Store(tmp_path) as store:
        assert len(store.lines) == 1


def test_a_full_disk_leaves_whole_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = _filled(tmp_path)
    real = os.write

    def full(handle: int, data: memoryview) -> int:
        if len(data) > 10:
            return real(handle, data[:10])
        raise OSError(28, "No space left on device")

    with Store(tmp_path) as store:
        monkeypatch.setattr(os, "write", full)
        with pytest.raises(OperationError, match="No space"):
            store.append(LINES[0])
        monkeypatch.undo()
        assert store.lines == LINES
    assert (tmp_path / RECORDS).read_bytes() == whole


def test_requests_of_an_aborted_attempt_do_not_count() -> None:
    assert counted(LINES) == LINES[:-1]


def test_measured_leaves_out_warm_ups_and_repeated_blocks() -> None:
    lines: list[Line] = [
        _request(0, 0, warm_up=True),
        _request(0, 1),
        _block(0, outcome="repeated"),
        _request(0, 0, attempt=2, warm_up=True),
        _request(0, 1, attempt=2),
        _block(0, attempt=2),
    ]
    assert [(r.attempt, r.index) for r in measured(lines)] == [(2, 1)]


def test_an_attempt_is_never_used_twice() -> None:
    assert next_attempt(LINES, 0) == 2
    assert next_attempt(LINES, 1) == 2
    assert next_attempt(LINES, 2) == 1


def test_what_is_said_already_is_not_said_again(tmp_path: Path) -> None:
    finding = FindingRecord(run="r", name="stalled", text="x")
    one = ObservedRecord(run="r", runtime="fake", condition="none", at="1")
    later = ObservedRecord(run="r", runtime="fake", condition="none", at="2")
    other = ObservedRecord(run="r", runtime="fake", condition="none", at="3", layers_offloaded=1)
    with Store(tmp_path) as store:
        assert [store.append_new(x) for x in (finding, finding)] == [True, False]
        assert [store.append_new(x) for x in (one, later, other, one)] == [True, False, True, False]
