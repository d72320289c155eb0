"""What ``bench speculate`` measures, and a whole run on a tiny model."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from builders import tiny_model
from slipstream.cli import app, bench_speculate, speculate_conditions, speculate_table
from slipstream.cli.parser import Parser
from slipstream.errors import OptionError
from slipstream.measure.workload import STRATA
from widths import too_wide


def parsed(*words: str) -> Any:
    parser = Parser("slipstream bench speculate", "A test.")
    bench_speculate.configure(parser)
    return parser.parse(["m", *words])


def chosen(words: str) -> tuple[str, dict[str, Any]]:
    return speculate_conditions.method(parsed(*words.split()))


@pytest.mark.parametrize(
    ("words", "method", "sizes"),
    [
        ("", "auto", (12, 48)),
        ("--spec ngram-simple", "ngram-simple", (12, 48)),
        ("--spec ngram-simple --ngram-simple-size-n 6", "ngram-simple", (6, 48)),
        ("--spec ngram-mod", "ngram-mod", (12, 48)),
    ],
)
def test_defaults_stand_only_where_nothing_was_given(
    words: str, method: str, sizes: tuple[int, int]
) -> None:
    name, options = chosen(words)
    assert name == method
    assert options["type"] == (method,)
    assert (options["ngram_simple_size_n"], options["ngram_simple_size_m"]) == sizes


@pytest.mark.parametrize(
    "words",
    [
        *("--spec none", "--spec none --ngram-simple-size-n 6", "--ngram-mod-n-match 5"),
        "--ngram-simple-size-n 6",
    ],
)
def test_what_would_not_be_measured_is_refused(words: str) -> None:
    with pytest.raises(OptionError):
        chosen(words)


def compared(*against: str, spec: str = "ngram-mod") -> speculate_conditions.Conditions:
    words = [word for text in against for word in ("--against", text)]
    return speculate_conditions.conditions(parsed("--spec", spec, *words))


def test_conditions_have_options_of_their_own() -> None:
    made = compared("ngram-simple --ngram-simple-size-n 3", "ngram-mod   --fixed")
    assert list(made) == ["ngram-mod", "ngram-simple --ngram-simple-size-n 3", "ngram-mod --fixed"]
    assert made["ngram-simple --ngram-simple-size-n 3"]["ngram_simple_size_n"] == 3
    assert made["ngram-simple --ngram-simple-size-n 3"]["ngram_simple_size_m"] == 48
    assert made["ngram-mod"]["fixed"] is False
    assert made["ngram-mod --fixed"]["fixed"] is True


def test_the_draft_model_serves_the_conditions_that_draft_with_one() -> None:
    words = ("--spec", "draft-simple", "--draft-model", "small", "--against", "ngram-mod")
    more = ("--against", "draft-simple --n-max 7", "--against", "auto --draft-model other")
    made = speculate_conditions.conditions(parsed(*words, *more))
    assert {name: given["draft_model"] for name, given in made.items()} == {
        "draft-simple": "small",
        "ngram-mod": None,
        "draft-simple --n-max 7": "small",
        "auto --draft-model other": "other",
    }


@pytest.mark.parametrize(
    "text",
    ["none", "", "ngram-mod", "ngram-simple --ngram-mod-n-match 5", "nogram", "'ngram-mod", "x y"],
)
def test_a_condition_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(OptionError):
        compared(text)


def test_pretended_acceptance_is_known() -> None:
    assert not speculate_conditions.synthetic(compared())
    assert speculate_conditions.synthetic(compared("ngram-simple --synth-len 3"))


@pytest.mark.parametrize(
    ("strata", "tasks", "names"),
    [
        (None, None, STRATA),
        ("chat,prose", None, ("chat", "prose")),
        (None, "code_edit,random", ("code_edit", "random")),
        ("chat", "chat,code", ("chat", "code")),
    ],
)
def test_workloads_by_stratum_and_task(
    strata: str | None, tasks: str | None, names: tuple[str, ...]
) -> None:
    assert bench_speculate._workload_names(strata, tasks) == names


@pytest.mark.parametrize(("strata", "tasks"), [("code_edit", None), (None, "poetry"), ("", "a,")])
def test_an_unknown_workload_is_named(strata: str | None, tasks: str | None) -> None:
    with pytest.raises(OptionError, match="among"):
        bench_speculate._workload_names(strata, tasks)


TASKS = {"chat": "chat", "random": "prose", "prose": "prose"}


def workloads(folder: Path) -> Path:
    for task, stratum in TASKS.items():
        lines = []
        for number in range(2):
            messages = [{"content": f"{task} {number} of words", "role": "user"}]
            compact = json.dumps(messages, separators=(",", ":"))
            prompt = {
                "id": f"{task}/{number}",
                "stratum": stratum,
                "task": task,
                "messages": messages,
                "max_tokens": 12,
                "source": "this test",
                "licence": "MIT",
                "sha256": hashlib.sha256(compact.encode()).hexdigest(),
            }
            lines.append(json.dumps(prompt))
        (folder / f"{task}.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *words: str
) -> tuple[int, str, dict[str, Any]]:
    model = tiny_model(tmp_path / "tiny.gguf", "llama")
    code = app.dispatch(
        [
            *("bench", "speculate", str(model), "--backend", "reference"),
            *("--workloads", str(workloads(tmp_path)), "--tasks", "chat,random,prose"),
            *(*words, "--json"),
        ]
    )
    shown = capsys.readouterr().out
    record: dict[str, Any] = json.loads(shown.splitlines()[-1])
    return code or 0, shown, record


def test_a_run_of_two_methods_cold_and_warm(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    against = ("--spec", "ngram-simple", "--ngram-simple-size-n", "2", "--against", "ngram-mod")
    more = ("--warm", "--each", "--rounds", "3", "--limit", "6", "--plot", str(page))
    code, shown, record = run(tmp_path, capsys, *against, *more)
    assert code == 0
    assert record["valid"]
    assert list(record["conditions"]) == ["ngram-simple", "ngram-mod"]
    assert (record["rounds"], record["limit"], record["warm"]) == (3, 6, True)
    lines = ["chat", "random", "prose", "prose (all)", "all"]
    assert [s["name"] for s in record["summaries"]] == [*lines, *lines]
    assert {s["memory"] for s in record["summaries"]} == {"cold"}
    assert {s["memory"] for s in record["warm_summaries"]} == {"warm"}
    assert all(s["identical"] for s in record["summaries"] + record["warm_summaries"])
    assert len(record["each"]) == len(record["warm_each"]) == 2 * 6
    words = " ".join(shown.split())
    assert "WARM drafter" in words
    assert "prompt by prompt" in words
    assert page.read_text().startswith("<!doctype html>")
    lines = shown.replace(str(tmp_path), "").splitlines()[:-2]
    assert not list(too_wide("\n".join(lines)))


def test_a_run_without_options_reads_as_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, shown, record = run(tmp_path, capsys, "--limit", "4")
    assert record["method"] == "auto"
    assert "warm_summaries" not in record
    assert [s["prompts"] for s in record["summaries"]] == [2, 2, 2, 4, 6]
    assert "cold drafter: off, and auto, interleaved" in " ".join(shown.split())


def test_an_output_that_differs_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from slipstream.measure import speculation_summary

    def differing(*arguments: Any) -> list[Any]:
        from dataclasses import replace

        return [replace(line, identical=False) for line in original(*arguments)]

    original = speculation_summary.by_workload
    monkeypatch.setattr(speculation_summary, "by_workload", differing)
    code, shown, _ = run(tmp_path, capsys, "--limit", "4")
    assert code == 1
    assert " NO" in shown


def test_notes_fit_whatever_drifted(capsys: pytest.CaptureFixture[str]) -> None:
    drifting = [
        SimpleNamespace(name=name, drifting=True, drift_change=-0.5, degenerate={"chat/1": "loop"})
        for name in STRATA
    ]
    speculate_table.print_notes(cast(Any, [*drifting, drifting[0]]))
    shown = capsys.readouterr().out
    assert all(f"{name} -50 %" in " ".join(shown.split()) for name in STRATA)
    assert max(map(len, shown.splitlines())) <= 100
