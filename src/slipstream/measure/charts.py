"""Small SVG charts for self-contained pages: intervals, curves and stacked bars.

Colours are the page's: class ``s0``, ``s1``, .. of a series, ``part0``, .. of a bar's parts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

_TOP, _BOTTOM = 26, 44
_DOT_PITCH, _BAR_PITCH, _GAP = 17, 17, 12


@dataclass(frozen=True)
class Frame:
    """Room of a chart, in the units of its text (13 of them high).

    Attributes:
        labels: room for the names of rows; ``longest`` characters of a name fit there.
        right: room behind the last tick.
        most_ticks: along the width.
    """

    width: int = 760
    labels: int = 170
    longest: int = 17
    right: int = 76
    most_ticks: int = 8

    @property
    def end(self) -> int:
        return self.width - self.right


WIDE = Frame()
NARROW = Frame(width=400, labels=136, longest=15, right=44, most_ticks=5)
"""For charts that stand side by side, and for a phone."""


@dataclass(frozen=True)
class Dot:
    """One value of one series, with its interval where there is one."""

    series: int
    value: float
    low: float | None
    high: float | None
    title: str


@dataclass(frozen=True)
class Bar:
    """A stacked bar.

    Attributes:
        name: written in front of it, cut where it is long.
        parts: their lengths, in the order of the legend.
        title: shown on hover.
        series: whose colour stands before the name; None = no series.
    """

    name: str
    parts: Sequence[float]
    title: str
    series: int | None = None


@dataclass(frozen=True)
class Curve:
    """Points (x, y, text on hover) of one series."""

    series: int
    points: Sequence[tuple[float, float, str]]


class Scale:
    """From a value to a coordinate; ticks lie on round numbers and enclose the values."""

    def __init__(
        self, low: float, high: float, first: float, last: float, most_ticks: int = 8
    ) -> None:
        self._step = _round_step((high - low) or 1.0, most_ticks)
        self.low = math.floor(low / self._step + 1e-9) * self._step
        self.high = max(math.ceil(high / self._step - 1e-9) * self._step, self.low + self._step)
        self._first, self._last = first, last

    def __call__(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return self._first + (self._last - self._first) * share

    def ticks(self) -> list[float]:
        count = round((self.high - self.low) / self._step)
        return [self.low + self._step * i for i in range(count + 1)]


def _round_step(extent: float, most: int) -> float:
    """1, 2 or 5 times a power of ten that makes no more steps than that; ``most`` is at least 4."""
    power = 10.0 ** math.floor(math.log10(extent / 4))
    return next(power * f for f in (1.0, 2.0, 5.0, 10.0) if extent / (power * f) <= most)


def visible(words: str) -> str:
    """One line without characters that drive a terminal, hide or turn text around."""
    return "".join(c if c.isprintable() else " " for c in words)


def _shown(words: str) -> str:
    return escape(visible(words))


def text(x: float, y: float, words: str, anchor: str = "start", kind: str = "") -> str:
    name = f' class="{kind}"' if kind else ""
    return f'<text{name} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{_shown(words)}</text>'


def line(kind: str, x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _cut(name: str, frame: Frame) -> str:
    return name if len(name) <= frame.longest else f"{name[: frame.longest - 1]}…"


def svg(height: float, label: str, parts: Sequence[str], frame: Frame = WIDE) -> str:
    body = "\n".join(parts)
    head = f'<svg viewBox="0 0 {frame.width} {height:.0f}" role="img" aria-label="{_shown(label)}">'
    return f"{head}\n{body}\n</svg>"


def _upright(scale: Scale, top: float, bottom: float, label: str) -> Iterator[str]:
    """Vertical grid lines with their values below, and what they mean."""
    for tick in scale.ticks():
        yield line("grid", scale(tick), top, scale(tick), bottom)
        yield text(scale(tick), bottom + 18, f"{tick:g}", "middle")
    yield text((scale(scale.low) + scale(scale.high)) / 2, bottom + 38, label, "middle")


def intervals(
    rows: Sequence[tuple[str, Sequence[Dot]]], *, reference: float, label: str, frame: Frame = WIDE
) -> str:
    """A dot per value, rows below one another, with the interval as a line through it.

    Args:
        rows: name, and a dot of each series; those of a row stand on lines of their own.
        reference: value of the heavy line.
        label: what is plotted.
    """
    dots = [dot for _, members in rows for dot in members]
    bounds = [b for d in dots for b in (d.value, d.low, d.high, reference) if b is not None]
    scale = Scale(min(bounds), max(bounds), frame.labels, frame.end, frame.most_ticks)
    y = float(_TOP)
    parts: list[str] = []
    for name, members in rows:
        middle = y + _DOT_PITCH * (len(members) - 1) / 2
        parts.append(text(frame.labels - 12, middle + 4, _cut(name, frame), "end"))
        for dot in members:
            parts += _dot(scale, dot, y)
            y += _DOT_PITCH
        y += _GAP
    bottom = y - _GAP / 2
    axes = [*_upright(scale, _TOP - 14, bottom, label)]
    axes.append(line("reference", scale(reference), _TOP - 14, scale(reference), bottom))
    return svg(bottom + _BOTTOM, label, [*axes, *parts], frame)


def _dot(scale: Scale, dot: Dot, y: float) -> Iterator[str]:
    colour = f"s{dot.series % 6}"
    yield f"<g><title>{_shown(dot.title)}</title>"
    if dot.low is not None and dot.high is not None:
        yield line(f"interval {colour}", scale(dot.low), y, scale(dot.high), y)
    known = "" if dot.low is not None else " hollow"
    yield f'<circle class="{colour}{known}" cx="{scale(dot.value):.1f}" cy="{y:.1f}" r="5"/>'
    right = dot.value if dot.high is None else dot.high
    yield text(scale(right) + 9, y + 4, f"{dot.value:.2f}", "start", "value")
    yield "</g>"


def curves(
    lines: Sequence[Curve], *, x_label: str, y_label: str, most: float = 1.0, frame: Frame = WIDE
) -> str:
    """Lines over whole numbers from 1, in a frame from 0 to ``most`` (shown as percent)."""
    height, left = 320.0, 56.0
    last = max((x for curve in lines for x, _, _ in curve.points), default=1.0)
    across = Scale(0, max(last, 2.0), left, frame.end)
    up = Scale(0, most, height - _BOTTOM, _TOP)
    parts = []
    for tick in up.ticks():
        parts.append(line("grid", left, up(tick), frame.end, up(tick)))
        parts.append(text(left - 8, up(tick) + 4, f"{100 * tick:.0f} %", "end"))
    below = height - _BOTTOM + 18
    shown = range(1, int(last) + 1, max(1, round(last / (2 * frame.most_ticks))))
    parts += [text(across(tick), below, f"{tick}", "middle") for tick in shown]
    parts.append(text((left + frame.end) / 2, height - 6, x_label, "middle"))
    parts.append(text(left, _TOP - 12, y_label))
    for curve in lines:
        parts += curve_parts(across, up, curve)
    return svg(height, y_label, parts, frame)


def curve_parts(across: Scale, up: Scale, curve: Curve) -> Iterator[str]:
    """A line through the points, and a dot on each."""
    colour = f"s{curve.series % 6}"
    if len(curve.points) > 1:
        path = " L".join(f"{across(x):.1f} {up(y):.1f}" for x, y, _ in curve.points)
        yield f'<path class="line {colour}" d="M{path}"/>'
    for x, y, title in curve.points:
        yield (
            f'<circle class="{colour}" cx="{across(x):.1f}" cy="{up(y):.1f}" r="4">'
            f"<title>{_shown(title)}</title></circle>"
        )


def stacked(groups: Sequence[tuple[str, Sequence[Bar]]], *, label: str, frame: Frame = WIDE) -> str:
    """Stacked horizontal bars in named groups, the total behind each."""
    totals = [sum(bar.parts) for _, bars in groups for bar in bars]
    scale = Scale(0, max([*totals, 1e-9]), frame.labels, frame.end, frame.most_ticks)
    y = float(_TOP)
    parts: list[str] = []
    for name, bars in groups:
        if name:
            parts.append(text(0, y + 4, name, "start", "label"))
            y += _BAR_PITCH
        for bar in bars:
            parts += _bar(scale, bar, y, frame)
            y += _BAR_PITCH
        y += _GAP
    bottom = y - _GAP / 2
    axes = _upright(scale, _TOP - 14, bottom, label)
    return svg(bottom + _BOTTOM, label, [*axes, *parts], frame)


def _bar(scale: Scale, bar: Bar, y: float, frame: Frame) -> Iterator[str]:
    yield f"<g><title>{_shown(bar.title)}</title>"
    yield text(frame.labels - 12, y + 4, _cut(bar.name, frame), "end")
    if bar.series is not None:
        yield f'<circle class="s{bar.series % 6}" cx="7" cy="{y:.1f}" r="4"/>'
    reached = 0.0
    for number, part in enumerate(bar.parts):
        begin, end = scale(reached), scale(reached + part)
        reached += part
        yield (
            f'<rect class="part{number}" x="{begin:.1f}" y="{y - 6:.1f}" '
            f'width="{max(end - begin, 0):.2f}" height="12"/>'
        )
    yield text(scale(reached) + 7, y + 4, f"{reached:.2f}", "start", "value")
    yield "</g>"
