"""Load and hostile requests on a whole server: the short, seeded form of benchmarks/."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from builders import tiny_model
from conftest import TEMPLATE, absolute
from servers import tiny_backend

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
LIMIT_S = 900.0
SHORT = ("--seconds", "10", "--growth-mb", "64", "--health-ms", "2000")
"""Other tests run meanwhile: the bar of 100 ms is for the whole run on a machine of its own."""


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("small") / "small.gguf"
    return tiny_model(path, "llama", context=2048, extra={"tokenizer.chat_template": TEMPLATE})


def script(name: str, *words: str | Path) -> dict[str, Any]:
    """What it printed last; it must have succeeded."""
    search = absolute(os.environ.get("PYTHONPATH", ""))
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / name), *map(str, words)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": search},
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-6000:]
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert result["ok"] is True
    return result


@pytest.mark.slow
def test_many_clients(small: Path) -> None:
    words = ["--clients", "24", "--seed", "3", *SHORT]
    result = script("server_load.py", small, *words, "--backend", tiny_backend()[-1])
    assert result["tokens"] > 500
    assert result["done"]["cancel"] > 5
    assert result["health_ms"]["probes"] > 25


@pytest.mark.model
@pytest.mark.native
@pytest.mark.slow
def test_many_clients_of_a_real_model(model_path: Any) -> None:
    words = ["--clients", "64", "--seed", "4", *SHORT]
    result = script("server_load.py", model_path("smollm2-135m"), *words, "--tokens", "16")
    assert result["tokens"] > 200


@pytest.mark.slow
@pytest.mark.parametrize(("part", "cases"), [("bytes", 200), ("bodies", 200)])
def test_hostile_requests(small: Path, tmp_path: Path, part: str, cases: int) -> None:
    words = ["--only", part, "--cases", str(cases), "--seconds", "300", "--keep", str(tmp_path)]
    result = script("server_fuzz.py", small, *words, "--backend", tiny_backend()[-1])
    assert result["cases"] == {part: cases}
    assert result["statuses"]["400"] > 20
    assert result["statuses"]["200"] > 5


@pytest.mark.slow
def test_schemathesis(small: Path) -> None:
    words = ["--only", "schema", "--seconds", "15", "--backend", tiny_backend()[-1]]
    result = script("server_fuzz.py", small, *words)
    said = result["schemathesis"]
    if isinstance(said, str):
        pytest.skip(said)
    assert said["exit_code"] == 0
