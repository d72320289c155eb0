"""The output of one choice of chat: content, and calls of functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from slipstream.server.call_scanner import CallPart
from slipstream.server.tool_stream import Part, joined
from slipstream.server.tools import ToolUse
from slipstream.server.wire import WireToken


class ChoiceParts:
    """Splits what one choice says.

    Args:
        use: what it may do with functions; None = everything is content.
        call_id: beginning of the ids of its calls.
    """

    def __init__(self, use: ToolUse | None, call_id: str) -> None:
        self._use = use
        self._stream = None if use is None else use.stream()
        self._call_id = call_id
        self._called = False

    def feed(self, text: str, tokens: Sequence[WireToken]) -> list[Part]:
        """What is certain with some more tokens, and the text that they released."""
        if self._stream is None or self._use is None:
            return [text] if text else []
        marks = self._use.marks
        if marks and any(token.id in marks for token in tokens):
            text = "".join(token.text + marks.get(token.id, "") for token in tokens)
        return self._kept(self._stream.feed(text))

    def finish(self) -> list[Part]:
        """The rest."""
        return [] if self._stream is None else self._kept(self._stream.finish())

    def _kept(self, parts: list[Part]) -> list[Part]:
        assert self._use is not None
        kept: list[Part] = []
        for part in parts:
            if isinstance(part, CallPart):
                self._called = True
                if part.index and not self._use.several:
                    continue
            kept.append(part)
        return joined(kept)

    def reason(self, finish_reason: str | None) -> str | None:
        """OpenAI's ``finish_reason``; an output that was cut off stays one, calls or not."""
        return "tool_calls" if self._called and finish_reason == "stop" else finish_reason

    def delta(self, part: Part) -> dict[str, Any]:
        """``delta`` of a chunk."""
        if isinstance(part, str):
            return {"content": part}
        function: dict[str, Any] = {"arguments": part.arguments}
        if part.name is None:
            return {"tool_calls": [{"index": part.index, "function": function}]}
        function = {"name": part.name, **function}
        identity = {"index": part.index, "id": self._id(part), "type": "function"}
        return {"tool_calls": [{**identity, "function": function}]}

    def message(self, parts: Sequence[Part]) -> dict[str, Any]:
        """``message`` of a choice with all its parts."""
        content = "".join(part for part in parts if isinstance(part, str))
        calls: dict[int, dict[str, Any]] = {}
        for part in parts:
            if isinstance(part, CallPart):
                call = calls.setdefault(part.index, self._opened(part))
                call["function"]["arguments"] += part.arguments
        made: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None}
        if calls:
            made |= {"content": content or None, "tool_calls": list(calls.values())}
        return made

    def _opened(self, part: CallPart) -> dict[str, Any]:
        function = {"name": part.name, "arguments": ""}
        return {"id": self._id(part), "type": "function", "function": function}

    def _id(self, part: CallPart) -> str:
        return f"{self._call_id}_{part.index}"
