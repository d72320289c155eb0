"""Where an output leaves that of ``none``, and why."""

from __future__ import annotations

import pytest

from slipstream.lab.evidence.output_verdict import cause, first_divergence


@pytest.mark.parametrize(
    ("left", "right", "at"),
    [("abc", "abc", None), ("abc", "abd", 2), ("abc", "ab", 2), ("", "a", 0), ("", "", None)],
)
def test_the_end_of_the_shorter_one_is_a_divergence(left: str, right: str, at: int | None) -> None:
    assert first_divergence(left, right) == at
    assert first_divergence(right, left) == at


def test_a_gap_below_the_tolerance_is_a_near_tie() -> None:
    assert cause(0.04, 0.05) == "near-tie"
    assert cause(0.05, 0.05) == "defect"
    assert cause(0.0, 0.0) == "defect"


def test_only_the_row_count_makes_a_numeric_path() -> None:
    assert cause(2.0, 0.05, equal_at_same_rows=True) == "numeric path"
    assert cause(2.0, 0.05, equal_at_same_rows=False) == "defect"
    assert cause(None, 0.05, equal_at_same_rows=True) == "numeric path"
    assert cause(None, 0.05, equal_at_same_rows=False) == "unknown"


def test_without_logits_the_cause_is_unknown() -> None:
    assert cause(None, 0.05) == "unknown"
