"""Requests of one engine choose their drafters apart: each output is that of the request alone.

Whatever else runs beside it, whatever was cancelled, chains or trees, greedy or seeded; counts
conserve, nothing that was not chosen has a part, and a trace repeats every choice.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET

from draft_models import fake_draft_simple
from engines import Output, check_counts, fake_engine, named_drafters, run_all
from fake_program import FakeProgram
from slipstream.backends.base import Outputs, Step
from slipstream.drafters import arranged
from slipstream.drafters.base import Drafter
from slipstream.engine.controller import Controller, Decision, DoublingController
from slipstream.engine.controllers import controller_for
from slipstream.engine.cost_controller import CostController
from slipstream.engine.sequence import Request, Speculation
from slipstream.engine.trace_format import VERSION, End, Header, Record, RoundRecord
from slipstream.engine.tracing import Tracing
from slipstream.measure.replay import replay
from slipstream.measure.trace_policies import policy_maker
from slipstream.measure.traces import conditions, read_report
from slipstream.options import SamplingOptions, SpeculationOptions
from slipstream.sampling import default_primitives
from traces import write

VOCABULARY = 24
PRIMITIVES = default_primitives()  # those of NumPy give the same tokens, much slower
PROMPTS = [[1, 2, 3, 4, 5], [7], [5, 6, 7, 5, 6, 7, 5, 6], list(range(20)) * 2, [3, 1, 4, 1, 5]]
LENGTH = 40
NAMES = ["ngram-simple", "ngram-map-k", "ngram-mod", "ngram-cache", "suffix"]
SPECULATIONS: dict[str, Speculation | None] = {
    "the engine's": None,
    "none": Speculation(methods=("none",)),
    "nothing": Speculation(methods=()),
    "ngram-simple": Speculation(methods=("ngram-simple",), n_max=4),
    "ngram-mod": Speculation(methods=("ngram-mod",), n_min=3),
    "ngram-cache": Speculation(methods=("ngram-cache", "ngram-map-k"), p_min=0.3),
    "suffix": Speculation(methods=("suffix",)),
    "suffix, sure": Speculation(methods=("suffix",), p_min=0.6, scope="request"),
    "draft-simple": Speculation(methods=("draft-simple",), n_max=3),
    "draft-simple, sure": Speculation(methods=("draft-simple",), p_min=0.4, n_min=2),
    "auto": Speculation(methods=("auto",), scope="request"),
}
SAMPLINGS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "0.8": {"temperature": 0.8, "seed": 42, "presence_penalty": 0.3},
}
CONTROLLERS: dict[str, Callable[[Sequence[str]], Controller]] = {
    "doubling": lambda _: DoublingController(),
    "fixed": lambda _: DoublingController(fixed=True),
    "cost": lambda names: controller_for(names, fixed=False),
    "cost, with means": lambda _: CostController(credit=20.0),
}


class CheapRows(FakeProgram):
    """A pass of R rows takes 1 + R / 100 of its one-row time, so drafts pay; two tokens decide.

    That time is far below the limit of a native call, which would leave no room for drafts.
    """

    def __init__(self) -> None:
        super().__init__(VOCABULARY, order=2, spread=4.0)

    def run(self, step: Step) -> Outputs:
        made = super().run(step)
        return replace(made, elapsed_s=0.1 * (1.0 + 0.01 * len(step.sequences)))


def drafters(branches: int) -> tuple[Drafter, ...]:
    options = SpeculationOptions(
        draft_branches=branches,
        ngram_simple_size_n=2,
        ngram_simple_size_m=6,
        ngram_map_k_size_n=2,
        ngram_map_k_size_m=6,
        ngram_mod_n_match=2,
        ngram_mod_n_min=1,
        ngram_mod_n_max=9,
        suffix_p_min=0.0,
    )
    draft_model = fake_draft_simple(
        FakeProgram(VOCABULARY, 2), n_max=5, draft_branches=branches, draft_window=20
    )
    return arranged([*named_drafters(NAMES, options), draft_model])


@cache
def plain_outputs(sampling: str) -> list[Output]:
    engine = fake_engine(None, CheapRows(), primitives=PRIMITIVES)
    return run_all(engine, [request_of(prompt, sampling) for prompt in PROMPTS])


def request_of(prompt: Sequence[int], sampling: str, kind: str = "the engine's") -> Request:
    options = SamplingOptions(**{"seed": 1, "max_tokens": LENGTH, **SAMPLINGS[sampling]})
    session = "one" if len(prompt) % 2 else "two"
    return Request(prompt, options, session=session, speculation=SPECULATIONS[kind])


def mixture(sampling: str, seed: int) -> list[tuple[int, str, Request]]:
    """Place of the prompt, choice and request, in any order."""
    pairs = [(place, kind) for place in range(len(PROMPTS)) for kind in SPECULATIONS]
    random.Random(seed).shuffle(pairs)
    return [(place, kind, request_of(PROMPTS[place], sampling, kind)) for place, kind in pairs[:24]]


@pytest.mark.parametrize("branches", [1, 4], ids=["chains", "trees"])
@pytest.mark.parametrize("controller", CONTROLLERS)
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_each_output_is_that_of_the_request_alone(
    sampling: str, controller: str, branches: int
) -> None:
    made = drafters(branches)
    names = tuple(drafter.name for drafter in made)
    engine = fake_engine(
        made,
        CheapRows(),
        primitives=PRIMITIVES,
        parallel=4,
        queue=100,
        pace=3.0 if branches > 1 else 0.0,
        controller=CONTROLLERS[controller](names),
    )
    mixed = mixture(sampling, seed=branches)
    cancelled = {3: 5, 11: 18, 23: 1}
    outputs = run_all(engine, [request for _, _, request in mixed], cancelled)
    plain = plain_outputs(sampling)
    for number, ((place, kind, request), output) in enumerate(zip(mixed, outputs, strict=True)):
        check_counts(output)
        if number in cancelled and output.finish_reason == "cancelled":
            assert output.ids == plain[place].ids[: len(output.ids)]
        else:
            assert output.visible() == plain[place].visible(), kind
        check_choice(output, request.speculation, names)
    assert engine.program.memory.bytes() == 0
    kinds = {kind for (_, kind, _), o in zip(mixed, outputs, strict=True) if o.statistics.drafted}
    # without means the cost controller may find nothing worth it in so few drawn tokens
    if sampling == "greedy" or controller != "cost":
        assert sum(output.statistics.accepted for output in outputs) > 2 * LENGTH
        assert len(kinds) > 5
    assert not {"none", "nothing"} & kinds
    assert [outputs[number].finish_reason for number in cancelled].count("cancelled") > 1


def check_choice(output: Output, wanted: Speculation | None, names: tuple[str, ...]) -> None:
    """Only what was chosen had a part, and no more of it than was allowed."""
    statistics = output.statistics
    chosen = names
    if wanted is not None and wanted.methods is not None:
        automatic = ("suffix", "draft-simple") if "auto" in wanted.methods else ()
        chosen = tuple(name for name in names if name in (*wanted.methods, *automatic))
    assert statistics.drafters == chosen
    for made in statistics.rounds:
        assert {*made.asked, *made.fired, *made.drafted_by} <= set(chosen)
        if wanted is not None and wanted.n_max is not None:
            assert made.drafted <= wanted.n_max


# traces


@pytest.mark.parametrize("controller", ["doubling", "cost", "cost, with means"])
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_choices_of_a_mixed_engine_repeat(sampling: str, controller: str) -> None:
    made = drafters(4)
    names = tuple(drafter.name for drafter in made)
    trace: list[Decision] = []
    engine = fake_engine(
        made,
        CheapRows(),
        primitives=PRIMITIVES,
        parallel=4,
        queue=100,
        controller=CONTROLLERS[controller](names),
        trace=lambda decision, _: trace.append(decision),
    )
    mixed = mixture(sampling, seed=7)
    run_all(engine, [request for _, _, request in mixed], {2: 9})
    decided = [decision for decision in trace if not decision.prompt]
    chosen = replay(trace, CONTROLLERS[controller](names), names)
    assert len({decision.room.methods for decision in decided}) > 5
    assert any(chosen) or (sampling, controller) == ("0.8", "cost")
    for draft, decision in zip(chosen, decided, strict=True):
        assert draft.cut(len(decision.verified)) == decision.verified
        assert len(draft) == len(decision.verified) + decision.cut_for_time


def traced(sampling: str) -> tuple[list[Record], list[Output], tuple[str, ...]]:
    records: list[Record] = []
    tracing = Tracing(records.append)
    tracing.header(Header(version=VERSION, model="fake"))
    made = drafters(4)
    names = tuple(drafter.name for drafter in made)
    own = tracing.engine(names, "matching", {})
    engine = fake_engine(
        made,
        CheapRows(),
        primitives=PRIMITIVES,
        parallel=4,
        queue=100,
        controller=controller_for(names, fixed=False),
        trace=own.round,
        ended=own.end,
        forgot=own.forget,
    )
    mixed = mixture(sampling, seed=7)
    outputs = run_all(engine, [request for _, _, request in mixed], {2: 9, 22: 0})
    assert tracing.failure is None
    return records, outputs, names


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_a_trace_on_disk_repeats_them_too(tmp_path: Path, sampling: str) -> None:
    records, outputs, names = traced(sampling)
    report = read_report(write(tmp_path / "t.jsonl", records), policy_maker("auto"))
    assert report.equal is True
    assert sum(outcome.rounds for outcome in report.outcomes.values()) > 100
    for outcome in report.outcomes.values():
        assert outcome.censored == 0
        assert outcome.tokens == outcome.recorded_tokens
        assert outcome.seconds == pytest.approx(outcome.recorded_seconds)
    for sequence, output in enumerate(outputs):
        assert report.requests[sequence].drafters == output.statistics.drafters
    joined = conditions(report)
    whole = ",".join(names)
    assert {f"none in {whole}", f"draft-simple in {whole}"} <= {c.name for c in joined}
    assert sum(condition.requests for condition in joined) == len(outputs)
    for condition in joined:
        assert set(condition.drafters) <= set(condition.methods)
        assert bool(condition.methods) or not condition.balance.passes


def test_a_trace_says_what_was_chosen_where_it_is_not_all() -> None:
    records, outputs, names = traced("greedy")
    for record in records:
        if isinstance(record, RoundRecord | End):
            drafters = outputs[record.sequence].statistics.drafters
            assert record.drafters == (UNSET if drafters == names else drafters)
