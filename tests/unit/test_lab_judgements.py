"""Judging outputs: exact, schema, tools, rubric; and what cannot be judged."""

from __future__ import annotations

import json
from typing import Any

import pytest

from slipstream.errors import RequestError
from slipstream.lab.tasks.judgements import LONGEST, judge, measured, require_judgeable
from slipstream.measure.workload import WorkloadMessage, WorkloadPrompt

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
TOOL = {
    "name": "book",
    "description": "Book a table.",
    "parameters": {
        "type": "object",
        "properties": {"guests": {"type": "integer", "minimum": 1}},
        "required": ["guests"],
        "additionalProperties": False,
    },
}
OTHER = {"name": "cancel", "parameters": {"type": "object"}}


def prompt(**keys: Any) -> WorkloadPrompt:
    messages = (WorkloadMessage("user", "Say it."),)
    return WorkloadPrompt("chat/x", "chat", messages, 64, "test", "MIT", "", **keys)


def call(name: str = "book", **arguments: Any) -> str:
    return json.dumps({"name": name, "arguments": arguments})


def test_exact_is_always_there() -> None:
    assert judge(prompt(), "a", "a", "stop") == {"exact": True}
    assert judge(prompt(), "a", "a ", "stop") == {"exact": False}
    assert judge(prompt(), "a", "ab", "length") == {"exact": False}
    assert judge(prompt(), "a", None, "stop") == {"exact": None}
    assert measured({"exact": None, "schema": False}) == {"schema": False}


@pytest.mark.parametrize(
    ("text", "reason", "expected"),
    [
        ('{"a": 1}', "stop", True),
        ('```json\n{"a": 1}\n```\n', "eos", True),
        ('{"a": "1"}', "stop", False),
        ('{"a": 1} Done.', "stop", False),
        ("", "stop", False),
        ('{"a": 1', "length", None),
        ('{"a": 1', "limit", None),
        ('{"a": 1}', "", None),
        ('{"a": 1}', "cancelled", None),
    ],
)
def test_schema(text: str, reason: str, expected: bool | None) -> None:
    judged = judge(prompt(judgement="schema", schema=SCHEMA), text, None, reason)
    assert judged == {"exact": None, "schema": expected}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (call(guests=2), True),
        (f"<tool_call>\n{call(guests=2)}\n</tool_call>", True),
        (f"Of course.\n<tool_call>{call(guests=2)}</tool_call>", True),
        (f"[{call(guests=2)}, {call('cancel')}]", True),
        (json.dumps({"function": {"name": "book", "arguments": '{"guests": 2}'}}), True),
        (json.dumps({"name": "cancel", "parameters": {"why": "rain"}}), True),
        (call(guests=0), False),
        (call(), False),
        (call(guests=2, town="x"), False),
        (call("reserve", guests=2), False),
        (f"{call(guests=2)} is my call", False),
        (f"<tool_call>{call(guests=2)}", False),
        (f"<tool_call>{call(guests=2)}</tool_call>" * 17, False),
        ("[]", False),
        ("[1]", False),
        ('{"name": 3}', False),
        ('{"name": "book", "arguments": [2]}', False),
        ('{"name": "book", "arguments": "{"}', False),
    ],
)
def test_tools(text: str, expected: bool) -> None:
    judged = judge(prompt(judgement="tools", tools=(TOOL, OTHER)), text, None, "stop")
    assert judged == {"exact": None, "tools": expected}
    cut = judge(prompt(judgement="tools", tools=(TOOL, OTHER)), text, None, "length")
    assert cut["tools"] is None


def test_a_rubric_is_the_sum_of_its_checks() -> None:
    asked = prompt(judgement="rubric", checks=("mentions:Riga", "words_between:2:4"))
    assert judge(asked, "To Riga.", "x", "stop") == {
        "exact": False,
        "rubric": True,
        "mentions:Riga": True,
        "words_between:2:4": True,
    }
    assert judge(asked, "To Oslo.", None, "stop")["rubric"] is False
    assert judge(asked, "To Riga, ", None, "length") == {
        "exact": None,
        "rubric": None,
        "mentions:Riga": True,
        "words_between:2:4": None,
    }
    assert judge(asked, "On and on and on ", None, "length")["rubric"] is False


def test_every_judgement_of_a_prompt_is_given() -> None:
    asked = prompt(judgement="schema", schema=SCHEMA, checks=("valid_json",))
    judged = judge(asked, '{"a": "x"}', None, "stop")
    assert judged == {"exact": None, "schema": False, "rubric": True, "valid_json": True}


def test_a_text_without_end_is_only_compared() -> None:
    asked = prompt(judgement="schema", schema=SCHEMA, checks=("mentions:a",))
    text = "a " * LONGEST
    judged = judge(asked, text, text, "stop")
    assert judged == {"exact": True, "schema": None, "rubric": None, "mentions:a": None}


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"judgement": "schema"}, "without `schema`"),
        ({"judgement": "tools"}, "without `tools`"),
        ({"judgement": "rubric"}, "without `checks`"),
        ({"constrained": True}, "`constrained` without `schema`"),
        ({"schema": {"anyOf": []}}, "`anyOf`"),
        ({"tools": ({"name": 1},)}, "a tool with other keys"),
        ({"tools": ({"name": "x", "parameter": {}},)}, "a tool with other keys"),
        ({"tools": ({"name": "x"},)}, "a JSON schema"),
        ({"tools": (TOOL, TOOL)}, "two tools"),
        ({"checks": ("mention:x",)}, "Did you mean"),
    ],
)
def test_what_cannot_be_judged_is_refused(keys: dict[str, Any], told: str) -> None:
    with pytest.raises(RequestError, match=told):
        require_judgeable(prompt(**keys))
