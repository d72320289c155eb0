"""Named checks: each passes, fails, and says nothing where a limit cut the text too early."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.errors import RequestError
from slipstream.lab.tasks.copied_lines import answer_lines, distance, source_lines
from slipstream.lab.tasks.rubric import CHECKS, Answer, parse_check

CODE = "Rename `qty`. Output only the code.\n\n```python\na = qty\nb = 1\nc = qty + b\n```"
TABLE = "Copy this table.\n\n| part | shelf |\n|---|---|\n| bolt | A1 |"
LOG = "Lines.\n\n06:00 fine\n06:10 WARN hot\n06:20 WARN cold\n\nList every line with WARN."


def result(check: str, text: str, *, source: str = "", whole: bool = True) -> bool | None:
    return parse_check(check)(Answer(text, source, whole))


@pytest.mark.parametrize(
    ("check", "text", "passed"),
    [
        ("not_degenerate", "A plain answer of some words.", True),
        ("not_degenerate", " \n", False),
        ("not_degenerate", "over and " * 40, False),
        ("not_degenerate", "text <|im_start|>user", False),
        ("has_code_block", "so:\n```python\nx\n```", True),
        ("has_code_block", "so: ```x```", False),
        ("has_code_block:python", "```python\nx\n```", True),
        ("has_code_block:rust", "```python\nx\n```", False),
        ("mentions:riga", "To Riga, then.", True),
        ("mentions:Riga", "To Rigatoni.", False),
        ("mentions:Oslo|Riga", "To Riga.", True),
        ("mentions_all:Oslo|Riga", "To Riga.", False),
        ("mentions_all:Oslo|Riga", "From Oslo to Riga.", True),
        ("mentions:D4", "shelf D40", False),
        ("avoids:sorry", "Sorry, no.", False),
        ("avoids:sorry", "No.", True),
        ("sentences_between:2:3", "One. Two! And three", True),
        ("sentences_between:2:2", "One. Two! And three", False),
        ("sentences_between:1:1", 'He said "stop." ', True),
        ("sentences_between:1:1", "It costs 3.50 euros", True),
        ("words_between:3:3", "it's three words", True),
        ("words_between:4:9", "it's three words", False),
        ("lines_between:2:2", "a\n\nb\n", True),
        ("items_between:3:3", "- a\n2. b\n   * c\nd", True),
        ("items_between:1:2", "- a\n2. b\n* c", False),
        ("table_rows_between:2:2", "| a | b |\n|---|---|\n| 1 | 2 |", True),
        ("last_number:1200", "From 3 to 1,200 litres.", True),
        ("last_number:3", "From 3 to 1,200 litres.", False),
        ("last_number:9", "none", False),
        ("valid_json", '```json\n{"a": [1]}\n```', True),
        ("valid_json", 'Sure: {"a": 1}', False),
        ("valid_json", '{"a": NaN}', False),
        ("json_items:2", '{"rows": [1, 2]}', True),
        ("json_items:2", "[1]", False),
        ("json_keys:a|b", '[{"a": 1, "b": 2}, {"b": 1, "a": 3}]', True),
        ("json_keys:a|b", '[{"a": 1, "b": 2}, {"a": 3}]', False),
        ("json_keys:a", "[]", False),
        ("json_keys:a", '{"a": 1, "b": 2}', False),
        ("calls:find", '{"name": "find", "arguments": {}}', True),
        ("calls:find", '{"name": "other", "arguments": {}}', False),
        ("calls:find", "I would call find.", False),
    ],
)
def test_a_check_of_a_whole_text(check: str, text: str, passed: bool) -> None:
    assert result(check, text) is passed


@pytest.mark.parametrize(
    ("check", "text", "expected"),
    [
        ("mentions:Riga", "From Oslo to Riga, and", True),
        ("mentions:Riga", "From Oslo to Riga", None),  # may become Rigatoni
        ("avoids:Riga", "From Oslo to Riga", None),
        ("avoids:Riga", "From Oslo to Riga and", False),
        ("has_code_block", "Here it is", None),
        ("sentences_between:2:3", "One. Two. Three", None),
        ("sentences_between:1:2", "One. Two. Three. ", False),
        ("sentences_between:1:2", "One. Two. 3.", None),  # may become 3.5
        ("words_between:1:3", "one two three", None),
        ("words_between:1:3", "one two three four", False),
        ("valid_json", '{"a": ', None),
        ("json_items:2", "[1, 2]", None),
        ("last_number:9", "it is 9", None),
        ("calls:find", "{", None),
        ("not_degenerate", "and so " * 40, False),
        ("not_degenerate", "A plain answer of", True),
        ("not_degenerate", "", False),
    ],
)
def test_a_check_of_a_text_that_its_limit_cut(check: str, text: str, expected: bool | None) -> None:
    assert result(check, text, whole=False) is expected


WHOLE_COPY = "```python\na = quantity\nb = 1\nc = quantity + b\n```"


@pytest.mark.parametrize(
    ("check", "text", "whole", "expected"),
    [
        ("equals_source_with:qty=>quantity", WHOLE_COPY, True, True),
        ("equals_source_with:qty=>quantity", WHOLE_COPY.replace("b = 1", "b = 2"), True, False),
        ("equals_source_with:qty=>quantity", WHOLE_COPY.strip("`"), True, False),
        ("equals_source_with:qty=>quantity", WHOLE_COPY[:30], False, None),
        ("equals_source_with:qty=>quantity", "```python\na = qty\nb", False, False),
        ("lines_equal_except:2", WHOLE_COPY, True, True),
        ("lines_equal_except:1", WHOLE_COPY, True, False),
        ("lines_equal_except:1", "```python\na = qty\nb = 1\n# new\nc = qty + b\n```", True, True),
        ("lines_equal_except:1", "```python\na = qty\n```", True, False),
        ("lines_equal_except:1", "```python\na = quantity\nb = 1\nc", False, None),
        ("lines_equal_except:1", "```python\na = 1\nb = 2\nc", False, False),
        ("lines_equal_except:0", "Here is the file:\nas you asked", False, None),
        ("equals_source_with:qty=>quantity", "Here is the file:\nas you asked", False, None),
    ],
)
def test_copies_of_a_block(check: str, text: str, whole: bool, expected: bool | None) -> None:
    assert result(check, text, source=CODE, whole=whole) is expected


def test_a_table_without_a_fence_is_the_text_to_copy() -> None:
    assert source_lines(TABLE) == ["| part | shelf |", "|---|---|", "| bolt | A1 |"]
    longer = "| part | shelf |\n|---|---|\n| bolt | A1 |\n| nut | B2 |"
    assert result("lines_equal_except:1", longer, source=TABLE) is True
    assert result("lines_equal_except:0", longer, source=TABLE) is False


def test_quoted_lines() -> None:
    quoted = "1. `06:10 WARN hot`\n2. `06:20 WARN cold`"
    assert result("quotes_lines_with:WARN", quoted, source=LOG) is True
    assert result("quotes_lines_with:WARN", quoted[:20], source=LOG) is False
    assert result("quotes_lines_with:WARN", quoted[:20], source=LOG, whole=False) is None
    assert result("quotes_lines_with:ERROR", quoted, source=LOG) is False


@pytest.mark.parametrize(
    ("check", "told"),
    [
        ("mention:Riga", "Did you mean `mentions`"),
        ("", "a check of the rubric"),
        ("mentions:", "empty name"),
        ("mentions:a||b", "empty name"),
        ("sentences_between:3", "argument of `sentences_between`"),
        ("sentences_between:5:3", "hold nothing"),
        ("sentences_between:-1:3", "hold nothing"),
        ("words_between:one:two", "argument of `words_between`"),
        ("valid_json:yes", "where there is none"),
        ("last_number:ten", "argument of `last_number`"),
        ("lines_equal_except:999", "from 0 to 64"),
        ("equals_source_with:a", "OLD=>NEW"),
        ("equals_source_with:=>b", "OLD=>NEW"),
        ("quotes_lines_with:", "no word"),
    ],
)
def test_a_malformed_check_is_an_error(check: str, told: str) -> None:
    with pytest.raises(RequestError, match=told):
        parse_check(check)


EXAMPLES = {
    "mentions": "a",
    "mentions_all": "a|b",
    "avoids": "a",
    "has_code_block": "",
    "last_number": "3",
    "json_items": "2",
    "json_keys": "a",
    "calls": "a",
    "lines_equal_except": "3",
    "equals_source_with": "a=>b",
    "quotes_lines_with": "a",
}
HOSTILE = (
    "." * 200_000 + "x",
    " " * 200_000,
    "\n" * 200_000,
    "```\n" * 50_000,
    "<tool_call>" * 20_000,
    "[" * 200_000,
    "- \n" * 60_000,
    "|-" * 100_000,
    "1," * 100_000,
    "a'" * 100_000,
    "\ud800" * 1000,
    "\0" * 100_000,
)


@pytest.mark.parametrize("name", CHECKS)
def test_no_text_is_slow_or_an_error(name: str) -> None:
    argument = EXAMPLES.get(name, "1:2" if name.endswith("_between") else "")
    test = parse_check(f"{name}:{argument}" if argument else name)
    begin = time.process_time()
    for text in HOSTILE:
        for whole in (True, False):
            assert test(Answer(text, CODE, whole)) in (True, False, None)
    assert time.process_time() - begin < 20


@given(st.text(alphabet="ab.! \n-1|`'", max_size=80), st.integers(0, 80))
def test_what_a_beginning_tells_the_whole_confirms(text: str, cut: int) -> None:
    for check in (
        "mentions:a",
        "avoids:a",
        "sentences_between:1:3",
        "words_between:2:4",
        "lines_between:1:2",
        "items_between:1:1",
        "table_rows_between:1:2",
        "equals_source_with:qty=>a",
        "lines_equal_except:1",
        "quotes_lines_with:a",
    ):
        early = result(check, text[:cut], source=CODE, whole=False)
        late = result(check, text, source=CODE)
        assert early is None or early == late, check


def edits(source: list[str], given_lines: list[str]) -> int:
    """Levenshtein's distance, whole table."""
    row = list(range(len(source) + 1))
    for line in given_lines:
        made = [row[0] + 1]
        for column, other in enumerate(source, 1):
            made.append(min(row[column] + 1, made[-1] + 1, row[column - 1] + (line != other)))
        row = made
    return row[-1]


lines = st.lists(st.sampled_from("abc"), max_size=9)


@given(lines, lines, st.integers(0, 6))
def test_distance_is_levenshteins(source: list[str], other: list[str], most: int) -> None:
    assert distance(source, other, most) == min(edits(source, other), most + 1)
    nearest = min(edits(source[:end], other) for end in range(len(source) + 1))
    assert distance(source, other, most, prefix=True) == min(nearest, most + 1)


def test_lines_of_an_answer() -> None:
    assert answer_lines("Here:\n```c\n\nint a;  \n\n```\nDone.") == ["int a;"]
    assert answer_lines("```c\nint a;") == ["int a;"]
    assert answer_lines("\n plain \n\n") == [" plain"]
    assert answer_lines("") == []
