"""Limits, gains, intervals and the curve's page: the arithmetic behind ``bench rows``."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
from scipy import stats

from slipstream.graph import Graph, Linear, Value, Weight
from slipstream.measure.gain import expected_gain, expected_gains
from slipstream.measure.probes import MachineProbe, mix_weights, multiply_mix
from slipstream.measure.rows_page import rows_page
from slipstream.measure.statistics import median_interval, student_quantile

Q4_K, Q8_0, F16 = 12, 8, 1
PROBE = MachineProbe("avx2", 20.0, {1: 18.0, 8: 20.0}, {"unsigned_int8": 300.0, "float32": 100.0})


def test_limit_is_the_slower_of_reading_and_multiplying() -> None:
    weights = {"unsigned_int8": 3_000_000_000, "float32": 1_000_000_000}
    assert PROBE.limit_ms(1, 2_000_000_000, weights) == pytest.approx(100.0)
    assert PROBE.limit_ms(10, 2_000_000_000, weights) == pytest.approx(200.0)


def test_better_probe_takes_each_best() -> None:
    other = MachineProbe("avx2", 19.0, {1: 19.0, 8: 17.0}, {"unsigned_int8": 310.0, "float32": 9.0})
    best = PROBE.better(other)
    assert best.read_gb_s == 20.0
    assert best.streams_gb_s == {1: 19.0, 8: 20.0}
    assert best.peak_gmac_s == {"unsigned_int8": 310.0, "float32": 100.0}


def test_mix_of_every_kind_of_type() -> None:
    assert [multiply_mix(t) for t in (Q4_K, Q8_0, F16)] == [
        "unsigned_int8",
        "signed_int8",
        "float32",
    ]


def test_weights_count_by_the_type_in_memory() -> None:
    x, out = Value(0, 32, "all"), Value(1, 16, "all")
    weight = Weight("w", Q8_0, 16, 32)
    graph = Graph((Linear(out, x, weight),), "llama", 32, 16, 64)
    assert mix_weights(graph, {}) == {"signed_int8": 512}
    assert mix_weights(graph, {weight: F16}) == {"float32": 512}
    assert mix_weights(graph, {}, "a16") == {"signed_int8": 1024}
    assert mix_weights(graph, {weight: F16}, "a16") == {"float32": 512}


def test_gain_picks_the_best_measured_length() -> None:
    ms = {1: 10.0, 2: 10.0, 4: 20.0}
    gain = expected_gain(ms, 0.5)
    assert (gain.draft_tokens, gain.tokens_per_pass, gain.speed_up) == (1, 1.5, 1.5)
    assert expected_gain(ms, 0.95).draft_tokens == 1
    assert expected_gain({1: 10.0, 4: 12.0}, 0.9).draft_tokens == 3


def test_no_gain_where_rows_cost_their_full_price() -> None:
    gain = expected_gain({r: 10.0 * r for r in (1, 2, 8)}, 0.9)
    assert (gain.draft_tokens, gain.speed_up) == (0, 1.0)
    assert expected_gains({2: 1.0}) == []
    with pytest.raises(ValueError, match="one row"):
        expected_gain({2: 1.0}, 0.5)


def test_gain_agrees_with_a_simulation() -> None:
    rng = np.random.default_rng(0)
    accepted = rng.random((200_000, 3)) < 0.7
    emitted = 1 + np.cumprod(accepted, axis=1).sum(axis=1)
    gain = expected_gain({1: 1.0, 4: 1.0}, 0.7)
    assert gain.tokens_per_pass == pytest.approx(emitted.mean(), rel=0.01)


def test_median_interval_covers_the_median() -> None:
    rng = np.random.default_rng(3)
    covered = sum(
        low <= 1.0 <= high
        for low, high in (median_interval(rng.normal(1.0, 0.1, 25)) for _ in range(80))
    )
    assert covered >= 68
    assert median_interval([2.0]) == (2.0, 2.0)
    with pytest.raises(ValueError, match="needs a value"):
        median_interval([])


@pytest.mark.parametrize("freedom", [2, 3, 5, 10, 100])
def test_student_quantile_matches_scipy(freedom: int) -> None:
    expected = float(stats.t.ppf(0.975, freedom))
    assert student_quantile(freedom) == pytest.approx(expected, rel=0.04)


def record(**changes: Any) -> dict[str, Any]:
    rows = [
        {
            "rows": r,
            "ms": ms,
            "low_ms": 0.9 * ms,
            "high_ms": 1.2 * ms,
            "ratio": ms / 4.0,
            "weight_gb_s": 20 / ms,
            "read_fraction": 0.5,
            "limit_ms": limit,
        }
        for r, ms, limit in ((1, 4.0, 3.0), (8, 7.0, 6.5), (4, 5.0, 3.0))
    ]
    head = {"model": "m", "isa": "avx2", "threads": 2, "date": "2026-01-01", "depth": 64}
    return {**head, "rounds": 9, "drifting": False, "rows": rows, **changes}


class _Balanced(HTMLParser):
    """Fails on a tag that is not closed in order."""

    VOID = frozenset({"meta", "line", "path", "circle"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.VOID - {"circle"} and "/" not in dict(attrs):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_page_is_whole_and_needs_no_network() -> None:
    page = rows_page(record())
    parser = _Balanced()
    parser.feed(page)
    parser.close()
    assert parser.open == []
    assert not re.search(r"https?:|src=|url\(|@import", page)
    assert page.count("<circle") == 3
    assert "prefers-color-scheme: dark" in page
    assert "do not draft" not in page


def test_page_escapes_and_says_drift() -> None:
    page = rows_page(record(model="<b>&", drifting=True))
    assert "&lt;b&gt;&amp;" in page
    assert "<b>&" not in page
    assert "drifted" in page


def test_page_without_limits_or_a_first_row() -> None:
    given = record()
    for row in given["rows"]:
        row |= {"limit_ms": None, "read_fraction": None, "rows": row["rows"] + 1}
    page = rows_page(given)
    assert 'class="line limit"' not in page
    assert "Measure one row" in page


def test_chart_stays_inside_its_frame() -> None:
    for factor in (1e-3, 0.3, 1.0, 7.0, 1e4):
        given = record()
        for row in given["rows"]:
            row |= {key: row[key] * factor for key in ("ms", "low_ms", "high_ms", "limit_ms")}
        for found in re.finditer(r'(cx|cy|y1|y2)="([-\d.]+)"', rows_page(given)):
            assert 0 <= float(found[2]) <= 760
        assert 4 <= rows_page(given).count('class="grid"') <= 12
