"""The page of ``bench speculate``: self-contained, well formed, and true to the record."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest

from slipstream.measure.charts import Bar, Curve, Dot, Scale, curves, intervals, stacked
from slipstream.measure.speculation_page import speculation_page

VOID = {"meta"}


class Checker(HTMLParser):
    """Fails on a tag that is not closed, or closed in the wrong order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        del attrs
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        del attrs
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def checked(page: str) -> list[str]:
    checker = Checker()
    checker.feed(page)
    assert checker.open == []
    return checker.tags


PHASES = {"draft_s": 0.1, "verify_s": 1.0, "sample_s": 0.2, "commit_s": 0.05, "other_s": 0.15}


def summary(name: str, method: str, median: float | None = 1.5, **changes: Any) -> dict[str, Any]:
    ratio = {"median": median, "low": 1.2, "high": 1.9, "pairs": 8}
    return {
        "name": name,
        "method": method,
        "memory": "cold",
        "prompts": 4,
        "plain_tok_s": 20.0,
        "tok_s": 30.0,
        "speed_up": None if median is None else ratio,
        "drafted": 100,
        "accepted": 60,
        "tokens_per_pass": 1.7,
        "identical": True,
        "degenerate": {},
        "drift_change": 0.0,
        "drifting": False,
        "positions": [
            {"position": 1, "reached": 40, "accepted": 30},
            {"position": 2, "reached": 30, "accepted": 12},
        ],
        "plain_phases": {"tokens": 100, **PHASES},
        "phases": {"tokens": 100, **PHASES, "draft_s": 0.4},
        "balance": {"net_share": -0.23},
        **changes,
    }


def record(summaries: list[dict[str, Any]], **changes: Any) -> dict[str, Any]:
    return {
        "model": "a <model>",
        "date": "2026-01-01T00:00:00+00:00",
        "isa": "avx2",
        "threads": 2,
        "rounds": 2,
        "limit": 256,
        "valid": True,
        "conditions": {s["method"]: {} for s in summaries},
        "summaries": summaries,
        "each": summaries[:1],
        **changes,
    }


METHODS = ("suffix", "draft-simple --n-max 7")
WHOLE = [summary(n, m) for m in METHODS for n in ("chat", "code_edit", "all")]


def test_the_page_is_well_formed_and_loads_nothing() -> None:
    page = speculation_page(record(WHOLE))
    tags = checked(page)
    assert tags.count("svg") == 3
    assert not re.search(r"""(src|href)\s*=|@import|url\(|<script""", page)
    assert "a &lt;model&gt;" in page


def test_every_method_has_its_dot_curve_and_bar() -> None:
    page = speculation_page(record(WHOLE))
    speed, acceptance, times = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    assert len(re.findall(r"<circle", speed)) == 6
    assert len(re.findall(r'class="interval', speed)) == 6
    assert acceptance.count("<path") == 2
    assert "30 of 40 drafts that reached it" in acceptance
    assert times.count("<rect") == 3 * 3 * 5
    assert times.count("<circle") == 3 * 2
    assert "draft-simple --n…" in times
    assert "off: draft 1.00, verify 10.00, sample 2.00, commit 0.50, other 1.50" in times


def test_few_pairs_show_no_interval() -> None:
    few = {"median": 1.3, "low": None, "high": None, "pairs": 2}
    page = speculation_page(record([summary("all", "suffix", speed_up=few)]))
    speed = re.findall(r"<svg.*?</svg>", page, re.DOTALL)[0]
    assert 'class="interval' not in speed
    assert "hollow" in speed
    assert "1.30 (2 pairs)" in page


def test_warm_figures_stand_apart() -> None:
    warm = [summary("all", "suffix", 3.25, memory="warm")]
    page = speculation_page(record([summary("all", "suffix")], warm_summaries=warm))
    above, below = page.split("<h2>Warm")
    assert "3.25" not in above
    assert "3.25" in below
    assert "Warm" not in speculation_page(record([summary("all", "suffix")]))


def test_what_a_reader_must_know_comes_first() -> None:
    spoilt = summary(
        "all",
        "suffix",
        identical=False,
        drifting=True,
        degenerate={"prose/<loop>": "loop of 3 tokens"},
    )
    page = speculation_page(record([spoilt]))
    head = page.split("<h2>")[0]
    assert "DIFFERS" in head
    assert "drifted" in head
    assert "prose/&lt;loop&gt; (loop of 3 tokens)" in head
    assert "INVALID" in speculation_page(record([spoilt], valid=False)).split("<h2>")[0]


def test_nothing_to_show_is_said() -> None:
    nothing = {"tokens": 0, **dict.fromkeys(PHASES, 0.0)}
    empty = summary(
        "all",
        "suffix",
        None,
        positions=[],
        phases=nothing,
        plain_phases=nothing,
        balance=None,
        tok_s=None,
        plain_tok_s=None,
        tokens_per_pass=None,
        degenerate={"prose/a": "empty"},
    )
    page = speculation_page(record([empty]))
    assert "svg" not in checked(page)
    assert "Nothing was drafted" in page
    assert "nan" not in page


@pytest.mark.parametrize(("low", "high"), [(0.5, 3.1), (1.0, 1.0), (0.98, 1.01), (0, 12345.6)])
def test_ticks_are_round_and_enclose_the_values(low: float, high: float) -> None:
    scale = Scale(low, high, 10.0, 110.0)
    ticks = scale.ticks()
    assert 2 <= len(ticks) <= 12
    assert ticks[0] <= low
    assert ticks[-1] >= high
    assert scale(ticks[0]) == pytest.approx(10)
    assert scale(ticks[-1]) == pytest.approx(110)
    assert scale(high) >= scale(low)


def test_names_cannot_break_a_chart() -> None:
    name = "<b>&\"'"
    charts = (
        intervals([(name, [Dot(0, 1.0, None, None, name)])], reference=1.0, label=name),
        curves([Curve(0, [(1, 0.5, name)])], x_label=name, y_label=name),
        stacked([(name, [Bar(name, [1.0, 2.0], name)])], label=name),
    )
    for chart in charts:
        assert "<b>" not in chart
        checked(chart)
