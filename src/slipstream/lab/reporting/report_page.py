"""A report as one HTML page: no script, no request, light and dark, down to a phone's width."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from slipstream.lab.reporting.report_document import (
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
)
from slipstream.measure.charts import visible
from slipstream.measure.page_style import STYLE

_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_CODE: Final = re.compile(r"`([^`]+)`")
_ADDRESS: Final = re.compile(r"https?://[^\s<>\"'`|]+")
_TIED: Final = "\N{NO-BREAK SPACE}"
_LAB_STYLE: Final = """
:root { --good: #1a7f4b; --bad: #b3261e; --open: #8a5a00; }
@media (prefers-color-scheme: dark) {
  :root { --good: #4fbf86; --bad: #ff8a80; --open: #e3b341; } }
body { overflow-wrap: anywhere; max-width: 76rem; }
code { font: .92em ui-monospace, monospace; }
header p, footer { font-size: .85rem; }
footer { margin-top: 3rem; padding-top: .6rem; border-top: 1px solid var(--grid);
  color: var(--muted); }
nav { display: flex; flex-wrap: wrap; gap: .1rem 1rem; font-size: .9rem; margin: 1rem 0; }
a { color: inherit; text-underline-offset: .15em; }
h4 { font-size: .9rem; margin: .8rem 0 0; }
ul { padding-left: 1.2rem; max-width: 45rem; } li { margin: .2rem 0; }
.good { color: var(--good); } .bad { color: var(--bad); } .open { color: var(--open); }
.quiet { color: var(--muted); } td.good, td.bad, td.open, p.bad, p.open { font-weight: 600; }
p.quiet { font-size: .9rem; }
td, th { vertical-align: top; padding-right: 1rem; }
th.text, td.text, th.long, td.long, th.names, td.names { text-align: left; }
td.names { white-space: normal; min-width: 7rem; max-width: 15rem; }
th { white-space: normal; overflow-wrap: normal; vertical-align: bottom; }
td.figure { white-space: normal; min-width: 9rem; max-width: 22rem; }
td.long { white-space: normal; min-width: 9rem; max-width: 30rem; }
.scroll { margin: .6rem 0; } .scroll:focus-visible { outline: 2px solid var(--muted); }
.chip { display: inline-block; margin-right: .7em; white-space: nowrap; }
.charts { display: grid; gap: .6rem 1.5rem; align-items: start;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 22rem), 1fr)); }
details { margin: .4rem 0; } summary { cursor: pointer; }
details > :not(summary) { margin-left: .8rem; }
@media (max-width: 34rem) { body { margin: 1rem auto; }
  .scroll th, .scroll td.figure { white-space: nowrap; }
  .scroll th:first-child, .scroll td:first-child { position: sticky; left: 0;
    background: var(--surface); white-space: normal; min-width: 5rem; max-width: 8rem; }
  .cards thead { display: none; } .cards, .cards tbody, .cards tr { display: block; }
  .cards tr { border-bottom: 1px solid var(--grid); padding: .5rem 0; }
  .scroll .cards td { display: block; position: static; border: 0; max-width: none;
    min-width: 0; padding: .05rem 0; text-align: left; white-space: normal; }
  .cards td::before { content: attr(data-title); color: var(--muted); font-weight: 400;
    margin-right: .5em; }
  .cards td:first-child { font-weight: 600; } .cards td:empty { display: none; } }
@media print { nav { display: none; } .scroll { overflow: visible; } }
"""


def page(document: Document) -> str:
    """The report as HTML.

    Whatever came from records, programs and files is escaped; nothing of it becomes markup.
    """
    title, identity = inline(document.title), inline(document.identity)
    links = "".join(
        f'<a href="#{escape(s.anchor)}">{inline(s.title)}</a>\n' for s in document.sections
    )
    sections = "\n".join(_section(section) for section in document.sections)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{escape(visible(document.title))}</title>
<meta http-equiv="Content-Security-Policy" content="{escape(_POLICY)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<style>{STYLE}{_LAB_STYLE}</style></head><body>
<header><h1>{title}</h1>
<p>{identity}</p></header>
{_parts(document.lead)}
<nav aria-label="Sections">
{links}</nav>
<main>
{sections}
</main>
<footer>{identity}</footer>
</body></html>
"""


