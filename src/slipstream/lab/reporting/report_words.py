"""Figures in words, one way for every table of a report."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TypeVar

from slipstream.lab.evidence.definitions import NOT_MEASURABLE, Figure, PairedRatio
from slipstream.lab.judging.cells import SAMPLER
from slipstream.lab.judging.pair_words import ratio_text
from slipstream.lab.reporting.analysis_data import Analysis, Cell, Workload
from slipstream.lab.reporting.report_document import Entry, Tone, Word

FIGURE: Final = "median (quartiles; extremes; n)"
_MIB: Final = 1 << 20
Name = TypeVar("Name")
_UNMEASURED: Final = Word(NOT_MEASURABLE, "quiet")
TONES: Final[dict[str, Tone]] = {
    "adopt": "good",
    "reject": "bad",
    "inconclusive": "open",
    "not run": "quiet",
}


def figure(made: Figure | None, scale: float = 1.0) -> Entry:
    """Median (quartiles; extremes; n), in a unit ``scale`` of which make the figure's own."""
    if made is None:
        return _UNMEASURED
    values = (made.median, made.q1, made.q3, made.least, made.most)
    median, q1, q3, least, most = (short(scale * v) for v in values)
    return f"{median} ({q1} to {q3}; {least} to {most}; {made.n})"


def short(value: float) -> str:
    """Four digits, without an exponent where that can be read."""
    return f"{value:.4g}" if abs(value) < 10000 else f"{value:,.0f}"


def value(given: float | None, form: str = ".4g") -> Entry:
    return _UNMEASURED if given is None else f"{given:{form}}"


def percent(given: float | None, digits: int = 1) -> Entry:
    return _UNMEASURED if given is None else f"{100 * given:.{digits}f} %"


def mebibytes(given: int | None, *, sign: bool = False) -> Entry:
    if given is None:
        return _UNMEASURED
    return f"{given / _MIB:{'+' if sign else ''},.1f} MiB"


def interval(made: PairedRatio | None) -> Entry:
    """The median with its interval; of few pairs with their extremes and number."""
    if made is None:
        return _UNMEASURED
    return ratio_text(made)


def counted(given: int | None) -> Entry:
    """A count that a runtime tells, or does not."""
    return Word("not told", "quiet") if given is None else f"{given:,}"


def load(slots: int) -> str:
    return "one stream" if slots == 1 else f"{slots} at a time"


def place(cell: Cell) -> str:
    """The workload, with what is unusual about the cell."""
    parts = [cell.stratum]
    parts += [load(cell.slots)] if cell.slots != 1 else []
    parts += ["own sampler"] if cell.stage == SAMPLER else []
    return ", ".join(parts)


def several(analysis: Analysis) -> bool:
    """Whether two programs stand side by side, so that every row names its own."""
    return len({c.runtime for c in analysis.cells} | {v.runtime for v in analysis.verdicts}) > 1


def named(analysis: Analysis, runtime: str, condition: str) -> str:
    return f"{condition} ({runtime})" if several(analysis) else condition


def prompts(workload: Workload) -> str:
    parts = [f"{workload.prompts} prompts"]
    if workload.tokens:
        least, most = workload.tokens
        parts.append(f"{least:,} to {most:,} tokens with their limit")
    parts.append(f"{workload.typical} typical of a long load" if workload.typical else "none long")
    words = ("exact match with none" if j == "exact" else j for j in workload.judgements)
    parts.append(f"judged by {', '.join(words)}")
    return "; ".join(parts)


def duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def plain(given: Any) -> str:
    """A parameter or setting as text."""
    if isinstance(given, bool):
        return "true" if given else "false"
    if isinstance(given, dict):
        return ", ".join(f"{key} = {plain(item)}" for key, item in given.items())
    if isinstance(given, (list, tuple)):
        return ", ".join(plain(item) for item in given)
    return str(given)


def distinct(names: Iterable[Name]) -> tuple[Name, ...]:
    return tuple(dict.fromkeys(names))
