"""Choosing a verb, exit codes, and what an error looks like."""

from __future__ import annotations

import importlib
import io
import signal
import subprocess
import sys

import pytest

from slipstream.cli import app
from slipstream.cli.app import BENCH_VERBS, VERBS, dispatch, main, report
from slipstream.errors import DownloadError, OptionError


@pytest.mark.parametrize("verb", [v for v in VERBS if v not in ("bench", "lab")])
def test_every_verb_has_a_module(verb: str) -> None:
    module = importlib.import_module(f"slipstream.cli.{verb}")
    assert callable(module.configure)
    assert callable(module.execute)


@pytest.mark.parametrize("verb", BENCH_VERBS)
def test_every_verb_of_bench_has_a_module(verb: str) -> None:
    module = importlib.import_module(f"slipstream.cli.bench_{verb}")
    assert callable(module.configure)


def test_help_lists_the_verbs(capsys: pytest.CaptureFixture[str]) -> None:
    assert dispatch(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(f"  {verb} " in shown for verb in VERBS)
    assert dispatch(["bench", "-h"]) == 0
    shown = capsys.readouterr().out
    assert all(f"  {verb} " in shown for verb in BENCH_VERBS)


def test_nothing_is_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    assert dispatch([]) == 2
    assert dispatch(["bench"]) == 2
    assert "Usage: slipstream bench" in capsys.readouterr().err


def test_unknown_verbs() -> None:
    with pytest.raises(OptionError, match="`slipstream inspect`"):
        dispatch(["inspct"])
    with pytest.raises(OptionError, match="`slipstream bench decode`"):
        dispatch(["bench", "decod"])
    with pytest.raises(OptionError, match="--help"):
        dispatch(["zzzzzz"])


def test_report_has_three_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert report(OptionError("a", "b\x1b", "c.")) == 2
    assert capsys.readouterr().err == "error: expected a\n       found    b␛\nhint:  c.\n"
    assert report(DownloadError("a", "b", "c.")) == 1


@pytest.mark.parametrize(
    ("problem", "code"),
    [
        (OptionError("a", "b", "c"), 2),
        (DownloadError("a", "b", "c"), 1),
        (MemoryError(), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_exit_codes(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    problem: BaseException,
    code: int,
) -> None:
    def fail(_: list[str]) -> int:
        raise problem

    monkeypatch.setattr(app, "dispatch", fail)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    with pytest.raises(SystemExit) as caught:
        main([])
    assert caught.value.code == code
    assert capsys.readouterr().err


SIGNALLED = """
import os, signal, sys
from slipstream.cli import app
def told_to_end(_):
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        os.getpid()
    except BaseException:
        pass
    return 7
app.dispatch = told_to_end
app.main([sys.argv[1], "x"])
"""


@pytest.mark.parametrize(
    ("verb", "code", "said"),
    [("serve", 0, "ended before it was ready\n"), ("run", -signal.SIGTERM, "")],
)
def test_sigterm_before_the_verb_is_imported(verb: str, code: int, said: str) -> None:
    """What starts a server ends at once, whatever swallows exceptions around it."""
    words = [sys.executable, "-c", SIGNALLED, verb]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (code, said)


def test_a_defect_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: list[str]) -> int:
        raise ZeroDivisionError

    monkeypatch.setattr(app, "dispatch", fail)
    with pytest.raises(ZeroDivisionError):
        main([])


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out.startswith("slipstream ")


def test_text_that_the_terminal_cannot_show(monkeypatch: pytest.MonkeyPatch) -> None:
    narrow = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", narrow)

    def show(_: list[str]) -> int:
        print("é")
        return 0

    monkeypatch.setattr(app, "dispatch", show)
    with pytest.raises(SystemExit) as caught:
        main([])
    assert caught.value.code == 0
