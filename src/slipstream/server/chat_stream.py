"""Chunks of ``/v1/chat/completions`` as server-sent events.

Most chunks carry a piece of content and nothing else: those are put together of bytes that were
encoded once for the stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from slipstream.server.chat_parts import ChoiceParts
from slipstream.server.logprob_formats import chat_logprobs, text_tokens
from slipstream.server.openai_bodies import ChatBody
from slipstream.server.openai_replies import Frame, shown_drafts
from slipstream.server.order import Timing
from slipstream.server.replies import encode_json, message
from slipstream.server.timings import observe
from slipstream.server.tool_stream import joined
from slipstream.server.wire import WireEvent
from slipstream.tokenizer import Tokenizer

_CONTENT_END: Final = b'},"logprobs":null,"finish_reason":null}]}\n\n'
_FIRST: Final = {"role": "assistant", "content": ""}


class ChatStream:
    """The chunks of one request.

    Args:
        frame: of the generation.
        body: of the request.
        parts: per choice.
        timings: per choice; moved along with the events.
    """

    def __init__(
        self,
        frame: Frame,
        body: ChatBody,
        tokenizer: Tokenizer,
        parts: Sequence[ChoiceParts],
        timings: Sequence[Timing],
    ) -> None:
        self._frame = frame
        self._body = body
        self._tokenizer = tokenizer
        self._parts = parts
        self._timings = timings
        self._begun = [False] * len(parts)
        self._head = {**frame.head, "usage": None} if body.include_usage else frame.head
        self._plain = not (body.logprobs or body.show_drafts or body.timings_per_token)
        opening = b"data: " + encode_json(self._head)[:-1]
        self._content_starts = [
            opening + b',"choices":[{"index":%d,"delta":{"content":' % index
            for index in range(len(parts))
        ]

    def add(self, choice: int, event: WireEvent, now_s: float) -> bytes:
        """The chunks of an event, perhaps none."""
        timing, splitter = self._timings[choice], self._parts[choice]
        observe(timing, event, now_s)
        parts = splitter.feed(event.text, event.tokens)
        if event.finish_reason is not None:
            parts = joined(parts + splitter.finish())
        chunks = [] if self._begun[choice] else [self._chunk(choice, _FIRST)]
        self._begun[choice] = True
        if self._plain:
            chunks += [self._fast(choice, part) for part in parts]
        else:
            chunks += self._full(choice, parts, event)
        if event.finish_reason is not None:
            reason = splitter.reason(event.finish_reason)
            chunks.append(self._chunk(choice, {}, reason, **self._frame.extras(timing)))
        return b"".join(chunks)

    def ending(self, usage: dict[str, Any]) -> bytes:
        """The chunk with the counts, where it was asked for."""
        if not self._body.include_usage:
            return b""
        about = {"usage": usage}
        if len(self._timings) == 1:
            about["timings"] = self._frame.timings(self._timings[0])
        return message({**self._frame.head, "choices": [], **about})

    def _fast(self, choice: int, part: Any) -> bytes:
        if isinstance(part, str):
            return self._content_starts[choice] + encode_json(part) + _CONTENT_END
        return self._chunk(choice, self._parts[choice].delta(part))

    def _full(self, choice: int, parts: Sequence[Any], event: WireEvent) -> list[bytes]:
        """Chunks of an event; the first one has what is said of its tokens."""
        if not parts and not event.tokens:
            return []
        deltas = [self._parts[choice].delta(part) for part in parts] or [{"content": ""}]
        logprobs = None
        if self._body.logprobs:
            tokens = text_tokens(event.tokens, event.finish_reason, event.stop, self._tokenizer)
            logprobs = chat_logprobs(tokens, self._tokenizer)
        about: dict[str, Any] = {}
        if self._body.show_drafts:
            about["slipstream"] = shown_drafts(event.tokens)
        if self._body.timings_per_token:
            about["timings"] = self._frame.timings(self._timings[choice])
        first = self._chunk(choice, deltas[0], logprobs=logprobs, **about)
        return [first, *(self._chunk(choice, delta) for delta in deltas[1:])]

    def _chunk(
        self,
        choice: int,
        delta: Any,
        finish_reason: str | None = None,
        logprobs: Any = None,
        **about: Any,
    ) -> bytes:
        told = {
            "index": choice,
            "delta": delta,
            "logprobs": logprobs,
            "finish_reason": finish_reason,
        }
        return message({**self._head, "choices": [told], **about})
