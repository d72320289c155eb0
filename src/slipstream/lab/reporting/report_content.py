"""The whole report: its sections in their order, from one analysis."""

from __future__ import annotations

from typing import Final

from slipstream.lab.reporting.analysis_data import Analysis
from slipstream.lab.reporting.report_document import Bullets, Document, Paragraph, Section
from slipstream.lab.reporting.report_identities import (
    conditions,
    divergences,
    pinned,
    planned,
    published,
    setting,
)
from slipstream.lab.reporting.report_machine import drift, paths, settings
from slipstream.lab.reporting.report_service import (
    latency,
    memory,
    noise,
    rows_per_step,
    side_by_side,
)
from slipstream.lab.reporting.report_speed import acceptance, positions, speed_up, where_time_goes
from slipstream.lab.reporting.report_verdicts import findings, not_run, scope, verdicts, workloads

_FIGURES: Final = (
    *(speed_up, acceptance, positions, where_time_goes, latency, memory, rows_per_step),
    *(side_by_side, drift, paths, settings, divergences, noise, not_run),
)
_HOW: Final = (
    "Every figure is a median with its quartiles, extremes and n; none is a mean of rates.",
    "Speed-up: total time of `none` / that of the condition, pair of blocks by pair of blocks, "
    "where outputs are equal.",
    "Acceptance: accepted / drafted tokens; by position, of what the table names as denominator.",
    "Accepted length: 1 + accepted / steps. Tokens per pass: output tokens / passes of the target.",
    "Step efficiency: speed-up / tokens per pass.",
    "`not measurable` and `unknown` are answers; nothing stands in for them.",
)


def document(analysis: Analysis) -> Document:
    """The report of an analysis, whatever it is to be written in."""
    return Document(
        title=analysis.question.text,
        identity=(
            f"Run {analysis.run}, frozen {analysis.created}; manifest {analysis.manifest_sha256}"
        ),
        lead=scope(analysis),
        sections=_sections(analysis),
    )


def _sections(analysis: Analysis) -> list[Section]:
    first = [verdicts(analysis), findings(analysis), workloads(analysis)]
    last = [conditions(analysis), pinned(analysis), setting(analysis), published(analysis)]
    if analysis.progress.state == "not executed":
        middle = [planned(analysis)]
    elif not analysis.cells:
        told = "No block ended, so there is no figure."
        others = [made for section in (paths, settings, not_run) if (made := section(analysis))]
        middle = [Section("Figures", [Paragraph(told)]), *others]
    else:
        middle = [made for section in _FIGURES if (made := section(analysis))]
    how = Section("How to read this", [Bullets(_HOW)])
    return [*first, *middle, *(s for s in last if s), how]
