"""Charts with a number on either axis: points that need no line, and values over a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from slipstream.measure.charts import NARROW, Curve, Frame, Scale, curve_parts, line, svg, text

_HEIGHT, _LEFT, _TOP, _BELOW = 240.0, 48.0, 26.0, 44.0


def points(
    series: Sequence[Curve],
    *,
    x_label: str,
    y_label: str,
    x_range: tuple[float, float] | None = None,
    reference: float | None = None,
    frame: Frame = NARROW,
) -> str:
    """A dot per point of each series, without lines.

    Args:
        x_range: least and most of the width; None = of the points.
        reference: a height that is drawn as a heavy line.
    """
    across, up = _scales(series, x_range, reference, frame)
    dots = [
        part
        for curve in series
        for point in curve.points
        for part in curve_parts(across, up, Curve(curve.series, [point]))
    ]
    return _framed(across, up, dots, x_label, y_label, reference, frame)


def timeline(
    series: Sequence[Curve],
    *,
    x_label: str,
    y_label: str,
    reference: float | None = None,
    frame: Frame = NARROW,
) -> str:
    """Series as lines over their x."""
    across, up = _scales(series, None, reference, frame)
    lines = [part for curve in series for part in curve_parts(across, up, curve)]
    return _framed(across, up, lines, x_label, y_label, reference, frame)


def _scales(
    series: Sequence[Curve],
    x_range: tuple[float, float] | None,
    reference: float | None,
    frame: Frame,
) -> tuple[Scale, Scale]:
    found = [(x, y) for curve in series for x, y, _ in curve.points]
    xs = [*(x for x, _ in found), *(x_range or ())]
    ys = [*(y for _, y in found), *([] if reference is None else [reference])]
    across = Scale(min(xs), max(xs), _LEFT, frame.end, frame.most_ticks)
    return across, Scale(min(ys), max(ys), _HEIGHT - _BELOW, _TOP, frame.most_ticks)


def _framed(
    across: Scale,
    up: Scale,
    parts: Sequence[str],
    x_label: str,
    y_label: str,
    reference: float | None,
    frame: Frame,
) -> str:
    axes = [*_axes(across, up, frame)]
    axes.append(text((_LEFT + frame.end) / 2, _HEIGHT - 6, x_label, "middle"))
    axes.append(text(0, _TOP - 12, y_label))
    if reference is not None:
        axes.append(line("reference", _LEFT, up(reference), frame.end, up(reference)))
    return svg(_HEIGHT, f"{y_label} by {x_label}", [*axes, *parts], frame)


def _axes(across: Scale, up: Scale, frame: Frame) -> Iterator[str]:
    for tick in up.ticks():
        yield line("grid", _LEFT, up(tick), frame.end, up(tick))
        yield text(_LEFT - 8, up(tick) + 4, f"{tick:.4g}", "end")
    for tick in across.ticks():
        yield text(across(tick), _HEIGHT - _BELOW + 18, f"{tick:.4g}", "middle")
