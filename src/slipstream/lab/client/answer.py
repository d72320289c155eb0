"""What is asked of a server and what it answered, in the terms of ``RequestRecord``."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from slipstream.lab.contract.records import Counts

Top = tuple[tuple[int | str, float], ...]
"""The likeliest tokens at a place (id, or text where ids are not told) with log-probabilities."""


@dataclass(frozen=True)
class Prompt:
    """What is asked.

    Attributes:
        messages: of a chat; what the dialects of chat completions send.
        tools: that the model may call, as OpenAI's API frames them; ``ids`` hold them already.
        ids: token ids; what the dialect ``llama`` sends, so that every server computes the same.
        text: sent by ``llama`` where there are no ids.
        extra: further keys of the request's body (``id_slot``).
    """

    messages: tuple[Mapping[str, Any], ...] = ()
    ids: tuple[int, ...] = ()
    text: str = ""
    tools: tuple[Mapping[str, Any], ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """What came, by the client's clock and as the server tells it.

    Attributes:
        sent_s: clock reading when the request was sent.
        token_times_s: from ``sent_s``, one per token where the server tells the tokens of a piece,
            else one per streamed piece of text.
        total_s: from ``sent_s`` to the last event; None where the reply is not complete.
        queue_s, prompt_tok_s, decode_tok_s, phases, counts: as the server tells them.
        reused_tokens: of the prompt, taken from a cache; None = not told.
        ids: of the output, the end token included; empty where the server does not tell.
        tops: for each token, the likeliest ones; empty unless asked for.
        reasoning: text that the server keeps apart from the answer's.
        tool_calls: name and arguments of each.
        kernel_paths: observed by the server itself; ``method`` that it drafted with, as it tells.
        settings: the request's options in effect, as the server echoes them.
        diagnostics: what was noticed; each begins with the name of a finding and a colon.
        error: empty, or what went wrong.
    """

    sent_s: float = 0.0
    token_times_s: tuple[float, ...] = ()
    total_s: float | None = None
    queue_s: float | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    reused_tokens: int | None = None
    prompt_tok_s: float | None = None
    decode_tok_s: float | None = None
    phases: Mapping[str, float] = field(default_factory=dict)
    counts: Counts = field(default_factory=Counts)
    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[Mapping[str, str], ...] = ()
    ids: tuple[int, ...] = ()
    tops: tuple[Top, ...] = ()
    finish_reason: str = ""
    kernel_paths: tuple[str, ...] = ()
    method: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    diagnostics: tuple[str, ...] = ()
    error: str = ""
    timed_out: bool = False

    @property
    def ttft_s(self) -> float | None:
        return self.token_times_s[0] if self.token_times_s else None

    @property
    def whole_text(self) -> str:
        """Reasoning, answer and calls; what equality is taken of where there are no ids."""
        return self.reasoning + self.text + calls_text(self.tool_calls)

    @property
    def gaps(self) -> tuple[float | None, ...]:
        """For each token the gap of the two likeliest; None where fewer are told."""
        return tuple(gap_of(top) for top in self.tops)

    def fields(self, origin_s: float = 0.0) -> dict[str, Any]:
        """Keyword arguments of ``RequestRecord``.

        Args:
            origin_s: clock reading of the block's start.
        """
        sent_s = round(self.sent_s - origin_s, 6)
        first_s = None if self.ttft_s is None else round(sent_s + self.ttft_s, 6)
        return {
            "sent_s": sent_s,
            "first_s": first_s,
            "token_times_s": tuple(round(at_s, 6) for at_s in self.token_times_s),
            "queue_s": self.queue_s,
            "total_s": None if self.total_s is None else round(self.total_s, 6),
            "prompt_tokens": self.prompt_tokens,
            "output_tokens": self.output_tokens,
            "prompt_tok_s": self.prompt_tok_s,
            "decode_tok_s": self.decode_tok_s,
            "phases": dict(self.phases),
            "counts": self.counts,
            "text_sha256": text_digest(self.whole_text) if self.whole_text else "",
            "ids_sha256": ids_digest(self.ids) if self.ids else "",
            "finish_reason": self.finish_reason,
            "diagnostics": self.diagnostics,
            "error": self.error,
            "timed_out": self.timed_out,
        }

    def output(self) -> bytes:
        """Text and ids as JSON, for a file that is named by its digest."""
        plain: dict[str, Any] = {"text": self.text, "ids": list(self.ids)}
        if self.reasoning:
            plain["reasoning"] = self.reasoning
        if self.tool_calls:
            plain["tool_calls"] = [dict(call) for call in self.tool_calls]
        if self.tops:
            plain["tops"] = self.tops
        return msgspec.json.encode(plain)


def calls_text(calls: Sequence[Mapping[str, str]]) -> str:
    """Calls that a server keeps apart from the text, as a model would write them: a JSON array."""
    return json.dumps([dict(call) for call in calls], ensure_ascii=False) if calls else ""


def gap_of(top: Top) -> float | None:
    """Difference of the two best log-probabilities; None where there are fewer."""
    values = sorted((logprob for _, logprob in top), reverse=True)
    return values[0] - values[1] if len(values) > 1 else None


def text_digest(text: str) -> str:
    """SHA-256 of a text in UTF-8."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def ids_digest(ids: Sequence[int]) -> str:
    """SHA-256 of the compact JSON list of ids."""
    return hashlib.sha256(json.dumps(list(ids), separators=(",", ":")).encode()).hexdigest()
