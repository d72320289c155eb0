"""Pairs of speculation off and on, with a model that only counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from slipstream.api import Model
from slipstream.engine.statistics import Round
from slipstream.errors import TemplateError
from slipstream.measure.speculation import PLAIN, Sample, run_pairs
from slipstream.measure.speculation_summary import (
    acceptance,
    by_prompt,
    by_workload,
    record,
    summarise,
)
from slipstream.measure.workload import WorkloadMessage, WorkloadPrompt

CONDITIONS: Mapping[str, Mapping[str, Any]] = {
    PLAIN: {"type": (PLAIN,)},
    "ngram-mod": {"type": ("ngram-mod",)},
}


def rounds(emitted: int, drafted: int) -> list[Round]:
    """The prompt's, one with all the drafts, of which half is accepted, and plain ones."""
    accepted = drafted // 2
    tokens = [1, accepted + 1, *[1] * (emitted - accepted - 2)]
    return [
        Round(
            drafted=drafted if place == 1 else 0,
            tested=drafted if place == 1 else 0,
            accepted=count - 1,
            reached=accepted + 1 if place == 1 and drafted else 0,
            sampled=count,
            emitted=count,
            discarded=0,
            rows=1,
            elapsed_s=0.1,
            draft_s=0.01 if drafted else 0.0,
            sample_s=0.02,
            commit_s=0.005,
        )
        for place, count in enumerate(tokens)
    ]


