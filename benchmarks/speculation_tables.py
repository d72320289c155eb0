"""The part of docs/performance.md about speculation, from the record of speculation.py."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from speculation_bars import Outcome, Record, outcomes, ratio_of, unfit

_NAMES = {"llama": "llama.cpp", "ik_llama": "ik_llama.cpp", "slipstream": "Slipstream"}


_UNSHOWN = frozenset({"type", "draft_model"})


def table(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rows = [header, ["---"] * len(header), *lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def tables(record: Record) -> Iterator[str]:
    """Bars, our own methods, the grid of the peers."""
    yield "#### Speculation"
    yield _bars(outcomes(record))
    if "sets" in record:
        yield f"Our own methods against plain decoding ({_taken(record['sets'])}):"
        yield _sets(record["sets"])
    for section in (record.get("never_slower"), record.get("sets")):
        if section is not None:
            yield _conditions(section)
    if "grid" in record:
        every = "every setting on the first prompt of each task, the best three and plain on all"
        yield f"Native peers, one output per prompt: {every} ({_taken(record['grid'])}):"
        yield _grid(record["grid"])


def _taken(section: Record) -> str:
    quick = ", QUICK: no figures" if section.get("quick") else ""
    return f"{section['date']}, commit {section['commit']}, {section['tokens']} tokens{quick}"


def _conditions(section: Record) -> str:
    """The options of each condition, without the paths of models."""
    shown = []
    for name, options in section["conditions"].items():
        words = (f"{key} {value}" for key, value in options.items() if key not in _UNSHOWN)
        if said := ", ".join(words):
            shown.append(f"*{name}*: {said}")
    return "; ".join(shown) and f"Options: {'; '.join(shown)}."


def _bars(made: Sequence[Outcome]) -> str:
    lines = [
        [bar.title, bar.measured(), str(bar.pairs), bar.wanted, _verdict(bar), bar.note]
        for bar in made
    ]
    return table(["figure", "measured [95 %]", "pairs", "bar", "", "note"], lines)


def _verdict(bar: Outcome) -> str:
    if bar.figure is None:
        return "not measured"
    return {True: "met", False: "**missed**", None: "too few pairs"}[bar.met]


def _sets(section: Record) -> str:
    names = [name for name in section["conditions"] if name != "none"]
    lines = []
    for key, prompt in section["prompts"].items():
        reason = unfit(prompt)
        line = [key, _rate(prompt, "none")]
        for name in names:
            ratio = ratio_of([prompt], name, "none")
            line.append("-" if ratio is None else f"{_rate(prompt, name)}, {ratio.median:.2f}x")
        lines.append([*line, f"degenerate: {reason}" if reason else ""])
    return table(["prompt", "plain tok/s", *(f"{n} tok/s, speed-up" for n in names), ""], lines)


def _rate(prompt: Record, condition: str) -> str:
    rates = [
        (s["emitted"] - 1) / s["decode_s"]
        for s in prompt["samples"]
        if s["condition"] == condition and s["decode_s"] > 0
    ]
    return f"{statistics.median(rates):.1f}" if rates else "-"


def _grid(section: Record) -> str:
    lines = [
        [_NAMES.get(peer, peer), name, *_tasks(setting), _remarks(setting, settings)]
        for peer, settings in section["peers"].items()
        for name, setting in settings.items()
    ]
    header = ["peer", "setting", "code_edit tok/s", "csv_to_json tok/s", ""]
    return table(header, lines)


def _tasks(setting: Record) -> list[str]:
    """Tokens over seconds of each task, and the share of drafted tokens that were accepted."""
    shown = []
    for task in ("code_edit", "csv_to_json"):
        outputs = [o for o in setting["outputs"].values() if o["task"] == task]
        seconds = sum(o["decode_s"] for o in outputs)
        drafted = sum(o["drafted"] or 0 for o in outputs)
        accepted = sum(o["accepted"] or 0 for o in outputs)
        share = f", {100 * accepted / drafted:.0f} % of {drafted} accepted" if drafted else ""
        rate = sum(o["tokens"] - 1 for o in outputs) / seconds if seconds else 0.0
        shown.append(f"{rate:.1f}{share}" if seconds else "-")
    return shown


def _remarks(setting: Record, settings: Mapping[str, Any]) -> str:
    if setting["failed"] is not None:
        return "not offered by this build" if not setting["outputs"] else "failed"
    if setting["flags"] and not any(o["drafted"] for o in setting["outputs"].values()):
        return "tells of no drafts"
    plain = settings.get("plain", {}).get("outputs", {})
    differing = sum(
        output["text_sha256"] != plain[key]["text_sha256"]
        for key, output in setting["outputs"].items()
        if key in plain
    )
    return f"{differing} of {len(plain)} texts differ from its plain ones" if differing else ""
