"""One self-contained HTML page of ``bench speculate``: speed-up, acceptance, where time goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from slipstream.measure.charts import Bar, Curve, Dot, curves, intervals, stacked
from slipstream.measure.page_style import STYLE

Record = Mapping[str, Any]

PARTS = ("draft", "verify", "sample", "commit", "other")


def _legend(names: Sequence[str], kind: str) -> str:
    keys = "".join(
        f'<span><i class="key {kind}{i}"></i>{escape(name)}</span>' for i, name in enumerate(names)
    )
    return f'<div class="legend">{keys}</div>'


def _shown(ratio: Record | None) -> str:
    if ratio is None:
        return "-"
    if ratio["low"] is None:
        return f"{ratio['median']:.2f} ({ratio['pairs']} pair{'s' * (ratio['pairs'] != 1)})"
    return f"{ratio['median']:.2f} [{ratio['low']:.2f}, {ratio['high']:.2f}]"


def _speed_chart(summaries: Sequence[Record], methods: Sequence[str]) -> str:
    rows = []
    for name in dict.fromkeys(s["name"] for s in summaries):
        dots = [
            Dot(
                methods.index(s["method"]),
                s["speed_up"]["median"],
                s["speed_up"]["low"],
                s["speed_up"]["high"],
                f"{s['method']}, {name}: {_shown(s['speed_up'])}",
            )
            for s in summaries
            if s["name"] == name and s["speed_up"] is not None
        ]
        if dots:
            rows.append((name, dots))
    if not rows:
        return "<p>No output was fit for a figure.</p>"
    return intervals(rows, reference=1.0, label="times as fast as without speculation")


def _acceptance_chart(wholes: Sequence[Record]) -> str:
    lines = [
        Curve(
            number,
            [
                (
                    p["position"],
                    p["accepted"] / p["reached"],
                    f"{whole['method']}, position {p['position']}: {p['accepted']} of "
                    f"{p['reached']} drafts that reached it",
                )
                for p in whole["positions"]
            ],
        )
        for number, whole in enumerate(wholes)
    ]
    if not any(line.points for line in lines):
        return "<p>Nothing was drafted.</p>"
    return curves(lines, x_label="position in the draft", y_label="accepted, of those that reached")


def _bar(name: str, phases: Record, series: int | None = None) -> Bar:
    each = [1e3 * phases[f"{part}_s"] / phases["tokens"] for part in PARTS]
    shown = ", ".join(f"{part} {ms:.2f}" for part, ms in zip(PARTS, each, strict=True))
    return Bar(name, each, f"{name}: {shown} ms per token", series)


def _time_chart(summaries: Sequence[Record], methods: Sequence[str]) -> str:
    groups = []
    for name in dict.fromkeys(s["name"] for s in summaries):
        members = [s for s in summaries if s["name"] == name and s["phases"]["tokens"]]
        if members:
            bars = [_bar("off", members[0]["plain_phases"])]
            bars += [_bar(s["method"], s["phases"], methods.index(s["method"])) for s in members]
            groups.append((name, bars))
    if not groups:
        return "<p>No output was fit for a figure.</p>"
    return stacked(groups, label="milliseconds per token after the first")


def _tables(summaries: Sequence[Record], first: str) -> str:
    """A table per method, under its name."""
    header = [first, "prompts", "tok/s off", "tok/s on", "speed-up [95 %]", "drafted"]
    header += ["accepted", "tok/pass", "balance", "identical"]
    parts = []
    for method in dict.fromkeys(s["method"] for s in summaries):
        lines = [_row("td", _cells(s)) for s in summaries if s["method"] == method]
        body = "\n".join([_row("th", header), *lines])
        parts.append(f'<h3>{escape(method)}</h3>\n<div class="scroll"><table>{body}</table></div>')
    return "\n".join(parts)


def _row(tag: str, cells: Sequence[str]) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"


def _cells(s: Record) -> list[str]:
    def number(value: float | None, digits: int) -> str:
        return "-" if value is None else f"{value:.{digits}f}"

    fit, balance = s["prompts"] - len(s["degenerate"]), s["balance"]
    return [
        s["name"],
        f"{fit}" if fit == s["prompts"] else f"{fit}/{s['prompts']}",
        number(s["plain_tok_s"], 1),
        number(s["tok_s"], 1),
        _shown(s["speed_up"]),
        str(s["drafted"]),
        str(s["accepted"]),
        number(s["tokens_per_pass"], 2),
        "-" if balance is None else f"{100 * balance['net_share']:+.1f} %",
        "yes" if s["identical"] else "NO",
    ]


def _warnings(record: Record, wholes: Sequence[Record]) -> str:
    """What a reader must know before the figures."""
    lines = []
    if not record["valid"]:
        lines.append("The output is INVALID: acceptance was pretended.")
    elif not all(whole["identical"] for whole in wholes):
        lines.append("An output DIFFERS from that of plain decoding.")
    if any(whole["drifting"] for whole in wholes):
        lines.append("The machine drifted during the run: measure again.")
    lines += [
        f"Left out of the figures: {prompt} ({reason})."
        for prompt, reason in wholes[0]["degenerate"].items()
    ]
    return "".join(f"<p><strong>{escape(line)}</strong></p>" for line in lines)


def _warm_section(record: Record, methods: Sequence[str]) -> str:
    warm = record.get("warm_summaries")
    if not warm:
        return ""
    return f"""<h2>Warm: the same request repeated</h2>
<p>Drafters remember the first run of each request. This is what a repetition gains, and no figure
of it is part of those above.</p>
<figure>{_speed_chart(warm, methods)}</figure>
{_tables(warm, "workload")}"""


def speculation_page(record: Record) -> str:
    """The page for a record of ``bench speculate --json``."""
    methods = list(record["conditions"])
    summaries = record["summaries"]
    wholes = [s for s in summaries if s["name"] == "all"]
    title = f"{escape(str(record['model']))}: what speculation gives"
    machine = f"{escape(str(record['isa']))}, {record['threads']} threads, {escape(record['date'])}"
    legend = _legend(methods, "s")
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>{STYLE}</style></head><body>
<h1>{title}</h1>
<p>{machine}; greedy, one request at a time, at most {record["limit"]} tokens, {record["rounds"]}
round(s) per prompt, off and on in turns; drafters are cold: reset before every output.</p>
{_warnings(record, wholes)}
<h2>Speed-up</h2>
{legend}<figure>{_speed_chart(summaries, methods)}
<figcaption>Median over pairs of the same prompt; the bar is its 95 % bootstrap interval over those
pairs. A hollow dot has fewer than six pairs, too few for an interval.</figcaption></figure>
<h2>Acceptance by position</h2>
{legend}<figure>{_acceptance_chart(wholes)}
<figcaption>Of the drafts that reached a position, that is had a token examined there, those whose
token was accepted; in a tree a position is a depth.</figcaption></figure>
<h2>Where the time goes</h2>
{_legend(PARTS, "part")}<figure>{_time_chart(summaries, methods)}
<figcaption>Draft: choosing and asking drafters. Verify: the target's pass. Sample: verification
proper. Commit: memory and telling the drafters. Other: between the passes.</figcaption></figure>
<h2>Workloads</h2>
{_tables(summaries, "workload")}
<p>Balance: (draft + extra rows + bookkeeping - saved) / plain time; below 0 it paid.</p>
<h2>Prompts</h2>
{_tables(record["each"], "prompt")}
{_warm_section(record, methods)}
</body></html>
"""
