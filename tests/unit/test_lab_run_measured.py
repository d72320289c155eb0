"""A run says what it measured and what not, and what a busy machine cost it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from lab_records import Story, manifest
from lab_world import SIMPLE, World, manifest_of, plan_of, runtimes_of, tools_of
from report_runs import executed
from slipstream.cli.app import dispatch
from slipstream.cli.lab_run import exit_code
from slipstream.lab.contract.records import BlockRecord
from slipstream.lab.judging.cells import Evidence
from slipstream.lab.judging.measured import measured
from slipstream.lab.observation.disturbance import Disturbance, disturbance
from slipstream.lab.observation.probe import Reading
from slipstream.lab.running.outcome import Outcome
from slipstream.lab.running.progress import Silent
from slipstream.lab.running.run import run


class Notes(Silent):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def note(self, text: str) -> None:
        self.told.append(text)


def ran(folder: Path, world: World, **tools: Any) -> tuple[Outcome, Sequence[str]]:
    frozen, notes = manifest_of(plan_of(SIMPLE)), Notes()
    outcome = run(
        folder,
        frozen,
        runtimes_of(frozen, world),
        tools=tools_of(frozen, world, **tools),
        progress=notes,
    )
    return outcome, notes.told


def test_what_was_measured(tmp_path: Path) -> None:
    outcome, _ = ran(tmp_path, World())
    assert outcome.told == (
        "measured: ngram-simple over prose, repetitive; none over prose, repetitive",
    )
    assert outcome.measured == 4
    assert exit_code(outcome) == 0


@pytest.mark.parametrize("found", ["wrong-model", "router", ""])
def test_a_run_that_never_started_measured_nothing(tmp_path: Path, found: str) -> None:
    outcome, _ = ran(tmp_path, World(refuses={"none": found, "ngram-simple": found}))
    assert outcome.ended == "complete"
    assert outcome.measured == 0
    assert outcome.told[0] == "measured: nothing"
    assert outcome.told[1].startswith("not measured: none over ")
    assert f"blocks failed: {found or 'crashed'}" in outcome.told[1]
    assert exit_code(outcome) == 3


def test_a_server_that_answers_with_errors_alone_is_measured_in_nothing(tmp_path: Path) -> None:
    prompts = [f"{stratum}/{i}" for stratum in ("prose", "repetitive") for i in ("0", "1", "warm")]
    wrong = {(name, p): "HTTP 500: no" for name in ("none", "ngram-simple") for p in prompts}
    outcome, _ = ran(tmp_path, World(fails=wrong))
    assert outcome.measured == 0
    assert "HTTP 500: no" in outcome.told[1]
    assert exit_code(outcome) == 3


def test_a_condition_that_broke_is_named_beside_what_was_measured(tmp_path: Path) -> None:
    outcome, _ = ran(tmp_path, World(refuses={"ngram-simple": ""}))
    assert outcome.told[0] == "measured: none over prose, repetitive"
    assert outcome.told[1].startswith("not measured: ngram-simple over repetitive: 1 of 1 blocks")
    assert exit_code(outcome) == 0


def test_what_ran_without_a_pair_is_not_measured_beside_none() -> None:
    story = Story(block=lambda _turn, name: {"outcome": "inconclusive"} if name == "none" else {})
    made = measured(Evidence(manifest(), story.lines(2)))
    assert [cell.condition for cell in made.figures] == ["suffix"]
    assert list(made.lines()) == [
        "measured: nothing",
        "not measured: none over chat: the machine disturbed each of its blocks",
        "not measured: suffix over chat: not beside `none`: no block of none counts",
    ]


def busy(folder: Path) -> tuple[Outcome, Sequence[str]]:
    return ran(folder, World(), probe=lambda: Reading(0.1, 0.6))


def test_a_busy_machine_is_told_once_with_what_to_do(tmp_path: Path) -> None:
    outcome, told = busy(tmp_path)
    advice = [text for text in told if "Close other programs" in text]
    assert len(advice) == 1
    assert advice[0].startswith("the machine disturbed 4 of the ")
    assert "Others kept more than 25%" in advice[0]
    assert outcome.disturbance.lost > 0
    assert outcome.disturbance.disturbed >= outcome.disturbance.lost * 2
    assert "drift_limit" not in outcome.advice
    assert outcome.measured == 0


def test_a_machine_that_drifts_may_have_another_limit() -> None:
    advice = Disturbance(ran=9, repeated=3, lost=1, loaded=2).advice(0.2)
    assert "Close other programs" in advice
    assert "raise drift_limit (0.2) in a new plan, knowingly" in advice


@pytest.mark.parametrize(
    ("ran_", "lost", "many"), [(12, 4, True), (13, 4, False), (3, 3, False), (0, 0, False)]
)
def test_many_are_a_third_and_four(ran_: int, lost: int, many: bool) -> None:
    made = Disturbance(ran=ran_, lost=lost)
    assert made.many is many
    assert bool(made.text()) is bool(lost)


def test_blocks_are_counted_by_how_they_ended() -> None:
    def block(number: int, outcome: Any, reason: str = "") -> BlockRecord:
        return BlockRecord(
            run="r",
            block=number,
            runtime="own",
            condition="none",
            stratum="chat",
            stage="greedy",
            began="",
            elapsed_s=1.0,
            outcome=outcome,
            reason=reason,
        )

    lines = [
        block(0, "ok"),
        block(1, "repeated", "other programs kept 40% of the processors busy around it"),
        block(1, "inconclusive", "the machine was 30.0% slower around it than before"),
        block(2, "failed", "crashed: x"),
    ]
    assert disturbance(lines) == Disturbance(ran=4, repeated=1, lost=1, loaded=1)


def test_the_report_of_a_run_without_a_figure_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = dict.fromkeys(("none", "ngram-simple", "suffix"), "wrong-model")
    executed(tmp_path, world=World(refuses=broken))
    assert dispatch(["lab", "report", str(tmp_path)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "complete, but nothing could be measured: " in shown
    text = (tmp_path / "report.md").read_text()
    assert "Nothing could be measured: no condition has a figure." in text
    assert "not measured: none over " in text


def test_the_report_says_what_a_busy_machine_cost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    executed(tmp_path, world=World(), probe=lambda: Reading(0.1, 0.6))
    assert dispatch(["lab", "report", str(tmp_path)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "; the machine disturbed " in shown
    text = (tmp_path / "report.md").read_text()
    assert "The machine disturbed " in text
    assert "count for nothing. Close other programs" in text
    made = json.loads((tmp_path / "report.json").read_text())["progress"]["disturbance"]
    assert made["lost"] > 0
