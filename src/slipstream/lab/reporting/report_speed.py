"""Speed-up, acceptance, and where the time goes, with their charts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from slipstream.lab.evidence.noise import FEWEST_PAIRS
from slipstream.lab.judging.cells import NONE
from slipstream.lab.reporting.analysis_data import Analysis, Cell
from slipstream.lab.reporting.analysis_figures import DECODE, FIRST
from slipstream.lab.reporting.report_document import (
    Cells,
    Charts,
    Paragraph,
    Part,
    Section,
    Title,
    Word,
    number,
    spread,
    table,
)
from slipstream.lab.reporting.report_words import (
    FIGURE,
    counted,
    distinct,
    figure,
    interval,
    named,
    percent,
    place,
    several,
    value,
)
from slipstream.measure.charts import NARROW, Bar, Curve, Dot, curves, intervals, stacked
from slipstream.measure.plots import points

_MOST_SERIES: Final = 6
_MOST_SHOWN: Final = 12  # positions of a table
PHASES: Final = ("draft", "verify", "sample", "commit")
REST: Final = "other"


def drafting(analysis: Analysis) -> list[Cell]:
    return [c for c in analysis.cells if c.condition != NONE]


def runtimes(analysis: Analysis) -> Sequence[str]:
    return distinct(c.runtime for c in analysis.cells)


def speed_up(analysis: Analysis) -> Section | None:
    """A chart per workload, and the table behind it."""
    cells = drafting(analysis)
    if not cells:
        return None
    confidence = f"{analysis.rules.confidence:.0%}"
    caption = (
        f"Median over pairs of blocks, `none` / condition; the bar is its {confidence} bootstrap "
        f"interval over pairs; a hollow dot has none, being of fewer than {FEWEST_PAIRS} pairs. "
        "Above 1 is faster. Totals are compared only where outputs are equal."
    )
    pictures = [
        (name, _speed_chart(analysis, [c for c in cells if place(c) == name]))
        for name in distinct(place(c) for c in cells if c.speed)
    ]
    legend = runtimes(analysis) if several(analysis) else ()
    parts: list[Part] = [Charts(pictures, caption, legend)] if pictures else []
    return Section("Speed-up", [*parts, *_speed_table(analysis, cells)])


def _speed_chart(analysis: Analysis, cells: Sequence[Cell]) -> str:
    names = list(runtimes(analysis))
    rows = []
    for condition in distinct(c.condition for c in cells):
        dots = [
            Dot(
                names.index(c.runtime),
                c.speed.figure.median,
                c.speed.low,
                c.speed.high,
                f"{named(analysis, c.runtime, condition)}: {interval(c.speed)}",
            )
            for c in cells
            if c.condition == condition and c.speed
        ]
        if dots:
            rows.append((condition, dots))
    label = "times as fast as none"
    if all(c.speed_of == "throughput" for c in cells):
        label = "throughput, of that of none"
    return intervals(rows, reference=1.0, label=label, frame=NARROW)


def _speed_table(analysis: Analysis, cells: Sequence[Cell]) -> list[Part]:
    titles: list[Title] = ["workload", "condition", "of", number("median [interval]")]
    titles += [spread(FIGURE), *(number(t) for t in ("pairs +/-", "p", "equal outputs"))]
    rows: list[Cells] = []
    for c in cells:
        made = c.speed
        pairs = f"{made.figure.n} ({made.faster}/{made.slower})" if made else ""
        row = [place(c), named(analysis, c.runtime, c.condition), c.speed_of, interval(made)]
        row += [figure(made.figure if made else None), pairs, f"{made.p:.3g}" if made else ""]
        total = c.equal + c.diverged
        row += [f"{c.equal} of {total}" if total else "-"]
        rows.append(row)
    return [*table(titles, rows), *_unequal(analysis, cells)]


def _unequal(analysis: Analysis, cells: Iterable[Cell]) -> list[Part]:
    """Rates and lengths where outputs differ: total times of other outputs are not compared."""
    titles: list[Title] = ["workload", "condition", spread(f"rate ratio, {FIGURE}")]
    titles += [spread(f"length ratio, {FIGURE}")]
    rows: list[Cells] = [
        [
            place(c),
            named(analysis, c.runtime, c.condition),
            *("" if r is None else figure(r) for r in (c.rate_ratio, c.length_ratio)),
        ]
        for c in cells
        if c.rate_ratio or c.length_ratio
    ]
    note = "Ratios of rate and length, of the pairs whose outputs are not equal, and only those."
    return [Paragraph(note, "quiet"), *table(titles, rows)] if rows else []


def acceptance(analysis: Analysis) -> Section | None:
    """Acceptance beside the speed-up of every cell."""
    cells = drafting(analysis)
    if not cells:
        return None
    caption = (
        "A dot per workload and condition. A high share of accepted drafts is no gain by itself: "
        "what drafting and the extra rows cost decides."
    )
    known = [c for c in cells if c.speed and c.acceptance_rate is not None]
    groups = distinct(place(c) for c in known)
    parts: list[Part] = []
    if known:
        picture = points(
            [_dots(analysis, n, [c for c in known if place(c) == g]) for n, g in enumerate(groups)],
            x_label="accepted, of drafted",
            y_label="times as fast as none",
            x_range=(0.0, 1.0),
            reference=1.0,
        )
        parts.append(Charts([("", picture)], caption, groups))
    else:
        parts.append(Paragraph("Nothing was drafted and timed: acceptance is undefined."))
    return Section("Acceptance against speed-up", [*parts, *_drafting_table(analysis, cells)])


def _dots(analysis: Analysis, series: int, cells: Sequence[Cell]) -> Curve:
    return Curve(
        series,
        [
            (
                c.acceptance_rate,
                c.speed.figure.median,
                f"{place(c)}, {named(analysis, c.runtime, c.condition)}: "
                f"{c.acceptance_rate:.1%} accepted, {c.speed.figure.median:.3f}",
            )
            for c in cells
            if c.speed and c.acceptance_rate is not None
        ],
    )


def _drafting_table(analysis: Analysis, cells: Iterable[Cell]) -> list[Part]:
    titles: list[Title] = ["workload", "condition"]
    titles += [number(t) for t in ("drafted", "accepted", "steps", "acceptance")]
    titles += [number("accepted length"), number("rows per step (mean)")]
    titles += [number("tokens per pass"), number("step efficiency"), "counted by"]
    rows: list[Cells] = []
    for c in cells:
        row: Cells = [place(c), named(analysis, c.runtime, c.condition)]
        row += [counted(n) for n in (c.counts.drafted, c.counts.accepted, c.counts.steps)]
        undefined = Word("undefined", "quiet")
        row += [undefined if c.acceptance_rate is None else percent(c.acceptance_rate)]
        lengths = (c.mean_acceptance_length, c.rows_per_step, c.tokens_per_pass, c.step_efficiency)
        row += [value(n, ".3g") for n in lengths]
        rows.append([*row, c.counts.source])
    note = "Acceptance is undefined, not 0, where nothing was drafted."
    return [*table(titles, rows), Paragraph(note, "quiet")]


def positions(analysis: Analysis) -> Section | None:
    """Acceptance by position in the draft, the denominator named."""
    cells = [c for c in drafting(analysis) if c.positions]
    title = "Acceptance by position"
    if not cells:
        told = "No runtime told acceptance by position, or nothing was drafted."
        return Section(title, [Paragraph(told)]) if drafting(analysis) else None
    names = distinct(named(analysis, c.runtime, c.condition) for c in cells)
    shown = names[:_MOST_SERIES]
    pictures = []
    for where in distinct(place(c) for c in cells):
        own = [c for c in cells if place(c) == where]
        lines = [curve for c in own for curve in _curve(analysis, shown, c)]
        label = "position in the draft"
        chart = curves(lines, x_label=label, y_label="accepted", frame=NARROW)
        pictures.append((where, chart))
    caption = f"Of what is counted as the denominator: {'; '.join(_denominators(cells))}."
    if len(names) > len(shown):
        caption += f" {len(names) - len(shown)} more conditions are in the table."
    charts = Charts(pictures, caption, shown)
    return Section(title, [charts, *_position_table(analysis, cells)])


def _denominators(cells: Iterable[Cell]) -> Sequence[str]:
    return distinct(c.counts.denominator or "not named by the runtime" for c in cells)


def _curve(analysis: Analysis, shown: Sequence[str], cell: Cell) -> Iterator[Curve]:
    """In the colour of its condition; none of a condition beyond the colours."""
    name = named(analysis, cell.runtime, cell.condition)
    if name in shown:
        told = [
            (p.position, p.rate, f"{name}, position {p.position}: {p.accepted} of {p.reached}")
            for p in cell.positions
            if p.rate is not None and 0 <= p.rate <= 1
        ]
        yield Curve(shown.index(name), told)


def _position_table(analysis: Analysis, cells: Sequence[Cell]) -> list[Part]:
    most = min(max(len(c.positions) for c in cells), _MOST_SHOWN)
    titles: list[Title] = ["workload", "condition", "denominator"]
    titles += [number(str(i)) for i in range(1, most + 1)]
    rows: list[Cells] = []
    for c in cells:
        told = [f"{p.accepted}/{p.reached}" for p in c.positions[:most]]
        row: Cells = [place(c), named(analysis, c.runtime, c.condition)]
        rows.append([*row, c.counts.denominator or "unknown", *told, *[""] * (most - len(told))])
    longest = max(len(c.positions) for c in cells)
    more = [Paragraph(f"Positions up to {longest} are in report.json.", "quiet")]
    return [*table(titles, rows), *(more if longest > most else [])]


def where_time_goes(analysis: Analysis) -> Section | None:
    """By the client's clock for every runtime; by phases where a runtime tells them."""
    cells = [c for c in analysis.cells if c.clock and c.total_s]
    if not cells:
        return None
    parts: list[Part] = [
        Charts(
            _bars(analysis, cells, (FIRST, DECODE, REST), by_clock=True),
            "The median request by the client's clock, in seconds.",
            (FIRST, DECODE, REST),
            "part",
        )
    ]
    told = [c for c in cells if c.phases]
    if told:
        caption = "Phases as the runtime tells them, of the median request, in seconds. Other: the "
        caption += "prompt, the transport and what lies between the passes."
        shown = (*PHASES, REST)
        parts.append(Charts(_bars(analysis, told, shown, by_clock=False), caption, shown, "part"))
    else:
        parts.append(Paragraph("No runtime told what its phases take."))
    return Section("Where the time goes", [*parts, *_phase_table(analysis, cells)])


