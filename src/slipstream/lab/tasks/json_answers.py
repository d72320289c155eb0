"""Finding the JSON of an answer: bare, in one fenced block, or in a tool call's marks."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

import msgspec

FENCE: Final = re.compile(r"```[^\n`]*\n(.*?)```", re.DOTALL)
_OPEN: Final = "<tool_call>"
_CLOSE: Final = "</tool_call>"
_MOST_CALLS: Final = 16


class NotJsonError(ValueError):
    """The text is no JSON of the wanted form."""


@dataclass(frozen=True)
class ToolCall:
    name: str
    arguments: dict[str, Any]


def json_value(text: str) -> Any:
    """The value that an answer is: the whole text, or the one fenced block that it consists of.

    Raises:
        NotJsonError: there is other text, or the JSON is malformed or nested too deeply.
    """
    stripped = text.strip()
    fenced = FENCE.fullmatch(stripped)
    return _decoded(fenced[1] if fenced else stripped)


def _decoded(text: str) -> Any:
    try:
        return msgspec.json.decode(text.strip())
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError) as problem:
        raise NotJsonError(str(problem)) from None


def tool_calls(text: str) -> tuple[ToolCall, ...]:
    """The calls that an answer consists of.

    Understood are the marks ``<tool_call>`` and ``</tool_call>`` around each, else one object or an
    array of objects with ``name`` and ``arguments`` (or ``parameters``), bare, fenced, or wrapped
    in ``function`` as in OpenAI's API. Arguments may be an object or its JSON text.

    Raises:
        NotJsonError: it holds none, more than 16, or something that is no call.
    """
    values = [_decoded(part) for part in _marked(text)] or [json_value(text)]
    found = [call for value in values for call in (value if isinstance(value, list) else [value])]
    if not 0 < len(found) <= _MOST_CALLS:
        raise NotJsonError(f"{len(found)} calls")
    return tuple(_call(value) for value in found)


def _marked(text: str) -> list[str]:
    """Texts between the marks of tool calls, at most one more than are allowed."""
    parts = text.split(_OPEN, _MOST_CALLS + 1)[1:]
    if any(_CLOSE not in part for part in parts):
        raise NotJsonError("a call without its end")
    return [part.partition(_CLOSE)[0] for part in parts]


def _call(value: Any) -> ToolCall:
    if isinstance(value, dict) and isinstance(value.get("function"), dict):
        value = value["function"]
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        raise NotJsonError("no object with a name")
    arguments = value.get("arguments", value.get("parameters", {}))
    if isinstance(arguments, str):
        arguments = _decoded(arguments)
    if not isinstance(arguments, dict):
        raise NotJsonError("arguments that are no object")
    return ToolCall(value["name"], arguments)
