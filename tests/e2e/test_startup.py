"""What the command imports before it has something to do."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from conftest import Command

HEAVY = {"numpy", "tokenizers", "rich", "jinja2", "msgspec", "psutil", "argparse", "typer", "click"}
HELP_S = 0.15
BARE = 4  # times the start of the interpreter alone, where that takes longer


def imported(slipstream: Command, *arguments: str | Path) -> set[str]:
    """Top-level modules that a call imports."""
    code = (
        "import sys, atexit; atexit.register(lambda: print(*sys.modules, file=sys.stderr));"
        "from slipstream.cli.app import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        env=slipstream.environment,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return {name.partition(".")[0] for name in done.stderr.splitlines()[-1].split()}


def forbidden(found: set[str], names: Iterable[str]) -> set[str]:
    return found & set(names)


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["bench", "--help"]])
def test_help_imports_nothing_heavy(slipstream: Command, arguments: list[str]) -> None:
    assert not forbidden(imported(slipstream, *arguments), HEAVY)


def test_help_of_run_imports_no_numbers(slipstream: Command) -> None:
    found = imported(slipstream, "run", "--help")
    assert not forbidden(found, HEAVY - {"msgspec", "argparse"})
    assert "msgspec" in found  # the probe sees what is imported


def test_run_imports_no_progress_bar_and_no_templates(slipstream: Command, tiny: Path) -> None:
    found = imported(slipstream, "run", tiny, "--backend", "reference", "-p", "hi", "-n", "1")
    assert "numpy" in found
    assert not forbidden(found, {"rich", "jinja2", "psutil"})


@pytest.mark.slow
def test_help_is_quick(slipstream: Command) -> None:
    """Best of many: the machine may be busy or slow, the code may not be."""

    def best(*words: str) -> float:
        seconds = []
        for _ in range(15):
            begin = time.perf_counter()
            subprocess.run(words, env=slipstream.environment, capture_output=True, check=True)
            seconds.append(time.perf_counter() - begin)
        return min(seconds)

    bare = best(sys.executable, "-c", "")
    assert best(*slipstream.argv("--help")) <= max(HELP_S, BARE * bare)
