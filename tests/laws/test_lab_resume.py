"""The law of resuming: killed at any byte, a run ends with the records it would have had."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lab_world import DRAFT, SIMPLE, World, manifest_of, plan_of, runtimes_of, tools_of
from slipstream.lab.contract.manifest import Manifest
from slipstream.lab.contract.records import BlockRecord, FindingRecord, Line, RequestRecord
from slipstream.lab.evidence.seals import broken
from slipstream.lab.evidence.store import RECORDS, Store, counted, read_kept, read_records
from slipstream.lab.running.outputs import FOLDER
from slipstream.lab.running.run import run


def _go(folder: Path, manifest: Manifest, world: World) -> list[Line]:
    outcome = run(folder, manifest, runtimes_of(manifest, world), tools=tools_of(manifest, world))
    assert outcome.ended == "complete"
    return read_records(folder / RECORDS)


def _told(lines: list[Line]) -> tuple[list[object], list[object], list[object]]:
    """What a run says, whichever attempts it took: blocks, requests that count, findings."""
    blocks: list[object] = [(x.block, x.outcome) for x in lines if isinstance(x, BlockRecord)]
    requests: list[object] = [
        (x.block, x.index, x.prompt, x.verdict, x.error, x.output)
        for x in counted(lines)
        if isinstance(x, RequestRecord)
    ]
    findings: list[object] = [(x.name, x.text) for x in lines if isinstance(x, FindingRecord)]
    return blocks, requests, findings


@pytest.fixture(autouse=True)
def _unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    """The law is about bytes; syncing thousands of files is about the disk."""
    made = Store.__init__

    def init(self: Store, folder: Path) -> None:
        made(self, folder, sync=lambda _handle: None)

    monkeypatch.setattr(Store, "__init__", init)


def _world() -> World:
    return World(diverges={("draft", "prose/0"): 3}, dies_after={"ngram-simple": 1}, gap=0.01)


def _cuts(whole: bytes) -> list[int]:
    """Both sides of every line's end, and bytes between them all along the file."""
    ends = [i + 1 for i, byte in enumerate(whole) if byte == ord("\n")]
    near = {end + d for end in ends for d in (-1, 0, 1)}
    spread = set(range(0, len(whole), 131)) | set(range(0, len(whole), len(whole) // 97))
    return sorted(c for c in near | spread if 0 <= c <= len(whole))


def test_a_run_killed_at_any_byte_ends_as_one_that_was_not(tmp_path: Path) -> None:
    manifest = manifest_of(plan_of(SIMPLE, DRAFT, rules={"repeats": 1}))
    straight = tmp_path / "straight"
    wanted = _told(_go(straight, manifest, _world()))
    assert wanted[2]
    whole = (straight / RECORDS).read_bytes()
    folder = tmp_path / "killed"
    folder.mkdir()
    shutil.copytree(straight / FOLDER, folder / FOLDER)
    for cut in _cuts(whole):
        (folder / RECORDS).write_bytes(whole[:cut])
        found = _told(_go(folder, manifest, _world()))
        assert found == wanted, cut
        assert not broken(read_kept(folder / RECORDS)), cut


def test_a_run_killed_again_and_again_ends_as_one_that_was_not(tmp_path: Path) -> None:
    manifest = manifest_of(plan_of(SIMPLE, DRAFT, rules={"repeats": 1}))
    wanted = _told(_go(tmp_path / "straight", manifest, _world()))
    folder = tmp_path / "killed"
    lines: list[Line] = []
    for step in range(1, 12):
        lines = _go(folder, manifest, _world())
        raw = (folder / RECORDS).read_bytes()
        (folder / RECORDS).write_bytes(raw[: len(raw) * step // 12 - step])
    lines = _go(folder, manifest, _world())
    assert _told(lines) == wanted
    attempts = [(x.block, x.attempt, x.index) for x in lines if isinstance(x, RequestRecord)]
    assert len(attempts) == len(set(attempts))


_KILLED = """
import os, signal, sys
from pathlib import Path
from lab_world import DRAFT, SIMPLE, World, manifest_of, plan_of, runtimes_of, tools_of
from slipstream.lab.running.run import run

manifest = manifest_of(plan_of(SIMPLE, DRAFT, rules={"repeats": 1}))
world = World(diverges={("draft", "prose/0"): 3}, dies_after={"ngram-simple": 1}, gap=0.01)

async def send(endpoint, asked):
    if len(world.asked) == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
    return await world.send(endpoint, asked)

tools = tools_of(manifest, world, send=send)
run(Path(sys.argv[1]), manifest, runtimes_of(manifest, world), tools=tools)
"""


@pytest.mark.parametrize("after", [0, 5, 11])
def test_a_process_that_is_killed_leaves_a_run_that_goes_on(tmp_path: Path, after: int) -> None:
    manifest = manifest_of(plan_of(SIMPLE, DRAFT, rules={"repeats": 1}))
    wanted = _told(_go(tmp_path / "straight", manifest, _world()))
    paths = [str(Path(__file__).resolve().parents[1]), *sys.path]
    killed = subprocess.run(
        [sys.executable, "-c", _KILLED, str(tmp_path / "killed"), str(after)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        check=False,
        timeout=120,
    )
    assert killed.returncode == -9
    assert _told(_go(tmp_path / "killed", manifest, _world())) == wanted
