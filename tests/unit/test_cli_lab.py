"""slipstream lab init, run --dry-run and schema."""

from __future__ import annotations

import importlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import slipstream
from builders import tiny_model
from slipstream.cli.app import LAB_VERBS, dispatch
from slipstream.cli.lab_run import EXIT_CODES, exit_code, outcome_lines
from slipstream.errors import ModelFileError, OptionError
from slipstream.lab.contract.records import FindingRecord
from slipstream.lab.freezing.freeze import read_manifest
from slipstream.lab.observation.disturbance import Disturbance
from slipstream.lab.planning.plan_file import read_plan
from slipstream.lab.running.outcome import Ended, Outcome
from slipstream.lab.scheduling.conditions import Rung


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SLIPSTREAM_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    # Programs that are started find the package that is under test, wherever they run.
    monkeypatch.setenv("PYTHONPATH", str(Path(slipstream.__file__).resolve().parents[1]))
    return tmp_path


def last_json(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    return dict(json.loads(capsys.readouterr().out.splitlines()[-1]))


@pytest.mark.parametrize("verb", LAB_VERBS)
def test_every_verb_of_lab_has_a_module(verb: str) -> None:
    module = importlib.import_module(f"slipstream.cli.lab_{verb}")
    assert callable(module.configure)
    assert callable(module.execute)


def test_help_lists_the_verbs(capsys: pytest.CaptureFixture[str]) -> None:
    assert dispatch(["lab", "--help"]) == 0
    shown = capsys.readouterr().out
    assert all(f"  {verb} " in shown for verb in LAB_VERBS)


def test_init_asks_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert dispatch(["lab", "init", "--json"]) == 0
    assert last_json(capsys)["plan"] == "plan.toml"
    assert read_plan(folder / "plan.toml").target.model == "smollm2-135m"
    with pytest.raises(OptionError, match="which exists"):
        dispatch(["lab", "init"])
    assert dispatch(["lab", "init", "--force", "--model", "other.gguf"]) == 0
    assert read_plan(folder / "plan.toml").target.model == "other.gguf"


def test_init_into_nowhere() -> None:
    with pytest.raises(OptionError, match="No such file"):
        dispatch(["lab", "init", "--out", "no/plan.toml"])


def test_init_with_two_programs(folder: Path) -> None:
    given = ["--runtime", "slipstream", "--runtime", "new:llama-server=bin/llama-server"]
    assert dispatch(["lab", "init", *given, "--draft-model", "d.gguf", "--small"]) == 0
    plan = read_plan(folder / "plan.toml")
    assert [r.kind for r in plan.runtimes.values()] == ["slipstream", "llama-server"]
    assert plan.drafts["draft"].model == "d.gguf"
    assert "suffix" not in {c.name for c in plan.conditions}


def planned(folder: Path, model: str) -> str:
    dispatch(["lab", "init", "--model", model, "--small"])
    path = folder / "plan.toml"
    text = path.read_text().replace('strata = ["repetitive", "chat"]', 'strata = ["chat"]')
    path.write_text(text.replace("context = 4096", "context = 100000"))
    return str(path)


def test_a_dry_run_starts_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tiny_model(folder / "m.gguf", "qwen2", extra={"tokenizer.chat_template": TEMPLATE})
    plan = planned(folder, str(model))
    capsys.readouterr()
    assert dispatch(["lab", "run", plan, "--dry-run", "--json"]) == 0
    text = capsys.readouterr().out
    record = json.loads(text.splitlines()[-1])
    assert record["missing"] == []
    assert record["expected"]["requests"] > 0
    assert record["expected"]["time_s"] > 0
    assert len(record["requests"]) >= 2
    made = read_manifest(Path(record["folder"]))
    assert made.run == record["run"]
    assert made.digest == record["manifest_sha256"]
    kept = sorted(path.name for path in Path(record["folder"]).iterdir())
    assert kept == ["help-slipstream.txt", "manifest.json"]
    assert "expected: " in text
    assert "memory: about" in text
    assert "nothing was started" in text


TEMPLATE = "{% for m in messages %}{{ m['content'] }}{% endfor %}"


def test_a_dry_run_names_what_is_not_here(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = planned(folder, "absent.gguf")
    capsys.readouterr()
    assert dispatch(["lab", "run", plan, "--dry-run", "--out", "out", "--json"]) == 0
    record = last_json(capsys)
    assert any("absent.gguf" in text for text in record["missing"])
    assert record["expected"]["memory_bytes"] is None
    assert read_manifest(folder / "out").artifacts[0].sha256 == "unknown"


def test_a_run_needs_its_files(folder: Path) -> None:
    with pytest.raises(ModelFileError):
        dispatch(["lab", "run", planned(folder, "absent.gguf")])
    assert not (folder / "runs").exists()


def test_resume_without_a_run(folder: Path) -> None:
    plan = planned(folder, str(tiny_model(folder / "m.gguf", "qwen2")))
    with pytest.raises(OptionError, match="a run of this plan"):
        dispatch(["lab", "run", plan, "--resume"])
    with pytest.raises(OptionError, match="both"):
        dispatch(["lab", "run", plan, "--resume", "--dry-run"])


@pytest.mark.parametrize(
    ("ended", "left", "goes_on"), [("interrupted", 3, True), ("complete", 0, False)]
)
def test_how_a_run_ended(ended: Ended, left: int, goes_on: bool) -> None:
    rung = Rung("own", "m", "chat", "ngram", 1, "not run", "locked")
    finding = FindingRecord(run="r", name="drifted", text="by much")
    told = ("measured: none over chat",)
    outcome = Outcome(ended, 4, left, (rung,), (finding,), 1.0, measured=1, told=told)
    lines = list(outcome_lines(outcome, Path("runs/r"), "plan.toml"))
    assert lines[0] == f"{ended}; 4 blocks ended, {left} are left"
    assert lines[1] == "measured: none over chat"
    assert "finding drifted: by much" in lines
    assert "not run: own m, chat: locked" in lines
    assert ("to go on: slipstream lab run plan.toml --resume --out runs/r" in lines) == goes_on


def test_a_run_without_a_figure_is_no_success() -> None:
    why = "not measured: none over chat: 2 of 2 blocks failed: crashed: no answer"
    empty = Outcome("complete", 2, 0, (), (), 1.0, told=("measured: nothing", why))
    lines = list(outcome_lines(empty, Path("runs/r"), "plan.toml"))
    assert lines[0] == "complete, but nothing could be measured; 2 blocks ended, 0 are left"
    assert lines[1:3] == ["measured: nothing", why]
    assert exit_code(empty) == EXIT_CODES["unmeasured"] == 3
    assert exit_code(replace(empty, measured=1)) == 0
    for ended in ("interrupted", "stopped"):
        assert exit_code(replace(empty, ended=ended)) == EXIT_CODES[ended] not in (0, 3)


def test_the_end_says_what_a_busy_machine_cost() -> None:
    lost = Disturbance(ran=36, repeated=20, lost=9)
    outcome = Outcome("complete", 16, 0, (), (), 1.0, disturbance=lost, advice=lost.advice(0.2))
    text = " ".join(outcome_lines(outcome, Path("runs/r"), "plan.toml"))
    assert (
        "the machine disturbed 29 of the 36 times that a block ran: 20 ran once more, 9 count for "
        "nothing. Close other programs" in text
    )
    assert "raise drift_limit (0.2)" in text


def test_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert dispatch(["lab", "schema"]) == 0
    assert "Manifest" in json.loads(capsys.readouterr().out)["$defs"]
    assert dispatch(["lab", "schema", "--json"]) == 0
    assert "Manifest" in last_json(capsys)["$defs"]
    assert dispatch(["lab", "schema", "--docs"]) == 0
    assert capsys.readouterr().out.startswith("# The manifest of a lab run")
