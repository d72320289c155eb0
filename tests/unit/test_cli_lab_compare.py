"""slipstream lab compare, with stand-ins for two builds of llama-server."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import slipstream
from builders import tiny_model
from lying_runtime import stand_in
from slipstream.cli.app import dispatch
from slipstream.errors import OptionError
from slipstream.lab.comparing.compare_files import NAMES
from slipstream.lab.contract.records import BlockRecord
from slipstream.lab.evidence.store import RECORDS, read_records
from slipstream.lab.freezing.freeze import read_manifest
from slipstream.lab.observation.probe import Reading
from slipstream.lab.planning.plan_file import read_plan

Compare = Callable[..., int]
SMALL = ("--prompts", "1", "--tokens", "48", "--repeats", "1", "--context", "2048")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SLIPSTREAM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", str(Path(slipstream.__file__).resolve().parents[1]))
    monkeypatch.chdir(tmp_path)
    steady = Reading(0.1, 0.0)
    monkeypatch.setattr("slipstream.lab.running.tools.machine_probe", lambda: lambda: steady)
    tiny_model(tmp_path / "model.gguf", "llama", context=8192)
    return tmp_path


def build(folder: Path, name: str, *lies: str, **facts: Any) -> str:
    (folder / name).mkdir(exist_ok=True)
    return str(stand_in(folder / name, *lies, **{"whole": True, "ballast_mib": 0, **facts}))


@pytest.fixture
def pair(folder: Path) -> tuple[str, str]:
    return build(folder, "a"), build(folder, "b", token_s=0.0003)


def compare(*words: str, small: Sequence[str] = SMALL) -> int:
    return dispatch(["lab", "compare", *words, *small])


def last_json(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    return dict(json.loads(capsys.readouterr().out.splitlines()[-1]))


def test_two_builds(
    pair: tuple[str, str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare(*pair, "--target", "model.gguf", "--out", "run", "--json") == 0
    made = last_json(capsys)
    assert made["ended"] == "complete"
    assert [s["state"] for s in made["series"]] == ["compared"] * 3
    assert [round(s["rows"][0]["mean"]) for s in made["series"]] == [1, 8, 24]
    assert all(s["outputs"]["equal"] == 1 for s in made["series"])
    assert made["folder"] == "run"
    assert all((folder / "run" / name).is_file() for name in NAMES)
    assert read_plan(folder / "run" / "plan.toml") == read_manifest(folder / "run").plan

    before = [(folder / "run" / name).read_bytes() for name in NAMES]
    assert dispatch(["lab", "compare", "run"]) == 0
    assert [(folder / "run" / name).read_bytes() for name in NAMES] == before
    shown = capsys.readouterr().out
    assert "says nothing about Metal" in shown
    assert "few-rows (few rows)" in shown


def test_outputs_that_differ(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = (build(folder, "a"), build(folder, "b", "diverge"))
    assert compare(*given, "--target", "model.gguf", "--out", "run", "--json") == 1
    shown = capsys.readouterr().out
    made = json.loads(shown.splitlines()[-1])
    assert made["boundary"]["name"] == "outputs-differ"
    assert "at token 40 (gap 0.5): defect" in made["boundary"]["text"]
    assert "DIAGNOSTIC BOUNDARY" in shown
    assert "Nothing was put in place" in shown


def test_a_dry_run_diffs_and_starts_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = (build(folder, "a"), build(folder, "b", "missing-flag"))
    assert compare(*given, "--target", "model.gguf", "--out", "run", "--dry-run", "--json") == 0
    made = last_json(capsys)
    assert made["ended"] == "unexecuted"
    assert "--spec-ngram-simple-size-n" in made["help"]["only_a"]
    assert not (folder / "run" / RECORDS).exists()


def test_a_dry_run_without_anything_at_hand(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("no/a", "no/b", "--target", "no.gguf", "--draft", "none.gguf", "--out", "run")
    assert compare(*words, "--dry-run", "--json") == 0
    shown = capsys.readouterr().out
    assert shown.count("not here: ") >= 3
    made = json.loads(shown.splitlines()[-1])
    assert made["ended"] == "unexecuted"
    assert made["few_rows"]["least"] == 6
    assert [b["binary_sha256"] for b in made["builds"]] == ["unknown"] * 2


def test_one_build_twice(pair: tuple[str, str], folder: Path) -> None:
    with pytest.raises(OptionError, match="one build twice: SHA-256"):
        compare(pair[0], pair[0], "--target", "model.gguf", "--out", "run")
    assert not (folder / "run").exists()
    with pytest.raises(OptionError, match="--same-build"):
        compare(*pair, "--target", "model.gguf", "--same-build")


def test_a_check_of_the_procedure(
    pair: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    words = (pair[0], pair[0], "--target", "model.gguf", "--same-build", "--out", "run")
    assert compare(*words, "--json") == 0
    made = last_json(capsys)
    assert made["same_build"] is True
    assert made["run"].startswith("aa-model-")
    assert any("A/A check" in line for line in made["scope"])


def test_a_run_goes_on(
    pair: tuple[str, str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = (*pair, "--target", "model.gguf", "--out", "run")
    assert compare(*words, small=(*SMALL, "--budget", "1")) == 0
    assert "to go on: slipstream lab compare run --resume" in capsys.readouterr().out
    records = read_records(folder / "run" / RECORDS)
    ended = sum(isinstance(x, BlockRecord) for x in records)
    assert 0 < ended < 22
    assert dispatch(["lab", "compare", "run", "--resume"]) == 0
    assert len(read_records(folder / "run" / RECORDS)) >= len(records)
    with pytest.raises(OptionError, match="Go on with --resume"):
        compare(*words)


def test_another_binary_does_not_go_on(pair: tuple[str, str], folder: Path) -> None:
    words = (*pair, "--target", "model.gguf", "--out", "run")
    compare(*words, small=(*SMALL, "--budget", "1"))
    build(folder, "b", token_s=0.0004)
    with pytest.raises(OptionError, match="binary_sha256"):
        dispatch(["lab", "compare", "run", "--resume"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("a", "b", "c", "--target", "model.gguf"), "two builds"),
        (("a", "b"), "--target MODEL"),
        (("a", "--target", "model.gguf"), "two builds"),
        (("a", "b", "--target", "model.gguf", "--rows", "x"), "--rows"),
        (("a", "b", "--target", "model.gguf", "--rows", "40"), "--rows from"),
        (("a", "b", "--target", "model.gguf", "--strata", "poems"), "strata"),
        (("a", "b", "--target", "model.gguf", "--flags", "'x"), "--flags that can be split"),
        (("a", "b", "--target", "model.gguf", "--dry-run", "--resume"), "--dry-run or --resume"),
        (("nowhere",), "a run's folder"),
    ],
)
def test_mistakes_are_named(words: Sequence[str], message: str) -> None:
    with pytest.raises(OptionError) as caught:
        dispatch(["lab", "compare", *words])
    assert message in f"{caught.value.expected} {caught.value.found}"


def test_a_study_is_no_comparison() -> None:
    dispatch(["lab", "init", "--model", "model.gguf", "--small"])
    dispatch(["lab", "run", "plan.toml", "--dry-run", "--out", "study"])
    with pytest.raises(OptionError, match="a study"):
        dispatch(["lab", "compare", "study"])
