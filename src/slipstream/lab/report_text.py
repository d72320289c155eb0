"""A report as Markdown, fit for an issue; the figures of a chart stand in the table below it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from slipstream.lab.report_document import (
    Bullets,
    Charts,
    Document,
    Entry,
    Fold,
    Heading,
    Paragraph,
    Part,
    Table,
    Word,
)
from slipstream.measure.charts import visible

_MARKUP: Final = re.compile(r"([\\`*_{}\[\]#~|!])")
_CODE: Final = re.compile(r"`([^`|<>&\\]+)`")
_ADDRESS: Final = re.compile(r"https?://[^\s<>\"'`|]+")
_MARKS: Final = {"bad": "**", "open": "**", "good": "**"}


def markdown(document: Document) -> str:
    """The report as GitHub's Markdown.

    Whatever came from records, programs and files is escaped: it can be neither a table's border
    nor a link nor HTML.
    """
    lines = [f"# {inline(document.title)}", "", inline(document.identity), ""]
    lines += _parts(document.lead)
    for section in document.sections:
        lines += [f"## {inline(section.title)}", "", *_parts(section.parts)]
    lines += ["---", "", inline(document.identity)]
    return "\n".join(lines) + "\n"


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


def _parts(parts: Iterable[Part]) -> Iterator[str]:
    for part in parts:
        yield from _part(part)
        yield ""


def _part(part: Part) -> Iterator[str]:
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
        case Fold(summary, inner):
            yield f"<details><summary>{inline(summary)}</summary>"
            yield ""
            yield from _parts(inner)
            yield "</details>"
        case Charts():
            yield f"_{inline(part.caption)}_"
        case Table():
            yield from _table(part)


def _table(table: Table) -> Iterator[str]:
    yield _row([inline(column.title) for column in table.columns])
    yield _row(["---:" if column.kind == "number" else "---" for column in table.columns])
    yield from (_row([_cell(cell) for cell in row]) for row in table.rows)


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