def inline(text: str) -> str:
    """Escaped text; what stands between backticks is set apart."""
    return _CODE.sub(r"<code>\1</code>", escape(visible(text)))


def _section(section: Section) -> str:
    head = f'<section id="{escape(section.anchor)}"><h2>{inline(section.title)}</h2>'
    return f"{head}\n{_parts(section.parts)}\n</section>"


def _parts(parts: Iterable[Part]) -> str:
    return "\n".join(_part(part) for part in parts)


def _part(part: Part) -> str:
    match part:
        case Paragraph(text, tone):
            kind = f' class="{tone}"' if tone else ""
            return f"<p{kind}>{inline(text)}</p>"
        case Heading(text):
            return f"<h3>{inline(text)}</h3>"
        case Bullets(items):
            return f"<ul>{''.join(f'<li>{inline(item)}</li>' for item in items)}</ul>"
        case Fold(summary, inner):
            return f"<details><summary>{inline(summary)}</summary>\n{_parts(inner)}\n</details>"
        case Charts():
            return _charts(part)
        case Table():
            return _table(part)


def _charts(charts: Charts) -> str:
    keys = "".join(
        f'<span><i class="key {charts.keys}{i}"></i>{inline(name)}</span>'
        for i, name in enumerate(charts.legend)
    )
    legend = f'<div class="legend">{keys}</div>\n' if keys else ""
    pictures = "\n".join(
        f"<div>{f'<h4>{inline(name)}</h4>' if name else ''}{picture}</div>"
        for name, picture in charts.pictures
    )
    caption = f"<figcaption>{inline(charts.caption)}</figcaption>"
    return f'{legend}<figure><div class="charts">\n{pictures}\n</div>{caption}</figure>'


def _table(table: Table) -> str:
    cells = [f'<th scope="col" class="{c.kind}">{inline(c.title)}</th>' for c in table.columns]
    head = f"<thead><tr>{''.join(cells)}</tr></thead>\n" if any(_titles(table)) else ""
    body = "\n".join(f"<tr>{_row(table, row)}</tr>" for row in table.rows)
    opened = '<div class="scroll" tabindex="0" role="region" aria-label="table">'
    cards = ' class="cards"' if table.cards else ""
    return f"{opened}<table{cards}>{head}<tbody>{body}</tbody></table></div>"


def _titles(table: Table) -> list[str]:
    return [column.title for column in table.columns]


def _row(table: Table, row: Sequence[Entry]) -> str:
    """Cells; of a table that turns into cards each with its title."""
    made = []
    for column, cell in zip(table.columns, row, strict=True):
        title = f' data-title="{escape(visible(column.title))}"' if table.cards else ""
        made.append(_cell(column.kind, cell, title))
    return "".join(made)


def _cell(kind: str, cell: Entry, title: str) -> str:
    if isinstance(cell, tuple):
        chips = "".join(_chip(word) for word in cell)
        return f'<td class="{kind}"{title}>{chips}</td>'
    word = cell if isinstance(cell, Word) else Word(cell)
    classes = f"{kind} {word.tone}".strip()
    text = _linked(word.text)
    held = _held(text) if kind == "figure" else text
    return f'<td class="{classes}"{title}{_note(word)}>{held}</td>'


def _held(figure: str) -> str:
    """A figure that breaks between quartiles and extremes alone, if it must."""
    head, mark, rest = figure.partition("; ")
    return f"{head.replace(' ', _TIED)}{mark}{rest.replace(' ', _TIED)}"


def _chip(word: Word) -> str:
    return f'<span class="chip {word.tone}"{_note(word)}>{inline(word.text)}</span>\n'


def _note(word: Word) -> str:
    return f' title="{escape(visible(word.note))}"' if word.note else ""


def _linked(text: str) -> str:
    """A cell that is an address and nothing else can be followed."""
    if not _ADDRESS.fullmatch(text):
        return inline(text)
    return f'<a href="{escape(text)}" rel="noreferrer">{escape(visible(text))}</a>'
