"""Pairs of speculation off and on, with a model that only counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from slipstream.api import Model
from slipstream.errors import TemplateError
from slipstream.measure.speculation import PLAIN, Sample, run_pairs, summarise
from slipstream.measure.workload import WorkloadMessage, WorkloadPrompt

CONDITIONS: Mapping[str, Mapping[str, Any]] = {
    PLAIN: {"type": (PLAIN,)},
    "ngram-mod": {"type": ("ngram-mod",)},
}


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
