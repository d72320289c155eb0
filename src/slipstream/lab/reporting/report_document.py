"""What a report consists of, whatever it is written in: sections of paragraphs, tables, charts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

Tone = Literal["", "good", "bad", "open", "quiet"]
Kind = Literal["text", "number", "figure", "names", "long"]
"""Of a column: a name, a number, one with its spread, several names or a sentence; the last three
may break."""

MOST_ROWS: Final = 400
"""Of a table; hostile or huge records make no page that no browser opens. JSON has them all."""


@dataclass(frozen=True)
class Word:
    """A cell of a table that is set apart; ``note`` is shown on hover."""

    text: str
    tone: Tone = ""
    note: str = ""


@dataclass(frozen=True)
class Column:
    title: str
    kind: Kind = "text"


Title = str | Column
"""A text is the title of a column of names."""
Entry = str | Word | tuple[Word, ...]
"""A cell: plain, set apart, or several that are."""
Cells = list[Entry]


@dataclass(frozen=True)
class Paragraph:
    text: str
    tone: Tone = ""


@dataclass(frozen=True)
class Bullets:
    items: Sequence[str]


@dataclass(frozen=True)
class Table:
    """``cards``: on a phone each row is a card of its own, its cells below one another."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Entry]]
    cards: bool = False


@dataclass(frozen=True)
class Charts:
    """SVG pictures side by side, each under its name.

    Attributes:
        legend: names of the series; ``keys`` the class of their colours (``s``, ``part``).
        caption: how to read them.
    """

    pictures: Sequence[tuple[str, str]]
    caption: str
    legend: Sequence[str] = ()
    keys: str = "s"


@dataclass(frozen=True)
class Fold:
    """Details that a reader opens; ``page_alone``: too long for Markdown that is pasted."""

    summary: str
    parts: Sequence[Part]
    page_alone: bool = False


@dataclass(frozen=True)
class Heading:
    text: str


Part = Paragraph | Bullets | Table | Charts | Fold | Heading


@dataclass(frozen=True)
class Section:
    title: str
    parts: Sequence[Part]

    @property
    def anchor(self) -> str:
        return "-".join("".join(c if c.isalnum() else " " for c in self.title.lower()).split())


@dataclass(frozen=True)
class Document:
    """
    Attributes:
        title: the run's question.
        identity: run, digest and date, in header and footer.
        lead: what stands before the sections.
        whole: the files that hold all of it, where another one is cut short.
    """

    title: str
    identity: str
    lead: Sequence[Part]
    sections: Sequence[Section]
    whole: str = "report.html and report.json"


def shortened(text: str, most: int = 400) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def listed(texts: Sequence[str], most: int = 12) -> str:
    """With commas, the last ones counted where they are many."""
    left = len(texts) - most
    return ", ".join(texts[:most]) + (f" and {left} more" if left > 0 else "")


def table(
    titles: Sequence[Title], rows: Sequence[Sequence[Entry]], *, cards: bool = False
) -> list[Part]:
    """A table of at most 400 rows, and how many are left out; nothing of no rows."""
    if not rows:
        return []
    columns = [t if isinstance(t, Column) else Column(t) for t in titles]
    made: list[Part] = [Table(columns, rows[:MOST_ROWS], cards)]
    if len(rows) > MOST_ROWS:
        made.append(Paragraph(f"{len(rows) - MOST_ROWS} more rows are in report.json."))
    return made


def number(title: str) -> Column:
    return Column(title, "number")


def spread(title: str) -> Column:
    return Column(title, "figure")


def names(title: str) -> Column:
    return Column(title, "names")


def sentence(title: str) -> Column:
    return Column(title, "long")
