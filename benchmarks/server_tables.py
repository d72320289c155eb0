"""The part of docs/performance.md about the server, from the record of server.py."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from server_bars import OWN, PEER, Record, outcomes
from speculation_bars import Outcome


def table(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rows = [header, ["---"] * len(header), *lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def tables(model: str, record: Record) -> Iterator[str]:
    """Bars, what each engine did, the grid of llama-server."""
    yield "#### Server"
    yield _bars(outcomes(model, record))
    for name, title in (("single", "One stream, no drafts"), ("editing", "Code editing")):
        if name in record:
            yield f"{title}, the client's clock ({_taken(record[name])}):"
            yield _prompts(record[name], (OWN, PEER))
    if "streams" in record:
        yield f"Several streams at once, no drafts ({_taken(record['streams'])}):"
        yield _streams(record["streams"])
    if "overhead" in record:
        yield f"The same output by the engine and by the server ({_taken(record['overhead'])}):"
        yield _overhead(record["overhead"])
    if "grid" in record:
        yield f"llama-server's settings, one run each ({_taken(record['grid'])}):"
        yield _grid(record["grid"])


def _taken(section: Record) -> str:
    quick = ", QUICK: no figures" if section.get("quick") else ""
    return f"{section['date']}, commit {section['commit']}, {section['tokens']} tokens{quick}"


def _bars(made: Sequence[Outcome]) -> str:
    lines = [
        [bar.title, bar.measured(), str(bar.pairs), bar.wanted, _verdict(bar), bar.note]
        for bar in made
    ]
    return table(["figure", "measured [95 %]", "pairs", "bar", "", "note"], lines)


def _verdict(bar: Outcome) -> str:
    if bar.wanted == "no bar":
        return ""
    return {True: "met", False: "**missed**", None: "too few pairs"}[bar.met]


def _median(samples: Sequence[Record], field: str) -> float:
    return statistics.median(sample[field] for sample in samples)


def _prompts(section: Record, names: tuple[str, str]) -> str:
    lines = []
    for key, prompt in section["prompts"].items():
        line = [key]
        for name in names:
            samples = prompt["samples"][name]
            first, rate = _median(samples, "first_s"), _median(samples, "tok_s")
            line += [f"{1e3 * first:.0f}", f"{rate:.1f}{_share(samples)}"]
        lines.append(line)
    header = ["prompt", "Slipstream first ms", "tok/s", "llama.cpp first ms", "tok/s"]
    return table(header, lines)


def _share(samples: Sequence[Record]) -> str:
    """The share of drafted tokens that were accepted."""
    drafted = sum(sample["drafted"] or 0 for sample in samples)
    accepted = sum(sample["accepted"] or 0 for sample in samples)
    return f" ({100 * accepted / drafted:.0f} % accepted)" if drafted else ""


def _streams(section: Record) -> str:
    lines = []
    for number, taken in section["streams"].items():
        rates = [f"{_median(taken[name], 'tok_s'):.1f}" for name in (OWN, PEER)]
        firsts = [f"{1e3 * _median(taken[name], 'first_s'):.0f}" for name in (OWN, PEER)]
        lines.append([number, rates[0], rates[1], firsts[0], firsts[1], section["best"][number]])
    header = ["streams", "Slipstream tok/s", "llama.cpp tok/s", "Slipstream first ms"]
    return table([*header, "llama.cpp first ms", "llama-server's setting"], lines)


def _overhead(section: Record) -> str:
    lines = []
    for key, prompt in section["prompts"].items():
        engine, server = (prompt["samples"][name] for name in ("engine", "server"))
        line = [key]
        for field in ("first_s", "whole_s"):
            line += [f"{1e3 * _median(taken, field):.0f}" for taken in (engine, server)]
        lines.append(line)
    header = ["prompt", "engine first ms", "server first ms", "engine whole ms", "server whole ms"]
    return table(header, lines)


def _grid(section: Record) -> str:
    lines = [
        [number, name, _rate(setting), "failed" if setting["failed"] else ""]
        for number, settings in section["streams"].items()
        for name, setting in settings.items()
    ]
    return table(["streams", "setting", "tok/s of all", ""], lines)


def _rate(setting: dict[str, Any] | Record) -> str:
    return "-" if setting["failed"] else f"{setting['tok_s']:.1f}"
