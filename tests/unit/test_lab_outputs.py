"""Outputs by digest, and the first place where one leaves the baseline."""

from __future__ import annotations

from pathlib import Path

import pytest

from slipstream.errors import RequestError
from slipstream.lab.running.outputs import Output, compared, load, save

BASE = Output(text="a b c", ids=(1, 2, 3))


def test_the_same_output_is_one_file(tmp_path: Path) -> None:
    names = {save(tmp_path, BASE), save(tmp_path, Output(text="a b c", ids=(1, 2, 3)))}
    assert len(names) == 1
    assert load(tmp_path, names.pop()) == BASE
    assert save(tmp_path, Output(text="a b c", ids=(1, 2, 4))) not in names
    assert len(list((tmp_path / "outputs").iterdir())) == 2


def test_everything_of_an_output_is_kept(tmp_path: Path) -> None:
    output = Output(
        text="x",
        ids=(5,),
        reasoning="because",
        tool_calls=({"name": "f", "arguments": "{}"},),
        tops=(((5, -0.1), ("six", -2.0)),),
    )
    assert load(tmp_path, save(tmp_path, output)) == output
    assert output.gap(0) == pytest.approx(1.9)
    assert output.gap(1) is None


@pytest.mark.parametrize("name", ["../outputs/x.json", "outputs/../x", "x.json", "outputs/none"])
def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "x.json").write_text("{}")
    (tmp_path / "outputs").mkdir()
    with pytest.raises(RequestError, match="no such file"):
        load(tmp_path, name)


def test_a_changed_output_is_refused(tmp_path: Path) -> None:
    name = save(tmp_path, BASE)
    (tmp_path / name).write_text('{"text":"other"}')
    with pytest.raises(RequestError, match="another content"):
        load(tmp_path, name)


def test_a_truncated_output_is_no_equal_one() -> None:
    verdict, where = compared(BASE, Output(text="a b", ids=(1, 2)), "ids", 0.05)
    assert verdict == "diverged"
    assert where is not None
    assert (where.at, where.gap, where.cause) == (2, None, "unknown")


def test_ids_are_compared_by_ids_alone() -> None:
    same_text = Output(text="a b c", ids=(1, 2, 4))
    assert compared(BASE, same_text, "ids", 0.05)[0] == "diverged"
    assert compared(BASE, same_text, "text", 0.05) == ("equal", None)
    without = Output(text="a b c")
    assert compared(BASE, without, "ids", 0.05) == ("", None)
    assert compared(without, without, "ids", 0.05) == ("", None)
    assert compared(Output(text=""), Output(text=""), "ids", 0.05) == ("equal", None)


def test_reasoning_counts_as_text() -> None:
    one, other = Output(text="a", reasoning="x"), Output(text="a", reasoning="y")
    assert compared(one, other, "text", 0.05)[0] == "diverged"


def test_gaps_are_of_tokens_and_say_nothing_of_characters() -> None:
    _, where = compared(BASE, Output(text="a B c", ids=(1, 2, 3)), "text", 0.05, _logits(0.01))
    assert where is not None
    assert (where.at, where.gap, where.cause) == (2, None, "unknown")


@pytest.mark.parametrize("worst", [float("-inf"), float("nan")])
def test_a_gap_that_is_no_number_is_unknown(worst: float) -> None:
    odd = Output(text="", ids=(1,), tops=(((1, -0.1), (2, worst)),))
    assert odd.gap(0) is None


def _logits(gap: float, ids: tuple[int, ...] = (1, 2, 3)) -> Output:
    tops = tuple(((i, -0.2), (0, -0.2 - gap)) for i in ids)
    return Output(text="", ids=ids, tops=tops)


@pytest.mark.parametrize(("gap", "cause"), [(0.01, "near-tie"), (0.06, "defect"), (1.0, "defect")])
def test_the_gap_tells_a_near_tie(gap: float, cause: str) -> None:
    other = Output(text="a b d", ids=(1, 2, 4))
    _, where = compared(BASE, other, "ids", 0.05, _logits(gap))
    assert where is not None
    assert where.gap == pytest.approx(gap)
    assert where.cause == cause


def test_log_probabilities_of_another_path_say_nothing() -> None:
    other = Output(text="a b d", ids=(1, 2, 4))
    _, where = compared(BASE, other, "ids", 0.05, _logits(0.01, (1, 9, 3)))
    assert where is not None
    assert where.gap is None
