"""The example programs run and say what they promise."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from conftest import Command

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PROMISES = {
    "generate.py": ["tokens in"],
    "compare_speculation.py": ["speculation off:", "speculation on:", "drafted"],
    "custom_drafter.py": ["last-followers: drafted"],
    "stream_async.py": ["'The capital of France is' +1", "'Water boils at' +1"],
}


def test_every_example_is_here() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(PROMISES)


@pytest.mark.native
@pytest.mark.parametrize("name", PROMISES)
def test_example(slipstream: Command, tiny: Path, name: str) -> None:
    pytest.importorskip("slipstream._native")
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), str(tiny)],
        capture_output=True,
        env=slipstream.environment,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    shown = done.stdout.decode(errors="replace")
    assert all(part in shown for part in PROMISES[name]), shown
