"""slipstream lab report and slipstream lab gate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lab_records import Story, manifest, rolled_back
from report_runs import TimedWorld, cut, executed, planned, write_manifest, write_records
from slipstream.cli.app import dispatch, main
from slipstream.cli.lab_verdict_lines import verdict_lines, wrapped
from slipstream.errors import OptionError
from slipstream.lab.judging.gate_result import GateResult
from slipstream.lab.judging.verdict import Verdict
from slipstream.lab.reporting.analysis import verdicts_of
from slipstream.lab.running.kept_run import read_run


def faster(turn: int, condition: str, _: str) -> float:
    return (1.0 if condition == "none" else 0.8) * (1 + 0.004 * (turn % 3))


@pytest.fixture
def adopted(tmp_path: Path) -> str:
    write_manifest(tmp_path / "run", manifest())
    write_records(tmp_path / "run", [*Story(seconds=faster).lines(8), *rolled_back()])
    return str(tmp_path / "run")


@pytest.fixture(scope="module")
def open_run(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A run whose verdicts are `inconclusive`, `reject` and `not run`."""
    folder = tmp_path_factory.mktemp("open")
    world = TimedWorld(seconds={"none": 1.0, "ngram-simple": 0.6, "suffix": 0.99})
    executed(folder, world=world, rules={"repeats": 6})
    return str(folder)


def last_json(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    return dict(json.loads(capsys.readouterr().out.splitlines()[-1]))


def test_report_prints_the_verdicts_and_writes_the_files(
    adopted: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert dispatch(["lab", "report", adopted]) == 0
    shown = capsys.readouterr().out
    assert "Does speculation pay" in shown
    assert "latency of one stream" in shown
    assert "adopt" in shown
    assert "1.250 [1.250, 1.250]" in shown
    for name in ("report.html", "report.md", "report.json", "profile.toml"):
        assert f"written: {adopted}/{name}" in shown
        assert (Path(adopted) / name).stat().st_size > 100


def test_report_as_json(adopted: str, capsys: pytest.CaptureFixture[str]) -> None:
    out = f"{adopted}-reports"
    assert dispatch(["lab", "report", adopted, "--out", out, "--format", "md", "--json"]) == 0
    told = last_json(capsys)
    assert [v["word"] for v in told["verdicts"]] == ["adopt"]
    assert told["files"] == [f"{out}/report.md", f"{out}/profile.toml"]
    assert told["progress"]["ended"] > 0
    assert sorted(path.name for path in Path(adopted).iterdir()) == [
        "manifest.json",
        "records.jsonl",
    ]


def test_without_a_folder_it_is_the_newest_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    planned(tmp_path / "runs" / "one")
    assert dispatch(["lab", "report"]) == 0
    shown = capsys.readouterr().out
    assert "not executed" in shown
    assert "the plan was not executed" in " ".join(shown.split())
    assert "written: runs/one/report.html" in shown
    assert "profile.toml" not in shown


def test_an_interrupted_run_says_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    executed(tmp_path)
    cut(tmp_path, 40)
    assert dispatch(["lab", "report", str(tmp_path)]) == 0
    assert "interrupted (it was ended before its last block): 9 of 45 blocks" in (
        capsys.readouterr().out
    )


@pytest.mark.parametrize("formats", ["pdf", "html,doc", "", ","])
def test_an_unknown_format(adopted: str, formats: str) -> None:
    with pytest.raises(OptionError, match="html, md, json"):
        dispatch(["lab", "report", adopted, "--format", formats])


def test_a_mistake_is_no_traceback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for verb in ("report", "gate"):
        with pytest.raises(SystemExit) as ended:
            main(["lab", verb, str(tmp_path / "nowhere")])
        assert ended.value.code == 2
        assert "hint:" in capsys.readouterr().err


def test_control_characters_of_a_record_do_not_reach_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_manifest(tmp_path, manifest())
    failed = {"error": "\x1b[31mno", "total_s": None}
    write_records(tmp_path, Story(changed=lambda *_: failed).lines(5))
    assert dispatch(["lab", "report", str(tmp_path)]) == 0
    dispatch(["lab", "gate", str(tmp_path)])
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ([], 0),
        (["--require", "not-reject"], 0),
        (["--workload", "chat", "--condition", "suffix", "--concurrency", "1"], 0),
        (["--runtime", "own"], 0),
    ],
)
def test_gate_passes_what_was_adopted(adopted: str, options: list[str], code: int) -> None:
    assert dispatch(["lab", "gate", adopted, *options]) == code


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ([], 1),
        (["--require", "not-reject"], 1),
        (["--condition", "ngram-simple"], 1),
        (["--condition", "ngram-simple", "--require", "not-reject"], 0),
        (["--condition", "suffix", "--require", "not-reject"], 1),
        (["--condition", "sweep-size-n-3", "--require", "not-reject"], 0),
        (["--condition", "sweep-size-n-3", "--workload", "prose", "--require", "not-reject"], 1),
    ],
)
def test_gate_by_what_is_required(open_run: str, options: list[str], code: int) -> None:
    words = {(v.stratum, v.condition): v.word for v in verdicts_of(*read_run(Path(open_run)))}
    assert words["repetitive", "ngram-simple"] == words["prose", "ngram-simple"] == "inconclusive"
    assert "reject" in {words["repetitive", "suffix"], words["prose", "suffix"]}
    assert words["prose", "sweep-size-n-3"] == "not run"
    assert dispatch(["lab", "gate", open_run, *options]) == code


