"""A run's folder, whole or damaged, and what is written into it."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lab_records import RUN, Story, manifest, rolled_back
from lab_world import SIMPLE
from report_runs import executed, planned, write_manifest, write_records
from slipstream.errors import OperationError, OptionError, RequestError
from slipstream.lab.contract.plan import Rules, RuntimePlan
from slipstream.lab.evidence.store import RECORDS
from slipstream.lab.freezing.freeze import MANIFEST
from slipstream.lab.reporting.report_files import (
    FORMATS,
    PROFILE,
    analysed_run,
    newest_run,
    profile_of,
    write_reports,
)
from slipstream.lab.running import kept_run
from slipstream.lab.running.kept_run import read_run


def faster(turn: int, condition: str, _: str) -> float:
    return (1.0 if condition == "none" else 0.8) * (1 + 0.004 * (turn % 3))


@pytest.fixture
def adopted(tmp_path: Path) -> Path:
    """A run in which one condition passed every gate."""
    write_manifest(tmp_path, manifest())
    write_records(tmp_path, [*Story(seconds=faster).lines(8), *rolled_back()])
    return tmp_path


def changed(line: int, change: Callable[[dict[str, Any]], dict[str, Any]], folder: Path) -> None:
    path = folder / RECORDS
    lines = path.read_text().splitlines()
    lines[line] = json.dumps(change(json.loads(lines[line])))
    path.write_text("\n".join(lines) + "\n")


def test_reports_and_profile_are_written(adopted: Path) -> None:
    written = write_reports(*analysed_run(adopted), adopted, FORMATS)
    assert [path.name for path in written] == ["report.html", "report.md", "report.json", PROFILE]
    profile = tomllib.loads((adopted / PROFILE).read_text())
    assert profile["workload"]["chat"]["type"] == ["suffix"]
    assert profile["default"] == {"type": "none"}
    assert json.loads((adopted / "report.json").read_text())["run"] == RUN


def test_they_regenerate_byte_for_byte(adopted: Path, tmp_path: Path) -> None:
    first = write_reports(*analysed_run(adopted), adopted, FORMATS)
    before = {path.name: path.read_bytes() for path in first}
    second = write_reports(*analysed_run(adopted), tmp_path / "new", FORMATS)
    assert {path.name: path.read_bytes() for path in second} == before


def test_only_the_formats_asked_for(adopted: Path, tmp_path: Path) -> None:
    written = write_reports(*analysed_run(adopted), tmp_path / "new", ("md",))
    assert [path.name for path in written] == ["report.md", PROFILE]


def test_a_plan_that_was_not_executed_makes_no_profile(tmp_path: Path) -> None:
    planned(tmp_path)
    assert profile_of(*analysed_run(tmp_path)) == ""


def test_a_profile_is_of_one_build_of_ours(tmp_path: Path) -> None:
    ours, theirs = RuntimePlan(kind="slipstream"), RuntimePlan(kind="llama-server", binary="b")
    executed(tmp_path / "both", SIMPLE, runtimes={"a": ours, "b": theirs})
    executed(tmp_path / "builds", SIMPLE, runtimes={"a": ours, "b": ours})
    executed(tmp_path / "theirs", SIMPLE, runtimes={"b": theirs})
    made = {
        name: profile_of(*analysed_run(tmp_path / name)) for name in ("both", "builds", "theirs")
    }
    assert made["both"].count("default = ") == 1
    assert made["builds"] == made["theirs"] == ""


def test_a_torn_last_line_is_left_out(adopted: Path) -> None:
    whole = read_run(adopted)[1]
    path = adopted / RECORDS
    path.write_bytes(path.read_bytes() + b'{"is":"request","run":"tr')
    assert read_run(adopted)[1] == whole


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        (b'{"is":"request","run":"tr\n', "line 2"),
        (b"[1, 2]\n", "line 2"),
        (b'{"is":"nothing"}\n', "line 2"),
        (b"\xff\xfe\n", "line 2"),
        (b"[" * 100_000 + b"\n", "line 2"),
    ],
)
def test_a_damaged_line_is_an_error_that_names_it(adopted: Path, damage: bytes, found: str) -> None:
    path = adopted / RECORDS
    first, _, rest = path.read_bytes().partition(b"\n")
    path.write_bytes(first + b"\n" + damage + rest)
    with pytest.raises(RequestError, match=found):
        read_run(adopted)


def test_an_unknown_key_is_an_error(adopted: Path) -> None:
    changed(3, lambda line: line | {"speedup": 9}, adopted)
    with pytest.raises(RequestError, match="speedup"):
        read_run(adopted)


def test_another_runs_records_are_an_error(adopted: Path) -> None:
    changed(3, lambda line: line | {"run": "another"}, adopted)
    with pytest.raises(RequestError, match="`another` in line 4"):
        read_run(adopted)


@pytest.mark.parametrize("seconds", [1e300, -1e300])
def test_a_time_that_cannot_be_is_an_error(adopted: Path, seconds: float) -> None:
    changed(3, lambda line: line | {"total_s": seconds}, adopted)
    with pytest.raises(RequestError, match="line 4"):
        read_run(adopted)


def test_records_of_an_absurd_size_are_not_read(
    adopted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_run, "MOST_RECORD_BYTES", 100)
    monkeypatch.setattr(kept_run, "read_kept", lambda _: pytest.fail("read"))
    with pytest.raises(RequestError, match="at most 100 bytes"):
        read_run(adopted)


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"\xff", b'{"version": 1}'])
def test_a_damaged_manifest_is_an_error(adopted: Path, content: bytes) -> None:
    (adopted / MANIFEST).write_bytes(content)
    with pytest.raises(OptionError, match="manifest"):
        read_run(adopted)


@pytest.mark.parametrize(
    "plan", [{"rollback": "gone"}, {"runtimes": {}}, {"rules": Rules(repeats=10**18)}]
)
def test_a_manifest_of_a_plan_that_is_none_is_an_error(adopted: Path, plan: dict[str, Any]) -> None:
    made = manifest()
    changed_plan = msgspec.structs.replace(made.plan, **plan)
    write_manifest(adopted, msgspec.structs.replace(made, plan=changed_plan))
    with pytest.raises(OptionError, match=r"to (be|name)"):
        read_run(adopted)


def test_no_run_at_all(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="a run's folder"):
        read_run(tmp_path / "nowhere")
    (tmp_path / RECORDS).mkdir()
    planned(tmp_path)
    with pytest.raises(OperationError):
        read_run(tmp_path)


def test_a_folder_that_cannot_be_written(adopted: Path) -> None:
    (adopted / "file").write_text("")
    with pytest.raises(OperationError, match="--out"):
        write_reports(*analysed_run(adopted), adopted / "file" / "new", FORMATS)


def test_the_newest_run_is_the_one_frozen_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OptionError, match="none"):
        newest_run()
    dates = {"b-early": "2026-01-02T10:00:00+02:00", "a-late": "2026-01-02T09:00:00+00:00"}
    for name, created in dates.items():
        made = msgspec.structs.replace(manifest(), created=created)
        write_manifest(tmp_path / "runs" / name, made)
    (tmp_path / "runs" / "z-broken").mkdir()
    (tmp_path / "runs" / "z-broken" / MANIFEST).write_text("{}")
    write_manifest(tmp_path / "runs" / ".z-half.new", manifest())
    assert newest_run() == Path("runs/a-late")