class CountingModel:
    """Answers every prompt with the ids 1, 2, 3 …; the method ``broken`` answers otherwise."""

    def __init__(self, template: bool = True) -> None:
        self.calls: list[tuple[str, str]] = []
        self.resets = 0
        self.template = template
        self.tokenizer = SimpleNamespace(encode=lambda text: [len(text)])

    def chat_ids(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        if not self.template:
            raise TemplateError("a template", "none", "Use another model.")
        return [len(messages[0]["content"])]

    def forget(self) -> None:
        self.resets += 1

    def complete(self, ids: list[int], **options: Any) -> SimpleNamespace:
        [method] = options["type"]
        self.calls.append((str(ids[0]), method))
        emitted = tuple(range(1, options["max_tokens"] + 1))
        if method == "broken":
            emitted = (0, *emitted[1:])
        drafted = 0 if method == PLAIN else 4
        statistics = SimpleNamespace(
            first_token_s=0.0,
            finished_s=2.0 if method == PLAIN else 1.0,
            drafted=drafted,
            tested=drafted,
            accepted=drafted // 2,
            target_passes=len(emitted) - drafted // 2,
            rounds=rounds(len(emitted), drafted),
            output_valid=True,
        )
        return SimpleNamespace(text="words", ids=emitted, statistics=statistics)


def timed(start_s: float, token_s: float, condition: str = PLAIN) -> Sample:
    ids = tuple(range(11))
    return Sample("p", condition, 0, ids, 10 * token_s, 0, 0, 0, 11, None, start_s)


def test_a_machine_that_grows_slower_is_seen() -> None:
    rising = [timed(float(i), 0.1 + 0.01 * i) for i in range(8)]
    steady = [timed(float(i), 0.1 + 0.002 * (-1) ** i) for i in range(8)]
    fast_drafts = [timed(float(i), 0.1 - 0.01 * i, "ngram-mod") for i in range(8)]
    drifting = summarise("chat", "ngram-mod", [*rising, *fast_drafts])
    assert drifting.drifting
    assert drifting.drift_change == pytest.approx(0.07 / 0.135)
    assert not summarise("chat", "ngram-mod", [*steady, *fast_drafts]).drifting
    assert not summarise("chat", "ngram-mod", rising[:3]).drifting


def prompt(name: str, text: str, limit: int = 10) -> WorkloadPrompt:
    message = WorkloadMessage("user", text)
    return WorkloadPrompt(f"prose/{name}", "prose", (message,), limit, "test", "MIT", "")


def run(
    model: CountingModel, conditions: Mapping[str, Mapping[str, Any]] = CONDITIONS, rounds: int = 1
) -> list[Sample]:
    prompts = [prompt("a", "x"), prompt("b", "xx"), prompt("c", "xxx")]
    pairs = run_pairs(
        cast(Model, model),
        prompts,
        conditions,
        rounds=rounds,
        max_tokens=8,
        reset=model.forget,
    )
    return list(pairs)


def test_the_order_is_mirrored_from_prompt_to_prompt() -> None:
    model = CountingModel()
    run(model)
    off, on = PLAIN, "ngram-mod"
    assert model.calls == [("1", off), ("1", on), ("2", on), ("2", off), ("3", off), ("3", on)]
    assert model.resets == 6


def test_the_order_is_mirrored_within_a_prompt() -> None:
    model = CountingModel()
    run(model, rounds=2)
    off, on = PLAIN, "ngram-mod"
    assert model.calls[:4] == [("1", off), ("1", on), ("1", on), ("1", off)]
    assert model.calls[4:8] == [("2", off), ("2", on), ("2", on), ("2", off)]


def test_summary() -> None:
    summary = summarise("prose", "ngram-mod", run(CountingModel()))
    assert summary.prompts == 3
    assert summary.identical
    assert summary.plain_tok_s == pytest.approx(7 / 2)
    assert summary.tok_s == pytest.approx(7)
    assert summary.speed_up is not None
    assert summary.speed_up.median == pytest.approx(2)
    assert summary.speed_up.pairs == 3
    assert (summary.drafted, summary.accepted) == (12, 6)
    assert summary.tokens_per_pass == pytest.approx(24 / 18)
    assert summary.degenerate == {}


def test_another_output_is_seen() -> None:
    conditions = {PLAIN: {"type": (PLAIN,)}, "broken": {"type": ("broken",)}}
    assert not summarise("prose", "broken", run(CountingModel(), conditions)).identical


def test_a_base_model_gets_the_text() -> None:
    assert len(run(CountingModel(template=False))) == 6


MORE: Mapping[str, Mapping[str, Any]] = {**CONDITIONS, "suffix": {"type": ("suffix",)}}


def test_several_conditions_take_turns() -> None:
    model = CountingModel()
    samples = run(model, MORE, rounds=2)
    off, mod, suffix = PLAIN, "ngram-mod", "suffix"
    assert [method for _, method in model.calls[:6]] == [off, mod, suffix, suffix, mod, off]
    assert summarise("prose", mod, samples).speed_up == summarise("prose", suffix, samples).speed_up


def test_a_repetition_is_warm_and_never_averaged_with_cold() -> None:
    model = CountingModel()
    samples = list(
        run_pairs(
            cast(Model, model),
            [prompt("a", "x")],
            CONDITIONS,
            rounds=2,
            max_tokens=8,
            reset=model.forget,
            warm=True,
        )
    )
    assert [s.memory for s in samples] == ["cold", "cold", "warm", "cold", "warm", "cold"]
    assert [s.condition for s in samples] == [
        *(PLAIN, "ngram-mod", "ngram-mod"),
        *("ngram-mod", "ngram-mod", PLAIN),
    ]
    assert model.resets == 4
    cold = summarise("prose", "ngram-mod", samples)
    warm = summarise("prose", "ngram-mod", samples, "warm")
    assert (cold.drafted, warm.drafted) == (8, 8)
    assert cold.speed_up is not None
    assert cold.speed_up.pairs == 2
    assert (cold.memory, warm.memory) == ("cold", "warm")


def test_a_warm_output_that_differs_is_seen() -> None:
    samples = run(CountingModel())
    wrong = next(s for s in samples if s.condition != PLAIN)
    spoilt = [*samples, replace(wrong, memory="warm", ids=(0,))]
    assert summarise("prose", "ngram-mod", spoilt).identical
    assert not summarise("prose", "ngram-mod", spoilt, "warm").identical


def test_acceptance_names_its_denominator() -> None:
    summary = summarise("prose", "ngram-mod", run(CountingModel()))
    found = [(p.position, p.accepted, p.reached) for p in summary.positions]
    assert found == [(1, 3, 3), (2, 3, 3), (3, 0, 3)]
    assert acceptance([]) == ()


def test_time_by_phase_adds_up_to_the_decoding_time() -> None:
    summary = summarise("prose", "ngram-mod", run(CountingModel()))
    phases = summary.phases
    assert phases.tokens == 21
    assert phases.verify_s == pytest.approx(3 * 5 * 0.1)
    assert phases.draft_s == pytest.approx(3 * 5 * 0.01)
    parts = (phases.draft_s, phases.verify_s, phases.sample_s, phases.commit_s, phases.other_s)
    assert sum(parts) == pytest.approx(3 * 1.0)
    assert summary.plain_phases.verify_s == pytest.approx(3 * 7 * 0.1)


def test_the_balance_is_taken_against_the_plain_rounds() -> None:
    balance = summarise("prose", "ngram-mod", run(CountingModel())).balance
    assert balance is not None
    assert balance.reference == "plain rounds"
    assert balance.plain_s == pytest.approx(3 * 7 * 0.125)
    assert balance.saved_s == pytest.approx(3 * 2 * 0.125)


def test_no_interval_of_few_pairs_leaves_the_program() -> None:
    few = record(summarise("prose", "ngram-mod", run(CountingModel())))
    enough = record(summarise("prose", "ngram-mod", run(CountingModel(), rounds=2)))
    assert (few["speed_up"]["low"], few["speed_up"]["high"]) == (None, None)
    assert few["speed_up"]["median"] == pytest.approx(2)
    assert enough["speed_up"]["pairs"] == 6
    assert enough["speed_up"]["low"] == pytest.approx(2)
    assert few["balance"]["net_share"] == pytest.approx(few["balance"]["net_s"] / (3 * 7 * 0.125))


def test_lines_per_task_per_stratum_and_of_all() -> None:
    samples = [
        replace(s, task=task, prompt=f"{task}/{s.prompt}")
        for task in ("prose", "random")
        for s in run(CountingModel())
    ]
    other = [replace(s, task="chat", stratum="chat", prompt="chat/a") for s in samples[:2]]
    lines = by_workload("ngram-mod", [*samples, *other])
    assert [s.name for s in lines] == ["prose", "random", "chat", "prose (all)", "all"]
    assert [s.prompts for s in lines] == [3, 3, 1, 6, 7]
    assert [s.name for s in by_prompt("ngram-mod", samples)][:2] == [
        "prose/prose/a",
        "prose/prose/b",
    ]
