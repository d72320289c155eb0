"""What the figures answer to a workload's question: a line per condition, no word over all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from slipstream.lab.evidence.definitions import NOT_MEASURABLE
from slipstream.lab.judging.cells import GREEDY
from slipstream.lab.judging.pair_words import ratio_text
from slipstream.lab.judging.verdict import Verdict
from slipstream.lab.reporting.analysis_data import Cell

_MIB: Final = 1 << 20


@dataclass(frozen=True)
class Beside:
    """A condition's figures, and those of ``none`` beside it."""

    own: Cell
    none: Cell | None


Part = Callable[[Beside], str]
"""What the figures say of one thing; empty = nothing."""


def answers(
    stratum: str, kind: str, verdicts: Sequence[Verdict], cells: Sequence[Cell]
) -> tuple[str, ...]:
    """
    Args:
        kind: the one of the six strata whose question is asked.
        verdicts, cells: of the whole run.
    """
    own = [v for v in verdicts if v.stratum == stratum]
    several = len({v.runtime for v in verdicts}) > 1
    told = [v for v in own if v.word != "not run"]
    lines = [_line(kind, v, cells, several=several) for v in told]
    return (*lines, *_not_run(own, several=several))


def _line(kind: str, verdict: Verdict, cells: Sequence[Cell], *, several: bool) -> str:
    own = _figures(verdict, verdict.condition, cells)
    if own is None:
        return f"{_name(verdict, several=several)}: {verdict.word}; no figures"
    figures = Beside(own, _figures(verdict, "none", cells))
    parts = [part(figures) for part in _PARTS.get(kind, _USUAL)]
    said = "; ".join(part for part in parts if part)
    return f"{_name(verdict, several=several)}: {said}. Verdict: {verdict.word}."


def _figures(verdict: Verdict, condition: str, cells: Sequence[Cell]) -> Cell | None:
    wanted = (verdict.runtime, condition, verdict.stratum, verdict.slots, GREEDY)
    found = (c for c in cells if (c.runtime, c.condition, c.stratum, c.slots, c.stage) == wanted)
    return next(found, None)


def _name(verdict: Verdict, *, several: bool) -> str:
    runtime = f" ({verdict.runtime})" if several else ""
    slots = f" at {verdict.slots} slots" if verdict.slots > 1 else ""
    return f"{verdict.condition}{runtime}{slots}"


def _not_run(verdicts: Sequence[Verdict], *, several: bool) -> Iterator[str]:
    names = [_name(v, several=several) for v in verdicts if v.word == "not run"]
    if names:
        yield f"Not run, so not answered: {', '.join(names)}."


def _gain(figures: Beside) -> str:
    cell = figures.own
    what = "throughput" if cell.speed_of == "throughput" else "speed-up"
    if cell.speed is None:
        return f"{what} {NOT_MEASURABLE}"
    return f"{what} {ratio_text(cell.speed, 2)}"


def _fired(figures: Beside) -> str:
    cell, counts = figures.own, figures.own.counts
    if counts.drafted is None:
        return "the runtime does not tell whether anything was drafted"
    if cell.acceptance_rate is None:
        return "it never fired: nothing was drafted" if not counts.drafted else "counts unfit"
    share = f"{cell.acceptance_rate:.0%}"
    return f"it fired: {counts.accepted} of {counts.drafted} drafted tokens accepted ({share})"


def _cost_of_drafts(figures: Beside) -> str:
    share = figures.own.phases.get("draft")
    if share is None:
        return "the runtime does not tell what drafting takes"
    return f"drafting takes {share:.1%} of the time"


def _outputs(figures: Beside) -> str:
    cell = figures.own
    total = cell.equal + cell.diverged
    return f"{cell.equal} of {total} outputs are those of none" if total else "no output compared"


def _checks(figures: Beside) -> str:
    parts = []
    for name, (passed, of) in figures.own.checks.items():
        if name != "exact":
            before = figures.none.checks.get(name) if figures.none else None
            beside = f", {before[0]} of {before[1]} with none" if before else ""
            parts.append(f"{name} passed {passed} of {of}{beside}")
    return "; ".join(parts)


def _first_token(figures: Beside) -> str:
    if figures.own.ttft_s is None:
        return f"time to the first token {NOT_MEASURABLE}"
    before = figures.none.ttft_s if figures.none else None
    beside = f", {before.median:.3g} s with none" if before else ""
    return f"first token after {figures.own.ttft_s.median:.3g} s{beside}"


def _memory(figures: Beside) -> str:
    added = figures.own.memory_added_bytes
    if added is None:
        return f"memory {NOT_MEASURABLE}"
    return f"peak memory {added / _MIB:+.1f} MiB over none"


_USUAL: Final[tuple[Part, ...]] = (_fired, _gain, _outputs)
_PARTS: Final = MappingProxyType(
    {
        "repetitive": _USUAL,
        "chat": (_cost_of_drafts, _fired, _gain),
        "reasoning": (_fired, _outputs, _checks, _gain),
        "long_input": (_first_token, _memory, _fired, _gain),
        "structured": (_checks, _outputs, _fired, _gain),
        "prose": (_gain, _fired),
    }
)
