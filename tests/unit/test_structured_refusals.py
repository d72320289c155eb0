"""Grammars that are refused, and why; options that contradict one another."""

from __future__ import annotations

import contextlib
from string import ascii_lowercase
from time import perf_counter
from typing import Any

import pytest

from slipstream.engine.sequence import Request
from slipstream.errors import GrammarError, OptionError, RequestError, UnsupportedError
from slipstream.options import SamplingOptions
from slipstream.structured import Grammars
from structured_for_tests import JsonTokenizer, decode, json_engine, json_grammars, sampler


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"json_schema": "{"}, "no JSON"),
        ({"json_schema": "[]"}, "an array"),
        ({"json_schema": "3"}, "a number"),
        ({"json_schema": False}, "false"),
        ({"json_schema": '{"const": NaN}'}, "NaN"),
        ({"json_schema": '{"const": ' + "9" * 5000 + "}"}, "no JSON"),
        ({"json_schema": {"type": "strin"}}, "strin"),
        ({"json_schema": {"type": "string", "format": "no-such"}}, "no-such"),
        ({"json_schema": {"not": {"type": "string"}}}, "not"),
        ({"json_schema": {"x-guidance": {"lenient": True}, "not": {}}}, "not"),
        ({"json_schema": {"$ref": "https://example.com/schema.json"}}, ""),
        ({"json_schema": {"$ref": "#/$defs/none"}}, "none"),
        ({"json_schema": {"type": "string", "minLength": 5, "maxLength": 2}}, ""),
        ({"json_schema": {"enum": []}}, ""),
        ({"json_schema": '"\ud800"'}, "surrogate"),
        ({"regex": "("}, ""),
        ({"regex": "(?=a)"}, ""),
        ({"grammar": 'root ::= "a"'}, "GBNF"),
        ({"grammar": "  "}, "empty"),
        ({"grammar": "start: other"}, "other"),
        ({"grammar": "start: ("}, ""),
    ],
    ids=lambda value: str(value)[:40],
)
def test_refusals_name_the_fault(options: dict[str, Any], words: str) -> None:
    with pytest.raises(GrammarError) as caught:
        json_grammars().constraint(SamplingOptions(**options))
    assert words in str(caught.value)
    assert len(str(caught.value)) < 500


def deep(text: str, depth: int, inner: str, end: str) -> str:
    return text * depth + inner + end * depth


def chain(length: int) -> dict[str, Any]:
    links = {
        f"a{i}": {"allOf": [{"$ref": f"#/$defs/a{i + 1}"}, {"type": "object"}]}
        for i in range(length)
    }
    return {"$defs": {**links, f"a{length}": {}}, "$ref": "#/$defs/a0"}


HOSTILE: dict[str, dict[str, Any]] = {
    "deep schema": {"json_schema": deep('{"items":', 10_000, "{}", "}")},
    "less deep schema": {"json_schema": deep('{"items":', 100, "{}", "}")},
    "large schema": {"json_schema": {"enum": [f"value {i}" for i in range(80_000)]}},
    "chain of references": {"json_schema": chain(10_000)},
    "patterns that all must hold": {
        "json_schema": {
            "allOf": [{"type": "string", "pattern": f".*{c}.*"} for c in ascii_lowercase]
        }
    },
    "many pattern properties": {
        "json_schema": {"patternProperties": {f"^{'ab' * i}.*c{i}$": {} for i in range(200)}}
    },
    "the least integer": {"json_schema": {"enum": [1, -(2**63)]}},
    "an integer near the least": {"json_schema": {"items": {"const": -(2**63) + 2}}},
    "multiples of a large number": {"json_schema": {"type": "integer", "multipleOf": 1000003}},
    "exponential alternatives": {
        "json_schema": {
            "allOf": [
                {"anyOf": [{"properties": {f"{c}{i}": {"type": "null"}}} for i in range(2)]}
                for c in ascii_lowercase
            ]
        }
    },
    "deep regular expression": {"regex": deep("(", 100_000, "a", ")")},
    "deep grammar": {"grammar": "start: " + deep("(", 100_000, '"a"', ")")},
    "patterns that hold and do not": {
        "grammar": "start: A\nA: " + " & ".join(f"/.*{c}.*/" for c in ascii_lowercase) + "\n"
    },
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_grammars_are_refused_soon(name: str) -> None:
    start = perf_counter()
    with pytest.raises(GrammarError):
        json_grammars().constraint(SamplingOptions(**HOSTILE[name]))
    assert perf_counter() - start < 60


COSTLY: dict[str, dict[str, Any]] = {
    "repeated repetition": {"regex": "((a{1,1000}){1,1000}){1,1000}"},
    "exponential automaton": {"regex": "(a|b)*a(a|b){400}c"},
    "ambiguous grammar": {"grammar": 'start: s\ns: s s | "a" | "b" |\n'},
    "many alternatives": {
        "json_schema": {"anyOf": [{"properties": {f"a{i}": {"const": i}}} for i in range(300)]}
    },
}


@pytest.mark.parametrize("name", COSTLY)
def test_costly_grammars_go_on_or_end_in_an_error(name: str) -> None:
    start = perf_counter()
    state = sampler(json_grammars().constraint(SamplingOptions(**COSTLY[name])), 1)
    with contextlib.suppress(GrammarError):
        decode(state)
    assert perf_counter() - start < 60


def test_options_that_contradict() -> None:
    with pytest.raises(OptionError, match="one grammar"):
        SamplingOptions(json_schema="{}", regex="a")
    with pytest.raises(OptionError, match="ignore_eos"):
        SamplingOptions(regex="a", ignore_eos=True)
    cyclic: dict[str, Any] = {}
    cyclic["a"] = cyclic
    for schema in ({"a": object()}, {"a": float("nan")}, cyclic):
        with pytest.raises(OptionError, match="json_schema"):
            SamplingOptions(json_schema=schema)  # type: ignore[arg-type]
    assert SamplingOptions(json_schema={"b": 1, "a": [None]}).json_schema == '{"b": 1, "a": [null]}'  # type: ignore[arg-type]


def test_a_request_must_carry_its_compiled_grammar() -> None:
    with pytest.raises(RequestError, match="regex"):
        json_engine().submit(Request([5], SamplingOptions(regex="a")))


def test_a_vocabulary_without_an_end_cannot_have_a_grammar() -> None:
    tokenizer = JsonTokenizer()
    tokenizer.end_ids = frozenset()
    with pytest.raises(UnsupportedError, match="end-of-generation"):
        Grammars(tokenizer).constraint(SamplingOptions(regex="a"))