def _bars(
    analysis: Analysis, cells: Sequence[Cell], parts: Sequence[str], *, by_clock: bool
) -> list[tuple[str, str]]:
    """A chart per workload: a bar per condition, or a group of programs' bars for each."""
    made = []
    for where in distinct(place(c) for c in cells):
        groups: dict[str, list[Bar]] = {}
        for cell in (c for c in cells if place(c) == where):
            beside = several(analysis)
            bar = _bar(cell, cell.runtime if beside else cell.condition, parts, by_clock=by_clock)
            groups.setdefault(cell.condition if beside else "", []).append(bar)
        label = "seconds of the median request"
        made.append((where, stacked(list(groups.items()), label=label, frame=NARROW)))
    return made


def _bar(cell: Cell, name: str, parts: Sequence[str], *, by_clock: bool) -> Bar:
    told = cell.clock if by_clock else cell.phases
    whole = cell.total_s.median if cell.total_s else 0.0
    lengths = [max(whole * told.get(part, 0.0), 0.0) for part in parts[:-1]]
    lengths.append(max(whole - sum(lengths), 0.0))
    shown = ", ".join(f"{n} {v:.3g}" for n, v in zip(parts, lengths, strict=True))
    return Bar(name, lengths, f"{cell.condition}, {name}: {shown} s")


def _phase_table(analysis: Analysis, cells: Sequence[Cell]) -> list[Part]:
    names = (*PHASES, *sorted({n for c in cells for n in c.phases} - set(PHASES)))
    titles: list[Title] = ["workload", "condition"]
    titles += [number(n) for n in (FIRST, DECODE, *names)]
    rows: list[Cells] = []
    for c in cells:
        row: Cells = [place(c), named(analysis, c.runtime, c.condition)]
        row += [percent(c.clock.get(n)) for n in (FIRST, DECODE)]
        row += [percent(c.phases[n]) if n in c.phases else Word("not told", "quiet") for n in names]
        rows.append(row)
    return [*table(titles, rows), Paragraph("Shares of the total time.", "quiet")]
