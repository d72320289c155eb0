"""Replies of Anthropic's Messages API: whole, and as the events of a stream."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

import msgspec

from slipstream.server.bodies import json_value
from slipstream.server.call_scanner import CallPart
from slipstream.server.chat_parts import ChoiceParts
from slipstream.server.order import Generation, Service, Timing
from slipstream.server.outputs import Output
from slipstream.server.replies import encode_json, named_message
from slipstream.server.timings import timings
from slipstream.server.tool_stream import Part
from slipstream.server.tools import ToolUse
from slipstream.server.wire import WireEvent

StopReason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use"]

PING: Final = named_message("ping", {"type": "ping"})
_STOPPED: Final = named_message("message_stop", {"type": "message_stop"})


class TextReply(msgspec.Struct, frozen=True, tag_field="type", tag="text"):
    text: str


class ToolUseReply(msgspec.Struct, frozen=True, tag_field="type", tag="tool_use"):
    id: str
    name: str
    input: dict[str, Any]


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens; the prompt's are ``input_tokens`` and those that were reused, together."""

    input_tokens: int
    output_tokens: int
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0


class MessageReply(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="message"
):
    """``/v1/messages``; the last three are ours."""

    id: str
    role: Literal["assistant"]
    model: str
    content: list[TextReply | ToolUseReply]
    stop_reason: StopReason | None
    stop_sequence: str | None
    usage: Usage
    speculative: Mapping[str, Any]
    seed: int | None
    timings: dict[str, Any] | None = None


class CountReply(msgspec.Struct, frozen=True):
    """``/v1/messages/count_tokens``."""

    input_tokens: int


class Frame:
    """What the reply to one generation says beside its content.

    Args:
        use: what it may do with tools, or None.
    """

    def __init__(self, service: Service, generation: Generation, use: ToolUse | None) -> None:
        self._service = service
        self._generation = generation
        self.use = use

    def whole(self, output: Output) -> MessageReply:
        """The reply of a request without ``stream``."""
        splitter = ChoiceParts(self.use, "")
        parts = splitter.feed(output.text, output.tokens) + splitter.finish()
        content = blocks(parts)
        called = any(isinstance(block, ToolUseReply) for block in content)
        return self.reply(
            content,
            output.timing,
            stop_reason(output.finish_reason, output.stop, called=called),
            output.stop,
        )

    def reply(
        self,
        content: list[TextReply | ToolUseReply],
        timing: Timing | None = None,
        reason: StopReason | None = None,
        stop: str | None = None,
    ) -> MessageReply:
        """
        Args:
            timing: None at the beginning, when nothing is known.
        """
        return MessageReply(
            id=f"msg_{self._generation.id}",
            role="assistant",
            model=self._service.name,
            content=content,
            stop_reason=reason,
            stop_sequence=stop,
            usage=self.usage(timing),
            **self.extras(timing),
        )

    def usage(self, timing: Timing | None) -> Usage:
        tokens = len(self._generation.order.prompt)
        reused = 0 if timing is None else timing.summary.get("reused_tokens", 0)
        return Usage(
            input_tokens=tokens - reused,
            output_tokens=0 if timing is None else timing.tokens,
            cache_read_input_tokens=reused,
        )

    def extras(self, timing: Timing | None) -> dict[str, Any]:
        """Ours: who drafts, the seed in use, and at the end what it cost."""
        echo = {
            "speculative": self._generation.speculation,
            "seed": self._generation.order.sampling.seed,
        }
        if timing is None:
            return echo
        return {**echo, "timings": timings(timing, self._service.facts)}


def stop_reason(finish: str | None, stop: str | None, *, called: bool) -> StopReason:
    """
    Args:
        finish: of the last event.
        stop: the stop string that ended the output, if one did.
        called: whether the output holds a call.
    """
    if finish == "length":
        return "max_tokens"
    if stop is not None:
        return "stop_sequence"
    return "tool_use" if called else "end_turn"


