"""From a check on two sides to its result, without a server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from slipstream.lab.conformance.asking import Asker, Side
from slipstream.lab.conformance.checks import Check, Room
from slipstream.lab.conformance.comparing import Output
from slipstream.lab.conformance.judging import judged
from slipstream.lab.conformance.outcomes import (
    CheckResult,
    Conformance,
    ContractError,
    Outcome,
    RefusedError,
    UnmeasuredError,
)
from slipstream.lab.conformance.recognising import Sides
from slipstream.lab.contract.runtimes import Endpoint

REQUEST: dict[str, Any] = {"path": "/v1/chat/completions", "body": {"max_tokens": 4}}
ON = Side(Endpoint(url="http://127.0.0.1:1", dialect="openai"))
OFF = Side(Endpoint(url="http://127.0.0.1:2", dialect="openai"))

Way = Sequence[Output] | Exception


def output(value: Any, label: str = "x", basis: str = "") -> Output:
    return Output(label, value, REQUEST, basis)


def result(here: Way, there: Way | None = None, **about: Any) -> CheckResult:
    """A check that ends so with speculation and so without; None = there is no such side."""
    ways = {ON.endpoint.url: here, OFF.endpoint.url: there}

    def run(asker: Asker, room: Room) -> Sequence[Output]:
        del room
        way = ways[asker.side.endpoint.url]
        if isinstance(way, Exception):
            raise way
        assert way is not None
        return way

    off = None if there is None else OFF
    return judged(Check("c", "so", run, **about), Room(), Sides(ON, off, "", "no side"), 5.0)


FAULT = ContractError("wrong", REQUEST)
REFUSED = RefusedError("HTTP 400", REQUEST)
UNMEASURED = UnmeasuredError("cannot")


@pytest.mark.parametrize(
    ("here", "there", "outcome", "comparison"),
    [
        ([output(1)], [output(1)], "passed", "passed"),
        ([output(1)], [output(2)], "failed", "failed"),
        ([output(1)], None, "passed", "not measurable"),
        ([output(1)], [], "failed", "failed"),
        ([output(1)], FAULT, "passed", "not measurable"),
        ([output(1)], UNMEASURED, "passed", "not measurable"),
        ([], [], "passed", "not measurable"),
        (FAULT, [], "failed", "failed"),
        (FAULT, FAULT, "failed", "not measurable"),
        (FAULT, None, "failed", "not measurable"),
        (REFUSED, [], "failed", "failed"),
        (REFUSED, REFUSED, "not measurable", "not measurable"),
        (REFUSED, None, "not measurable", "not measurable"),
        (UNMEASURED, [], "not measurable", "not measurable"),
    ],
)
def test_outcomes(here: Way, there: Way | None, outcome: str, comparison: str) -> None:
    found = result(here, there)
    assert (found.outcome, found.comparison) == (outcome, comparison)
    assert (found.request is not None) == (outcome == "failed" or isinstance(here, RefusedError))


@pytest.mark.parametrize(
    ("there", "outcome"),
    [([output(1)], "passed"), ([output(2)], "failed"), (None, "not measurable")],
)
def test_a_check_that_only_compares(there: Way | None, outcome: str) -> None:
    assert result([output(1)], there, compares=True).outcome == outcome


def test_a_check_of_one_side_is_not_made_on_the_other() -> None:
    found = result([output(1)], FAULT, both=False)
    assert (found.outcome, found.compared) == ("passed", "made with speculation alone")


def test_what_belongs_to_other_texts_is_not_compared() -> None:
    here = [output(1, "a", "text"), output(3, "b", "same")]
    there = [output(2, "a", "other"), output(3, "b", "same")]
    assert result(here, there).comparison == "passed"
    assert result(here[:1], there[:1]).comparison == "not measurable"
    assert "texts differ" in result(here[:1], there[:1]).compared
    assert result(here, [*there[:1], output(4, "b", "same")]).comparison == "failed"


def test_an_output_of_one_side_alone() -> None:
    one, two = output(1, "a"), output(1, "b")
    assert "b: there is none without" in result([one, two], [one]).found
    assert "b: there is none with speculation" in result([one], [one, two]).found


def test_a_side_that_does_not_repeat_itself_proves_nothing() -> None:
    values = iter(range(9))

    class Changing(Sequence[Output]):
        def __len__(self) -> int:
            return 1

        def __getitem__(self, place: Any) -> Any:
            if place:
                raise IndexError
            return output(next(values))

    found = result([output(99)], Changing())
    assert (found.outcome, found.comparison) == ("passed", "not measurable")
    assert "does not repeat itself" in found.compared


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [
        (["passed"], 0),
        (["passed", "not measurable"], 2),
        (["failed", "not measurable"], 1),
        (["failed", "passed"], 1),
    ],
)
def test_exit_codes(outcomes: list[Outcome], code: int) -> None:
    results = [CheckResult(check="c", outcome=o, expected="", found="") for o in outcomes]
    found = Conformance(
        url="", flavour="", model="", speculation="", without="", results=tuple(results)
    )
    assert found.exit_code == code


def test_a_check_may_compare_in_its_own_way() -> None:
    near: Callable[[Any, Any], str] = lambda a, b: "" if abs(a - b) < 2 else "far"  # noqa: E731
    assert result([output(1)], [output(2)], differ=near).outcome == "passed"
    assert result([output(1)], [output(3)], differ=near).outcome == "failed"
