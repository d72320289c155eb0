"""What `run --explain-drafts` prints: a line per round."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slipstream.engine.controller import Decision, Proposal

HEADER = ("round", "proposed", "draft rows", "accepted", "drafters, or why none")
WIDEST = 100  # columns
MOST_PROPOSED = 38  # columns
_TIED = "\u00a0"  # a space at which no line ends
LEGEND = (
    "proposed: draft tokens per drafter, 6/4 = a tree of 6 tokens and 4 levels; in brackets the "
    "highest probability that the drafter states; draft rows: those of them that were verified, "
    "(2 cut) = 2 more were chosen and a pass had no time for them"
)
_DEAR = "not asked: would cost more than the 1 % set aside"
_WORDS = {
    "first pass": "first step: no times known yet",
    "limit reached": "the output may not get longer",
    "nothing proposed": "the drafters had nothing to propose",
    "no gain": "would take longer than it saves",
    "parked": "not asked: not expected to pay just now",
    "parked: budget": _DEAR,
    "budget": _DEAR,
}
_READING = re.compile(r"no gain: (\d+) tokens to read$")


def decision_lines(decisions: Sequence[Decision]) -> list[str]:
    """A table of rounds: what each drafter proposed, what was verified, what was accepted."""
    cells = [_cells(place, made) for place, made in enumerate(decisions)]
    shown = [textwrap.wrap(row[1], MOST_PROPOSED, break_on_hyphens=False) for row in cells]
    widths = [max(len(row[column]) for row in (HEADER, *cells)) for column in range(4)]
    widths[1] = max(len(line) for lines in ([HEADER[1]], *shown) for line in lines)
    lines = [_line(HEADER, widths)]
    for row, proposed in zip(cells, shown, strict=True):
        lines += _wrapped(row, proposed, widths)
    return [*lines, *textwrap.wrap(LEGEND, WIDEST)] if cells else lines


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join((*map(str.ljust, row, widths), row[-1])).rstrip().replace(_TIED, " ")


def _wrapped(row: Sequence[str], proposed: Sequence[str], widths: Sequence[int]) -> list[str]:
    """The lines of a round; what does not fit goes on below."""
    left = WIDEST - sum(widths) - 2 * len(widths)
    told = textwrap.wrap(row[-1], left, break_on_hyphens=False)
    lines = []
    for place, (above, last) in enumerate(zip_longest(proposed, told, fillvalue="")):
        number, rows, accepted = (row[0], row[2], row[3]) if place == 0 else ("", "", "")
        lines.append(_line((number, above, rows, accepted, last), widths))
    return lines


def _cells(place: int, decision: Decision) -> tuple[str, ...]:
    told = (_candidate(proposal).replace(" ", _TIED) for proposal in decision.proposals)
    candidates = ", ".join(told) or "-"
    rows = f"{decision.drafted}"
    if decision.cut_for_time:
        rows += f" ({decision.cut_for_time} cut)"
    reason = decision.verified.method if decision.drafted else in_words(decision.reason)
    reason = "end of the prompt" if decision.prompt else reason or "-"
    return (f"{place}", candidates, rows, f"{decision.accepted}", reason)


def in_words(reason: str) -> str:
    """A controller's reason (``Controller.reason``) for a reader who does not know it."""
    return "; ".join(
        _part(part) for group in reason.split("; ") for part in group.split(", ") if part
    )


def _part(part: str) -> str:
    """One reason, perhaps behind the drafter that it is about; others are told as they are."""
    reading = _READING.search(part)
    if reading is not None:
        told = f"not asked: reading {reading[1]} tokens first would take longer than it saves"
        return part[: reading.start()] + told
    code = max((c for c in _WORDS if part == c or part.endswith(f" {c}")), key=len, default=None)
    return part if code is None else part[: len(part) - len(code)] + _WORDS[code]


def _candidate(proposal: Proposal) -> str:
    """Method, nodes (of a tree: also its depth) and the best probability that it claims."""
    draft = proposal.draft
    levels = max(draft.depths(), default=-1) + 1
    nodes = f"{len(draft)}" if levels == len(draft) else f"{len(draft)}/{levels}"
    best = f" ({max(draft.probabilities):.2f})" if draft.probabilities else ""
    return f"{proposal.method} {nodes}{best}"
