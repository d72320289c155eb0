"""Checking values against a JSON schema, and refusing schemas that are only half understood."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.errors import RequestError
from slipstream.lab.tasks.schema_subset import matches, require_schema

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 5},
        "age": {"type": ["integer", "null"], "minimum": 0, "maximum": 9},
        "tags": {"type": "array", "items": {"enum": ["a", 1]}, "minItems": 1, "maxItems": 2},
        "kind": {"const": "x"},
    },
    "required": ["name"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"name": "Ada"}, True),
        ({"name": "Ada", "age": None, "tags": ["a"], "kind": "x"}, True),
        ({"name": "Ada", "age": 3.0}, True),
        ({"name": "Ada", "age": 3.5}, False),
        ({"name": "Ada", "age": True}, False),
        ({"name": "Ada", "age": 10}, False),
        ({"name": "Ada", "age": -1}, False),
        ({"name": ""}, False),
        ({"name": "Adalin"}, False),
        ({"name": 3}, False),
        ({}, False),
        ({"name": "Ada", "town": 1}, False),
        ({"name": "Ada", "tags": []}, False),
        ({"name": "Ada", "tags": ["a", "a", "a"]}, False),
        ({"name": "Ada", "tags": [1.0]}, True),
        ({"name": "Ada", "tags": [True]}, False),
        ({"name": "Ada", "kind": "y"}, False),
        ([], False),
        (None, False),
    ],
)
def test_values(value: Any, expected: bool) -> None:
    require_schema(PERSON, "a test")
    assert matches(value, PERSON) is expected


@pytest.mark.parametrize(
    "schema",
    [
        None,
        [],
        {"type": "text"},
        {"type": []},
        {"enum": []},
        {"required": "name"},
        {"required": [1]},
        {"properties": []},
        {"properties": {"a": 1}},
        {"additionalProperties": {"type": "string"}},
        {"items": [{}]},
        {"items": {"pattern": "x"}},
        {"minItems": -1},
        {"minItems": True},
        {"minimum": "1"},
        {"anyOf": [{}]},
        {"pattern": "(a+)+$"},
    ],
)
def test_schemas_that_are_refused(schema: Any) -> None:
    with pytest.raises(RequestError, match="a JSON schema in here"):
        require_schema(schema, "here")


def test_a_deep_schema_is_refused() -> None:
    schema: dict[str, Any] = {}
    for _ in range(40):
        schema = {"items": schema}
    with pytest.raises(RequestError, match="16 levels"):
        require_schema(schema, "here")


def test_annotations_say_nothing() -> None:
    schema = {"title": "T", "description": "D", "default": 1, "type": "string"}
    require_schema(schema, "here")
    assert matches("a", schema)
    assert not matches(1, schema)


values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.just(0.5) | st.text("ab", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner),
    max_leaves=6,
)
leaf = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["object", "array", "string", "integer", "number", "null"]),
        "enum": st.lists(values, min_size=1, max_size=3),
        "const": values,
        "minimum": st.integers(-2, 2),
        "maximum": st.integers(-2, 2),
        "minLength": st.integers(0, 2),
        "maxLength": st.integers(0, 2),
        "minItems": st.integers(0, 2),
        "maxItems": st.integers(0, 2),
        "required": st.lists(st.sampled_from("ab"), max_size=2, unique=True),
        "additionalProperties": st.booleans(),
    },
)
schemas = st.recursive(
    leaf,
    lambda inner: st.builds(
        lambda first, parts, items: {**first, "properties": parts, "items": items},
        leaf,
        st.dictionaries(st.sampled_from("ab"), inner),
        inner,
    ),
    max_leaves=4,
)


@given(values, schemas)
def test_agrees_with_another_implementation(value: Any, schema: dict[str, Any]) -> None:
    other = pytest.importorskip("jsonschema_rs")
    require_schema(schema, "here")
    assert matches(value, schema) == other.is_valid(schema, value)
