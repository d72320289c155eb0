"""Tables, control characters and plain progress lines."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator

import pytest

from slipstream.cli import output
from slipstream.cli.output import for_terminal, printable, progress_bar, table, tinted


def test_table_aligns() -> None:
    lines = table(["name", "n"], [["a", 1], ["long one", 123]]).splitlines()
    assert lines == ["name        n", "--------  ---", "a           1", "long one  123"]


def test_table_with_more_text_columns() -> None:
    lines = table(["a", "b", "n"], [["x", "y", 1]], text=2).splitlines()
    assert lines[-1] == "x  y  1"


def test_printable_shows_control_characters() -> None:
    assert printable("a\x1b[31mb\x00\x7f\x9bc\td\n") == "a␛[31mb␀␡�c\td\n"
    assert printable("naïve 日本 🚲") == "naïve 日本 🚲"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_only_a_terminal_is_protected_and_coloured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert for_terminal("\x1b") == "\x1b"
    assert tinted("x") == "[x]"
    monkeypatch.setattr(sys, "stdout", Terminal())
    assert for_terminal("\x1b") == "␛"
    assert tinted("x") == "\x1b[32mx\x1b[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    assert tinted("x") == "[x]"


class Clock:
    def __init__(self, *readings: float) -> None:
        self._readings: Iterator[float] = iter(readings)

    def monotonic(self) -> float:
        return next(self._readings)


def test_plain_progress(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # the start, then per update once before the bar is due and once or twice after it
    monkeypatch.setattr(output, "time", Clock(0.0, 0.5, 1.5, 1.5, 2.0, 3.6))
    with progress_bar() as progress:
        progress(1_000_000, 100_000_000, "x")
        progress(20_000_000, 100_000_000, "x")
        progress(25_000_000, 100_000_000, "x")
        progress(80_000_000, None, "x")
    assert capsys.readouterr().err == "x: 20 MB (20 %)\nx: 80 MB\n"


def test_what_ends_soon_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar("rounds") as progress:
        progress(1, 2, "x")
    assert capsys.readouterr().err == ""
