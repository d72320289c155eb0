"""Ends of outputs by indentation and by time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.server.line_limits import LineLimits


def shown(limits: LineLimits, pieces: list[str]) -> str:
    text = "".join(limits.push(piece, 0.0) for piece in pieces)
    return text + limits.flush()


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("a\n    b\nc", "a\n    b"),
        ("a\n    b\n\n    c\nd", "a\n    b\n\n    c"),
        ("a\n\n\nb", "a"),
        ("a\n\tb", "a"),
        ("a\n\t\t\t\tb\n", "a\n\t\t\t\tb\n"),
        ("a", "a"),
        ("\n    b", "\n    b"),
        ("a\n   b", "a"),
    ],
)
def test_a_line_of_less_indentation_ends_the_output(text: str, kept: str) -> None:
    for pieces in ([text], list(text), [text[:3], text[3:]]):
        assert shown(LineLimits(indent=4), pieces) == kept


@given(st.text("ab \n\t", max_size=40), st.integers(1, 4), st.integers(0, 5))
def test_how_a_text_is_cut_into_pieces_does_not_matter(text: str, size: int, indent: int) -> None:
    pieces = [text[i : i + size] for i in range(0, len(text), size)]
    whole, parts = LineLimits(indent), LineLimits(indent)
    assert shown(whole, [text]) == shown(parts, pieces)
    assert whole.ended == parts.ended
    assert text.startswith(shown(LineLimits(indent), pieces))


def test_without_limits_everything_is_shown_at_once() -> None:
    limits = LineLimits()
    assert limits.idle
    assert limits.push("a\nb\n", 5.0) == "a\nb\n"
    assert limits.push("c", 1e9) == "c"
    assert not limits.ended


def test_after_its_time_the_output_ends_with_its_line() -> None:
    limits = LineLimits(most_s=1.0)
    assert limits.push("a\n", 10.0) == "a\n"
    assert limits.push("b", 11.5) == "b"
    assert limits.push("c\nd", 12.0) == "c\n"
    assert limits.ended
    assert limits.push("e", 12.0) == ""
    assert limits.flush() == ""


def test_time_counts_from_the_first_text() -> None:
    limits = LineLimits(most_s=1.0)
    assert limits.push("", 0.0) == ""
    assert limits.push("a\n", 50.0) == "a\n"
    assert not limits.ended
