"""Messages of a conversation as OpenAI's clients write them, and as chat templates read them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from slipstream.errors import RequestError, UnsupportedError
from slipstream.server.bodies import shown

MOST_CALLS: Final = 128


class CalledFunction(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Attributes:
    arguments: JSON as text (OpenAI's way), or the object itself.
    """

    name: str
    arguments: str | dict[str, Any] | None = None


class ToolCall(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A call that the model made earlier."""

    function: CalledFunction
    id: str | None = None
    type: Literal["function"] = "function"
    index: int | None = None


class ChatMessage(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One message; the last four are those that a client sends back with our own replies."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[dict[str, Any]] | None = None
    name: str | None = None
    tool_calls: Annotated[list[ToolCall], Meta(max_length=MOST_CALLS)] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    refusal: None = None
    annotations: Annotated[list[Any], Meta(max_length=0)] | None = None
    audio: None = None
    function_call: None = None


def template_messages(
    messages: Sequence[ChatMessage], *, parsed: bool = True
) -> list[dict[str, Any]]:
    """The messages for a chat template.

    ``developer`` becomes ``system``, the only one of the two that templates know. Text parts are
    joined by line ends.

    Args:
        parsed: arguments of calls as objects, which most templates print themselves; else as text.

    Raises:
        RequestError: a content is missing or malformed, or arguments are no JSON object.
        UnsupportedError: a part that is no text.
    """
    called: dict[str, str] = {}
    made = []
    for place, message in enumerate(messages):
        made.append(_template_message(message, f"messages[{place}]", called, parsed))
    return made


def _template_message(
    message: ChatMessage, where: str, called: dict[str, str], parsed: bool
) -> dict[str, Any]:
    made: dict[str, Any] = {
        "role": "system" if message.role == "developer" else message.role,
        "content": _text(message, where),
    }
    if message.tool_calls:
        if message.role != "assistant":
            raise RequestError(
                f"`{where}.tool_calls` in a message of the assistant",
                f"the role {message.role}",
                "Leave it out.",
            )
        made["tool_calls"] = [_call(call, where, parsed) for call in message.tool_calls]
        called |= {call.id: call.function.name for call in message.tool_calls if call.id}
    name = message.name or called.get(message.tool_call_id or "")
    extras = {
        "name": name,
        "tool_call_id": message.tool_call_id,
        "reasoning_content": message.reasoning_content,
    }
    return made | {key: value for key, value in extras.items() if value is not None}


def _text(message: ChatMessage, where: str) -> str:
    content = message.content
    if isinstance(content, list):
        return "\n".join(text_part(part, f"{where}.content") for part in content)
    if content is None:
        if message.tool_calls:
            return ""
        raise RequestError(
            f"`{where}.content` (only tool calls go without)", "nothing", "Give a text."
        )
    return content


def text_part(part: Mapping[str, Any], where: str) -> str:
    """The text of one part of a content.

    Raises:
        RequestError: it is malformed.
        UnsupportedError: it is an image, a sound or a file.
    """
    kind = part.get("type")
    if kind not in ("text", "input_text", "output_text"):
        raise UnsupportedError(
            f"`{where}` with parts of type text", f"type {shown(kind)}", "Send the text alone."
        )
    text = part.get("text")
    if not isinstance(text, str):
        raise RequestError(f"`{where}` with a `text` in each part", shown(text), "Give a text.")
    return text


def _call(call: ToolCall, where: str, parsed: bool) -> dict[str, Any]:
    arguments = call.function.arguments
    if isinstance(arguments, str):
        arguments = _object(arguments, where)
    given = {} if arguments is None else arguments
    shaped: Any = given if parsed else json.dumps(given, ensure_ascii=False)
    made: dict[str, Any] = {
        "type": "function",
        "function": {"name": call.function.name, "arguments": shaped},
    }
    return made if call.id is None else {"id": call.id, **made}


def _object(text: str, where: str) -> dict[str, Any]:
    if not text.strip():
        return {}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise RequestError(
            f"`{where}.tool_calls` with arguments that are a JSON object",
            shown(text),
            "Send the arguments as the call had them.",
        )
    return value
