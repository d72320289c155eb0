"""What the README shows is what happens."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
SHOWN = re.findall(r"```\n\$ slipstream (run [^\n]*)\n(.*?)\n```", README, re.DOTALL)
# Timings differ from run to run, and with them what the controller verifies; texts do not.
STATISTICS = re.compile(
    r"^(\d+ prompt \+ \d+ tokens) in .*$"
    r"|^(suffix: drafted) \d+, tested \d+, accepted \d+(?: \(\d+ %\))?, \d+\.\d+ tokens per pass$",
    re.MULTILINE,
)


def run(command: list[str]) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
        check=True,
    )
    return done.stdout


def test_no_placeholder_is_left() -> None:
    assert not re.search(r"^[A-Z_]{6,}$", README, re.MULTILINE)
    assert "make demo" in README.split("\n## ")[0]
    assert len(SHOWN) >= 3


@pytest.mark.native
@pytest.mark.model
@pytest.mark.parametrize(("command", "expected"), SHOWN, ids=[c[:60] for c, _ in SHOWN])
def test_shown_output(command: str, expected: str, model_path: Callable[[str], Path]) -> None:
    model_path("smollm2-135m")
    lines = run(["-m", "slipstream", *shlex.split(command)]).splitlines()
    found = "\n".join(line for line in lines if not line.startswith("loading")).rstrip()
    assert STATISTICS.sub(r"\1\2", found) == STATISTICS.sub(r"\1\2", expected)


@pytest.mark.native
@pytest.mark.model
def test_the_python_example(model_path: Callable[[str], Path]) -> None:
    model_path("smollm2-135m")
    (code,) = re.findall(r"```python\n(.*?)```", README.split("\n## Python\n")[1], re.DOTALL)
    drafted, accepted = last_counts(code)
    assert drafted >= accepted >= 0
    # what the default controller verifies depends on the time of passes
    drafted, accepted = last_counts(code.replace('spec="auto"', 'spec="auto", fixed=True'))
    assert drafted >= accepted > 0


def last_counts(code: str) -> list[int]:
    return [int(word) for word in run(["-c", code]).splitlines()[-1].split()[-2:]]
