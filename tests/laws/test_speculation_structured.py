"""Speculation never changes an output that has a grammar: every drafter, with dictated tokens
drafted and without, sequences with different grammars and none side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from builders import tiny_model
from drafters_for_tests import HostileDrafter, MalformedDrafter, ScriptedDrafter
from engines import Output, check_counts, drafters_of, drain, joined, named_drafters
from slipstream.drafters.base import Drafter
from slipstream.engine.controller import DoublingController
from slipstream.engine.engine import Engine
from slipstream.engine.sequence import Request
from slipstream.engine.statistics import GRAMMAR
from slipstream.loading import LoadedModel, load_model
from slipstream.options import EngineOptions, ModelOptions, SamplingOptions, SpeculationOptions
from slipstream.structured import Grammars
from slipstream.verify.matching import Matching
from structured_for_tests import FIXED, PERSON, Job, json_engine, json_tokenizer, run_jobs

VOCABULARY = json_tokenizer().vocabulary_size
JOBS = (
    Job([5, 6, 7], {"json_schema": PERSON}),
    Job([8, 9, 10, 8, 9, 10]),
    Job([11], {"json_schema": FIXED}),
    Job([12, 13], {"regex": r"(red|green|blue)(, (red|green|blue)){2,9}"}),
    Job([14, 15, 16], {"json_schema": {"type": "array", "items": PERSON}}),
)
LENGTH = 48
NGRAMS = SpeculationOptions(
    ngram_simple_size_n=2, ngram_simple_size_m=6, ngram_mod_n_match=2, ngram_mod_n_min=1
)
Made = Drafter | Sequence[Drafter] | None
DRAFTERS: dict[str, Callable[[Sequence[Sequence[int]]], Made]] = {
    "none": lambda _: None,
    "n-grams": lambda _: named_drafters(["ngram-mod", "ngram-simple"], NGRAMS),
    "scripted": ScriptedDrafter,
    "scripted, wrong at 2": lambda truth: ScriptedDrafter(truth, wrong_at=2),
    "hostile chains": lambda _: HostileDrafter(VOCABULARY, 11, trees=False),
    "hostile trees": lambda _: HostileDrafter(VOCABULARY, 12),
    "trees with the truth": lambda truth: HostileDrafter(VOCABULARY, 13, truth),
    "malformed": lambda _: MalformedDrafter(VOCABULARY),
}
SAMPLINGS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "0.9": {"temperature": 0.9, "seed": 3},
    "0.9, penalties and filters": {
        "temperature": 0.9,
        "seed": 4,
        "repetition_penalty": 1.2,
        "presence_penalty": 0.5,
        "top_k": 10,
        "top_p": 0.9,
        "min_p": 0.02,
        "logit_bias": {0: 50.0, 3: 2.0},
    },
}


@cache
def plain_outputs(sampling: str, order: int | None) -> list[Output]:
    """One request at a time, nothing drafted."""
    engine = json_engine(None, order, fast_forward=False)
    return run_jobs(engine, JOBS, max_tokens=LENGTH, logprobs=2, **SAMPLINGS[sampling])


@pytest.mark.parametrize("fast_forward", [False, True], ids=["drafters alone", "fast forward"])
@pytest.mark.parametrize("order", [None, 1], ids=["whole history", "last one"])
@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("name", DRAFTERS)
def test_output_equals_plain_decoding(
    name: str, sampling: str, order: int | None, fast_forward: bool
) -> None:
    plain = plain_outputs(sampling, order)
    truth = [[*job.prompt, *output.ids] for job, output in zip(JOBS, plain, strict=True)]
    engine = json_engine(
        DRAFTERS[name](truth),
        order,
        parallel=3,
        fast_forward=fast_forward,
        controller=DoublingController(fixed=name.startswith("hostile")),
    )
    drafted = run_jobs(engine, JOBS, max_tokens=LENGTH, logprobs=2, **SAMPLINGS[sampling])
    for expected, found in zip(plain, drafted, strict=True):
        assert found.visible() == expected.visible()
        assert found.statistics.complete == expected.statistics.complete
        check_counts(found)
    if name in ("scripted", "trees with the truth"):
        assert sum(output.statistics.accepted for output in drafted) > LENGTH / 2


def test_dictated_tokens_are_accepted_and_save_passes() -> None:
    plain = plain_outputs("greedy", None)[2]
    engine = json_engine(None, controller=DoublingController(fixed=True))
    [fast] = run_jobs(engine, [JOBS[2]], max_tokens=LENGTH, logprobs=2)
    assert fast.visible() == plain.visible()
    statistics = fast.statistics
    assert statistics.drafters == (GRAMMAR,)
    assert statistics.drafted == statistics.accepted > 0
    assert statistics.target_passes < plain.statistics.target_passes / 2
    assert {name for r in statistics.rounds for name in r.accepted_by} == {GRAMMAR}


def test_a_hostile_draft_is_cut_where_the_grammar_forbids_it() -> None:
    engine = json_engine(HostileDrafter(VOCABULARY, 1), fast_forward=False)
    [constrained, free] = run_jobs(engine, JOBS[:2], max_tokens=LENGTH)
    [(reason, count)] = constrained.statistics.rejected_drafts.items()
    assert reason == "the grammar forbids a drafted token"
    assert 0 < count <= constrained.statistics.target_passes
    assert not free.statistics.rejected_drafts


def test_cancelling_one_of_three_leaves_the_others_alone() -> None:
    plain = plain_outputs("0.9", None)
    for steps in range(1, 12, 3):
        engine = json_engine(HostileDrafter(VOCABULARY, 2), parallel=3)
        sampling = {"max_tokens": LENGTH, "logprobs": 2, **SAMPLINGS["0.9"]}
        ids = [engine.submit(job.request(**sampling)) for job in JOBS]
        events = [event for _ in range(steps) for event in engine.step()]
        engine.cancel(ids[0])
        events += drain(engine)
        cancelled, *others = [joined(events, identity) for identity in ids]
        assert cancelled.ids == plain[0].ids[: len(cancelled.ids)]
        for expected, found in zip(plain[1:], others, strict=True):
            assert found.visible() == expected.visible()
            check_counts(found)


SCHEMAS: tuple[dict[str, Any], ...] = (
    {"json_schema": PERSON},
    {},
    {"json_schema": FIXED},
    {"regex": "(yes|no)( (yes|no)){3,20}"},
)
TEXTS = ("A person: ", "To be, or not to be, ", "The record is ", "yes no yes no ")


def decode(
    loaded: LoadedModel,
    grammars: Grammars,
    drafter: Made,
    *,
    fast_forward: bool,
    parallel: int,
    **sampling: Any,
) -> list[Output]:
    engine = Engine(
        loaded.program,
        loaded.tokenizer,
        drafters=drafters_of(drafter),
        verifier=Matching(),
        context=loaded.context,
        options=EngineOptions(parallel=parallel),
        controller=DoublingController(first=8, most=10),
        fast_forward=fast_forward,
    )
    ids = []
    for text, demand in zip(TEXTS, SCHEMAS, strict=True):
        options = SamplingOptions(**{"seed": 5, "max_tokens": 40, **demand, **sampling})
        prompt = loaded.tokenizer.encode(text)
        ids.append(engine.submit(Request(prompt, options, constraint=grammars.constraint(options))))
    events = drain(engine)
    return [joined(events, identity) for identity in ids]


def check_model(path: str) -> None:
    loaded = load_model(ModelOptions(model=path, context=256), EngineOptions(parallel=3))
    grammars = Grammars(loaded.tokenizer)
    for sampling in ({}, {"temperature": 0.8}):
        plain = decode(loaded, grammars, None, fast_forward=False, parallel=1, **sampling)
        prompts = [loaded.tokenizer.encode(text) for text in TEXTS]
        truth = [[*p, *output.ids] for p, output in zip(prompts, plain, strict=True)]
        for drafter in (None, HostileDrafter(loaded.graph.vocabulary, 3, truth)):
            found = decode(loaded, grammars, drafter, fast_forward=True, parallel=3, **sampling)
            for expected, output in zip(plain, found, strict=True):
                assert output.visible() == expected.visible()
                check_counts(output)
            assert found[2].statistics.accepted > 0
    assert loaded.memory.bytes() == 0


@pytest.mark.native
@pytest.mark.parametrize("architecture", ["llama", "gemma3"])
def test_tiny_models(architecture: str, tmp_path: Path) -> None:
    check_model(str(tiny_model(tmp_path / "tiny.gguf", architecture)))


@pytest.mark.native
@pytest.mark.model
@pytest.mark.slow
@pytest.mark.parametrize("name", ["smollm2-135m", "gemma-3-270m"])
def test_models_of_the_catalogue(name: str, model_path: Callable[[str], Path]) -> None:
    check_model(str(model_path(name)))
