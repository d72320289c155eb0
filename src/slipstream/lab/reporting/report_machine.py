"""Drift of the machine over the run, and what ran beside what was predicted and asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from slipstream.lab.evidence.definitions import figure
from slipstream.lab.judging.cells import NONE
from slipstream.lab.reporting.analysis_data import Analysis, Moment, Seen
from slipstream.lab.reporting.report_document import (
    Cells,
    Charts,
    Fold,
    Paragraph,
    Part,
    Section,
    Title,
    Word,
    listed,
    number,
    sentence,
    shortened,
    spread,
    table,
)
from slipstream.lab.reporting.report_words import FIGURE, distinct, load, named, plain
from slipstream.lab.reporting.report_words import figure as in_words
from slipstream.measure.charts import Curve
from slipstream.measure.plots import timeline

_GREEDY: Final = "greedy"
_MOST_LINES: Final = 6


def drift(analysis: Analysis) -> Section | None:
    """The machine's probe and the blocks of ``none`` over the run."""
    if not analysis.moments:
        return None
    pictures = [*_probe_chart(analysis.moments), *_none_chart(analysis)]
    limit = f"{analysis.rules.drift_limit:.0%}"
    caption = (
        "Probe: the lab's own fixed piece of work, timed around every block while no server ran. "
        "Blocks of `none`: seconds of all their requests; a flat line is a steady machine."
    )
    note = (
        f"A block beyond {limit} is repeated once, then inconclusive; so is one that other "
        "programs disturbed. Neither enters a figure."
    )
    charts = [Charts(pictures, caption, _workloads(analysis))] if pictures else []
    return Section("Drift over the run", [*charts, Paragraph(note), *_summary(analysis)])


def _probe_chart(moments: Sequence[Moment]) -> list[tuple[str, str]]:
    told = [
        (float(n), 1e3 * m.probe_s, f"block {m.block}, {m.outcome}: {1e3 * m.probe_s:.2f} ms")
        for n, m in enumerate(moments, 1)
        if m.probe_s is not None and m.probe_s > 0
    ]
    if not told:
        return []
    chart = timeline([Curve(0, told)], x_label="block, as they ran", y_label="probe, ms")
    return [("probe", chart)]


def _workloads(analysis: Analysis) -> Sequence[str]:
    """Those with blocks of ``none`` in the chart, in its colours."""
    own = distinct(m.stratum for m in analysis.moments if _plotted(m))
    return own[:_MOST_LINES] if len(own) > 1 else ()


def _plotted(moment: Moment) -> bool:
    none = (moment.condition, moment.stage, moment.slots) == (NONE, _GREEDY, 1)
    return none and moment.total_s is not None and moment.outcome == "ok"


def _none_chart(analysis: Analysis) -> list[tuple[str, str]]:
    lines: dict[tuple[str, str], list[tuple[float, float, str]]] = {}
    for n, m in enumerate(analysis.moments, 1):
        if _plotted(m) and m.total_s is not None:
            title = f"block {m.block}, {m.stratum}, {m.runtime}: {m.total_s:.3g} s"
            lines.setdefault((m.runtime, m.stratum), []).append((float(n), m.total_s, title))
    if not lines:
        return []
    strata = distinct(stratum for _, stratum in lines)[:_MOST_LINES]
    shown = [
        Curve(strata.index(stratum), told)
        for (_, stratum), told in lines.items()
        if stratum in strata
    ]
    chart = timeline(shown, x_label="block, as they ran", y_label="none, s")
    return [("blocks of none", chart)]


def _summary(analysis: Analysis) -> list[Part]:
    """What the probe showed of each stage, and every block that counts for no figure."""
    rows: list[Cells] = []
    for stage in distinct(m.stage for m in analysis.moments):
        own = [m for m in analysis.moments if m.stage == stage]
        drifts = in_words(figure(100 * m.drift for m in own if m.drift is not None))
        loads = in_words(figure(100 * m.other_load for m in own if m.other_load is not None))
        bad = sum(m.outcome != "ok" for m in own)
        lost = Word(str(bad), "bad") if bad else "0"
        rows.append([stage, str(len(own)), drifts, loads, lost])
    titles: list[Title] = ["blocks", number("of them"), spread(f"drift in %, {FIGURE}")]
    titles += [spread("load of others in %"), number("not for figures")]
    left_out = [m for m in analysis.moments if m.outcome != "ok"]
    told = f"Blocks left out: {len(left_out)}"
    fold = Fold(told, _left_out(analysis, left_out), page_alone=True)
    return [*table(titles, rows), *([fold] if left_out else [])]


