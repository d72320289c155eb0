"""First token and tail, memory and energy, rows, noise: what a condition does to a server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from slipstream.lab.evidence.definitions import FEWEST_FOR_P95
from slipstream.lab.judging.cells import NONE
from slipstream.lab.reporting.analysis_data import Analysis, Cell
from slipstream.lab.reporting.report_document import (
    Cells,
    Entry,
    Heading,
    Paragraph,
    Part,
    Section,
    Title,
    Word,
    number,
    sentence,
    spread,
    table,
)
from slipstream.lab.reporting.report_words import (
    FIGURE,
    distinct,
    figure,
    interval,
    mebibytes,
    named,
    percent,
    place,
    several,
    value,
)

_MOST_ROWS: Final = 32
_MOST_UNPLACED: Final = 32


def latency(analysis: Analysis) -> Section | None:
    """Time to the first token, total time, rates, and their tails."""
    titles: list[Title] = ["workload", "condition"]
    titles += [spread("first token, s"), number("its p95"), spread("total, s"), number("its p95 ")]
    titles += [number("errors"), number("timeouts")]
    rates: list[Title] = ["workload", "condition", spread("decode rate, tok/s")]
    rates += [number("throughput, tok/s"), spread("queue, ms"), spread("output tokens")]
    rows: list[Cells] = []
    rate_rows: list[Cells] = []
    for c in analysis.cells:
        row: Cells = [place(c), named(analysis, c.runtime, c.condition)]
        times = [figure(c.ttft_s), value(c.ttft_p95_s), figure(c.total_s), value(c.total_p95_s)]
        rows.append([*row, *times, _faults(c.errors), _faults(c.timeouts)])
        queue = figure(c.queue_s, 1e3) if c.queue_s else Word("not told", "quiet")
        rate = [figure(c.decode_tok_s), value(c.throughput_tok_s), queue, figure(c.output_tokens)]
        rate_rows.append([*row, *rate])
    note = (
        f"Figures are {FIGURE}. p95 of fewer than {FEWEST_FOR_P95} requests is not measurable. "
        "The decode rate does not count the first token; throughput is all tokens / all time."
    )
    errors = distinct(text for c in analysis.cells for text in c.error_texts)
    told = [Paragraph(f"Errors: {'; '.join(errors[:10])}.", "bad")] if errors else []
    made = [*table(titles, rows), *table(rates, rate_rows), Paragraph(note, "quiet"), *told]
    return Section("First token, total time and tail", made) if rows else None


def _faults(count: int) -> Entry:
    return Word(str(count), "bad") if count else "0"


def memory(analysis: Analysis) -> Section | None:
    """Peak memory and its addition over ``none``; energy where the machine tells it."""
    titles: list[Title] = ["workload", "condition"]
    titles += [number(t) for t in ("peak memory", "over none", "energy per token")]
    rows: list[Cells] = []
    for c in analysis.cells:
        added = "" if c.condition == NONE else mebibytes(c.memory_added_bytes, sign=True)
        energy: str | Word = Word("unknown", "quiet")
        if c.energy_per_token_j is not None:
            energy = f"{c.energy_per_token_j:.3g} J"
        peak = mebibytes(c.peak_rss_bytes)
        rows.append([place(c), named(analysis, c.runtime, c.condition), peak, added, energy])
    note = (
        "Highest resident memory of the runtime's processes. Energy source: "
        f"{analysis.hardware.energy_source}; it is never derived from time."
    )
    parts = [*table(titles, rows), Paragraph(note, "quiet")]
    return Section("Memory and energy", parts) if rows else None


def rows_per_step(analysis: Analysis) -> Section | None:
    """Mean rows of every cell beside the plan's range; the histogram where a runtime tells it."""
    cells = [c for c in analysis.cells if c.condition != NONE]
    if not cells:
        return None
    least, most = analysis.rules.rows_range
    asked = "any number of rows" if (least, most) == (0, 0) else f"{least} to {most or 'any'} rows"
    limits = {(m.runtime, m.condition): m.most_proposed for m in analysis.methods}
    rows: list[Cells] = []
    for c in cells:
        proposed = limits.get((c.runtime, c.condition), limits.get(("", c.condition), "unknown"))
        rows.append(
            [
                place(c),
                named(analysis, c.runtime, c.condition),
                value(c.rows_per_step, ".3g"),
                str(proposed),
            ]
        )
    titles: list[Title] = [
        "workload",
        "condition",
        number("rows per step, mean"),
        number("most drafted"),
    ]
    note = f"Drafted / steps + 1, a mean. The plan asks for {asked}; what lies outside is rejected."
    histograms = _histograms(analysis)
    return Section("Rows per step", [*table(titles, rows), Paragraph(note, "quiet"), *histograms])


