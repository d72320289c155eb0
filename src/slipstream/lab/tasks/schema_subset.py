"""JSON schema, as far as workloads use it: a check of the schema and one of a value.

Keywords: ``type``, ``enum``, ``const``, ``properties``, ``required``, ``additionalProperties``
(true or false), ``items``, ``minItems``, ``maxItems``, ``minLength``, ``maxLength``, ``minimum``,
``maximum``. Meaning: JSON Schema 2020-12. Annotations are ignored; every other keyword is an error,
because a schema that is half understood passes what it should not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from slipstream.errors import RequestError

Schema = Mapping[str, Any]
_DEEPEST: Final = 16
_ANNOTATIONS: Final = frozenset({"$schema", "$id", "title", "description", "default", "examples"})


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_TYPES: Final[Mapping[str, Callable[[Any], bool]]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "number": _is_number,
    "integer": lambda value: _is_number(value) and value % 1 == 0,
}
_COUNTS: Final = ("minItems", "maxItems", "minLength", "maxLength")
_LIMITS: Final = ("minimum", "maximum")


def require_schema(schema: Any, place: str) -> None:
    """Check a schema itself.

    Args:
        place: named in errors.

    Raises:
        RequestError: a keyword is unknown or has a value that it cannot have, or the schema is
            nested more than 16 levels deep.
    """
    _require_level(schema, place, 0)


def _bad(place: str, found: str) -> RequestError:
    remedy = "Use the keywords that docs/lab-workloads.md lists."
    return RequestError(f"a JSON schema in {place}", found, remedy)


def _require_level(schema: Any, place: str, depth: int) -> None:
    if not isinstance(schema, dict) or depth > _DEEPEST:
        raise _bad(place, "more than 16 levels" if depth > _DEEPEST else type(schema).__name__)
    for keyword, given in schema.items():
        if keyword in _ANNOTATIONS:
            continue
        wanted = _FORMS.get(keyword)
        if wanted is None or not wanted(given):
            raise _bad(place, f"`{keyword[:64]}`" + (" of another form" if wanted else ""))
    for name, part in schema.get("properties", {}).items():
        _require_level(part, f"{place}.{name}", depth + 1)
    if "items" in schema:
        _require_level(schema["items"], f"{place}[]", depth + 1)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _is_type(value: Any) -> bool:
    names = value if isinstance(value, list) else [value]
    return bool(names) and all(isinstance(name, str) and name in _TYPES for name in names)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


_FORMS: Final[Mapping[str, Callable[[Any], bool]]] = {
    "type": _is_type,
    "enum": lambda value: isinstance(value, list) and bool(value),
    "const": lambda _: True,
    "properties": lambda value: isinstance(value, dict),
    "required": _are_texts,
    "additionalProperties": lambda value: isinstance(value, bool),
    "items": lambda value: isinstance(value, dict),
    **dict.fromkeys(_COUNTS, _is_count),
    **dict.fromkeys(_LIMITS, _is_number),
}


def matches(value: Any, schema: Schema) -> bool:
    """Whether a value is of a schema that ``require_schema`` has passed."""
    return all(
        check(value, schema[keyword]) for keyword, check in _CHECKS.items() if keyword in schema
    ) and _parts_match(value, schema)


def _parts_match(value: Any, schema: Schema) -> bool:
    if isinstance(value, dict):
        known = schema.get("properties", {})
        if not schema.get("additionalProperties", True) and value.keys() - known.keys():
            return False
        return all(matches(value[name], part) for name, part in known.items() if name in value)
    if isinstance(value, list) and "items" in schema:
        return all(matches(item, schema["items"]) for item in value)
    return True


def _same(left: Any, right: Any) -> bool:
    """Equality of JSON: 1 and 1.0 are one number, 1 and true are not."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_same, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(left[key], right[key]) for key in left)
    return bool(left == right)


def _is_of(value: Any, types: str | list[str]) -> bool:
    return any(_TYPES[name](value) for name in ([types] if isinstance(types, str) else types))


_CHECKS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "type": _is_of,
    "enum": lambda value, given: any(_same(value, one) for one in given),
    "const": _same,
    "required": lambda value, names: not isinstance(value, dict) or set(names) <= value.keys(),
    "minItems": lambda value, n: not isinstance(value, list) or len(value) >= n,
    "maxItems": lambda value, n: not isinstance(value, list) or len(value) <= n,
    "minLength": lambda value, n: not isinstance(value, str) or len(value) >= n,
    "maxLength": lambda value, n: not isinstance(value, str) or len(value) <= n,
    "minimum": lambda value, least: not _is_number(value) or value >= least,
    "maximum": lambda value, most: not _is_number(value) or value <= most,
}