def _left_out(analysis: Analysis, moments: Sequence[Moment]) -> list[Part]:
    rows: list[Cells] = [
        [
            f"{m.block}.{m.attempt}",
            named(analysis, m.runtime, m.condition),
            *(m.stratum, load(m.slots), m.outcome, m.reason),
            "unknown" if m.drift is None else f"{m.drift:+.1%}",
        ]
        for m in moments
    ]
    titles: list[Title] = ["block.attempt", "condition", "workload", "load", "outcome"]
    return table([*titles, sentence("reason"), number("drift")], rows)


def paths(analysis: Analysis) -> Section | None:
    """Kernel paths predicted and observed; ``unknown`` until something showed them."""
    if not analysis.seen:
        return None
    rows: list[Cells] = [
        [
            named(analysis, s.runtime, s.condition),
            str(len(s.predicted)) if s.predicted else Word("no prediction", "quiet"),
            str(len(s.observed)) if s.observed else Word("unknown", "open"),
            _agreement(s),
            shortened(listed(s.evidence, 3), 200) or Word("nothing", "quiet"),
        ]
        for s in analysis.seen
    ]
    titles: list[Title] = ["condition", number("predicted"), number("observed"), "agreement"]
    note = (
        "A prediction is what a policy table, a release tag or a build number says; only what "
        "was seen of this binary under this condition counts as observed."
    )
    made = table([*titles, sentence("shown by")], rows)
    return Section(
        "Kernel paths, predicted and observed", [Paragraph(note), *made, *_path_lists(analysis)]
    )


def _agreement(seen: Seen) -> Word:
    if not (seen.predicted and seen.observed):
        return Word("not comparable", "quiet")
    if seen.unpredicted:
        return Word(f"{len(seen.unpredicted)} not predicted", "open")
    left = f", {len(seen.unseen)} not seen" if seen.unseen else ""
    beside = f", {len(seen.beside)} of kinds without a prediction" if seen.beside else ""
    return Word(f"as predicted{left}{beside}", "good")


def _path_lists(analysis: Analysis) -> list[Part]:
    """The paths themselves, once for all conditions that have the same."""
    made: list[Part] = []
    for key in distinct((s.runtime, s.predicted, s.observed) for s in analysis.seen):
        alike = [s for s in analysis.seen if (s.runtime, s.predicted, s.observed) == key]
        names = listed([named(analysis, s.runtime, s.condition) for s in alike])
        parts = (
            ("observed", alike[0].observed),
            ("observed, not predicted", alike[0].unpredicted),
            ("observed, of kinds without a prediction", alike[0].beside),
            ("predicted, not seen", alike[0].unseen),
            ("predicted", () if alike[0].observed else alike[0].predicted),
        )
        rows = [[title, listed(paths, 100)] for title, paths in parts if paths]
        if rows:
            listing = table(["", sentence("")], rows)
            made.append(Fold(f"{names}: the paths", listing, page_alone=True))
    return made


def settings(analysis: Analysis) -> Section | None:
    """What each process says is in effect, beside what was asked for."""
    if not analysis.seen:
        return None
    wrong: list[Cells] = [
        [named(analysis, s.runtime, s.condition), name, asked, Word(effective, "bad")]
        for s in analysis.seen
        for name, (asked, effective) in s.differs.items()
    ]
    titles: list[Title] = ["condition", "setting", sentence("asked for"), sentence("in effect")]
    same = (
        [] if wrong else [Paragraph("No setting in effect is known to differ from what was asked.")]
    )
    folds = [_effective(analysis, s) for s in analysis.seen if s.effective or s.capability]
    return Section("Settings in effect", [*same, *table(titles, wrong), *folds])


def _effective(analysis: Analysis, seen: Seen) -> Fold:
    told: Mapping[str, Any] = {**seen.capability, **seen.effective}
    rows = [[name, plain(setting)] for name, setting in told.items()]
    if seen.layers_offloaded is not None:
        rows.append(["layers offloaded", str(seen.layers_offloaded)])
    title = f"{named(analysis, seen.runtime, seen.condition)}: as it says of itself"
    return Fold(title, table(["setting", sentence("value")], rows), page_alone=True)
