"""The plans that ship unexecuted: read, sound, and frozen where nothing of theirs is at hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from slipstream.cli.app import dispatch
from slipstream.lab.comparing.compare import read_comparison
from slipstream.lab.contract.manifest import UNKNOWN
from slipstream.lab.contract.plan import Plan
from slipstream.lab.freezing.freeze import read_manifest
from slipstream.lab.freezing.help_text import Help
from slipstream.lab.planning.plan_file import read_plan
from slipstream.lab.runtimes.llama_flags import method_identity
from slipstream.lab.scheduling.conditions import not_run

PLANS = Path(__file__).resolve().parents[2] / "experiments" / "plans"
ACCEPTANCE, METAL = PLANS / "acceptance-b10328.toml", PLANS / "metal-b11401-b11404.toml"
LLAMA_HELP = """\
--spec-type none,draft-simple,ngram-simple,ngram-map-k,ngram-mod
--spec-draft-model, -md FNAME      draft model
--spec-draft-n-max N               most
--spec-draft-n-min N               least
--spec-draft-p-min P               probability
--spec-ngram-mod-n-match N         key
--spec-ngram-mod-n-min N           least
--spec-ngram-mod-n-max N           most
--spec-ngram-simple-size-n N       key
--spec-ngram-simple-size-m N       draft
--spec-ngram-map-k-size-n N        key
--spec-ngram-map-k-size-m N        draft
--spec-ngram-map-k-min-hits N      hits
"""


@pytest.fixture(autouse=True)
def _nothing_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No model, no binary, no network: an empty cache and an empty directory."""
    monkeypatch.setenv("SLIPSTREAM_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def test_every_shipped_plan_is_tested() -> None:
    assert sorted(PLANS.glob("*.toml")) == [ACCEPTANCE, METAL]


@pytest.mark.parametrize("path", [ACCEPTANCE, METAL])
def test_it_freezes_and_starts_nothing(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert dispatch(["lab", "run", str(path), "--dry-run", "--out", "run", "--json"]) == 0
    shown = capsys.readouterr().out
    told: dict[str, Any] = json.loads(shown.splitlines()[-1])
    assert any("llama-server" in text for text in told["missing"])
    assert any("the program of" in text for text in told["expected"]["missing"])
    assert told["expected"]["requests"] > 500
    assert told["expected"]["time_s"] > 600  # the catalogue knows its models' sizes
    assert "about 0 s" not in shown
    assert all(p["id"].partition("/")[2] in shown for p in told["requests"] if not p["warm_up"])
    manifest = read_manifest(tmp_path / "run")
    assert manifest.plan == read_plan(path)
    assert {r.binary_sha256 for r in manifest.runtimes} == {UNKNOWN}
    assert {a.sha256 for a in manifest.artifacts} == {UNKNOWN}
    assert {p.tokens for p in manifest.prompts} == {UNKNOWN}
    assert not (tmp_path / "run" / "records.jsonl").exists()
    assert all(rung.reason for rung in not_run(manifest, []))


@pytest.mark.parametrize("path", [ACCEPTANCE, METAL])
def test_it_says_what_it_asks_and_what_is_missing(path: Path) -> None:
    text = path.read_text()
    comment = "\n".join(line for line in text.splitlines() if line.startswith("#"))
    for part in ("What it asks.", "To fill in before it runs:", "question.pages", "Not executed"):
        assert part in comment
    assert read_plan(path).question.pages


def test_the_identities_that_are_asked_for() -> None:
    (study,) = read_plan(ACCEPTANCE).runtimes.values()
    assert (study.release, study.commit) == ("b10328", "dd2c7c4")
    old, new = read_plan(METAL).runtimes.values()
    assert (old.release, old.commit) == ("b11401", "")
    assert (new.release, new.commit) == ("b11404", "a3a1c4747fdc0dcad40b3946108b89375d9a7d0e")


@pytest.mark.parametrize("path", [ACCEPTANCE, METAL])
def test_flags_of_its_conditions_are_known(path: Path) -> None:
    """By the help of a later build; that of the build itself decides when it is here."""
    plan: Plan = read_plan(path)
    for condition in plan.conditions:
        assert method_identity(condition, plan, Help(LLAMA_HELP)).not_run == ""


def test_the_unexecuted_comparison_is_a_valid_state(tmp_path: Path) -> None:
    dispatch(["lab", "run", str(METAL), "--dry-run", "--out", "run"])
    made = read_comparison(tmp_path / "run")
    assert made.ended == "unexecuted"
    assert {s.state for s in made.series} == {"not run"}
    assert {p.observed for p in made.paths} == {(UNKNOWN,)}
    assert dispatch(["lab", "compare", "run"]) == 0
    assert "Nothing was run" in (tmp_path / "run" / "comparison.md").read_text()
