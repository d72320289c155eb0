"""The precision of activations on the command line: it runs, and every record carries it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from conftest import Command

pytest.importorskip("slipstream._native")

pytestmark = pytest.mark.native

RUN = ("-p", "hello", "-n", "24", "--ignore-eos")
DRAFTING = (
    *("--spec", "ngram-mod", "--ngram-mod-n-match", "2"),
    *("--ngram-mod-n-min", "1", "--ngram-mod-n-max", "8"),
)


def record(slipstream: Command, *arguments: str | Path) -> tuple[dict[str, Any], str]:
    """The JSON of a verb, and all that it printed."""
    done = slipstream(*arguments, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    parsed = json.loads(done.stdout.splitlines()[-1])
    assert isinstance(parsed, dict)
    return parsed, done.stdout + done.stderr


@pytest.mark.parametrize("precision", ["a8", "a16"])
def test_run_says_its_precision(slipstream: Command, tiny: Path, precision: str) -> None:
    found, printed = record(slipstream, "run", tiny, *RUN, "--precision", precision)
    assert found["precision"] == precision
    assert ("precision: a16" in printed) == (precision == "a16")
    drafted, _ = record(slipstream, "run", tiny, *RUN, "--precision", precision, *DRAFTING)
    assert drafted["ids"] == found["ids"]


def test_a8_is_the_default(slipstream: Command, tiny: Path) -> None:
    default, _ = record(slipstream, "run", tiny, *RUN)
    named, _ = record(slipstream, "run", tiny, *RUN, "--precision", "a8")
    assert (default["precision"], default["ids"]) == ("a8", named["ids"])


def test_the_reference_backend_rounds_no_activations(slipstream: Command, tiny: Path) -> None:
    found, _ = record(slipstream, "run", tiny, *RUN, "--backend", "reference")
    assert found["precision"] == "float32"
    explained, printed = record(slipstream, "explain", tiny, "--backend", "reference")
    assert explained["precision"] == "float32"
    assert "precision: float32" in printed


@pytest.mark.parametrize("precision", ["a8", "a16"])
def test_explain_predicts_what_is_observed(slipstream: Command, tiny: Path, precision: str) -> None:
    found, printed = record(slipstream, "explain", tiny, "--precision", precision, "--observe")
    assert found["precision"] == precision
    assert f"precision: {precision}" in printed
    products = [row for row in found["rows"] if (row["kernel"] or "").startswith("matmul/")]
    assert products
    for row in products:
        assert f"{precision}: " in row["reason"]
        assert ("-a16/" in row["kernel"]) == (precision == "a16")
    assert any("-a16/" in path for path in found["observed"]) == (precision == "a16")


def test_benchmarks_record_it_and_count_the_planes(slipstream: Command, tiny: Path) -> None:
    rows = ("--rows", "1,3", "--rounds", "2")
    found, printed = record(slipstream, "bench", "rows", tiny, *rows, "--precision", "a16")
    assert found["precision"] == "a16"
    assert "precision: a16" in printed
    decode = ("--prompt", "8", "--count", "4", "--rounds", "1")
    found, printed = record(slipstream, "bench", "decode", tiny, *decode, "--precision", "a16")
    assert found["precision"] == "a16"
    assert "precision: a16" in printed
