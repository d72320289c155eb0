"""Chunks of ``/v1/completions`` as server-sent events; plain ones are put together of bytes that
were encoded once for the stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from slipstream.server.logprob_formats import completion_logprobs, text_tokens
from slipstream.server.openai_bodies import CompletionBody
from slipstream.server.openai_replies import Frame, shown_drafts
from slipstream.server.order import Generation, Timing
from slipstream.server.outputs import new_timing
from slipstream.server.replies import encode_json, message
from slipstream.server.timings import observe
from slipstream.server.wire import WireEvent
from slipstream.tokenizer import Tokenizer

_TEXT_END: Final = b',"logprobs":null,"finish_reason":null}]}\n\n'


class CompletionStream:
    """The chunks of one request.

    Args:
        frame: of the first generation.
        body: of the request.
        generations: one per prompt.
        echoes: per choice of all prompts, what its text begins with.
        arrived_s: when the request was read.
    """

    def __init__(
        self,
        frame: Frame,
        body: CompletionBody,
        tokenizer: Tokenizer,
        generations: Sequence[Generation],
        echoes: Sequence[str],
        arrived_s: float,
    ) -> None:
        self._frame = frame
        self._body = body
        self._tokenizer = tokenizer
        self._echoes = list(echoes)
        self._offsets = [0] * len(echoes)
        self.timings_by_prompt = [
            [new_timing(generation, arrived_s) for _ in range(body.n)] for generation in generations
        ]
        self._head = {**frame.head, "usage": None} if body.include_usage else frame.head
        self._plain = not (body.show_drafts or body.timings_per_token) and body.logprobs is None
        opening = b"data: " + encode_json(self._head)[:-1]
        self._text_starts = [
            opening + b',"choices":[{"index":%d,"text":' % index for index in range(len(echoes))
        ]

    def add(self, choice: int, event: WireEvent, now_s: float) -> bytes:
        """The chunks of an event, perhaps none.

        Args:
            choice: counted over all prompts.
        """
        timing = self._timing(choice)
        observe(timing, event, now_s)
        text, self._echoes[choice] = self._echoes[choice] + event.text, ""
        chunks = []
        if not self._plain:
            if text or event.tokens:
                chunks.append(self._full(choice, text, event))
        elif text:
            chunks.append(self._text_starts[choice] + encode_json(text) + _TEXT_END)
        if event.finish_reason is not None:
            extras = self._frame.extras(timing)
            chunks.append(self._chunk(choice, "", event.finish_reason, **extras))
        return b"".join(chunks)

    def _timing(self, choice: int) -> Timing:
        return self.timings_by_prompt[choice // self._body.n][choice % self._body.n]

    def ending(self, usage: dict[str, Any]) -> bytes:
        """The chunk with the counts, where it was asked for."""
        if not self._body.include_usage:
            return b""
        about = {"usage": usage}
        if len(self._echoes) == 1:
            about["timings"] = self._frame.timings(self._timing(0))
        return message({**self._frame.head, "choices": [], **about})

    def _full(self, choice: int, text: str, event: WireEvent) -> bytes:
        logprobs = None
        if self._body.logprobs is not None:
            tokens = text_tokens(event.tokens, event.finish_reason, event.stop, self._tokenizer)
            logprobs = completion_logprobs(tokens, self._tokenizer, self._offsets[choice])
        self._offsets[choice] += len(event.text)
        about: dict[str, Any] = {}
        if self._body.show_drafts:
            about["slipstream"] = shown_drafts(event.tokens)
        if self._body.timings_per_token:
            about["timings"] = self._frame.timings(self._timing(choice))
        return self._chunk(choice, text, logprobs=logprobs, **about)

    def _chunk(
        self,
        choice: int,
        text: str,
        finish_reason: str | None = None,
        logprobs: Any = None,
        **about: Any,
    ) -> bytes:
        told = {
            "index": choice,
            "text": text,
            "logprobs": logprobs,
            "finish_reason": finish_reason,
        }
        return message({**self._head, "choices": [told], **about})
