"""Verdicts and gates as lines of text, as wide as the terminal."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from slipstream.cli.output import table

if TYPE_CHECKING:
    from slipstream.lab.judging.gate_result import GateResult
    from slipstream.lab.judging.verdict import Verdict
    from slipstream.lab.reporting.analysis_data import Analysis

_SIGNS = {True: "+", False: "FAILED", None: "?"}
_RESULTS = {True: "passed", False: "failed", None: "not measurable"}
_MOST_REASONS = 2
_NARROWEST = 24


def width() -> int:
    return max(shutil.get_terminal_size((100, 24)).columns, _NARROWEST)


def wrapped(text: str, columns: int, indent: str = "") -> str:
    """Broken at words; what is longer than a line is broken anywhere."""
    return textwrap.fill(
        text,
        columns,
        initial_indent=indent,
        subsequent_indent=f"{indent}  ",
        break_on_hyphens=False,
    )


def verdict_lines(verdicts: Sequence[Verdict], columns: int) -> Iterator[str]:
    """Latency of one stream and each concurrency by itself: a table, and why below it.

    Where the table is wider than the terminal, a paragraph for each verdict instead.
    """
    for slots in sorted({v.slots for v in verdicts}):
        own = [v for v in verdicts if v.slots == slots]
        yield "latency of one stream" if slots == 1 else f"under load, {slots} at a time"
        judged = [v for v in own if v.word != "not run"]
        yield from _judged(judged, columns)
        yield from _not_run([v for v in own if v.word == "not run"], columns)
        yield ""


def _judged(verdicts: Sequence[Verdict], columns: int) -> Iterator[str]:
    if not verdicts:
        return
    for gates in (True, False):
        text = _table(verdicts, gates=gates)
        if max(map(len, text.splitlines())) <= columns:
            yield text
            yield from _reasons(verdicts, columns)
            return
    for verdict in verdicts:
        head = f"{', '.join(_names(verdict, verdicts))}: {verdict.word}"
        yield wrapped(f"{head}, speed-up {_speed(verdict)}, {_signs(verdict.gates)}", columns)
        yield from (wrapped(r, columns, "  ") for r in verdict.reasons[:_MOST_REASONS])


def _table(verdicts: Sequence[Verdict], *, gates: bool) -> str:
    rows = [
        [*_names(v, verdicts), v.word, _speed(v), *([_signs(v.gates)] if gates else [])]
        for v in verdicts
    ]
    runtime = ["runtime"] if _several(verdicts) else []
    header = [*runtime, "workload", "condition", "verdict", "speed-up", *(["gates"] * gates)]
    return table(header, rows, text=len(header))


def _several(verdicts: Iterable[Verdict]) -> bool:
    return len({v.runtime for v in verdicts}) > 1


def _names(verdict: Verdict, verdicts: Iterable[Verdict]) -> list[str]:
    runtime = [verdict.runtime] if _several(verdicts) else []
    return [*runtime, verdict.stratum, verdict.condition]


def _speed(verdict: Verdict) -> str:
    from slipstream.lab.judging.pair_words import values_text

    gate = verdict.gate("time")
    values = {} if gate is None else gate.values
    return values_text(values) if "ratio" in values else "not measurable"


def _signs(gates: Iterable[GateResult]) -> str:
    """Those that did not pass, by name."""
    open_gates = [gate for gate in gates if gate.passed is not True]
    told = [f"{gate.name} {_SIGNS[gate.passed]}" for gate in open_gates]
    return ", ".join(told) or "all passed"


def _reasons(verdicts: Sequence[Verdict], columns: int) -> Iterator[str]:
    for verdict in verdicts:
        if verdict.word != "adopt":
            name = " ".join(_names(verdict, verdicts))
            told = "; ".join(verdict.reasons[:_MOST_REASONS])
            left = len(verdict.reasons) - _MOST_REASONS
            more = f"; {left} more in the report" if left > 0 else ""
            yield wrapped(f"{name}: {told}{more}", columns)


def _not_run(verdicts: Sequence[Verdict], columns: int) -> Iterator[str]:
    """Grouped by their reason, workloads with the same conditions together."""
    by_place: dict[tuple[str, str], list[str]] = {}
    for verdict in verdicts:
        *where, condition = _names(verdict, verdicts)
        by_place.setdefault(("; ".join(verdict.reasons), " ".join(where)), []).append(condition)
    alike: dict[tuple[str, str], list[str]] = {}
    for (reason, where_text), conditions in by_place.items():
        alike.setdefault((reason, ", ".join(conditions)), []).append(where_text)
    for (reason, names), places in alike.items():
        yield wrapped(f"not run: {names} over {', '.join(places)}: {reason}", columns)


def gate_lines(verdict: Verdict, columns: int) -> Iterator[str]:
    """Every gate with what was observed and its limit; where it did not pass, why."""
    place = f"{verdict.runtime} {verdict.stratum} {verdict.condition}, {verdict.slots} at a time"
    yield wrapped(f"{place}: {verdict.word}", columns)
    for gate in verdict.gates:
        text = f"{gate.name} {_RESULTS[gate.passed]}: {gate.observed}; limit: {gate.limit}"
        because = f"; {gate.evidence}" if gate.evidence and gate.passed is not True else ""
        yield wrapped(f"{text}{because}", columns, "  ")
    if verdict.word != "adopt":
        yield from (wrapped(f"why: {reason}", columns, "  ") for reason in verdict.reasons)


def state_line(analysis: Analysis) -> str:
    """How far the run came."""
    from slipstream.lab.judging.measured import NOTHING

    made = analysis.progress
    if made.state == "not executed":
        locked = f", {made.locked} of them known not to run" if made.locked else ""
        return f"not executed: {made.blocks} blocks are planned{locked}; nothing was measured"
    reason = f" ({made.reason})" if made.reason else ""
    left = f", {made.left} are missing" if made.left else ""
    locked = f", {made.locked} not run" if made.locked else ""
    nothing = "" if made.measured else f", but {NOTHING}"
    lost = f"; {text}" if (text := made.disturbance.text()) else ""
    counts = f"{made.ended} of {made.blocks} blocks ended{left}{locked}"
    return f"{made.state}{nothing}{reason}: {counts}{lost}"
