"""docs/performance.md is what the script makes of the committed records; bars are judged right."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def scripts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if str(ROOT / "benchmarks") in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


ENGINES = {
    "slipstream": {"version": "0.1.0", "isa": "avx2"},
    "llama": {"version": "0.3.36", "isa": ["CPU : SSE3 = 1", "AVX = 1", "AVX2 = 1"]},
    "ik_llama": {"version": "0.1.5", "isa": ["AVX = 1", "NEON = 1"]},
}


def section(samples: dict[str, dict[str, list[float]]], **more: Any) -> dict[str, Any]:
    head = {"date": "2026-01-01T00:00:00+00:00", "commit": "abc", "threads": 2}
    return {**head, "engines": ENGINES, "unit": "ms", "samples": samples, **more}


def rows_section(own: dict[str, list[float]]) -> dict[str, Any]:
    flat = {r: [10.0, 10.0, 10.0] for r in own}
    peers = {"llama": flat, "ik_llama": {r: [5.0, 5.0, 5.0] for r in own}}
    limits = {
        "read_gb_s": 20.0,
        "peak_gmac_s": {"unsigned_int8": 300.0, "float32": 90.0},
        "step_bytes": 50e6,
        "step_weights": {"unsigned_int8": 1e8},
        "prompt_token_ms": 0.25,
        "limit_ms": dict.fromkeys(own, 2.5),
    }
    return section({"slipstream": own, **peers}, limits=limits)


def models(**sections: Any) -> dict[str, Any]:
    return {"qwen2.5-coder-1.5b": sections}


def bar(kind: str, key: str, peer: str | None = None, name: str = "rows") -> Any:
    from performance_bars import BARS

    (found,) = [
        b
        for b in BARS
        if (b.model, b.section, b.kind, b.key, b.peer)
        == ("qwen2.5-coder-1.5b", name, kind, key, peer)
    ]
    return found


def test_committed_page_is_generated() -> None:
    import performance_page

    records = performance_page.read(list(performance_page.RECORDS.glob("*.json")))
    assert performance_page.PAGE.read_text() == performance_page.page(records)


def test_records_of_one_machine_are_one_part() -> None:
    import performance_page

    machine = {"name": "M", "processor": "p", "logical_processors": 2, "system": "s"}
    new, old = rows_section({"1": [2.0] * 3}), rows_section({"1": [9.0] * 3})
    records = [
        {"machine": machine, "models": {"m": {"rows": new}}},
        {"machine": machine, "models": {"m": {"rows": old}, "n": {"rows": old}}},
        {"machine": {**machine, "name": "N"}, "models": {"m": {"rows": old}}},
    ]
    joined = list(performance_page._joined(records))
    assert [record["machine"]["name"] for record in joined] == ["M", "N"]
    assert joined[0]["models"] == {"m": {"rows": new}, "n": {"rows": old}}
    assert performance_page.page(records).count("## M\n") == 1


def test_ratio_divides_by_the_faster_first_row() -> None:
    from performance_bars import evaluate

    given = models(rows=rows_section({"1": [6.0, 6.0, 6.0], "4": [6.0, 6.0, 6.6]}))
    outcome = evaluate(bar("ratio", "4"), given)
    assert outcome is not None
    assert outcome.figure == pytest.approx(6.0 / 5.0)
    assert (outcome.low, outcome.high) == pytest.approx((1.2, 1.32))
    assert outcome.limit == pytest.approx(0.5)
    assert outcome.met
    slow = models(rows=rows_section({"1": [4.0] * 3, "4": [6.0] * 3}))
    missed = evaluate(bar("ratio", "4"), slow)
    assert missed is not None
    assert missed.figure == pytest.approx(1.5)
    assert not missed.met


def test_speed_is_against_the_better_peer_unless_one_is_named() -> None:
    from performance_bars import evaluate

    given = models(rows=rows_section({"1": [5.0] * 3, "4": [4.0] * 3}))
    better = evaluate(bar("speed", "1"), given)
    named = evaluate(bar("speed", "4", "llama"), given)
    assert better is not None
    assert named is not None
    assert (better.against, better.figure, better.met) == ("ik_llama", 1.0, True)
    assert (named.against, named.figure, named.met) == ("llama", 2.5, True)
    assert named.limit == pytest.approx(4.0)


def test_prefill_first_token_and_memory() -> None:
    from performance_bars import evaluate

    prompt = {
        "slipstream": {"512": [200.0]},
        "llama": {"512": [180.0]},
        "ik_llama": {"512": [190.0]},
    }
    first = {
        "slipstream": {"first_token_s": [2.0], "peak_rss_bytes": [300e6]},
        "llama": {"first_token_s": [1.9], "peak_rss_bytes": [200e6]},
        "ik_llama": {"first_token_s": [1.0], "peak_rss_bytes": [200e6]},
    }
    opened = section(first, step_bytes=50e6, kv_bytes=1e6)
    given = models(rows=rows_section({"1": [6.0]}), prefill=section(prompt), first_token=opened)
    prefill = evaluate(bar("speed", "512", name="prefill"), given)
    opening = evaluate(bar("first_token", "first_token_s", "llama", "first_token"), given)
    memory = evaluate(bar("memory", "peak_rss_bytes", name="first_token"), given)
    assert prefill is not None
    assert opening is not None
    assert memory is not None
    assert (prefill.against, prefill.met) == ("llama", False)
    assert prefill.limit == pytest.approx(180.0 / 128.0)
    assert (opening.figure, opening.met) == (pytest.approx(2.0 / 1.9), True)
    assert (memory.figure, memory.met) == (pytest.approx(300 / 272.5), False)


def test_what_was_not_measured_is_said() -> None:
    from performance_page import page

    machine = {"name": "m", "processor": "p", "logical_processors": 2, "system": "Linux"}
    given = models(rows=rows_section({"1": [6.0, 4.0, 5.1], "4": [6.0] * 3}))
    text = page([{"machine": machine, "models": given}])
    assert "prefill of 512 tokens, speed |  | - | >= 1.00 (1.40) | - | not measured" in text
    assert "llama.cpp (llama-cpp-python 0.3.36, AVX2)" in text
    assert "ik_llama.cpp (ik-llama-cpp-python 0.1.5, NEON)" in text
    assert "0.98 [0.83, 1.25] | >= 0.97 (1.00) | 2.00 | met (unclear)" in text


def test_every_bar_of_the_issue_is_there() -> None:
    from performance_bars import BARS

    assert len(BARS) == len({(b.model, b.section, b.kind, b.key, b.peer) for b in BARS}) == 40
    for model in ("qwen2.5-coder-0.5b", "gemma-3-270m", "smollm2-135m"):
        wanted = {(b.kind, b.key): b.bar for b in BARS if b.model == model}
        assert wanted["ratio", "4"] == 1.4
        assert wanted["ratio", "8"] == 1.9
        assert wanted["speed", "1"] == wanted["speed", "512"] == wanted["speed", "4096"] == 1.0
