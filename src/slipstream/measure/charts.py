"""Small SVG charts for self-contained pages: intervals, curves and stacked bars.

Colours are the page's: class ``s0``, ``s1``, .. of a series, ``part0``, .. of a bar's parts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

WIDTH = 760
_LABELS = 170  # room for the names of rows
_LONGEST = 17  # characters of a name in that room
_RIGHT, _TOP, _BOTTOM = 76, 26, 44
_DOT_PITCH, _BAR_PITCH, _GAP = 17, 17, 12


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

    def __init__(self, low: float, high: float, first: float, last: float) -> None:
        self._step = _round_step((high - low) or 1.0)
        self.low = math.floor(low / self._step + 1e-9) * self._step
        self.high = max(math.ceil(high / self._step - 1e-9) * self._step, self.low + self._step)
        self._first, self._last = first, last

    def __call__(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return self._first + (self._last - self._first) * share

    def ticks(self) -> list[float]:
        count = round((self.high - self.low) / self._step)
        return [self.low + self._step * i for i in range(count + 1)]


def _round_step(extent: float) -> float:
    """1, 2 or 5 times a power of ten that makes four to ten ticks."""
    power = 10.0 ** math.floor(math.log10(extent / 4))
    return next(power * f for f in (1.0, 2.0, 5.0, 10.0) if extent / (power * f) <= 8)


def _text(x: float, y: float, text: str, anchor: str = "start", kind: str = "") -> str:
    name = f' class="{kind}"' if kind else ""
    return f'<text{name} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _line(kind: str, x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _cut(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"


def _svg(height: float, label: str, parts: Sequence[str]) -> str:
    body = "\n".join(parts)
    head = f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(label)}">'
    return f"{head}\n{body}\n</svg>"


def _upright(scale: Scale, top: float, bottom: float, label: str) -> Iterator[str]:
    """Vertical grid lines with their values below, and what they mean."""
    for tick in scale.ticks():
        yield _line("grid", scale(tick), top, scale(tick), bottom)
        yield _text(scale(tick), bottom + 18, f"{tick:g}", "middle")
    yield _text((scale(scale.low) + scale(scale.high)) / 2, bottom + 38, label, "middle")


def intervals(rows: Sequence[tuple[str, Sequence[Dot]]], *, reference: float, label: str) -> str:
    """A dot per value, rows below one another, with the interval as a line through it.

    Args:
        rows: name, and a dot of each series; those of a row stand on lines of their own.
        reference: value of the heavy line.
        label: what is plotted.
    """
    dots = [dot for _, members in rows for dot in members]
    bounds = [b for d in dots for b in (d.value, d.low, d.high, reference) if b is not None]
    scale = Scale(min(bounds), max(bounds), _LABELS, WIDTH - _RIGHT)
    y = float(_TOP)
    parts: list[str] = []
    for name, members in rows:
        middle = y + _DOT_PITCH * (len(members) - 1) / 2
        parts.append(_text(_LABELS - 12, middle + 4, _cut(name), "end"))
        for dot in members:
            parts += _dot(scale, dot, y)
            y += _DOT_PITCH
        y += _GAP
    bottom = y - _GAP / 2
    axes = [*_upright(scale, _TOP - 14, bottom, label)]
    axes.append(_line("reference", scale(reference), _TOP - 14, scale(reference), bottom))
    return _svg(bottom + _BOTTOM, label, [*axes, *parts])


def _dot(scale: Scale, dot: Dot, y: float) -> Iterator[str]:
    colour = f"s{dot.series % 6}"
    yield f"<g><title>{escape(dot.title)}</title>"
    if dot.low is not None and dot.high is not None:
        yield _line(f"interval {colour}", scale(dot.low), y, scale(dot.high), y)
    known = "" if dot.low is not None else " hollow"
    yield f'<circle class="{colour}{known}" cx="{scale(dot.value):.1f}" cy="{y:.1f}" r="5"/>'
    right = dot.value if dot.high is None else dot.high
    yield _text(scale(right) + 9, y + 4, f"{dot.value:.2f}", "start", "value")
    yield "</g>"


def curves(lines: Sequence[Curve], *, x_label: str, y_label: str, most: float = 1.0) -> str:
    """Lines over whole numbers from 1, in a frame from 0 to ``most`` (shown as percent)."""
    height, left = 320.0, 56.0
    last = max((x for line in lines for x, _, _ in line.points), default=1.0)
    across = Scale(0, max(last, 2.0), left, WIDTH - _RIGHT)
    up = Scale(0, most, height - _BOTTOM, _TOP)
    parts = []
    for tick in up.ticks():
        parts.append(_line("grid", left, up(tick), WIDTH - _RIGHT, up(tick)))
        parts.append(_text(left - 8, up(tick) + 4, f"{100 * tick:.0f} %", "end"))
    below = height - _BOTTOM + 18
    shown = range(1, int(last) + 1, max(1, round(last / 16)))
    parts += [_text(across(tick), below, f"{tick}", "middle") for tick in shown]
    parts.append(_text((left + WIDTH - _RIGHT) / 2, height - 6, x_label, "middle"))
    parts.append(_text(left, _TOP - 12, y_label))
    for line in lines:
        parts += _curve(across, up, line)
    return _svg(height, y_label, parts)


def _curve(across: Scale, up: Scale, line: Curve) -> Iterator[str]:
    colour = f"s{line.series % 6}"
    if len(line.points) > 1:
        path = " L".join(f"{across(x):.1f} {up(y):.1f}" for x, y, _ in line.points)
        yield f'<path class="line {colour}" d="M{path}"/>'
    for x, y, title in line.points:
        yield (
            f'<circle class="{colour}" cx="{across(x):.1f}" cy="{up(y):.1f}" r="4">'
            f"<title>{escape(title)}</title></circle>"
        )


def stacked(groups: Sequence[tuple[str, Sequence[Bar]]], *, label: str) -> str:
    """Stacked horizontal bars in named groups, the total behind each."""
    totals = [sum(bar.parts) for _, bars in groups for bar in bars]
    scale = Scale(0, max([*totals, 1e-9]), _LABELS, WIDTH - _RIGHT)
    y = float(_TOP)
    parts: list[str] = []
    for name, bars in groups:
        parts.append(_text(0, y + 4, name, "start", "label"))
        y += _BAR_PITCH
        for bar in bars:
            parts += _bar(scale, bar, y)
            y += _BAR_PITCH
        y += _GAP
    bottom = y - _GAP / 2
    return _svg(bottom + _BOTTOM, label, [*_upright(scale, _TOP - 14, bottom, label), *parts])


def _bar(scale: Scale, bar: Bar, y: float) -> Iterator[str]:
    yield f"<g><title>{escape(bar.title)}</title>"
    yield _text(_LABELS - 12, y + 4, _cut(bar.name), "end")
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
    yield _text(scale(reached) + 7, y + 4, f"{reached:.2f}", "start", "value")
    yield "</g>"
