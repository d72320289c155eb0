"""Conditions spelt out: starting values, sweeps of one parameter."""

from __future__ import annotations

import msgspec
import pytest

from lab_world import DRAFT, SIMPLE, SWEEP, plan_of
from slipstream.errors import OptionError
from slipstream.lab.contract.plan import ConditionPlan, RuntimePlan
from slipstream.lab.planning.ready_made import (
    SWEEPS,
    TRAINED,
    expanded,
    parents,
    ready_made,
    stage_of,
    starting_values,
)
from slipstream.options import METHODS, SpeculationOptions, from_mapping


def test_none_is_always_there_and_first() -> None:
    assert [c.name for c in expanded(plan_of())] == ["none"]
    listed = ConditionPlan(name="none", stage="none")
    assert [c.name for c in expanded(plan_of(SIMPLE, listed))] == ["none", "ngram-simple"]


def test_values_are_passed_and_labelled() -> None:
    simple = expanded(plan_of(SIMPLE))[1]
    assert dict(simple.parameters) == {"ngram_simple_size_n": 12, "ngram_simple_size_m": 48}
    assert simple.starting_point


def test_given_values_stay_as_they_are() -> None:
    own = msgspec.structs.replace(SIMPLE, parameters={"ngram_simple_size_n": 3})
    made = expanded(plan_of(own))[1]
    assert made == own
    assert not made.starting_point


def test_other_programs_begin_with_their_own_draft_length() -> None:
    ours = expanded(plan_of(DRAFT))[1].parameters
    peers = {"peer": RuntimePlan(kind="llama-server", binary="x")}
    theirs = expanded(plan_of(DRAFT, runtimes=peers))[1].parameters
    assert (ours["n_max"], theirs["n_max"]) == (8, 3)
    assert {"n_max", "n_min", "p_min"} == set(ours)


@pytest.mark.parametrize("method", METHODS)
def test_the_starting_values_of_every_method_are_options(method: str) -> None:
    values = starting_values(method)
    assert None not in values.values()
    from_mapping(SpeculationOptions, values)
    assert ready_made(method).starting_point == bool(values)


def test_every_method_has_its_rung() -> None:
    stages = {method: stage_of(method) for method in METHODS}
    assert stages["none"] == "none"
    assert {m for m, s in stages.items() if s == "trained"} == set(TRAINED)
    assert stages["draft-simple"] == "draft-simple"
    assert stages["suffix"] == stages["ngram-mod"] == "ngram"
    assert (stage_of("auto"), stage_of("auto", "small")) == ("ngram", "draft-simple")


def test_a_sweep_varies_one_parameter_at_a_time() -> None:
    made = expanded(plan_of(SIMPLE, SWEEP))
    parent, sweep = made[1], made[2:]
    assert len(sweep) == sum(map(len, SWEEPS["ngram-simple"].values()))
    for condition in sweep:
        assert condition.stage == "ngram-sweep"
        assert condition.parent == parent.name
        changed = {
            name
            for name, value in condition.parameters.items()
            if value != parent.parameters.get(name)
        }
        assert changed == {condition.varies}
        from_mapping(SpeculationOptions, dict(condition.parameters))
    assert len({c.name for c in made}) == len(made)
    assert "sweep-size-n-3" in {c.name for c in sweep}


@pytest.mark.parametrize("method", SWEEPS)
def test_every_ready_made_sweep_is_of_options(method: str) -> None:
    values = starting_values(method)
    for parameter, tried in SWEEPS[method].items():
        assert values[parameter] not in tried
        for value in tried:
            from_mapping(SpeculationOptions, {**values, parameter: value})


def test_a_sweep_of_own_values() -> None:
    given = {"ngram_simple_size_n": [2, 12, 5]}
    own = msgspec.structs.replace(SWEEP, varies="ngram_simple_size_n", parameters=given)
    made = expanded(plan_of(SIMPLE, own))[2:]
    assert [c.parameters["ngram_simple_size_n"] for c in made] == [2, 5]
    assert all(c.parameters["ngram_simple_size_m"] == 48 for c in made)


def test_expanding_twice_changes_nothing() -> None:
    once = expanded(plan_of(SIMPLE, SWEEP, DRAFT))
    again = expanded(msgspec.structs.replace(plan_of(), conditions=once))
    assert again == once
    assert parents(plan_of(SIMPLE, SWEEP)) == {
        c.name: "ngram-simple" for c in once if c.stage == "ngram-sweep"
    }


@pytest.mark.parametrize(
    "conditions",
    [
        (SWEEP,),
        (SWEEP, SIMPLE),
        (SIMPLE, SIMPLE),
        (SIMPLE, msgspec.structs.replace(SWEEP, varies="unheard_of")),
        (DRAFT, msgspec.structs.replace(SWEEP, parent="draft")),
    ],
)
def test_a_sweep_needs_a_parent_and_something_to_vary(
    conditions: tuple[ConditionPlan, ...],
) -> None:
    with pytest.raises(OptionError):
        expanded(plan_of(*conditions))


def test_values_of_a_server_that_runs_are_its_own() -> None:
    far = {"far": RuntimePlan(kind="openai", url="http://127.0.0.1:1")}
    made = expanded(plan_of(SIMPLE, runtimes=far))[1]
    assert (dict(made.parameters), made.starting_point) == ({}, False)
    both = {**far, "own": RuntimePlan(kind="slipstream")}
    assert expanded(plan_of(SIMPLE, runtimes=both))[1].parameters
