"""The named checks of a rubric: what a program can see of an answer, no model's opinion.

A check is written ``name`` or ``name:argument``; arguments that are lists are separated by ``|``,
bounds by ``:``. Every check has three results: passed, failed, or None, where the text was cut off
by its limit before that could be told. So a limit never turns into a failure, nor into a pass.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from slipstream.errors import RequestError
from slipstream.lab.tasks.copied_lines import answer_lines, distance, opened, source_lines
from slipstream.lab.tasks.json_answers import NotJsonError, json_value, tool_calls
from slipstream.measure.degenerate import degenerate_reason

_WORD: Final = re.compile(r"\w+(?:['\u2019]\w+)*")
# Runs are matched possessively and from their first character only, so that time stays linear.
_SENTENCE_END: Final = re.compile(r"(?<![.!?…])[.!?…]++[\"'\u201d\u2019)\]*_]*+(?=\s|$)")
_ITEM: Final = re.compile(r"^[ \t]*+(?:[-*•+]|\d{1,3}[.)])[ \t]++\S", re.MULTILINE)
_NUMBER: Final = re.compile(r"-?\d+(?:,\d{3})*(?:\.\d+)?")
_FENCE_START: Final = re.compile(r"^[ \t]*+```[ \t]*+([\w+#.-]*+)", re.MULTILINE)


@dataclass(frozen=True)
class Answer:
    """An output and what it answers.

    Attributes:
        text: of the output.
        source: the last message of the user.
        whole: it ended by itself and not by a limit.
    """

    text: str
    source: str
    whole: bool

    @property
    def settled(self) -> str:
        """The text without the word that a limit may have cut."""
        if self.whole or not self.text or self.text[-1].isspace():
            return self.text
        return self.text[: len(self.text) - len(self.text.split()[-1])]


Result = bool | None
Test = Callable[[Answer], Result]
Maker = Callable[[str], Test]
"""From an argument to a test; ValueError where the argument is none for it."""


def _came(found: bool, answer: Answer) -> Result:
    """Of something that must come: once there it stays, and a cut text might still bring it."""
    return True if found else (False if answer.whole else None)


def _stayed_away(found: bool, answer: Answer) -> Result:
    return False if found else (True if answer.whole else None)


def _counted(count: Callable[[Answer], int]) -> Maker:
    """Of a number that only grows with the text, within bounds ``LOW:HIGH``."""

    def maker(argument: str) -> Test:
        low, high = (int(part) for part in argument.split(":"))
        if not 0 <= low <= high:
            raise ValueError("bounds that hold nothing")

        def test(answer: Answer) -> Result:
            number = count(answer)
            if number > high:
                return False
            return number >= low if answer.whole else None

        return test

    return maker


def _alone(test: Test) -> Maker:
    def maker(argument: str) -> Test:
        if argument:
            raise ValueError("an argument where there is none")
        return test

    return maker


def _listed(argument: str) -> list[str]:
    names = [name.strip() for name in argument.split("|")]
    if not all(names):
        raise ValueError("an empty name")
    return names


def _found(answer: Answer, phrases: Iterable[str]) -> list[bool]:
    """Of each phrase whether it occurs: whole words, any case."""
    text = answer.settled
    patterns = (rf"(?<!\w){re.escape(phrase)}(?!\w)" for phrase in phrases)
    return [re.search(pattern, text, re.IGNORECASE) is not None for pattern in patterns]


def _mentions(argument: str) -> Test:
    names = _listed(argument)
    return lambda answer: _came(any(_found(answer, names)), answer)


def _mentions_all(argument: str) -> Test:
    names = _listed(argument)
    return lambda answer: _came(all(_found(answer, names)), answer)


def _avoids(argument: str) -> Test:
    names = _listed(argument)
    return lambda answer: _stayed_away(any(_found(answer, names)), answer)


def _has_code_block(language: str) -> Test:
    def test(answer: Answer) -> Result:
        found = _FENCE_START.findall(answer.settled)
        return _came(any(not language or name.lower() == language for name in found), answer)

    return test


def _sentences(answer: Answer) -> int:
    ends = [match.end() for match in _SENTENCE_END.finditer(answer.settled)]
    rest = answer.text[ends[-1] if ends else 0 :]
    return len(ends) + (answer.whole and _WORD.search(rest) is not None)


def _not_degenerate(answer: Answer) -> Result:
    numbers: dict[str, int] = {}
    words = [numbers.setdefault(word, len(numbers)) for word in _WORD.findall(answer.text)]
    return degenerate_reason(answer.text, words) is None


def _last_number(argument: str) -> Test:
    wanted = float(argument)

    def test(answer: Answer) -> Result:
        found = _NUMBER.findall(answer.text)
        right = bool(found) and float(found[-1].replace(",", "")) == wanted
        return right if answer.whole else None

    return test


def _lines(answer: Answer) -> int:
    return sum(1 for line in answer.text.splitlines() if line.strip())


def _table_rows(answer: Answer) -> int:
    """Rows of Markdown tables, without the line of dashes."""
    lines = [line.strip() for line in answer.text.splitlines()]
    rows = [line for line in lines if line.startswith("|") and line.count("|") > 1]
    return sum(not re.fullmatch(r"[|:\-\s]+", line) for line in rows)


def _json(wanted: Callable[[Any], bool]) -> Test:
    """Of an answer that must be JSON; part of JSON tells nothing."""

    def test(answer: Answer) -> Result:
        if not answer.whole:
            return None
        try:
            return wanted(json_value(answer.text))
        except NotJsonError:
            return False

    return test


def _rows_of(value: Any) -> list[Any] | None:
    """An array, or the only array of an object."""
    if isinstance(value, dict):
        arrays = [part for part in value.values() if isinstance(part, list)]
        return arrays[0] if len(arrays) == 1 else None
    return value if isinstance(value, list) else None


def _json_items(argument: str) -> Test:
    number = int(argument)
    return _json(lambda value: len(_rows_of(value) or ()) == number)


def _json_keys(argument: str) -> Test:
    keys = set(_listed(argument))

    def wanted(value: Any) -> bool:
        rows = _rows_of(value)
        each = [value] if rows is None else rows
        return bool(each) and all(isinstance(row, dict) and row.keys() == keys for row in each)

    return _json(wanted)


def _calls(argument: str) -> Test:
    def test(answer: Answer) -> Result:
        if not answer.whole:
            return None
        try:
            return [call.name for call in tool_calls(answer.text)] == [argument]
        except NotJsonError:
            return False

    return test


def _lines_equal_except(argument: str) -> Test:
    most = int(argument)
    if not 0 <= most <= 64:
        raise ValueError("not from 0 to 64")

    def test(answer: Answer) -> Result:
        source, given = source_lines(answer.source), answer_lines(answer.text)
        if answer.whole:
            return distance(source, given, most) <= most
        # Before its fence a text says nothing of what is in it; its last line may be cut.
        fits = distance(source, given[:-1], most, prefix=True) <= most
        return None if fits or not opened(answer.text) else False

    return test


def _equals_source_with(argument: str) -> Test:
    old, separator, new = argument.partition("=>")
    if not old or not separator:
        raise ValueError("no OLD=>NEW")

    def test(answer: Answer) -> Result:
        given = answer_lines(answer.text)
        wanted = [line.replace(old, new) for line in source_lines(answer.source)]
        if answer.whole:
            return given == wanted
        fits = given[:-1] == wanted[: max(len(given) - 1, 0)]
        return None if fits or not opened(answer.text) else False

    return test


def _quotes_lines_with(argument: str) -> Test:
    if not argument:
        raise ValueError("no word")

    def test(answer: Answer) -> Result:
        # The last line is the request and may name the word itself.
        lines = [line.strip() for line in answer.source.splitlines()[:-1]]
        wanted = [line for line in lines if argument in line]
        return _came(bool(wanted) and all(line in answer.text for line in wanted), answer)

    return test


CHECKS: Final[Mapping[str, Maker]] = {
    "not_degenerate": _alone(_not_degenerate),
    "has_code_block": _has_code_block,
    "mentions": _mentions,
    "mentions_all": _mentions_all,
    "avoids": _avoids,
    "sentences_between": _counted(_sentences),
    "words_between": _counted(lambda answer: len(_WORD.findall(answer.text))),
    "lines_between": _counted(_lines),
    "items_between": _counted(lambda answer: len(_ITEM.findall(answer.text))),
    "table_rows_between": _counted(_table_rows),
    "last_number": _last_number,
    "valid_json": _alone(_json(lambda _: True)),
    "json_items": _json_items,
    "json_keys": _json_keys,
    "calls": _calls,
    "lines_equal_except": _lines_equal_except,
    "equals_source_with": _equals_source_with,
    "quotes_lines_with": _quotes_lines_with,
}


@lru_cache(maxsize=1024)
def parse_check(check: str) -> Test:
    """The test that a check names.

    Raises:
        RequestError: there is no check of this name, or its argument is none for it.
    """
    name, _, argument = check.partition(":")
    if name not in CHECKS:
        near = difflib.get_close_matches(name[:64], CHECKS, 1, 0.0)[0]
        raise RequestError("a check of the rubric", f"`{name[:64]}`", f"Did you mean `{near}`?")
    try:
        return CHECKS[name](argument)
    except ValueError as problem:
        told = f"`{check[:128]}` ({problem})"
        remedy = "See docs/lab-workloads.md for its argument."
        raise RequestError(f"an argument of `{name}`", told, remedy) from None
