"""The plan of a comparison: rows and their range, what must be equal, what a plan may say."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from compare_world import INSIDE, OUTSIDE, comparison_plan
from slipstream.errors import OptionError
from slipstream.lab.comparing.compare_plan import INSIDE as FEW
from slipstream.lab.comparing.compare_plan import OUTSIDE as MANY
from slipstream.lab.comparing.compare_plan import Choices, is_interpreter, written
from slipstream.lab.contract.plan import Comparison, Plan, RuntimePlan, rows_range_of
from slipstream.lab.planning.few_rows import few_rows, table
from slipstream.lab.planning.plan_checks import check_plan

A, B = "bin/old/llama-server", "bin/new/llama-server"
TYPES = ("q4_k", "q6_k", "f32")


def choices(**given: Any) -> Choices:
    return Choices(**{"a": A, "b": B, "target": "target.gguf", **given})


# The few-row range


@pytest.mark.parametrize(
    ("types", "least", "never"),
    [
        (("q4_0",), 2, ()),
        (("q4_0", "q4_k"), 3, ()),
        (("Q4_K", "F32"), 6, ()),
        (("q4_0", "iq4_nl", "bf16"), 2, ("iq4_nl", "bf16")),
        (("iq4_nl",), 6, ("iq4_nl",)),
        ((), 6, ()),
    ],
)
def test_the_range_is_that_of_every_type(
    types: tuple[str, ...], least: int, never: tuple[str, ...]
) -> None:
    found = few_rows(types)
    assert (found.least, found.most, found.never) == (least, 16, never)
    assert found.holds(least)
    assert not found.holds(least - 1)
    assert not found.holds(17)


def test_the_table_names_its_source() -> None:
    """The figures are those of the source, each of them."""
    told = table()
    assert told.least == {
        "f32": 6,
        "f16": 3,
        "q4_0": 2,
        "q4_1": 2,
        "q5_0": 3,
        "q5_1": 3,
        "q8_0": 2,
        "q4_k": 3,
        "q5_k": 2,
        "q6_k": 2,
    }
    assert "29869" in told.source
    assert "b11434" in told.source


# What is written


def test_a_plan_without_a_draft_model() -> None:
    text, plan = written(choices(), TYPES)
    assert plan.comparison == Comparison(builds=("a", "b"), inside=FEW, outside=MANY)
    assert {n: r.binary for n, r in plan.runtimes.items()} == {"a": A, "b": B}
    inside, outside = plan.conditions
    assert inside.parameters["ngram_mod_n_min"] == inside.parameters["ngram_mod_n_max"] == 7
    assert outside.parameters["ngram_mod_n_max"] == 23
    assert (inside.rows_range, outside.rows_range) == ((6, 16), (17, 0))
    assert plan.rules.repeats == 6
    assert "[comparison]" in text


def test_a_plan_with_a_draft_model() -> None:
    _, plan = written(choices(draft="draft.gguf", rows=6, outside=20), TYPES)
    inside, outside = plan.conditions
    assert {c.stage for c in plan.conditions} == {"draft-simple"}
    assert inside.parameters == {"n_max": 5, "n_min": 0, "p_min": 0.0}
    assert outside.parameters["n_max"] == 19
    assert plan.drafts["draft"].model == "draft.gguf"


def test_kinds_of_builds() -> None:
    _, plan = written(choices(a="slipstream", b="env/bin/python3.11", flags=("--x",)), TYPES)
    own, wheel = plan.runtimes["a"], plan.runtimes["b"]
    assert (own.kind, own.flags) == ("slipstream", ("--x", "--spec-fixed"))
    assert (wheel.kind, wheel.python, wheel.flags) == (
        "llama-server",
        "env/bin/python3.11",
        ("--x",),
    )


@pytest.mark.parametrize(
    ("place", "wheel"),
    [
        ("python", True),
        ("env/bin/python3.12", True),
        ("python.exe", True),
        ("bin/llama-server", False),
        ("python-builds/llama-server", False),
        ("pythonic", False),
    ],
)
def test_an_interpreter_is_told_by_its_name(place: str, wheel: bool) -> None:
    assert is_interpreter(place) is wheel


def test_a_check_is_named_so() -> None:
    assert written(choices(), TYPES)[1].rules.comparison == "ids"
    _, plan = written(choices(same_build=True, releases=("b1", ""), comparison="text"), TYPES)
    assert plan.rules.comparison == "text"
    assert plan.name.startswith("aa-")
    assert plan.comparison.same_build
    assert "check of the procedure" in plan.question.text
    assert [r.release for r in plan.runtimes.values()] == ["b1", ""]


@pytest.mark.parametrize(
    "hostile", ['a"b', "a\\b", "line\nbreak", 'x"]\n[rules]\nrepeats=1', "ünï", "{a}"]
)
def test_hostile_names_stay_what_they_are(hostile: str) -> None:
    _, plan = written(choices(a=hostile, target=hostile, draft=hostile, releases=(hostile, "")), ())
    assert plan.runtimes["a"].binary == hostile
    assert plan.target.model == plan.drafts["draft"].model == hostile
    assert plan.rules.repeats == 6


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"rows": 5}, "--rows from 6 to 16"),
        ({"rows": 17}, "--rows from 6 to 16"),
        ({"rows": 8, "slots": 3}, "--rows from 6 to 5 at each of 3 slots"),
        ({"outside": 16}, "--outside-rows from 17 to 128"),
        ({"outside": 129}, "--outside-rows from 17 to 128"),
        ({"tokens": 47}, "--tokens of at least 48"),
    ],
)
def test_rows_must_lie_where_they_are_said_to(given: dict[str, Any], expected: str) -> None:
    with pytest.raises(OptionError) as caught:
        written(choices(**given), TYPES)
    assert caught.value.expected.startswith(expected)


def test_rows_at_the_ends_of_the_range() -> None:
    for rows in (6, 16):
        assert written(choices(rows=rows), TYPES)[1].conditions[0].rows_range == (6, 16)
    assert written(choices(rows=2), ("q4_0",))[1].conditions[0].rows_range == (2, 16)
    assert written(choices(slots=2), TYPES)[1].arrivals.slots == 2


# What is accepted


def faulty(**given: Any) -> OptionError:
    with pytest.raises(OptionError) as caught:
        check_plan(comparison_plan(**given))
    return caught.value


def asked(**given: Any) -> Comparison:
    made = {"builds": ("a", "b"), "inside": "few-rows", "outside": "many-rows"}
    return Comparison(**{**made, **given})


def runtimes(**b: Any) -> dict[str, RuntimePlan]:
    return {
        "a": RuntimePlan(kind="llama-server", binary="a"),
        "b": RuntimePlan(**{"kind": "llama-server", "binary": "b", **b}),
    }


def test_a_sound_comparison() -> None:
    check_plan(comparison_plan())
    check_plan(comparison_plan(comparison=asked(same_build=True)))


@pytest.mark.parametrize(
    ("comparison", "place"),
    [
        (Comparison(inside="few-rows"), "comparison.builds"),
        (Comparison(same_build=True), "comparison.builds"),
        (asked(builds=("a",)), "comparison.builds"),
        (asked(builds=("a", "a")), "comparison.builds"),
        (asked(builds=("a", "b", "a")), "comparison.builds"),
        (asked(builds=("a", "c")), "comparison.builds"),
        (asked(inside=""), "comparison.inside"),
        (asked(outside="few"), "comparison.outside"),
        (asked(outside="few-rows"), "comparison.outside"),
    ],
)
def test_faults_of_the_table(comparison: Comparison, place: str) -> None:
    assert faulty(comparison=comparison).expected.startswith(f"`{place}` ")


@pytest.mark.parametrize(
    "more",
    [
        {"kind": "openai", "binary": "", "url": "http://x"},
        {"flags": ("--no-mmap",)},
        {"device": {"layers": "99"}},
    ],
)
def test_builds_are_started_alike(more: dict[str, Any]) -> None:
    assert faulty(runtimes=runtimes(**more)).expected.startswith("`runtimes.b")


def test_a_third_program_has_no_place() -> None:
    third = {**runtimes(), "c": RuntimePlan(kind="slipstream")}
    assert "two builds alone" in faulty(runtimes=third).expected
    assert "`rollback` to be empty" in faulty(rollback="a").expected


def test_flags_of_other_kinds_are_their_own() -> None:
    own = {
        "a": RuntimePlan(kind="slipstream", flags=("--spec-fixed",)),
        "b": RuntimePlan(kind="llama-server", binary="b"),
    }
    check_plan(comparison_plan(runtimes=own))


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"rows_range": (0, 0)}, "rows_range"),
        ({"rows_range": (16, 0)}, "rows_range"),
        ({"rows_range": (8, 24)}, "rows_range"),
        ({"method": "ngram-simple"}, "method"),
        ({"parameters": {**OUTSIDE.parameters, "ngram_mod_n_match": 9}}, "parameters"),
    ],
)
def test_only_rows_differ(change: dict[str, Any], place: str) -> None:
    other = msgspec.structs.replace(OUTSIDE, **change)
    assert faulty(conditions=(INSIDE, other)).expected.startswith(f"`conditions[1].{place}`")


def test_a_range_below_is_outside_too() -> None:
    below = msgspec.structs.replace(OUTSIDE, rows_range=(2, 5))
    check_plan(comparison_plan(conditions=(INSIDE, below)))


def test_nothing_is_measured_beside_the_two() -> None:
    third = msgspec.structs.replace(INSIDE, name="third", rows_range=(0, 0))
    assert "two compared ones" in faulty(conditions=(INSIDE, OUTSIDE, third)).expected


def test_a_range_of_a_condition_is_checked() -> None:
    wrong = msgspec.structs.replace(INSIDE, rows_range=(9, 6))
    assert "conditions[0].rows_range" in faulty(conditions=(wrong, OUTSIDE)).expected


def test_the_range_of_a_condition_comes_first() -> None:
    plan: Plan = comparison_plan(rules={"rows_range": (2, 4)})
    assert rows_range_of(plan, "few-rows") == (6, 16)
    assert rows_range_of(plan, "none") == (2, 4)
