"""What `run --explain-drafts` prints: a line per round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slipstream.engine.controller import Decision, Proposal

HEADER = ("round", "candidates (best)", "rows", "accepted", "drafters or reason")


def decision_lines(decisions: Sequence[Decision]) -> list[str]:
    """A table of rounds: what each drafter proposed, what was verified, what was accepted."""
    cells = [HEADER, *(_cells(place, made) for place, made in enumerate(decisions))]
    widths = [max(len(row[column]) for row in cells) for column in range(len(HEADER) - 1)]
    return ["  ".join((*map(str.ljust, row, widths), row[-1])) for row in cells]


def _cells(place: int, decision: Decision) -> tuple[str, ...]:
    candidates = ", ".join(map(_candidate, decision.proposals)) or "-"
    rows = f"{decision.drafted}"
    if decision.cut_for_time:
        rows += f" ({decision.cut_for_time} cut)"
    told = decision.verified.method if decision.drafted else decision.reason
    told = "end of the prompt" if decision.prompt else told or "-"
    return (f"{place}", candidates, rows, f"{decision.accepted}", told)


def _candidate(proposal: Proposal) -> str:
    """Method, nodes (of a tree: also its depth) and the best probability that it claims."""
    draft = proposal.draft
    levels = max(draft.depths(), default=-1) + 1
    nodes = f"{len(draft)}" if levels == len(draft) else f"{len(draft)}/{levels}"
    best = f" ({max(draft.probabilities):.2f})" if draft.probabilities else ""
    return f"{proposal.method} {nodes}{best}"
