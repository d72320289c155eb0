"""One self-contained HTML page of a t(R) curve: chart, table, and what speculation could give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from slipstream.measure.gain import expected_gains

_WIDTH, _HEIGHT = 760, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 150, 20, 48

_STYLE = """
:root { color-scheme: light dark; --surface: #fcfcfb; --ink: #0b0b0b; --muted: #52514e;
  --grid: #e4e3df; --measured: #2a78d6; --limit: #b8530f; }
@media (prefers-color-scheme: dark) { :root { --surface: #1a1a19; --ink: #ffffff;
  --muted: #c3c2b7; --grid: #383835; --measured: #5b9bea; --limit: #e8854a; } }
body { background: var(--surface); color: var(--ink); margin: 2rem auto; max-width: 60rem;
  padding: 0 1rem; font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.4rem; margin-bottom: 0; } h2 { font-size: 1.1rem; margin-top: 2rem; }
p, figcaption { color: var(--muted); max-width: 45rem; }
figure { margin: 1.5rem 0; } svg { width: 100%; height: auto; display: block; }
svg text { fill: var(--muted); font-size: 13px; } svg .label { font-weight: 600; }
.grid { stroke: var(--grid); stroke-width: 1; } .measured { stroke: var(--measured); }
.limit { stroke: var(--limit); stroke-dasharray: 6 4; } .serial { stroke: var(--muted);
  stroke-dasharray: 1 5; } .line { fill: none; stroke-width: 2; stroke-linecap: round; }
.interval { stroke: var(--measured); stroke-width: 2; opacity: .55; }
.band { fill: var(--measured); opacity: .16; } circle { fill: var(--measured); }
text.on-measured { fill: var(--measured); } text.on-limit { fill: var(--limit); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .9rem .25rem 0; text-align: right; border-bottom: 1px solid var(--grid); }
th { color: var(--muted); font-weight: 600; }
"""


class _Scale:
    """From (rows, milliseconds) to the chart's coordinates."""

    def __init__(self, most_rows: int, most_ms: float) -> None:
        self.step = _tick_step(most_ms)
        self.most_rows = most_rows
        self.most_ms = self.step * max(1, -(-most_ms // self.step))

    def x(self, rows: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * rows / self.most_rows

    def y(self, ms: float) -> float:
        return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * ms / self.most_ms

    def ticks(self) -> list[float]:
        return [self.step * i for i in range(round(self.most_ms / self.step) + 1)]


def _tick_step(most: float) -> float:
    """1, 2 or 5 times a power of ten that gives four to ten ticks."""
    step = 10.0 ** (len(str(int(most))) - 2) if most >= 1 else 10.0**-3
    factors = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0)
    return next((step * f for f in factors if most / (step * f) <= 8), most)


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + " L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def _line(kind: str, points: Sequence[tuple[float, float]]) -> str:
    return f'<path class="line {kind}" d="{_path(points)}"/>'


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text}</text>'


def _axes(scale: _Scale, counts: Sequence[int]) -> list[str]:
    left, right, bottom = scale.x(0), scale.x(scale.most_rows), scale.y(0)
    parts = []
    for tick in scale.ticks():
        y = f"{scale.y(tick):.1f}"
        parts.append(f'<line class="grid" x1="{left}" x2="{right:.1f}" y1="{y}" y2="{y}"/>')
        parts.append(_text(left - 8, scale.y(tick) + 4, f"{tick:g}", "end"))
    shown = -100.0
    for count in sorted(counts):
        if scale.x(count) - shown >= 22:
            shown = scale.x(count)
            parts.append(_text(shown, bottom + 20, str(count), "middle"))
    parts.append(_text((left + right) / 2, _HEIGHT - 8, "rows of a pass", "middle"))
    parts.append(_text(left, _TOP - 6, "milliseconds", "start"))
    return parts


def _end_label(scale: _Scale, kind: str, ms: float, text: str, shift: float) -> str:
    x, y = scale.x(scale.most_rows) + 10, scale.y(ms) + 4 + shift
    return f'<text class="label {kind}" x="{x:.1f}" y="{y:.1f}">{text}</text>'


def _point(scale: _Scale, row: Mapping[str, Any]) -> str:
    x = f"{scale.x(row['rows']):.1f}"
    shown = (
        f"{row['rows']} rows: {row['ms']:.2f} ms "
        f"[{row['low_ms']:.2f}, {row['high_ms']:.2f}], {row['ratio']:.2f} x the first"
    )
    bar = (
        f'<line class="interval" x1="{x}" x2="{x}" y1="{scale.y(row["low_ms"]):.1f}" '
        f'y2="{scale.y(row["high_ms"]):.1f}"/>'
    )
    return (
        f'{bar}<circle cx="{x}" cy="{scale.y(row["ms"]):.1f}" r="4"><title>{shown}</title></circle>'
    )


def _band(scale: _Scale, rows: Sequence[Mapping[str, Any]]) -> str:
    upper = [(scale.x(row["rows"]), scale.y(row["high_ms"])) for row in rows]
    lower = [(scale.x(row["rows"]), scale.y(row["low_ms"])) for row in reversed(rows)]
    return f'<path class="band" d="{_path([*upper, *lower])} Z"/>'


def chart(rows: Sequence[Mapping[str, Any]]) -> str:
    """An SVG of the measured curve with its interval, the limit, and R passes of the first."""
    rows = sorted(rows, key=lambda row: int(row["rows"]))
    limits = [row for row in rows if row["limit_ms"] is not None]
    most_ms = max(row["high_ms"] for row in rows)
    scale = _Scale(rows[-1]["rows"], most_ms * 1.05)
    per_row = rows[0]["ms"] / rows[0]["rows"]
    last = min(float(scale.most_rows), scale.most_ms / per_row)
    parts = _axes(scale, [row["rows"] for row in rows])
    parts.append(
        _line("serial", [(scale.x(0), scale.y(0)), (scale.x(last), scale.y(last * per_row))])
    )
    if limits:
        curve = [(scale.x(row["rows"]), scale.y(row["limit_ms"])) for row in limits]
        parts.append(_line("limit", curve))
        close = abs(scale.y(limits[-1]["limit_ms"]) - scale.y(rows[-1]["ms"])) < 16
        parts.append(_end_label(scale, "on-limit", limits[-1]["limit_ms"], "limit", 16 * close))
    parts.append(_band(scale, rows))
    parts.append(_line("measured", [(scale.x(row["rows"]), scale.y(row["ms"])) for row in rows]))
    parts += [_point(scale, row) for row in rows]
    parts.append(_end_label(scale, "on-measured", rows[-1]["ms"], "measured", 0))
    body = "\n".join(parts)
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="Time of a pass by its rows">'
        f"\n{body}\n</svg>"
    )


def _table(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    body = "\n".join("<tr>" + "".join(f"<td>{c}</td>" for c in line) + "</tr>" for line in lines)
    return f'<div class="scroll"><table><tr>{head}</tr>\n{body}</table></div>'


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _rows_table(rows: Sequence[Mapping[str, Any]]) -> str:
    header = [
        "rows",
        "ms",
        "95 % interval",
        "ratio",
        "weight GB/s",
        "of read bandwidth",
        "limit ms",
    ]
    lines = []
    for row in rows:
        share = row["read_fraction"]
        lines.append(
            [
                str(row["rows"]),
                _number(row["ms"], 2),
                f"{row['low_ms']:.2f} to {row['high_ms']:.2f}",
                _number(row["ratio"], 2),
                _number(row["weight_gb_s"], 1),
                "-" if share is None else f"{100 * share:.0f} %",
                _number(row["limit_ms"], 2),
            ]
        )
    return _table(header, lines)


def _gain_section(rows: Sequence[Mapping[str, Any]]) -> str:
    gains = expected_gains({row["rows"]: row["ms"] for row in rows})
    if not gains:
        return "<p>Measure one row as well to see what speculation could give.</p>"
    lines = [
        [
            f"{100 * gain.acceptance:.0f} %",
            "do not draft" if gain.draft_tokens == 0 else str(gain.draft_tokens),
            f"{gain.tokens_per_pass:.2f}",
            f"{gain.speed_up:.2f} x",
        ]
        for gain in gains
    ]
    return _table(["acceptance rate", "draft tokens", "tokens per pass", "speed-up"], lines)


def rows_page(record: Mapping[str, Any]) -> str:
    """The page for a record of ``bench rows --json``."""
    rows = record["rows"]
    title = f"{escape(str(record['model']))}: what a pass of R rows costs"
    machine = f"{escape(str(record['isa']))}, {record['threads']} threads, {escape(record['date'])}"
    drift = " The machine <strong>drifted</strong> during the run." if record["drifting"] else ""
    depth, rounds = record["depth"], record["rounds"]
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>{_STYLE}</style></head><body>
<h1>{title}</h1>
<p>{machine}; {depth} positions before the rows, medians of {rounds} rounds.{drift}</p>
<figure>{chart(rows)}
<figcaption>The band and the bars are the 95 % interval of each median. The dashed line is the
limit: the slower of reading the weights and multiplying them, both rates measured in the same run.
The dotted line is as many passes of the first row count as the rows need.</figcaption></figure>
{_rows_table(rows)}
<h2>What speculation could give</h2>
<p>For a drafter that costs nothing and drafts in every step, when every draft token is accepted
with the same probability, independently of the others; the best of the draft lengths measured
here.</p>
{_gain_section(rows)}
</body></html>
"""
