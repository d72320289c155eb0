"""A comparison of two builds as one page, HTML or Markdown: digests first, then what they do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from slipstream.lab.comparing.compare_boundary import label
from slipstream.lab.comparing.compare_data import (
    Change,
    ComparisonResult,
    HelpDifference,
    Role,
    Series,
)
from slipstream.lab.comparing.compare_words import (
    ENDED,
    HEADER,
    NOTHING_ELSE,
    contrast_text,
    identity_rows,
    range_text,
    series_notes,
    series_row,
    statement_of,
    title,
)
from slipstream.lab.reporting.report_document import (
    Bullets,
    Charts,
    Column,
    Document,
    Entry,
    Fold,
    Heading,
    Kind,
    Paragraph,
    Part,
    Section,
    Table,
    Word,
    listed,
)
from slipstream.lab.reporting.report_page import page
from slipstream.lab.reporting.report_text import markdown
from slipstream.measure.charts import NARROW, Dot, intervals

MOST_ROWS: Final = 200
"""Of a table; the JSON file has them all."""
_ROLES: Final[tuple[Role, ...]] = ("one row", "few rows", "many rows")
_KINDS: Final[tuple[Kind, ...]] = ("text", "names", *("text",) * 4, "long")
_RATIO: Final = (
    "Time of B / time of A over pairs of neighbouring blocks with equal outputs: the median with "
    "its bootstrap interval. Left of 1, B takes less time."
)
_PATHS: Final = (
    "A prediction comes from a table of a build; only what a process of this binary showed under "
    "this condition is observed."
)


def comparison_page(made: ComparisonResult) -> str:
    """HTML that loads nothing; it regenerates byte for byte."""
    return page(document(made))


def comparison_text(made: ComparisonResult) -> str:
    """The same as Markdown."""
    return markdown(document(made))


def document(made: ComparisonResult) -> Document:
    """The page, whatever it is written in."""
    return Document(
        title=title(made),
        identity=f"{made.run}, manifest SHA-256 {made.manifest_sha256}",
        lead=[
            Paragraph(made.question),
            Paragraph(ENDED[made.ended], "bad" if made.ended == "boundary" else ""),
            Bullets([*made.scope, f"Machine: {made.machine}."]),
        ],
        sections=list(_sections(made)),
        whole="comparison.html and comparison.json",
    )


def _sections(made: ComparisonResult) -> Iterator[Section]:
    if made.boundary is not None:
        yield _boundary(made)
    yield Section("Who they are", _identities(made))
    yield Section("What they do", list(_deeds(made)))
    yield Section("What differs in how they are told and what they say", list(_differences(made)))
    rows = [
        (p.build, p.condition, listed(p.predicted) or "no prediction", listed(p.observed))
        for p in made.paths
    ]
    paths = _table(("build", "condition", "predicted", "observed"), rows)
    yield Section("Kernel paths", [Paragraph(_PATHS), *paths])
    if made.findings:
        yield Section("Findings", [Bullets(made.findings)])


def _boundary(made: ComparisonResult) -> Section:
    found = made.boundary
    assert found is not None
    parts: list[Part] = [
        Paragraph(found.text, "bad"),
        Paragraph(f"The run ended after {found.blocks} blocks. {NOTHING_ELSE}"),
        Heading("Established"),
        Bullets(found.established),
        Heading("Not established"),
        Bullets(found.open),
    ]
    return Section(f"DIAGNOSTIC BOUNDARY: {found.name}", parts)


def _identities(made: ComparisonResult) -> list[Part]:
    files = [f"{a.role}: {a.file}, SHA-256 {a.sha256}" for a in made.artifacts]
    return [*_table(("", "A", "B"), identity_rows(made.builds)), Bullets(files)]


def _deeds(made: ComparisonResult) -> Iterator[Part]:
    yield Paragraph(range_text(made))
    picture = _chart(made.series)
    if picture:
        yield Charts([("", picture)], _RATIO, _ROLES)
    else:
        yield Paragraph("No pair of blocks with equal outputs, so no ratio of times.", "open")
    rows: list[Sequence[Entry]] = [[*series_row(s)[:-1], _told(s)] for s in made.series]
    yield from _table(HEADER, rows, kinds=_KINDS, cards=True)
    if made.contrasts:
        yield Bullets([contrast_text(c) for c in made.contrasts])
    notes = [f"{label(s)}: {'; '.join(series_notes(s))}" for s in made.series]
    yield Fold("How each was measured", [Bullets(notes)])


def _told(s: Series) -> Word:
    """Less and more time are neither good nor bad: which build is wanted is not known here."""
    text = statement_of(s)
    return Word(text, "" if s.state in ("compared", "unfinished") else "open")


def _chart(series: Sequence[Series]) -> str:
    rows = []
    for stratum, slots in dict.fromkeys((s.stratum, s.slots) for s in series):
        ours = [s for s in series if (s.stratum, s.slots) == (stratum, slots)]
        dots = [dot for s in ours if (dot := _dot(s)) is not None]
        if dots:
            rows.append((f"{stratum}, {slots} slots" if slots > 1 else stratum, dots))
    if not rows:
        return ""
    return intervals(rows, reference=1.0, label="time of B / time of A", frame=NARROW)


def _dot(s: Series) -> Dot | None:
    if s.time is None:
        return None
    value, low, high = s.time.figure.median, s.time.low, s.time.high
    text = f"{label(s)}: {value:.3f}, {s.time.statement}"
    return Dot(_ROLES.index(s.role), value, low, high, text)


def _differences(made: ComparisonResult) -> Iterator[Part]:
    ran, texts = any(s.rows for s in made.series), made.help.unknown
    yield Heading("Flags that one of them has")
    yield _only(made.help)
    yield from _changes("Defaults, as their help texts tell them", made.help.defaults, texts)
    yield from _changes("Allowed values", made.help.values, texts)
    yield from _changes("Parameters left to the programs", made.left)
    yield from _changes("Settings in effect", made.settings, "" if ran else "nothing ran")


def _only(found: HelpDifference) -> Part:
    if found.unknown:
        return Paragraph(f"Not compared: {found.unknown}.", "open")
    pairs = (("A", found.only_a), ("B", found.only_b))
    return Bullets([f"{who} alone: {listed(names, MOST_ROWS) or 'none'}" for who, names in pairs])


def _changes(name: str, changes: Sequence[Change], unknown: str = "") -> Iterator[Part]:
    yield Heading(name)
    if unknown:
        yield Paragraph(f"Not compared: {unknown}.", "open")
    elif not changes:
        yield Paragraph("No difference.")
    else:
        yield from _table(("", "A", "B"), [_change(c) for c in changes])


def _change(c: Change) -> tuple[str, str, str]:
    name = f"{c.name} ({c.where})" if c.where else c.name
    return name, c.a or "not told", c.b or "not told"


def _table(
    titles: Sequence[str],
    rows: Sequence[Sequence[Entry]],
    *,
    kinds: Sequence[Kind] = (),
    cards: bool = False,
) -> list[Part]:
    columns = [
        Column(text, kinds[i] if kinds else "text" if i == 0 else "long")
        for i, text in enumerate(titles)
    ]
    made: list[Part] = [Table(columns, rows[:MOST_ROWS], cards)]
    if len(rows) > MOST_ROWS:
        made.append(Paragraph(f"{len(rows) - MOST_ROWS} more are in comparison.json."))
    return made
