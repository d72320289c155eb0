"""Requests of Anthropic's Messages API, as its clients send them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from slipstream.errors import UnsupportedError
from slipstream.server.bodies import ANY, Neutral, document, fill, shown

MOST_TAG_CHARACTERS: Final = 128
MOST_STOPS: Final = 64

NEUTRAL: Final[Neutral] = {
    "metadata": ANY,
    "cache_control": ANY,  # prefixes are reused without being asked
    "service_tier": ("auto", "standard_only"),
    "thinking": ({"type": "disabled"},),
    "speed": ("standard",),
    "container": None,
    "context_management": None,
    "diagnostics": None,
    "inference_geo": None,
    "mcp_servers": ([],),
}

Name = Annotated[str, Meta(pattern="^[a-zA-Z0-9_-]{1,128}$")]
Tag = Annotated[str, Meta(max_length=MOST_TAG_CHARACTERS)]


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What all content blocks may have; it has no effect, as prefixes are reused anyway."""

    cache_control: Any = None


class TextBlock(_Part, frozen=True, kw_only=True, tag_field="type", tag="text"):
    text: str
    citations: list[Any] | None = None


class ToolUseBlock(_Part, frozen=True, kw_only=True, tag_field="type", tag="tool_use"):
    """A call that the model made in an earlier turn."""

    id: str
    name: str
    input: dict[str, Any]
    caller: Any = None
    toolset_name: None = None


class ToolResultBlock(_Part, frozen=True, kw_only=True, tag_field="type", tag="tool_result"):
    """What such a call gave."""

    tool_use_id: str
    content: str | list[TextBlock] | None = None
    is_error: bool | None = None
    toolset_name: None = None


Block = TextBlock | ToolUseBlock | ToolResultBlock
BLOCKS: Final = ("text", "tool_use", "tool_result")


class InputMessage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    role: Literal["user", "assistant", "system"]
    content: str | list[Block]


class Tool(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A function that the client runs; ``input_schema`` is a JSON schema of an object."""

    name: Name
    input_schema: dict[str, Any]
    description: str | None = None
    type: Literal["custom"] | None = None
    cache_control: Any = None
    strict: bool | None = None
    eager_input_streaming: bool | None = None
    input_examples: list[Any] | None = None


class ToolChoice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``name`` belongs to ``tool`` alone."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool = False


class OutputFormat(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    type: Literal["json_schema"]
    schema: dict[str, Any]


class OutputConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``effort`` has no effect here, so only its default is taken."""

    effort: Literal["high"] | None = None
    format: OutputFormat | None = None


class CountBody(msgspec.Struct, frozen=True, kw_only=True):
    """``/v1/messages/count_tokens``."""

    messages: Annotated[list[InputMessage], Meta(min_length=1)]
    model: str = ""
    system: str | list[TextBlock] | None = None
    tools: list[Tool] = []
    tool_choice: ToolChoice | None = None
    output_config: OutputConfig | None = None


class MessagesBody(CountBody, frozen=True, kw_only=True):
    """``/v1/messages``; keys of our own come last."""

    max_tokens: Annotated[int, Meta(ge=1)]
    stream: bool = False
    stop_sequences: Annotated[list[str], Meta(max_length=MOST_STOPS)] = []
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None
    speculative: Any = None
    session: str | None = None
    workload: Tag | None = None
    deadline_s: Annotated[float, Meta(gt=0, le=86400)] | None = None


def messages_body(data: bytes) -> MessagesBody:
    """
    Raises:
        RequestError: it is malformed.
        UnsupportedError: it asks for something that is not run here, such as images.
    """
    keys = document(data)
    _require_text(keys)
    return fill(MessagesBody, keys, NEUTRAL)


def count_body(data: bytes) -> CountBody:
    """As ``messages_body``."""
    keys = document(data)
    _require_text(keys)
    return fill(CountBody, keys, NEUTRAL)


def _require_text(keys: dict[str, Any]) -> None:
    """
    Raises:
        UnsupportedError: a content block is of a kind that is known elsewhere, or a tool is one
            that Anthropic's own servers run.
    """
    for block in _blocks(keys.get("messages")):
        kind = block.get("type")
        if isinstance(kind, str) and kind not in BLOCKS:
            raise UnsupportedError(
                f"content blocks of type {', '.join(BLOCKS)}",
                f"`{shown(kind)}`",
                "Send text: the models here read nothing else.",
            )
    tools = keys.get("tools")
    for tool in tools if isinstance(tools, list) else ():
        kind = tool.get("type") if isinstance(tool, dict) else None
        if isinstance(kind, str) and kind != "custom":
            raise UnsupportedError(
                "tools of type `custom`, which the client runs",
                f"`{shown(kind)}`",
                "Describe a tool of your own by `name` and `input_schema`.",
            )


def _blocks(messages: Any) -> Iterator[dict[str, Any]]:
    """The content blocks of messages that may be malformed, those in tool results included."""
    waiting = [
        message.get("content")
        for message in (messages if isinstance(messages, list) else ())
        if isinstance(message, dict)
    ]
    while waiting:
        content = waiting.pop()
        for block in content if isinstance(content, list) else ():
            if isinstance(block, dict):
                yield block
                waiting.append(block.get("content"))