def blocks(parts: Iterable[Part]) -> list[TextReply | ToolUseReply]:
    """Content blocks of an output.

    A call whose arguments are no JSON object, cut off by the limit for example, is text: nobody
    should run it.
    """
    made: list[TextReply | ToolUseReply] = []
    texts: list[str] = []
    calls: dict[int, list[CallPart]] = {}
    for part in parts:
        if isinstance(part, str):
            made += _called(calls)
            texts.append(part)
        else:
            made += _said(texts)
            calls.setdefault(part.index, []).append(part)
    return [*made, *_said(texts), *_called(calls)]


def _said(texts: list[str]) -> list[TextReply]:
    """The text so far, which is taken out of the list."""
    text = "".join(texts)
    texts.clear()
    return [TextReply(text)] if text else []


def _called(calls: dict[int, list[CallPart]]) -> list[TextReply | ToolUseReply]:
    """The calls so far, which are taken out of the dictionary."""
    made = [_call(parts) for parts in calls.values()]
    calls.clear()
    return made


def _call(parts: list[CallPart]) -> TextReply | ToolUseReply:
    name = parts[0].name or ""
    arguments = "".join(part.arguments for part in parts)
    try:
        value = json_value(arguments or "{}")
        encode_json(value)  # refuses half surrogate pairs
    except (ValueError, OverflowError, RecursionError):
        value = None
    if not isinstance(value, dict):
        return TextReply(f"{name} {arguments}")
    return ToolUseReply(new_call_id(), name, value)


def new_call_id() -> str:
    return f"toolu_{secrets.token_hex(12)}"


class MessageStream:
    """The server-sent events of one reply.

    Args:
        timing: of the output, kept by the caller.
    """

    def __init__(self, frame: Frame, timing: Timing) -> None:
        self._frame = frame
        self._timing = timing
        self._splitter = ChoiceParts(frame.use, "")
        self._place = -1
        self._open: Literal["text", "tool_use"] | None = None
        self._delta = b""
        self._called = False

    def start(self) -> bytes:
        reply = self._frame.reply([])
        return named_message("message_start", {"type": "message_start", "message": reply}) + PING

    def feed(self, event: WireEvent) -> bytes:
        """The events for what a step gave; maybe none."""
        return self._told(self._splitter.feed(event.text, event.tokens))

    def end(self, last: WireEvent) -> bytes:
        """The events after the last step."""
        rest = self._told(self._splitter.finish())
        reason = stop_reason(last.finish_reason, last.stop, called=self._called)
        delta = {
            "type": "message_delta",
            "delta": {"stop_reason": reason, "stop_sequence": last.stop},
            "usage": self._frame.usage(self._timing),
            **self._frame.extras(self._timing),
        }
        return rest + self._close() + named_message("message_delta", delta) + _STOPPED

    def _told(self, parts: list[Part]) -> bytes:
        return b"".join(
            self._said(part) if isinstance(part, str) else self._call(part) for part in parts
        )

    def _said(self, text: str) -> bytes:
        opening = b"" if self._open == "text" else self._begin("text", TextReply(""))
        return opening + self._delta + encode_json(text) + b"}}\n\n"

    def _call(self, part: CallPart) -> bytes:
        opening = b""
        if part.name is not None:
            self._called = True
            opening = self._begin("tool_use", ToolUseReply(new_call_id(), part.name, {}))
        if not part.arguments:
            return opening
        return opening + self._delta + encode_json(part.arguments) + b"}}\n\n"

    def _begin(self, kind: Literal["text", "tool_use"], block: TextReply | ToolUseReply) -> bytes:
        closing = self._close()
        self._open = kind
        self._place += 1
        self._delta = _delta_head(self._place, kind)
        start = {"type": "content_block_start", "index": self._place, "content_block": block}
        return closing + named_message("content_block_start", start)

    def _close(self) -> bytes:
        if self._open is None:
            return b""
        self._open = None
        stop = {"type": "content_block_stop", "index": self._place}
        return named_message("content_block_stop", stop)


def _delta_head(place: int, kind: Literal["text", "tool_use"]) -> bytes:
    """A delta up to its text, made once per block."""
    inner = '"text_delta","text"' if kind == "text" else '"input_json_delta","partial_json"'
    head = f'{{"type":"content_block_delta","index":{place},"delta":{{"type":{inner}:'
    return b"event: content_block_delta\ndata: " + head.encode()
