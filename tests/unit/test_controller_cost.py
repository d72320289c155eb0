"""The benchmark of a step's cost in Python drives engine and controller as they are used."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import controller_cost


def test_controller_cost(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["controller_cost.py", "--steps", "20", "--prompt", "60", "--vocabulary", "64"]
    monkeypatch.setattr(sys, "argv", arguments)
    controller_cost.main()
    record = json.loads(capsys.readouterr().out.splitlines()[-1])
    rows = record["results"]
    assert len(rows) == 3 * 2 * 2 * 2
    assert all(row["controller"]["mean_ms"] > 0.0 for row in rows)
    assert any(row["tokens_per_pass"] > 3.0 for row in rows if row["text"] == "loop")
    modelled = [row for row in rows if "draft-simple" in row["methods"]]
    assert any(row["plan"]["mean_ms"] > 0.0 for row in modelled)
