"""Tables, control characters and plain progress lines."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator

import pytest

from slipstream.backends.base import Progress
from slipstream.cli import opening, output
from slipstream.cli.output import for_terminal, printable, progress_bar, table, tinted
from slipstream.options import ModelOptions


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


def test_what_ends_soon_shows_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(output, "time", Clock(0.0, 0.9))
    with progress_bar("rounds") as progress:
        progress(1, 2, "x")
    assert capsys.readouterr().err == ""


@pytest.fixture
def slow_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """A load of four seconds on a fake clock, with a report every second."""
    now = [0.0]
    monkeypatch.setattr("slipstream.cli.output.time.monotonic", lambda: now[0])

    def load_model(_model: object, _engine: object, progress: Progress | None) -> None:
        for second in range(1, 5):
            now[0] = float(second)
            if progress is not None:
                progress(25_000_000 * second, 100_000_000)

    monkeypatch.setattr("slipstream.loading.load_model", load_model)
    monkeypatch.setattr(opening, "fetch_if_wanted", lambda _: None)


@pytest.mark.usefixtures("slow_load")
def test_a_long_load_shows_plain_lines_without_a_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    opening.open_program(ModelOptions(model="x"))
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "loading: 25 MB (25 %)\nloading: 75 MB (75 %)\n"


@pytest.mark.usefixtures("slow_load")
def test_a_long_load_shows_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    opening.open_program(ModelOptions(model="x"))
    assert "loading" in screen.getvalue()
    assert "\x1b[" in screen.getvalue()


@pytest.mark.usefixtures("slow_load")
def test_a_quiet_load_shows_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opening.open_program(ModelOptions(model="x"), quiet=True)
    assert capsys.readouterr() == ("", "")
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    opening.open_program(ModelOptions(model="x"), quiet=True)
    assert screen.getvalue() == ""
