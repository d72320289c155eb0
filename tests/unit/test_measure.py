"""Interleaving, paired statistics, drift, workloads and the degenerate-output detector."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from slipstream.errors import RequestError
from slipstream.measure.degenerate import degenerate_reason
from slipstream.measure.interleave import Timing, interleave, mirrored_order
from slipstream.measure.statistics import drift, paired_ratio, sign_test, speed_up
from slipstream.measure.workload import STRATA, TASKS, read_task, read_workloads

WORKLOADS = Path(__file__).resolve().parents[2] / "workloads"


def test_order_is_mirrored() -> None:
    assert [c for _, c in mirrored_order("AB", 4)] == list("ABBAABBA")


def test_linear_drift_cancels_over_two_rounds() -> None:
    now = 0.0

    def clock() -> float:
        return now

    def work(base: float):  # type: ignore[no-untyped-def]
        def call() -> None:
            nonlocal now
            now += base * (1.0 + now * 1e-3)

        return call

    timings = interleave({"a": work(1.0), "b": work(1.0)}, 40, warm_up=0, clock=clock)
    assert speed_up(timings, "a", "b").median == pytest.approx(1.0, abs=5e-3)


def test_switch_is_called_before_each_call() -> None:
    seen: list[str] = []
    interleave({"a": lambda: None, "b": lambda: None}, 2, warm_up=1, switch=seen.append)
    assert seen == ["a", "b", "a", "b", "b", "a"]


def test_paired_ratio_interval_covers_the_truth() -> None:
    rng = np.random.default_rng(1)
    covered = 0
    for _ in range(60):
        noise = rng.lognormal(0.0, 0.1, size=(2, 25))
        ratio = paired_ratio(1.3 * noise[0], noise[1])
        covered += ratio.low <= 1.3 <= ratio.high
    assert covered >= 50


def test_verdict_is_unknown_when_the_interval_holds_one() -> None:
    assert paired_ratio([1.0, 1.2, 0.8, 1.1], [1.0, 1.0, 1.0, 1.0]).verdict() == "unknown"
    assert paired_ratio([2.0, 2.1, 1.9], [1.0, 1.0, 1.0]).verdict() == "faster"
    assert paired_ratio([0.5, 0.6, 0.55], [1.0, 1.0, 1.0]).verdict() == "slower"


@pytest.mark.parametrize("bad", [([], []), ([1.0], [1.0, 2.0]), ([0.0], [1.0]), ([np.nan], [1.0])])
def test_paired_ratio_refuses_bad_input(bad: tuple[list[float], list[float]]) -> None:
    with pytest.raises(ValueError, match="paired ratios need"):
        paired_ratio(*bad)


@pytest.mark.parametrize(("wins", "losses"), [(9, 1), (5, 5), (12, 3), (0, 7)])
def test_sign_test_matches_scipy(wins: int, losses: int) -> None:
    expected = stats.binomtest(wins, wins + losses, 0.5).pvalue
    assert sign_test([2.0] * wins + [0.5] * losses + [1.0]) == pytest.approx(expected)


def test_drift_is_seen_and_noise_is_not() -> None:
    rng = np.random.default_rng(2)
    steady = [Timing("a", i, float(i), 1.0 + 0.05 * rng.normal()) for i in range(30)]
    rising = [Timing("a", i, float(i), 1.0 + 0.02 * i) for i in range(30)]
    assert not drift(steady).drifting
    assert drift(rising).drifting
    assert drift(rising).change > 0.3


def test_shipped_workloads_are_frozen_and_complete() -> None:
    workloads = read_workloads(WORKLOADS)
    assert tuple(workloads) == STRATA
    assert all(len(prompts) >= 3 for prompts in workloads.values())
    assert len({p.id for prompts in workloads.values() for p in prompts}) == sum(
        len(prompts) for prompts in workloads.values()
    )


def test_every_task_has_prompts_of_its_stratum() -> None:
    workloads = read_workloads(WORKLOADS, TASKS)
    assert {path.stem for path in WORKLOADS.glob("*.jsonl")} == set(workloads) == set(TASKS)
    for task, prompts in workloads.items():
        assert len(prompts) >= 3
        assert {(p.task, p.stratum) for p in prompts} == {(task, TASKS[task])}
        assert all(p.id.startswith(f"{task}/") for p in prompts)
    added = set(TASKS) - set(STRATA)
    assert all(p.max_tokens == 256 for task in added for p in workloads[task])
    everything = [p.id for prompts in workloads.values() for p in prompts]
    assert len(set(everything)) == len(everything)


@pytest.mark.parametrize(
    ("task", "least", "most"), [("code_edit", 60, 120), ("csv_to_json", 21, 41)]
)
def test_texts_to_return_have_the_promised_length(task: str, least: int, most: int) -> None:
    for prompt in read_task(WORKLOADS / f"{task}.jsonl"):
        [message] = prompt.messages
        _, block, _ = message.content.split("```")
        assert least <= block.strip().count("\n") <= most


def _line(**changes: object) -> str:
    first = (WORKLOADS / "chat.jsonl").read_text().splitlines()[0]
    return json.dumps(json.loads(first) | changes)


@pytest.mark.parametrize(
    "line",
    [
        _line(messages=[{"role": "user", "content": "another text"}]),
        _line(stratum="prose"),
        _line(task="prose"),
        _line(task="random", stratum="prose"),
        _line(task="chat", stratum="prose"),
        _line(colour="red"),
        _line(max_tokens="many"),
        "{",
        '{"id": "\udcff"}'.encode("utf-8", "surrogateescape").decode("latin-1"),
    ],
)
def test_changed_or_malformed_prompts_are_refused(tmp_path: Path, line: str) -> None:
    path = tmp_path / "chat.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(RequestError):
        read_task(path)


def test_repeated_ids_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "chat.jsonl"
    path.write_text(_line() + "\n" + _line() + "\n")
    with pytest.raises(RequestError, match="unique"):
        read_task(path)


@pytest.mark.parametrize(
    ("text", "ids", "reason"),
    [
        ("  \n", [1, 1], "empty"),
        ("hello <|im_start|>user", [1, 2, 3], "template marker"),
        ("of of of", [5, 6] * 30, "loop of 2 tokens"),
        ("x", [1, 2, 3, 4] + [9] * 60, "loop of 1 token"),
        ("x", [*range(40), 3, 3, 3], None),
        ("a table", list(range(30)) + list(range(30)), None),
        ("few", [1, 2, 3, 1, 3, 2, 2, 1] * 12 + [1, 3, 3, 2], "distinct"),
        ("fine", list(range(100)), None),
    ],
)
def test_degenerate_output(text: str, ids: list[int], reason: str | None) -> None:
    found = degenerate_reason(text, ids)
    if reason is None:
        assert found is None
    else:
        assert found is not None
        assert reason in found


@pytest.mark.parametrize("content", [None, b"", b"\n"])
def test_a_workload_file_without_prompts_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "prose.jsonl"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(RequestError, match="No such file" if content is None else "an empty file"):
        read_task(path)
