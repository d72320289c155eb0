"""Outputs split into content and calls: what is found, and that pieces of text change nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from slipstream.server.call_scanner import CallPart
from slipstream.server.tool_formats import LLAMA3, QWEN2
from slipstream.server.tool_stream import Part, ToolStream, joined

NAMES = frozenset({"add", "get_weather"})
MARK = LLAMA3.mark


@dataclass(frozen=True)
class Split:
    """A whole output: its content, and name and arguments of each call."""

    content: str
    calls: tuple[tuple[str, str], ...] = ()


def qwen() -> ToolStream:
    return QWEN2.stream(NAMES)


def llama() -> ToolStream:
    return LLAMA3.stream(NAMES)


def split(stream: ToolStream, pieces: Sequence[str]) -> Split:
    parts: list[Part] = []
    for piece in pieces:
        parts += stream.feed(piece)
    return whole(parts + stream.finish())


def whole(parts: Sequence[Part]) -> Split:
    content, calls = "", dict[int, tuple[str, str]]()
    for part in parts:
        assert part != ""
        if isinstance(part, str):
            content += part
        elif part.index in calls:
            assert part.name is None
            name, arguments = calls[part.index]
            calls[part.index] = (name, arguments + part.arguments)
        else:
            assert part.name is not None
            assert part.index == len(calls)
            calls[part.index] = (part.name, part.arguments)
    return Split(content, tuple(calls.values()))


def tagged(body: str) -> str:
    return f"<tool_call>\n{body}\n</tool_call>"


ADD = '{"name": "add", "arguments": {"a": 1, "b": [2, {"c": "}"}]}}'
ADDED = ("add", '{"a": 1, "b": [2, {"c": "}"}]}')
QWEN_OUTPUTS: dict[str, tuple[str, Split]] = {
    "plain": ("Hello <b>there</b>. ", Split("Hello <b>there</b>. ")),
    "empty": ("", Split("")),
    "one": (tagged(ADD), Split("", (ADDED,))),
    "two": (f"{tagged(ADD)}\n{tagged(ADD)}", Split("", (ADDED, ADDED))),
    "text before": (f"Sure.\n\n{tagged(ADD)}\n", Split("Sure.", (ADDED,))),
    "text after": (f"{tagged(ADD)}\nDone.", Split("Done.", (ADDED,))),
    "no line ends": (f"<tool_call>{ADD}</tool_call>", Split("", (ADDED,))),
    "no closing tag": (f"<tool_call>{ADD}", Split("", (ADDED,))),
    "no closing tag, text": (f"<tool_call>{ADD} yes", Split("yes", (ADDED,))),
    "half a closing tag": (f"<tool_call>{ADD}\n</tool", Split("", (ADDED,))),
    "arguments first": (
        tagged('{"arguments": {"a": 1}, "name": "add"}'),
        Split("", (("add", '{"a": 1}'),)),
    ),
    "arguments as text": (
        tagged('{"name": "add", "arguments": "{\\"a\\": 1}"}'),
        Split("", (("add", '{"a": 1}'),)),
    ),
    "no arguments": (tagged('{"name": "add"}'), Split("", (("add", "{}"),))),
    "null arguments": (tagged('{"name": "add", "arguments": null}'), Split("", (("add", "{}"),))),
    "a type": (
        tagged('{"type": "function", "name": "add", "arguments": {}}'),
        Split("", (("add", "{}"),)),
    ),
    "quotes and escapes": (
        tagged('{"name": "add", "arguments": {"a": "\\"}{\\\\"}}'),
        Split("", (("add", '{"a": "\\"}{\\\\"}'),)),
    ),
    "a name not offered": (tagged('{"name": "x", "arguments": {}}'), Split("", (("x", "{}"),))),
    "no JSON": (tagged("add(1, 2)"), Split(tagged("add(1, 2)"))),
    "another key": (
        " " + tagged('{"function": "add"}'),
        Split(" " + tagged('{"function": "add"}')),
    ),
    "a name that is no text": (tagged('{"name": 3}'), Split(tagged('{"name": 3}'))),
    "cut off before it is certain": (
        'Hm. <tool_call>\n{"name": "add", "arg',
        Split('Hm. <tool_call>\n{"name": "add", "arg'),
    ),
    "cut off within the arguments": (
        '<tool_call>\n{"name": "add", "arguments": {"a": [1, ',
        Split("", (("add", '{"a": [1, '),)),
    ),
    "tags begun": ("<tool <tool_cal <", Split("<tool <tool_cal <")),
    "only white space": (" \n ", Split(" \n ")),
}
LLAMA_ADD = '{"name": "add", "parameters": {"a": 1}}'
LLAMA_ADDED = ("add", '{"a": 1}')
LLAMA_OUTPUTS: dict[str, tuple[str, Split]] = {
    "plain": ("Hello {there}. ", Split("Hello {there}. ")),
    "one": (LLAMA_ADD, Split("", (LLAMA_ADDED,))),
    "marked": (f"{MARK}{LLAMA_ADD}", Split("", (LLAMA_ADDED,))),
    "two": (f"{LLAMA_ADD}; {LLAMA_ADD}", Split("", (LLAMA_ADDED, LLAMA_ADDED))),
    "two lines": (f"{MARK}{LLAMA_ADD}\n{MARK}{LLAMA_ADD}", Split("", (LLAMA_ADDED,) * 2)),
    "a typed one": (
        '{"type": "function", "name": "add", "parameters": {"a": 1}}',
        Split("", (LLAMA_ADDED,)),
    ),
    "an answer in JSON": ('{"name": "Ann", "age": 3}', Split('{"name": "Ann", "age": 3}')),
    "a name not offered": (
        ' {"name": "sub", "parameters": {}}',
        Split(' {"name": "sub", "parameters": {}}'),
    ),
    "not at the beginning": (f"So: {LLAMA_ADD}", Split(f"So: {LLAMA_ADD}")),
    "text after": (f"{LLAMA_ADD}; done", Split("; done", (LLAMA_ADDED,))),
    "a program": (f"{MARK}print(1)", Split("print(1)")),
    "cut off before it is certain": (' {"name": "ad', Split(' {"name": "ad')),
    "mark begun": ("<|python", Split("<|python")),
    "only white space": (" \n ", Split(" \n ")),
}


@pytest.mark.parametrize("name", QWEN_OUTPUTS)
def test_tagged_calls(name: str) -> None:
    text, expected = QWEN_OUTPUTS[name]
    assert split(qwen(), [text]) == expected
    assert split(qwen(), list(text)) == expected


@pytest.mark.parametrize("name", LLAMA_OUTPUTS)
def test_bare_calls(name: str) -> None:
    text, expected = LLAMA_OUTPUTS[name]
    assert split(llama(), [text]) == expected
    assert split(llama(), list(text)) == expected


PIECES = st.sampled_from(
    [
        "<tool_call>",
        "</tool_call>",
        "<tool",
        ADD,
        LLAMA_ADD,
        "{",
        "}",
        '"name"',
        ": ",
        '"add"',
        ",",
        '{"name": "add", "arguments": ',
        '"',
        "\\",
        "; ",
        MARK,
        MARK[:5],
        " ",
        "\n",
        "x",
        "[",
        "1",
    ]
)
TEXTS = st.lists(PIECES, max_size=12).map("".join) | st.sampled_from(
    [text for text, _ in (*QWEN_OUTPUTS.values(), *LLAMA_OUTPUTS.values())]
)


@pytest.mark.parametrize("make", [qwen, llama])
@given(text=TEXTS, cuts=st.lists(st.integers(0, 400), max_size=12))
@example(text="  <tool_  <tool_call>", cuts=[3, 9])
def test_pieces_change_nothing(make: Callable[[], ToolStream], text: str, cuts: list[int]) -> None:
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    pieces = [text[a:b] for a, b in pairwise(places)]
    assert split(make(), pieces) == split(make(), [text]) == split(make(), list(text))


@given(st.text('ab<>{}" \n', max_size=40))
def test_what_holds_no_call_is_left_as_it_is(text: str) -> None:
    assert split(qwen(), [text]) == Split(text)
    assert split(llama(), [text]) == Split(text)


def test_text_is_held_back_only_while_it_may_begin_a_call() -> None:
    stream = qwen()
    assert stream.feed("Hello ") == ["Hello"]
    assert stream.feed("there <to") == [" there"]
    assert stream.feed("p>") == [" <top>"]
    assert stream.feed("\n<tool_call>\n") == []
    assert stream.feed('{"name": "add", "argu') == []
    assert stream.feed('ments": {"a"') == [CallPart(0, "add", '{"a"')]
    assert stream.feed(": 1") == [CallPart(0, arguments=": 1")]
    assert stream.feed("}}\n</tool_call>") == [CallPart(0, arguments="}")]
    assert stream.finish() == []


def test_an_answer_in_json_is_let_go_at_its_first_key() -> None:
    stream = llama()
    assert stream.feed('{"nam') == []
    assert stream.feed('es": [') == ['{"names": [']
    assert stream.feed("1") == ["1"]


def test_joined() -> None:
    call = CallPart(0, "f")
    assert joined(["a", "", "b", call, "", "c"]) == ["ab", call, "c"]


def test_hostile_output_takes_time_in_proportion() -> None:
    text = '<tool_call>{"name": ' * 20_000
    assert split(qwen(), [text]).content == text
    nested = tagged('{"name": "add", "arguments": ' + '{"a":' * 20_000)
    found = split(qwen(), [nested])
    assert found.calls[0][1].startswith('{"a":{"a":')


def test_arguments_are_what_the_model_wrote() -> None:
    for text, expected in QWEN_OUTPUTS.values():
        if "cut off" not in text:
            for _, arguments in expected.calls:
                if arguments.endswith("}"):
                    json.loads(arguments)
