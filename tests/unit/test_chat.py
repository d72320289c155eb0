"""Chat templates: what they render, and what a hostile one cannot do."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from datetime import datetime
from typing import Any

import jinja2.sandbox
import pytest
from test_tokenizer import bpe, spm

from slipstream.chat import ChatTemplate, encode_chat
from slipstream.errors import TemplateError

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message.content"
    " + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
HELLO = [{"role": "user", "content": "Hello"}]


def render(source: str, messages: Any = HELLO, **options: Any) -> str:
    clock = lambda: datetime(2024, 6, 7, 12)  # noqa: E731
    template = ChatTemplate(source, bos_token="<s>", eos_token="</s>", clock=clock)
    return template.render(messages, **options)


def test_turns_and_generation_prompt() -> None:
    turn = "<|im_start|>user\nHello<|im_end|>\n"
    assert render(CHATML) == turn + "<|im_start|>assistant\n"
    assert render(CHATML, add_generation_prompt=False) == turn


@pytest.mark.parametrize(
    ("source", "rendered"),
    [
        ("{{ bos_token }}{{ eos_token }}", "<s></s>"),
        ("{{ strftime_now('%d %b %Y') }}", "07 Jun 2024"),
        ("{% if tools %}x{% endif %}  {# trimmed #}\nend", "  end"),
        ("a\n  {% if true %}\nb\n  {% endif %}\nc", "a\nb\nc"),
        ("{{ {'é': '<&>', 'a': [1]} | tojson }}", '{"é": "<&>", "a": [1]}'),
        ("{{ {'b': 1, 'a': 2} | tojson(indent=2, sort_keys=true) }}", '{\n  "a": 2,\n  "b": 1\n}'),
        ("{% for m in messages %}{{ loop.index }}/{{ loop.length }}{{ loop.last }}{% endfor %}",
         "1/1True"),
        ("{% for i in range(5) %}{% if i == 1 %}{% continue %}{% endif %}"
         "{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}", "02"),
        ("{% set n = namespace(k=0) %}{% for i in range(4) %}{% set n.k = n.k + i %}{% endfor %}"
         "{{ n.k }}", "6"),
        ("{% for k, v in {'x': 1}.items() %}{{ k ~ '=' ~ v }}{% else %}none{% endfor %}", "x=1"),
        ("{% for k in [] %}{{ k }}{% else %}none{% endfor %}", "none"),
        ("{% macro f(x) %}[{{ x }}]{% endmacro %}{{ f(1) ~ f('a') }}", "[1][a]"),
        ("{% set x %}a{{ 1 }}{% endset %}{{ x * 2 }}", "a1a1"),
        ("{% generation %}{{ messages[0].content | trim | upper }}{% endgeneration %}", "HELLO"),
        ("{{ messages | map(attribute='role') | join(', ') }}", "user"),
        ("{{ 'a-b'.split('-') | last }}{{ 'aXa'.replace('X', '-') }}{{ '-'.join(['p', 'q']) }}",
         "ba-ap-q"),
        ("{{ '%s:%02d' % ('t', 7) }}{{ [1, 'a', none, {'k': 2}] }}",
         "t:07[1, 'a', None, {'k': 2}]"),
        ("{{ undefined_name }}{{ messages[0].missing is defined }}", "False"),
        ("{{ 'x' | indent(2, true) }}{{ messages[::-1] | length }}", "  x1"),
    ],
)  # fmt: skip
def test_language(source: str, rendered: str) -> None:
    assert render(source) == rendered


def test_measured_rendering_is_jinja() -> None:
    source = (
        "{%- for m in messages %}{% if m.tool_calls %}{% for c in m.tool_calls %}"
        "{{ c.function.name ~ (c.function.arguments | tojson) }}{% endfor %}{% else %}"
        "{{ m.role ~ ': ' ~ m.content ~ loop.index0 }}{% endif %}\n{% endfor %}"
        "{{ tools | tojson if tools else '' }}"
    )
    call = {"function": {"name": "f", "arguments": {"ä": [1, {"b": None}]}}}
    messages = [*HELLO, {"role": "assistant", "content": None, "tool_calls": [call]}]
    plain = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    plain.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    expected = plain.from_string(source).render(messages=messages, tools=[{"a": 1}])
    assert render(source, messages, tools=[{"a": 1}]) == expected


def test_variables_reach_the_template() -> None:
    assert render("{{ enable_thinking }}", enable_thinking=False) == "False"


def test_long_conversation_fits_the_budget() -> None:
    messages = [{"role": "user", "content": "x" * 2000}] * 2000
    assert len(render(CHATML, messages, add_generation_prompt=False)) == 2000 * 2028


def test_base_model_is_told_apart() -> None:
    with pytest.raises(TemplateError, match=r"base model.*slipstream run"):
        ChatTemplate.from_metadata({}, bpe())


def test_template_of_a_file() -> None:
    metadata = {"tokenizer.chat_template": "{{ bos_token }}|{{ eos_token }}"}
    assert ChatTemplate.from_metadata(metadata, bpe()).render(HELLO) == "<|im_start|>|<|im_end|>"
    with pytest.raises(TemplateError, match="to be text"):
        ChatTemplate.from_metadata({"tokenizer.chat_template": 1}, bpe())


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("Hello", "an object"),
        ({"content": "x"}, "a role"),
        ({"role": "", "content": "x"}, "a role"),
        ({"role": "user"}, "a content"),
        ({"role": "user", "content": 7}, "content that is text"),
        ({"role": "assistant", "content": None, "tool_calls": []}, "a content"),
    ],
)
def test_malformed_messages(message: Any, expected: str) -> None:
    with pytest.raises(TemplateError, match=f"message 1 to have.*{expected}"):
        render(CHATML, [*HELLO, message])


def test_template_that_refuses_says_why() -> None:
    with pytest.raises(TemplateError, match="roles must alternate"):
        render("{{ raise_exception('roles must alternate') }}")


GROW = "{% set x = x + x %}"
HOSTILE = {
    "loops": "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
    "range": "{% for a in range(10**9) %}{% endfor %}",
    "repeat": "{{ 'x' * 10**10 }}",
    "repeat list": "{{ ([1] * 10**10) | length }}",
    "power": "{{ 10**10**10 }}",
    "squares": "{% set x = 2 %}" + "{% set x = x * x %}" * 60 + "{{ x }}",
    "doubling": "{% set x = 'aaaa' %}" + GROW * 60 + "{{ x }}",
    "doubling by ~": "{% set x = 'aaaa' %}" + "{% set x = x ~ x %}" * 60 + "{{ x }}",
    "doubling list": "{% set x = [1] %}" + GROW * 60 + "{{ x }}",
    "doubling block": "{% set x = 'aaaa' %}" + "{% set x %}{{ x }}{{ x }}{% endset %}" * 60,
    "nesting": "{% set x = [1] %}" + "{% set x = [x, x] %}" * 60 + "{{ x }}",
    "nesting tuples": "{% set x = (1,) %}" + "{% set x = (x, x) %}" * 60 + "{{ x }}",
    "nesting dicts": "{% set x = {} %}"
    + "{% set x = {'a': x, 'b': x} %}" * 60
    + "{{ x | tojson }}",
    "comparing": "{% set x = [1] %}{% set y = [1] %}"
    + "{% set x = [x, x] %}{% set y = [y, y] %}" * 60
    + "{{ x == y }}",
    "center": "{{ 'x'.center(10**10) }}",
    "center filter": "{{ 'x' | center(10**10) }}",
    "zfill": "{{ 'x'.zfill(10**10) }}",
    "wide %": "{{ '%1000000000d' % 1 }}",
    "wide *": "{{ '%*d' % (1000000000, 1) }}",
    "format": "{{ '{:>{}}'.format('x', 10**9) }}",
    "indent": "{{ 'x' | indent(10**10, true) }}",
    "json indent": "{{ [1] | tojson(indent=10**9) }}",
    "replace": "{% set x = 'a' * 1000 %}" + "{% set x = x.replace('a', x) %}" * 3 + "{{ x }}",
    "replace filter": "{% set x = 'a' * 1000 %}" + "{% set x = x | replace('a', x) %}" * 3,
    "join": "{{ ('a' * 1000000).join(['', '', '', '']) }}",
    "join filter": "{{ ['', '', '', ''] | join('a' * 1000000) }}",
    "macros": "{% macro a(n) %}{{ a(n - 1) ~ a(n - 1) if n }}{% endmacro %}{{ a(60) }}",
    "recursion": "{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}",
    "output": "{% set x = 'a' * 1000000 %}{% for i in range(100000) %}{{ x }}{% endfor %}",
    "slow search": "{% set x = 'ab' * 500000 %}"
    "{% for i in range(100000) %}{% if 'c' in x | upper %}{% endif %}{% endfor %}",
    "self reference": "{% set n = namespace() %}{% set n.a = [n] %}{{ n }}",
    "class": "{{ ''.__class__.__mro__ }}",
    "attr filter": "{{ '' | attr('__class__') }}",
    "init": "{{ cycler.__init__.__globals__ }}",
    "int bytes": "{{ (5).to_bytes(1000000000, 'big') }}",
    "mutation": "{{ messages.append(1) }}",
    "lipsum": "{{ lipsum(n=1000000) }}",
    "include": "{% include 'a' %}",
    "deep expression": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "deep blocks": "{% if 1 %}" * 500 + "{% endif %}" * 500,
    "syntax": "{% for %}",
    "unknown filter": "{{ messages | no_such_filter }}",
    "undefined": "{{ a.b.c }}",
    "too long": "x" * (1 << 18) + "x",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_template_is_an_error_in_bounded_time(name: str) -> None:
    started = time.process_time()
    with pytest.raises(TemplateError):
        render(HOSTILE[name])
    assert time.process_time() - started < 20


@pytest.mark.parametrize("attribute", ["__globals__", "__closure__", "__code__", "__self__"])
def test_functions_hide_their_insides(attribute: str) -> None:
    assert render("{{ raise_exception.%s }}" % attribute) == ""  # noqa: UP031


def test_exactly_one_bos() -> None:
    tokenizer = spm()
    assert encode_chat(tokenizer, "<bos>he")[:2] == [2, *tokenizer.encode("he", add_special=False)]
    assert encode_chat(tokenizer, "he") == encode_chat(tokenizer, "<bos>he")


def test_no_bos_where_none_is_wanted() -> None:
    assert bpe().bos_id not in encode_chat(bpe(), "he")


def test_no_eos_after_a_prompt() -> None:
    tokenizer = spm(add_eos_token=True)
    assert encode_chat(tokenizer, "he")[-1] != tokenizer.eos_id


def test_import_leaves_jinja_alone() -> None:
    program = "import sys, slipstream.chat, slipstream.tokenizer; print('jinja2' in sys.modules)"
    command = [sys.executable, "-c", program]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert output.strip() == "False"
