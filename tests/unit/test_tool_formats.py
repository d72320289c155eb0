"""Functions offered to a model: what requests say, and grammars of outputs that call one."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from openai_scripts import (
    LLAMA_TEMPLATE,
    PLAIN_TEMPLATE,
    QWEN_TEMPLATE,
    ScriptedService,
    tokenizer_with,
)
from slipstream.constraint import Constraint
from slipstream.errors import RequestError, UnsupportedError
from slipstream.options import SamplingOptions
from slipstream.server.call_scanner import CallPart
from slipstream.server.tool_formats import LLAMA3, QWEN2, CallFormat
from slipstream.server.tools import ToolSupport, ToolUse, offered_tools, tool_choice
from slipstream.structured import Grammars

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a place.",
        "parameters": {
            "type": "object",
            "properties": {"place": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["place"],
            "additionalProperties": False,
        },
        "strict": True,
    },
}
NOW = {"type": "function", "function": {"name": "now"}}
TOKENIZER = tokenizer_with()
GRAMMARS = Grammars(TOKENIZER)


def use(
    tools: Any = (WEATHER, NOW), choice: Any = None, template: str = QWEN_TEMPLATE, **more: Any
) -> ToolUse | None:
    service = ScriptedService(template=template)
    return asyncio.run(ToolSupport(service).use(list(tools), choice, **more))


def required(form: str, **more: Any) -> str:
    found = use(choice=more.pop("choice", "required"), template=form, **more)
    assert found is not None
    assert found.grammar is not None
    return found.grammar


def admits(grammar: str, text: str) -> bool:
    """Whether a text is a whole output of a grammar."""
    constraint: Constraint | None = GRAMMARS.constraint(SamplingOptions(grammar=grammar))
    assert constraint is not None
    for token in TOKENIZER.encode(text, add_special=False):
        if not constraint.mask()[token]:
            return False
        constraint.advance(token)
    return constraint.may_stop


CALL = '{"name": "get_weather", "arguments": {"place": "Bern", "days": 2}}'
CALLS: tuple[tuple[str, bool], ...] = (
    (f"<tool_call>\n{CALL}\n</tool_call>", True),
    (f"<tool_call>\n{CALL}\n</tool_call>\n<tool_call>\n{CALL}\n</tool_call>", True),
    ('<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>', True),
    (f"<tool_call>\n{CALL}", False),
    (f"Hello <tool_call>\n{CALL}\n</tool_call>", False),
    ('<tool_call>\n{"name": "then", "arguments": {}}\n</tool_call>', False),
    ('<tool_call>\n{"name": "get_weather", "arguments": {"days": 2}}\n</tool_call>', False),
    ('<tool_call>\n{"name": "get_weather", "arguments": {"place": 2}}\n</tool_call>', False),
    ("", False),
)


@pytest.mark.parametrize(("text", "whole"), CALLS)
def test_a_demanded_call_of_qwen(text: str, whole: bool) -> None:
    assert admits(required(QWEN_TEMPLATE), text) is whole


def test_a_demanded_call_of_llama() -> None:
    grammar = required(LLAMA_TEMPLATE)
    call = CALL.replace("arguments", "parameters")
    assert admits(grammar, call)
    assert admits(grammar, f"{call}; {call}")
    assert not admits(grammar, CALL)


def test_a_call_of_one_function_by_name() -> None:
    choice = {"type": "function", "function": {"name": "now"}}
    grammar = required(QWEN_TEMPLATE, choice=choice)
    now = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
    assert admits(grammar, now)
    assert not admits(grammar, f"{now}\n{now}")
    assert not admits(grammar, f"<tool_call>\n{CALL}\n</tool_call>")


def test_one_call_where_several_are_not_wanted() -> None:
    grammar = required(QWEN_TEMPLATE, several=False)
    call = f"<tool_call>\n{CALL}\n</tool_call>"
    assert admits(grammar, call)
    assert not admits(grammar, f"{call}\n{call}")


def test_a_call_or_an_answer_of_a_schema() -> None:
    schema = '{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}'
    found = use(answer=schema)
    assert found is not None
    assert found.grammar is not None
    assert admits(found.grammar, '{"a": 1}')
    assert admits(found.grammar, f"<tool_call>\n{CALL}\n</tool_call>")
    assert not admits(found.grammar, '{"a": "b"}')
    assert not admits(found.grammar, "Hello")


@pytest.mark.parametrize(("template", "form"), [(QWEN_TEMPLATE, QWEN2), (LLAMA_TEMPLATE, LLAMA3)])
def test_the_format_is_read_off_the_template(template: str, form: CallFormat) -> None:
    found = use(template=template)
    assert found is not None
    assert found.format is form
    assert found.grammar is None


@pytest.mark.parametrize(
    "template",
    [PLAIN_TEMPLATE, "{% if tools %}{{ raise_exception('no tools') }}{% endif %}x", "{{ tools }}"],
)
def test_models_that_know_no_functions(template: str) -> None:
    with pytest.raises(UnsupportedError, match="Leave out `tools`"):
        use(template=template)


def test_nothing_is_asked_of_the_template_without_need() -> None:
    service = ScriptedService(template=PLAIN_TEMPLATE)
    support = ToolSupport(service)
    assert asyncio.run(support.use([])) is None
    assert asyncio.run(support.use([WEATHER], "none")) is None
    assert service.prompts == []


def test_templates_get_what_they_were_trained_on() -> None:
    shown = offered_tools([WEATHER])[0]
    assert list(shown) == ["type", "function"]
    assert list(shown["function"]) == ["name", "description", "parameters"]


@pytest.mark.parametrize(
    ("tools", "words"),
    [
        ([{"type": "custom", "custom": {}}], "type function"),
        ([{"type": "function"}], "`function`"),
        ([{"type": "function", "function": {"name": "a b"}}], "letters"),
        ([{"type": "function", "function": {"name": "a", "parametrs": {}}}], "`parameters`"),
        ([NOW, NOW], "once"),
        ([NOW] * 129, "128"),
        (["now"], "tools"),
    ],
)
def test_malformed_tools(tools: list[Any], words: str) -> None:
    with pytest.raises((RequestError, UnsupportedError), match=words):
        offered_tools(tools)


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (None, ("auto", None)),
        ("auto", ("auto", None)),
        ("none", ("none", None)),
        ("required", ("required", None)),
        ({"type": "function", "function": {"name": "now"}}, ("required", "now")),
    ],
)
def test_choices(choice: Any, expected: Any) -> None:
    assert tool_choice(choice, [NOW]) == expected


@pytest.mark.parametrize(
    ("choice", "tools", "words"),
    [
        ("required", [], "`tools`"),
        ("sometimes", [NOW], "required"),
        ({"type": "function", "function": {"name": "then"}}, [NOW], "now"),
        ({"type": "function", "function": {}}, [NOW], "by name"),
        (3, [NOW], "by name"),
    ],
)
def test_malformed_choices(choice: Any, tools: list[Any], words: str) -> None:
    with pytest.raises(RequestError, match=words):
        tool_choice(choice, tools)


def test_control_tokens_of_the_frame_are_seen() -> None:
    assert QWEN2.marks(TOKENIZER) == {}
    tokenizer = tokenizer_with("<|python_tag|>", "<tool_call>")
    mark = tokenizer.token_id("<|python_tag|>")
    assert LLAMA3.marks(tokenizer) == {mark: "<|python_tag|>"}
    assert QWEN2.marks(tokenizer) == {tokenizer.token_id("<tool_call>"): "<tool_call>"}


def test_schemas_of_parameters_reach_the_grammar_as_they_are() -> None:
    deep = {"type": "object", "properties": {'a"\n': {"enum": ["\\", "ü", "\u2028"]}}}
    tool = {"type": "function", "function": {"name": "f", "parameters": deep}}
    grammar = required(QWEN_TEMPLATE, tools=[tool])
    text = json.dumps({"name": "f", "arguments": {'a"\n': "ü"}}, ensure_ascii=False)
    assert admits(grammar, f"<tool_call>\n{text}\n</tool_call>")


def test_pieces_of_calls_are_named_once() -> None:
    stream = QWEN2.stream(["now"])
    parts = stream.feed('<tool_call>{"name": "now", "arguments": {}}</tool_call>')
    assert parts == [CallPart(0, "now", "{}")]
