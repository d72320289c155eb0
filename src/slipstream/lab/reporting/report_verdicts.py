"""The report's first part: what was decided, by which gates, and what was noticed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final

from slipstream.lab.judging.gate_result import GateResult
from slipstream.lab.judging.measured import NOTHING
from slipstream.lab.judging.verdict import Verdict
from slipstream.lab.reporting.analysis_data import Analysis, Finding
from slipstream.lab.reporting.report_document import (
    Bullets,
    Cells,
    Entry,
    Fold,
    Heading,
    Paragraph,
    Part,
    Section,
    Title,
    Tone,
    Word,
    listed,
    names,
    number,
    sentence,
    shortened,
    table,
)
from slipstream.lab.reporting.report_words import (
    TONES,
    duration,
    interval,
    load,
    named,
    prompts,
    several,
)

_SHOWN_REASONS: Final = 2
_MOST_REASON: Final = 90
_WHY_LAST: Final = ("output",)
"""Gates whose evidence ends with why it does not suffice; that of others begins with it."""
_GATE: Final[dict[bool | None, tuple[str, Tone, str]]] = {
    True: ("✓", "good", "passed"),
    False: ("✗", "bad", "failed"),
    None: ("?", "open", "not measurable"),
}
_HOW: Final = (
    "`adopt` needs every gate to pass; one that failed is `reject`; one that is not measurable "
    "without a failure is `inconclusive`; what has no block is `not run`. Everything that is not "
    "adopted stays with `none`."
)
_EFFECTS: Final = {
    "reject": "rejects",
    "inconclusive": "leaves open",
    "not run": "not run",
    "note": "to know",
}


def scope(analysis: Analysis) -> list[Part]:
    """What the report holds for, and how far the run came."""
    return [
        *_state(analysis),
        *_measured(analysis),
        *_builds(analysis),
        Bullets(analysis.scope),
    ]


def _measured(analysis: Analysis) -> list[Part]:
    """What has a figure, where something has none, and what a busy machine cost."""
    made = analysis.progress
    if made.state == "not executed":
        return []
    parts: list[Part] = []
    if not made.measured:
        parts.append(Paragraph(f"{NOTHING.capitalize()}: no condition has a figure.", "bad"))
    if len(made.told) > 1:
        parts.append(Bullets(made.told))
    if lost := made.disturbance.text():
        advice = made.disturbance.advice(analysis.rules.drift_limit)
        text = f"{lost[0].upper()}{lost[1:]}."
        parts.append(Paragraph(f"{text} {advice}" if made.disturbance.many else text, "open"))
    return parts


def _builds(analysis: Analysis) -> list[Part]:
    if not analysis.builds:
        return []
    names = " and ".join(f"`{name}`" for name in analysis.builds)
    told = f"The plan compares the builds {names}. Here each stands beside its own `none`; what"
    return [Paragraph(f"{told} holds between the two is told by `slipstream lab compare`.")]


def _state(analysis: Analysis) -> list[Part]:
    made = analysis.progress
    if made.state == "complete":
        text = f"The run is complete: {made.ended} blocks, {duration(made.elapsed_s)} of blocks"
        locked = f"; the ladder did not run {made.locked}" if made.locked else ""
        return [Paragraph(f"{text}{locked}.")]
    if made.state == "not executed":
        text = (
            "This plan was not executed: nothing here was measured. It asks for "
            f"{made.blocks} blocks with up to {made.requests} requests"
        )
        locked = f"; {made.locked} of the blocks are known not to run" if made.locked else ""
        return [Paragraph(f"{text}{locked}.", "open")]
    missing = f"{made.ended} blocks ended, {made.left} are missing"
    aborted = f" Requests of blocks without an end, counted for nothing: {made.aborted}."
    text = f"The run was {made.state}: {made.reason}. {missing}.{aborted if made.aborted else ''}"
    return [Paragraph(text, "bad" if made.state == "stopped" else "open")]


def verdicts(analysis: Analysis) -> Section:
    """One table for latency of one stream, one for each concurrency."""
    parts: list[Part] = [Paragraph(_HOW)]
    for slots in sorted({v.slots for v in analysis.verdicts}):
        own = [v for v in analysis.verdicts if v.slots == slots]
        head, gain = _judged(analysis, slots)
        parts += [Heading(head), *_verdict_table(analysis, own, gain)]
    if not analysis.verdicts:
        parts.append(Paragraph("The plan has no condition beside `none`: nothing is judged."))
    return Section("Verdicts", [*parts, *_gates(analysis)])


def _judged(analysis: Analysis, slots: int) -> tuple[str, str]:
    """(what a table judges, its ratio over ``none``)."""
    if slots == 1:
        return "Latency of one stream", "speed-up"
    if analysis.arrivals.kind == "closed":
        return f"Throughput under load, {load(slots)}", "throughput ratio"
    return f"Total time under load, {load(slots)}", "speed-up"


def _verdict_table(analysis: Analysis, verdicts: Sequence[Verdict], gain: str) -> list[Part]:
    titles: list[Title] = ["workload", names("condition"), "verdict"]
    titles += [number(f"{gain} [interval]"), names("gates"), sentence("why")]
    rows = [_verdict_row(analysis, group) for group in _grouped(verdicts)]
    return table(titles, rows, cards=True)


def _grouped(verdicts: Iterable[Verdict]) -> list[list[Verdict]]:
    """Each by itself; those of a workload that were not run for the same reason together."""

    def key(verdict: Verdict) -> tuple[object, ...]:
        alone = verdict.word != "not run"
        extra = (verdict.runtime, verdict.condition) if alone else verdict.reasons
        return (verdict.stratum, alone, *extra)

    return [list(group) for _, group in groupby(verdicts, key)]


def _verdict_row(analysis: Analysis, group: Sequence[Verdict]) -> Cells:
    first = group[0]
    conditions = [named(analysis, v.runtime, v.condition) for v in group]
    gain = "" if first.word == "not run" else _gain(analysis, first)
    word = Word(first.word, TONES[first.word])
    gates = tuple(_mark(gate) for gate in first.gates) or ""
    return [first.stratum, listed(conditions, 6), word, gain, gates, why_of(first)]


def _gain(analysis: Analysis, verdict: Verdict) -> Entry:
    wanted = (verdict.runtime, verdict.condition, verdict.stratum, verdict.slots, "greedy")
    own = [
        c for c in analysis.cells if (c.runtime, c.condition, c.stratum, c.slots, c.stage) == wanted
    ]
    return interval(own[0].speed if own else None)


def _mark(gate: GateResult) -> Word:
    sign, tone, word = _GATE[gate.passed]
    return Word(f"{sign} {gate.name}", tone, f"{gate.name} {word}: {gate.observed}")


def why_of(verdict: Verdict) -> str:
    """What decided, as a cell of a table holds it."""
    shown = [_brief(verdict, reason) for reason in verdict.reasons[:_SHOWN_REASONS]]
    left = len(verdict.reasons) - len(shown)
    return "; ".join(shown) + (f"; {left} more below" if left > 0 else "")


def _brief(verdict: Verdict, reason: str) -> str:
    """What decides of a reason; the gain has a column of its own, and the whole stands below."""
    decisive = reason.partition("; ")[0]
    for gate in verdict.gates:
        if reason.startswith(head := f"{gate.name} not measurable: "):
            parts = (gate.evidence or gate.observed).split("; ")
            decisive = head + parts[-1 if gate.name in _WHY_LAST else 0]
    return shortened(decisive, _MOST_REASON)


def _gates(analysis: Analysis) -> list[Part]:
    judged = [v for v in analysis.verdicts if v.gates]
    return [Heading("Gates, one by one"), *(_fold(analysis, v) for v in judged)] if judged else []


def _fold(analysis: Analysis, verdict: Verdict) -> Fold:
    condition = named(analysis, verdict.runtime, verdict.condition)
    summary = f"{verdict.stratum}, {condition}, {load(verdict.slots)}: {verdict.word}"
    rows: list[Cells] = []
    for gate in verdict.gates:
        _, tone, word = _GATE[gate.passed]
        rows.append([gate.name, Word(word, tone), gate.observed, gate.limit, gate.evidence])
    titles: list[Title] = [
        "gate",
        "result",
        sentence("observed"),
        sentence("limit"),
        sentence("evidence"),
    ]
    return Fold(summary, [Bullets(verdict.reasons), *table(titles, rows, cards=True)])


def findings(analysis: Analysis) -> Section:
    """What a reader must know beside the figures, by name; the same of several cells once."""
    groups: dict[tuple[str, str], list[Finding]] = {}
    for finding in analysis.findings:
        groups.setdefault((finding.name, finding.text), []).append(finding)
    rows: list[Cells] = [
        [name, _effect(own[0]), "; ".join(_reach(analysis, f) for f in own), shortened(text)]
        for (name, text), own in groups.items()
    ]
    titles: list[Title] = ["finding", "effect", sentence("where"), sentence("what")]
    none = [Paragraph("None.")] if not rows else []
    return Section("Findings", [*none, *table(titles, rows, cards=True)])


def _effect(finding: Finding) -> Word:
    tone: Tone = TONES.get(finding.effect, "quiet")
    return Word(_EFFECTS.get(finding.effect, finding.effect), tone)


def _reach(analysis: Analysis, finding: Finding) -> str:
    runtime = finding.runtime if several(analysis) else ""
    parts = [runtime, finding.condition, finding.stratum]
    parts += [load(finding.slots)] if finding.slots > 1 else []
    return ", ".join(part for part in parts if part) or "the whole run"


def workloads(analysis: Analysis) -> Section:
    """Each workload's question, and what the figures answer."""
    parts: list[Part] = []
    for workload in analysis.workloads:
        private = "" if workload.shared else "; imported texts, not shown"
        parts += [
            Heading(workload.name),
            Paragraph(workload.question),
            Bullets(workload.answers or ("Nothing was judged.",)),
            Paragraph(f"{prompts(workload)}{private}.", "quiet"),
        ]
    return Section("Workloads and their questions", parts)


def not_run(analysis: Analysis) -> Section | None:
    """Series that the ladder, the budget or the user kept from running, or from their end."""
    open_series = [s for s in analysis.series if s.state != "done"]
    rows: list[Cells] = []
    by_reason = sorted(
        enumerate(open_series), key=lambda pair: (pair[1].condition, pair[1].reason, pair[0])
    )
    for _, group in groupby(
        by_reason, lambda p: (p[1].runtime, p[1].condition, p[1].state, p[1].reason)
    ):
        own = [series for _, series in group]
        first = own[0]
        places = [s.stratum + (f", {load(s.slots)}" if s.slots > 1 else "") for s in own]
        where = "; ".join(dict.fromkeys(p or "no workload" for p in places))
        blocks = f"{sum(s.done for s in own)} of {sum(s.of for s in own)}"
        name = named(analysis, first.runtime, first.condition)
        rows.append([name, where, Word(first.state, "quiet"), blocks, first.reason])
    titles: list[Title] = [
        "condition",
        sentence("where"),
        "state",
        number("blocks"),
        sentence("reason"),
    ]
    made = table(titles, rows, cards=True)
    return Section("Not run, or not to the end", made) if rows else None
