"""A request whose scope is narrower than its engine's teaches nobody beyond it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from engines import Output, fake_engine, named_drafters, run_all
from fake_program import FakeProgram
from slipstream.drafters.ngram_cache import NgramCache
from slipstream.drafters.ngram_counts import NgramCounts
from slipstream.engine.controller import DoublingController
from slipstream.engine.controllers import controller_for
from slipstream.engine.cost_controller import CostController
from slipstream.engine.engine import Engine
from slipstream.engine.sequence import Request, Speculation
from slipstream.options import DraftScope, SamplingOptions, SpeculationOptions

VOCABULARY = 24
NAMES = ["ngram-mod", "ngram-cache", "suffix"]
TEXT = [1, 2, 3, 4, 5, 6, 7, 8]


def engine_of(names: Sequence[str], scope: DraftScope = "session", **keywords: Any) -> Engine:
    options = SpeculationOptions(ngram_mod_n_match=2, ngram_mod_n_min=1, suffix_p_min=0.0)
    controller = DoublingController(fixed=True)
    drafters = named_drafters(names, options)
    program = FakeProgram(VOCABULARY, 1)
    return fake_engine(drafters, program, scope=scope, controller=controller, **keywords)


def request(scope: DraftScope | None = None, session: str = "s", **choice: Any) -> Request:
    options = SamplingOptions(seed=1, max_tokens=40)
    wanted = Speculation(scope=scope, **choice)
    return Request(TEXT, options, session=session, speculation=wanted)


def shown(output: Output) -> list[tuple[object, ...]]:
    """What drafts, counts and state of a request show."""
    statistics = output.statistics
    rounds = [(r.proposed, r.drafted, r.accepted, r.fired) for r in statistics.rounds]
    return [(statistics.warm,), *rounds]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("scope", "private", "session"),
    [("session", "request", "s"), ("all", "request", "s"), ("all", "session", "other")],
)
def test_nothing_of_a_private_request_shows_in_another(
    name: str, scope: DraftScope, private: DraftScope, session: str
) -> None:
    [alone] = run_all(engine_of([name], scope), [request()])
    engine = engine_of([name], scope)
    [before, after] = run_all(engine, [request(private, session), request()])
    assert shown(after) == shown(alone)
    assert shown(before) == shown(alone)
    [taught] = run_all(engine, [request()])
    assert shown(taught) != shown(alone), "else the law above would say nothing"


@pytest.mark.parametrize("name", NAMES)
def test_what_is_learned_beside_it_is_not_for_it(name: str) -> None:
    engine = engine_of([name])
    run_all(engine, [request(), request()])
    [private] = run_all(engine, [request("request")])
    [alone] = run_all(engine_of([name]), [request()])
    assert shown(private) == shown(alone)


@pytest.mark.parametrize("scope", ["session", "all"])
def test_nothing_of_it_is_remembered(scope: DraftScope) -> None:
    engine = engine_of(NAMES, scope)
    outputs = run_all(engine, [request("request"), request("request")])
    assert all(output.statistics.accepted for output in outputs)
    assert all(output.statistics.private for output in outputs)
    assert engine.drafting.remembered() == []


def test_a_drafter_that_was_not_chosen_learns_nothing() -> None:
    engine = engine_of(NAMES)
    run_all(engine, [request(methods=("suffix",)), request(methods=())])
    assert {name for name, _, _ in engine.drafting.remembered()} == {"suffix"}
    [chosen] = run_all(engine, [request(methods=("ngram-mod",))])
    assert not chosen.statistics.warm
    [again] = run_all(engine, [request(methods=("suffix",))])
    assert again.statistics.warm
    [none] = run_all(engine, [request(methods=())])
    assert not none.statistics.warm


def test_a_file_for_all_gets_nothing_of_a_private_request() -> None:
    saved: list[NgramCounts] = []
    drafter = NgramCache(save=saved.append)
    engine = fake_engine(drafter, FakeProgram(VOCABULARY, 1))
    run_all(engine, [request("request")])
    assert [counts.tokens for counts in saved] == [0]
    run_all(engine, [request()])
    assert saved[1].tokens > len(TEXT)


def test_the_controller_learns_nothing_for_others_of_it() -> None:
    controller = controller_for(NAMES, fixed=False)
    assert isinstance(controller, CostController)
    engine = fake_engine(
        named_drafters(["suffix"], SpeculationOptions()),
        FakeProgram(VOCABULARY, 1),
        controller=controller,
    )
    run_all(engine, [request("request")])
    assert not controller.experience._scopes
    run_all(engine, [request()])
    assert list(controller.experience._scopes) == ["session s"]
