"""From the lines of another set to prompts by category; what the importers share."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from slipstream.errors import RequestError
from slipstream.lab.importers.lines import bad_line, json_lines
from slipstream.measure.workload import WorkloadMessage, WorkloadPrompt, content_digest

IMPORTED: Final = "imported"
"""Kind of a category that is like none of the six strata."""
MOST_TOKENS: Final = 4096
"""Limit of a prompt that brings none; the plan's own is lower."""
_MOST_CATEGORIES: Final = 64
_MOST_QUESTIONS: Final = 100_000
_MOST_KEPT: Final = 64 << 20
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}")


@dataclass(frozen=True)
class Question:
    """One line, understood.

    Attributes:
        id: within its category.
        turns_left_out: later turns, whose prompts would hold answers of the model under test.
        keys: further keys of the prompt (judgement, checks, ...).
    """

    id: str
    category: str
    messages: tuple[WorkloadMessage, ...]
    kind: str = IMPORTED
    source: str = "unknown"
    licence: str = "unknown"
    max_tokens: int = MOST_TOKENS
    turns_left_out: int = 0
    keys: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Format:
    """A format of prompts.

    Attributes:
        name: as a plan writes it.
        parse: a line's object -> question; ValueError says what is wrong with it.
        prefixed: workloads are named ``name-category``, not ``category`` alone.
    """

    name: str
    parse: Callable[[Mapping[str, Any], Path], Question]
    prefixed: bool = True


@dataclass(frozen=True)
class Category:
    """The prompts kept of one category, and what was left out of it."""

    kind: str
    prompts: tuple[WorkloadPrompt, ...]
    note: str = ""


@dataclass(frozen=True)
class Imported:
    """Categories by the name of their workload, in the order of the file."""

    format: str
    file: str
    categories: Mapping[str, Category]


@dataclass
class _Kept:
    kind: str
    prompts: list[WorkloadPrompt] = field(default_factory=list)
    questions: int = 0
    cut_short: int = 0

    def category(self) -> Category:
        notes = []
        if len(self.prompts) < self.questions:
            notes.append(f"{len(self.prompts)} of {self.questions} questions")
        if self.cut_short:
            notes.append(f"later turns of {self.cut_short} questions left out")
        return Category(self.kind, tuple(self.prompts), "; ".join(notes))


def name_of(category: Any) -> str:
    """A category as part of names: lower case, spaces as underscores.

    Raises:
        ValueError: it is no text of letters, digits, ``.``, ``_`` and ``-``, at most 64.
    """
    name = category.strip().lower().replace(" ", "_") if isinstance(category, str) else ""
    if not _NAME.fullmatch(name):
        raise ValueError(f"`category` {repr(category)[:80]}, not of letters, digits, dots, dashes")
    return name


def first_turn(value: Mapping[str, Any]) -> tuple[WorkloadMessage, int]:
    """The message of ``turns[0]`` and how many follow it.

    Raises:
        ValueError: there are no turns, or one is no text.
    """
    turns = value.get("turns")
    if not isinstance(turns, list) or not turns or not all(isinstance(t, str) for t in turns):
        raise ValueError("`turns` that are no list of texts")
    return WorkloadMessage("user", turns[0]), len(turns) - 1


def question_id(value: Mapping[str, Any], key: str = "question_id") -> str:
    """
    Raises:
        ValueError: it is missing, or no number or name.
    """
    given = value.get(key)
    text = str(given) if isinstance(given, int | str) and not isinstance(given, bool) else ""
    if not _ID.fullmatch(text):
        raise ValueError(f"`{key}` {repr(given)[:80]}")
    return text


class Collector:
    """Reads a file and keeps the first prompts of each category.

    Attributes:
        seen: every category of the file.
    """

    def __init__(
        self, form: Format, path: Path, most: int, keep: frozenset[str], asked: frozenset[str]
    ) -> None:
        self._format, self._path = form, path
        self._most, self._keep, self._asked = most, keep, asked
        self._kept: dict[str, _Kept] = {}
        self._ids: set[str] = set()
        self._characters = 0
        self.seen: dict[str, None] = {}

    def read(self) -> Imported:
        for number, value in json_lines(self._path):
            try:
                self._add(self._format.parse(value, self._path))
            except ValueError as problem:
                expected = f"a question of the format {self._format.name}"
                raise bad_line(self._path, number, expected, str(problem)) from None
        categories = {self._workload(name): kept.category() for name, kept in self._kept.items()}
        if not self.seen:
            remedy = "Name another file."
            raise RequestError(f"a question in {self._path.name}", "an empty file", remedy)
        return Imported(self._format.name, self._path.name, categories)

    def _workload(self, category: str) -> str:
        return f"{self._format.name}-{category}" if self._format.prefixed else category

    def _add(self, question: Question) -> None:
        category = name_of(question.category)
        self.seen[category] = None
        name = f"{self._workload(category)}/{question.id}"
        if len(self.seen) > _MOST_CATEGORIES or len(self._ids) >= _MOST_QUESTIONS:
            raise ValueError(f"over {_MOST_CATEGORIES} categories or {_MOST_QUESTIONS} questions")
        if name in self._ids:
            raise ValueError(f"{name} for the second time")
        self._ids.add(name)
        if self._asked and category not in self._asked:
            return
        kept = self._kept.setdefault(category, _Kept(question.kind))
        kept.questions += 1
        if kept.kind != question.kind:
            raise ValueError(f"`kind` {question.kind} in a category of {kept.kind}")
        wanted = name in self._keep or question.keys.get("typical", False)
        if wanted or len(kept.prompts) < self._most:
            kept.cut_short += question.turns_left_out > 0
            kept.prompts.append(self._prompt(name, category, question))

    def _prompt(self, name: str, category: str, question: Question) -> WorkloadPrompt:
        texts = [message.content for message in question.messages]
        if not any(text.strip() for text in texts):
            raise ValueError("a prompt without text")
        self._characters += sum(map(len, texts))
        if self._characters > _MOST_KEPT:
            raise ValueError("over 64 Mi characters of prompts")
        return WorkloadPrompt(
            id=name,
            stratum=question.kind,
            messages=question.messages,
            max_tokens=question.max_tokens,
            source=question.source,
            licence=question.licence,
            sha256=content_digest(question.messages),
            task=category,
            **question.keys,
        )
