"""A report as Markdown, fit for an issue; the figures of a chart stand in the table below it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from slipstream.lab.reporting.report_document import (
    MOST_ROWS,
    Bullets,
    Charts,
    Document,
    Entry,
    Fold,
    Heading,
    Paragraph,
    Part,
    Section,
    Table,
    Word,
    listed,
    shortened,
)
from slipstream.measure.charts import visible

ISSUE_CHARACTERS: Final = 65_536
"""Most of an issue or a comment on GitHub."""
MOST_CHARACTERS: Final = 64_000
"""Of a report, so that whoever pastes it has room for a word of theirs."""
_MOST_NAMED: Final = 12
_MOST_TITLE: Final = 60
_NAMES: Final = 2 * _MOST_NAMED * _MOST_TITLE
"""Characters kept for the names of sections that are left out, escapes included."""
_MARKUP: Final = re.compile(r"([\\`*_{}\[\]#~|!])")
_CODE: Final = re.compile(r"`([^`|<>&\\]+)`")
_ADDRESS: Final = re.compile(r"https?://[^\s<>\"'`|]+")
_MARKS: Final = {"bad": "**", "open": "**", "good": "**"}


@dataclass(frozen=True)
class _Detail:
    """How much is written out.

    Attributes:
        folds: of so many sections, from the first, with what a reader would open.
        rows: most of a table.
        told: what was left out, in words; empty = nothing.
    """

    folds: int
    rows: int
    told: str


_EVERY: Final = 1 << 20
_DETAILS: Final = (
    _Detail(_EVERY, MOST_ROWS, ""),
    _Detail(1, MOST_ROWS, "what is folded, but for the first section"),
    _Detail(0, MOST_ROWS, "what is folded"),
    _Detail(0, 40, "what is folded, and rows beyond 40 of a table"),
    _Detail(0, 12, "what is folded, and rows beyond 12 of a table"),
    _Detail(0, 4, "what is folded, and rows beyond 4 of a table"),
)


def markdown(document: Document, most: int = MOST_CHARACTERS) -> str:
    """The report as GitHub's Markdown, as much of it as an issue takes.

    Whatever came from records, programs and files is escaped: it can be neither a table's border
    nor a link nor HTML.

    Args:
        most: characters; what is left out beyond is named at the top.
    """
    for detail in _DETAILS:
        sections = [
            _section(section, replace(detail, folds=detail.folds - number))
            for number, section in enumerate(document.sections)
        ]
        text = _written(document, detail, sections)
        if len(text) <= most:
            return text
    return _cut(document, _DETAILS[-1], most)


def _cut(document: Document, detail: _Detail, most: int) -> str:
    """With the sections that have room, in their order; the others are named."""

    def told(left: Sequence[str]) -> _Detail:
        return replace(detail, told=f"{detail.told}; the sections {listed(left, _MOST_NAMED)}")

    room = most - len(_written(document, detail, [])) - _NAMES
    kept: list[str] = []
    left: list[str] = []
    for section in document.sections:
        made = _section(section, detail)
        if len(made) < room:
            kept.append(made)
            room -= len(made) + 1
        else:
            left.append(shortened(section.title, _MOST_TITLE))
    return _written(document, told(left), kept)[:most]


def _written(document: Document, detail: _Detail, sections: Sequence[str]) -> str:
    lines = [f"# {inline(document.title)}", "", inline(document.identity), ""]
    if detail.told:
        text = f"Left out here, as an issue takes {ISSUE_CHARACTERS:,} characters: {detail.told}"
        lines += [f"_{inline(text)}. All of it is in {document.whole}._", ""]
    lines += [*_parts(document.lead, detail), *sections]
    lines += ["---", "", inline(document.identity)]
    return "\n".join(lines) + "\n"


def _section(section: Section, detail: _Detail) -> str:
    return "\n".join([f"## {inline(section.title)}", "", *_parts(section.parts, detail)])


def inline(text: str) -> str:
    """Escaped text on one line; what stands between backticks stays code."""
    made, end = [], 0
    line = visible(text)
    for code in _CODE.finditer(line):
        made += [_escaped(line[end : code.start()]), code[0]]
        end = code.end()
    return "".join([*made, _escaped(line[end:])])


def _escaped(text: str) -> str:
    plain = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _MARKUP.sub(r"\\\1", plain)


def _parts(parts: Iterable[Part], detail: _Detail) -> Iterator[str]:
    for part in parts:
        yield from _part(part, detail)
        yield ""


def _part(part: Part, detail: _Detail) -> Iterator[str]:
    match part:
        case Paragraph(text, tone):
            mark = _MARKS.get(tone, "")
            yield f"{mark}{inline(text)}{mark}"
        case Heading(text):
            yield f"### {inline(text)}"
        case Bullets(items):
            yield from (f"- {inline(item)}" for item in items)
        case Fold(summary, _, page_alone=True):
            yield f"_{inline(summary)}; see report.html or report.json._"
        case Fold(summary, _) if detail.folds < 1:
            yield f"_{inline(summary)}: left out here._"
        case Fold(summary, inner):
            yield f"<details><summary>{inline(summary)}</summary>"
            yield ""
            yield from _parts(inner, detail)
            yield "</details>"
        case Charts():
            yield f"_{inline(part.caption)}_"
        case Table():
            yield from _table(part, detail)


def _table(table: Table, detail: _Detail) -> Iterator[str]:
    yield _row([inline(column.title) for column in table.columns])
    right = ("number", "figure")
    yield _row(["---:" if column.kind in right else "---" for column in table.columns])
    yield from (_row([_cell(cell) for cell in row]) for row in table.rows[: detail.rows])
    if len(table.rows) > detail.rows:
        yield from ("", f"{len(table.rows) - detail.rows} more rows.")


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(cell: Entry) -> str:
    if isinstance(cell, tuple):
        return ", ".join(inline(word.text) for word in cell)
    word = cell if isinstance(cell, Word) else Word(cell)
    if _ADDRESS.fullmatch(word.text):
        return f"<{visible(word.text)}>"
    text = inline(word.text)
    return f"**{text}**" if word.tone in ("good", "bad") and len(word.text) > 1 else text