def _histograms(analysis: Analysis) -> list[Part]:
    """What a runtime counts itself; of runs that did not keep blocks apart, told as that."""
    rows: list[Cells] = []
    for c in analysis.cells:
        if c.condition != NONE and c.step_rows is not None:
            told = _steps(c.step_rows.histogram) or "no step verified drafts"
            blocks = f"{c.step_rows.blocks} of {c.step_rows.of}"
            warm_up = "included" if c.step_rows.warm_up else "left out"
            rows.append([place(c), named(analysis, c.runtime, c.condition), blocks, warm_up, told])
    titles: list[Title] = ["workload", "condition", number("blocks"), "warm-up"]
    made = table([*titles, sentence("rows: steps")], rows)
    if not made and not any(s.unplaced_rows for s in analysis.seen):
        return []
    note = Paragraph(
        "Steps of the blocks that figures rest on, added up. With several slots a step has the "
        "rows of all requests in it, so it is not the mean above, and is counted once. 64 stands "
        "for 64 and more.",
        "quiet",
    )
    shown = [*made, note] if made else []
    return [Heading("As the runtime counts them"), *shown, *_unplaced(analysis)]


def _unplaced(analysis: Analysis) -> list[Part]:
    rows: list[Cells] = [
        [named(analysis, s.runtime, s.condition), _steps(histogram)]
        for s in analysis.seen
        for histogram in s.unplaced_rows[:_MOST_UNPLACED]
    ]
    note = (
        "Of one process each since its start, warm-up included; which blocks they belong to was "
        "not recorded, and equal ones only once, so they do not add up."
    )
    made = table(["condition", sentence("rows: steps")], rows)
    return [*made, Paragraph(note, "quiet")] if made else []


def _steps(histogram: Mapping[str, int]) -> str:
    return ", ".join(f"{rows}: {steps}" for rows, steps in list(histogram.items())[:_MOST_ROWS])


def noise(analysis: Analysis) -> Section | None:
    """Spread of a pair of blocks, and the pairs that the plan's margin needs."""
    cells = [c for c in analysis.cells if c.condition != NONE]
    if not cells:
        return None
    titles: list[Title] = ["workload", "condition"]
    titles += [number(t) for t in ("noise of a pair", "pairs", "pairs needed", "pairs to plan")]
    titles += [sentence("rests on")]
    rows = [[place(c), named(analysis, c.runtime, c.condition), *_noise_row(c)] for c in cells]
    note = (
        "How much two blocks of `none` differ here, and how many pairs of blocks therefore show "
        f"the plan's margin of {analysis.rules.margin:.1%} with a probability of 80 %. With fewer "
        "the time gate is not measurable; a new plan should ask for the last number."
    )
    return Section("Noise, and the pairs it needs", [Paragraph(note), *table(titles, rows)])


def _noise_row(cell: Cell) -> Cells:
    pairs = cell.speed.figure.n if cell.speed else 0
    needed = "unknown" if cell.pairs_needed is None else str(cell.pairs_needed)
    enough = cell.pairs_needed is not None and pairs >= cell.pairs_needed
    to_plan = "unknown" if cell.pairs_to_plan is None else str(cell.pairs_to_plan)
    marked = Word(str(pairs), "good" if enough else "open")
    source = cell.sigma_source or "fewer than four differences between blocks of none"
    return [percent(cell.sigma, 2), marked, needed, to_plan, source]


def side_by_side(analysis: Analysis) -> Section | None:
    """Two programs under the same conditions: figures of each by itself, nothing pooled."""
    if not several(analysis) or not analysis.cells:
        return None
    names = distinct(c.runtime for c in analysis.cells)
    titles: list[Title] = ["workload", "condition", "figure", *(spread(n) for n in names)]
    rows: list[Cells] = []
    for where, condition in distinct((place(c), c.condition) for c in analysis.cells):
        alike = [c for c in analysis.cells if (place(c), c.condition) == (where, condition)]
        own = {c.runtime: _compared(c) for c in alike}
        for title in distinct(t for figures in own.values() for t in figures):
            beside = [own[n][title] if n in own else Word("not run", "quiet") for n in names]
            rows.append([where, condition, title, *beside])
    note = (
        "Each program was measured by itself, beside its own `none`; builds are never pooled, and "
        "a difference between two columns is no verdict."
    )
    return Section("Programs side by side", [Paragraph(note), *table(titles, rows)])


def _compared(cell: Cell) -> dict[str, Entry]:
    drafts = {
        "speed-up [interval]": interval(cell.speed),
        "rows per step, mean": value(cell.rows_per_step, ".3g"),
        "acceptance": percent(cell.acceptance_rate),
    }
    return {
        f"total, s: {FIGURE}": figure(cell.total_s),
        f"decode rate, tok/s: {FIGURE}": figure(cell.decode_tok_s),
        **(drafts if cell.condition != NONE else {}),
    }
