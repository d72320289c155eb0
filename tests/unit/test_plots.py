"""Charts with a number on either axis."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest

from slipstream.measure.charts import NARROW, WIDE, Bar, Curve, Dot, Scale, intervals, stacked
from slipstream.measure.plots import points, timeline

SERIES = [Curve(0, [(0.2, 1.5, "a <b>"), (0.4, 0.8, "b")]), Curve(1, [(0.9, 1.1, "c")])]


def circles(svg: str) -> list[tuple[float, float]]:
    found = ElementTree.fromstring(svg).iter("circle")
    return [(float(c.attrib["cx"]), float(c.attrib["cy"])) for c in found]


def test_points_stand_where_their_numbers_are() -> None:
    svg = points(SERIES, x_label="x", y_label="y", x_range=(0.0, 1.0), reference=1.0)
    (left, high), (middle, low), (right, between) = circles(svg)
    assert left < middle < right
    assert high < between < low
    assert "<path" not in svg
    assert "a &lt;b&gt;" in svg
    assert svg.count('class="reference"') == 1


def test_a_timeline_joins_the_points_of_a_series() -> None:
    svg = timeline(SERIES, x_label="x", y_label="y")
    assert svg.count("<path") == 1
    assert 'class="reference"' not in svg


@pytest.mark.parametrize("value", [0.0, 1e-9, 1.0, 123456.0, 1e12])
def test_one_point_is_a_chart_too(value: float) -> None:
    svg = timeline([Curve(0, [(value, value, "p")])], x_label="x", y_label="y")
    [(x, y)] = circles(svg)
    assert 0 <= x <= NARROW.width
    assert 0 <= y <= 240


def test_a_narrow_chart_has_fewer_ticks_and_shorter_names() -> None:
    dot = Dot(0, 1.2, 0.9, 1.6, "t")
    rows = [("a condition with a long name", [dot])]
    wide, narrow = (
        intervals(rows, reference=1.0, label="times", frame=frame) for frame in (WIDE, NARROW)
    )
    assert 'viewBox="0 0 760' in wide
    assert 'viewBox="0 0 400' in narrow
    assert narrow.count("<text") < wide.count("<text")
    assert "a condition wi…" in narrow


@pytest.mark.parametrize("most", [4, 5, 8])
@pytest.mark.parametrize("extent", [0.07, 0.3, 1.0, 3.9, 17.0, 99.0])
def test_ticks_are_no_more_than_asked_for(most: int, extent: float) -> None:
    assert len(Scale(0.0, extent, 0, 100, most).ticks()) <= most + 1


def test_a_group_without_a_name_takes_no_line() -> None:
    bar = Bar("b", [1.0], "t")
    named, bare = (stacked([(name, [bar])], label="s") for name in ("group", ""))
    heights = [ElementTree.fromstring(svg).attrib["viewBox"].split()[3] for svg in (named, bare)]
    assert int(heights[0]) > int(heights[1])
