"""Checking a value against a JSON schema; keywords that are not known here are an error."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

Schema = Mapping[str, Any]
TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
}
IGNORED = {"title", "description", "default", "discriminator", "examples"}


class MismatchError(AssertionError):
    pass


def check(value: Any, schema: Schema, root: Schema, place: str = "$") -> None:
    """
    Args:
        root: document that references point into.

    Raises:
        MismatchError: the value is not of the schema; it names the place.
    """
    for keyword, given in schema.items():
        if keyword not in IGNORED:
            CHECKS[keyword](value, given, schema, root, place)


def _require(condition: bool, place: str, told: str) -> None:
    if not condition:
        raise MismatchError(f"{place}: {told}")


def resolve(reference: str, root: Schema) -> Schema:
    found: Any = root
    for part in reference.removeprefix("#/").split("/"):
        found = found[part.replace("~1", "/").replace("~0", "~")]
    assert isinstance(found, dict)
    return found


def _reference(value: Any, given: Any, _: Schema, root: Schema, place: str) -> None:
    check(value, resolve(given, root), root, place)


def _type(value: Any, given: Any, _: Schema, root: Schema, place: str) -> None:
    del root
    _require(TYPES[given](value), place, f"{value!r:.60} is no {given}")


def _any_of(value: Any, given: Any, _: Schema, root: Schema, place: str) -> None:
    faults = []
    for schema in given:
        try:
            check(value, schema, root, place)
        except MismatchError as fault:
            faults.append(str(fault))
        else:
            return
    raise MismatchError(f"{place}: none of {len(given)}: {faults}")


def _properties(value: Any, given: Any, _: Schema, root: Schema, place: str) -> None:
    for name, schema in given.items():
        if isinstance(value, dict) and name in value:
            check(value[name], schema, root, f"{place}.{name}")


def _required(value: Any, given: Any, _: Schema, root: Schema, place: str) -> None:
    del root
    for name in given:
        _require(not isinstance(value, dict) or name in value, place, f"no {name}")


def _additional(value: Any, given: Any, schema: Schema, root: Schema, place: str) -> None:
    others = set(value) - set(schema.get("properties", {})) if isinstance(value, dict) else set()
    for name in others:
        _require(given is not False, place, f"{name} is not known")
        if isinstance(given, dict):
            check(value[name], given, root, f"{place}.{name}")


def _items(value: Any, given: Any, _: Schema, root: Schema, place: str) -> None:
    for index, item in enumerate(value if isinstance(value, list) else ()):
        check(item, given, root, f"{place}[{index}]")


def _compared(kind: str, right: Callable[[Any, Any], bool]) -> Callable[..., None]:
    def compared(value: Any, given: Any, _: Schema, root: Schema, place: str) -> None:
        del root
        if TYPES[kind](value):
            _require(right(value, given), place, f"{value!r:.60} is out of {given}")

    return compared


def _one_of_values(value: Any, given: Any, _: Schema, root: Schema, place: str) -> None:
    del root
    _require(value in given, place, f"{value!r:.60} is none of {given}")


CHECKS: dict[str, Callable[..., None]] = {
    "$ref": _reference,
    "type": _type,
    "anyOf": _any_of,
    "properties": _properties,
    "required": _required,
    "additionalProperties": _additional,
    "items": _items,
    "enum": _one_of_values,
    "const": lambda value, given, _, root, place: _one_of_values(value, [given], _, root, place),
    "minimum": _compared("number", lambda value, least: value >= least),
    "exclusiveMinimum": _compared("number", lambda value, least: value > least),
    "maximum": _compared("number", lambda value, most: value <= most),
    "minLength": _compared("string", lambda value, least: len(value) >= least),
    "maxLength": _compared("string", lambda value, most: len(value) <= most),
    "pattern": _compared("string", lambda value, form: re.search(form, value) is not None),
    "minItems": _compared("array", lambda value, least: len(value) >= least),
    "maxItems": _compared("array", lambda value, most: len(value) <= most),
}
