"""OpenAI's ``response_format``: what the output must look like."""

from __future__ import annotations

import json
from typing import Any, Final

from slipstream.errors import RequestError
from slipstream.server.bodies import shown, unknown_key

ANY_OBJECT: Final = '{"type": "object"}'
_KEYS: Final = ("type", "schema", "json_schema")
_SCHEMA_KEYS: Final = ("name", "description", "schema", "strict")


def schema_of(value: Any) -> str | None:
    """The JSON schema that an output must have, as text; None = any text will do.

    ``strict`` changes nothing: the output always has the schema, or the request is refused.

    Args:
        value: JSON of the key; ``schema`` may stand beside ``type``, as llama.cpp has it.

    Raises:
        RequestError: it is malformed.
    """
    if value is None:
        return None
    if not isinstance(value, dict):
        raise _wrong("an object", value)
    _require_keys(value, _KEYS)
    kind = value.get("type")
    if kind == "text":
        return None
    if kind == "json_object":
        return _text(value["schema"]) if value.get("schema") is not None else ANY_OBJECT
    if kind != "json_schema":
        raise _wrong("of type text, json_object or json_schema", kind)
    inner = value.get("json_schema")
    if isinstance(inner, dict):
        _require_keys(inner, _SCHEMA_KEYS)
        schema = inner.get("schema")
    else:
        schema = value.get("schema")
    if schema is None:
        raise _wrong('with a schema ({"json_schema": {"name": .., "schema": {..}}})', "none")
    return _text(schema)


def _text(schema: Any) -> str:
    if not isinstance(schema, dict | bool):
        raise _wrong("with a schema that is an object", schema)
    return json.dumps(schema, ensure_ascii=False)


def _require_keys(value: dict[str, Any], known: tuple[str, ...]) -> None:
    for key in value:
        if key not in known:
            raise unknown_key(key, known)


def _wrong(expected: str, found: Any) -> RequestError:
    return RequestError(
        f"`response_format` to be {expected}", shown(found), "See OpenAI's structured outputs."
    )
