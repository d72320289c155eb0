"""The benchmark of drafting measures every method on every text."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import draft_cost


def test_draft_cost(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    methods = "ngram-simple,ngram-map-k,ngram-map-k4v,ngram-mod,ngram-cache"
    arguments = ["draft_cost.py", "--tokens", "400", "--steps", "20", "--methods", methods]
    monkeypatch.setattr(sys, "argv", arguments)
    draft_cost.main()
    record = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert record["tokens"] == 400
    rows = {(row["method"], row["text"], row["options"]): row for row in record["results"]}
    assert len(rows) == len(record["results"]) == 5 * 3 * 2
    for method in methods.split(","):
        row = rows[method, "loop", "eager"]
        assert 0 < row["median_ms"] <= row["p99_ms"] <= row["worst_ms"]
        assert row["drafted"] >= row["accepted"] > 5 * row["steps"]