def test_gate_tells_every_gate_and_why(open_run: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--condition", "ngram-simple", "--workload", "prose", "--json"]
    assert dispatch(["lab", "gate", open_run, *options]) == 1
    shown = capsys.readouterr().out
    text = " ".join(shown.split())
    assert "fake prose ngram-simple, 1 at a time: inconclusive" in text
    for gate in ("output passed", "time passed", "tail not measurable", "rollback not measurable"):
        assert f"{gate}: " in text
    assert "why: no long sequence typical of the load" in text
    assert "failed: 1 of 1 verdicts are not `adopt`" in text
    told = json.loads(shown.splitlines()[-1])
    assert told["passed"] is False
    assert told["failing"] == [["fake", "prose", "ngram-simple", 1, "inconclusive"]]


def test_an_unfinished_run_passes_no_gate_unless_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    executed(tmp_path)
    lenient = ["lab", "gate", str(tmp_path), "--require", "not-reject", "--workload", "repetitive"]
    lenient += ["--condition", "ngram-simple"]
    assert dispatch(lenient) == 0
    assert "unfinished" not in capsys.readouterr().out
    cut(tmp_path, 40)
    assert dispatch([*lenient, "--json"]) == 1
    shown = capsys.readouterr().out
    text = " ".join(shown.split())
    assert (
        "unfinished: the run is interrupted (it was ended before its last block); 9 of 45" in text
    )
    assert "failed: the run is unfinished, though 1 of 1 verdicts are anything but `reject`" in text
    told = json.loads(shown.splitlines()[-1])
    assert told["passed"] is False
    assert told["unfinished"].startswith("unfinished: ")
    assert dispatch([*lenient, "--allow-unfinished"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "unfinished: the run is interrupted" in text
    assert "passed: 1 of 1" in text
    assert dispatch(["lab", "gate", str(tmp_path), "--allow-unfinished"]) == 1


def test_an_unexecuted_plan_passes_no_gate(tmp_path: Path) -> None:
    planned(tmp_path)
    for require in ("adopt", "not-reject"):
        assert dispatch(["lab", "gate", str(tmp_path), "--require", require]) == 1


@pytest.mark.parametrize(
    ("options", "known"),
    [
        (["--workload", "nothing"], "a workload among repetitive, prose"),
        (["--condition", "none"], "a condition among ngram-simple, suffix"),
        (["--concurrency", "7"], "a concurrency among 1"),
        (["--runtime", "other"], "a runtime among fake"),
    ],
)
def test_gate_names_what_the_run_has(open_run: str, options: list[str], known: str) -> None:
    with pytest.raises(OptionError, match=known):
        dispatch(["lab", "gate", open_run, *options])


@pytest.mark.parametrize("require", ["adopt", "not-reject"])
def test_gate_of_a_run_without_conditions(
    tmp_path: Path, require: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write_manifest(tmp_path, manifest(methods=()))
    assert dispatch(["lab", "gate", str(tmp_path), "--require", require, "--json"]) == 1
    shown = capsys.readouterr().out
    assert "failed: 0 verdicts, as the plan has no condition beside `none`" in shown
    record = json.loads(shown.splitlines()[-1])
    assert (record["passed"], record["verdicts"]) == (False, [])
    assert "no condition" in record["why"]
    assert dispatch(["lab", "report", str(tmp_path)]) == 0


def verdict(condition: str, **changed: Any) -> Verdict:
    values = {"ratio": 1.2, "low": 1.1, "high": 1.3}
    gate = GateResult(name="time", passed=False, observed="o", limit="l", values=values)
    given: dict[str, Any] = {"runtime": "a", "stratum": "chat", "slots": 1, "word": "reject"}
    given |= {"reasons": ("time: too slow",), "gates": (gate,), **changed}
    return Verdict(condition=condition, **given)


@pytest.mark.parametrize("columns", [24, 40, 60, 80, 200])
def test_no_line_is_wider_than_the_terminal(columns: int) -> None:
    told = [verdict("ngram-simple"), verdict("suffix", runtime="b"), verdict("x", slots=4)]
    told += [verdict("y", word="not run", gates=(), reasons=("a-" * 60,))]
    lines = "\n".join(verdict_lines(told, columns)).splitlines()
    assert max(map(len, lines)) <= columns
    assert any("1.200 [1.100, 1.300]" in line for line in lines) or columns < 30


def test_the_table_leaves_out_gates_before_it_is_given_up() -> None:
    told = [verdict("ngram-simple"), verdict("suffix")]
    wide, middle, narrow = ("\n".join(verdict_lines(told, n)) for n in (100, 60, 30))
    assert "time FAILED" in wide
    assert "gates" in wide.splitlines()[1]
    assert middle.splitlines()[1].split() == ["workload", "condition", "verdict", "speed-up"]
    assert "workload" not in narrow


def test_what_was_not_run_for_one_reason_stands_together() -> None:
    told = [
        verdict(c, stratum=s, word="not run", gates=(), reasons=("no pairing",))
        for s in ("chat", "prose")
        for c in ("x", "y")
    ]
    lines = list(verdict_lines(told, 100))
    assert lines[1] == "not run: x, y over chat, prose: no pairing"


def test_long_words_are_broken() -> None:
    assert max(map(len, wrapped("x" * 100, 30).splitlines())) <= 30
