"""Questions with known answers, and how each endpoint asks them and says what came."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from http_exchange import BrokenReplyError, ServerEvent

METHODS: Final = ("none", "ngram-simple", "ngram-mod", "suffix", "auto")
"""Drafting methods that need no file beside the model's."""


@dataclass(frozen=True)
class Question:
    """What is asked; the answer is one text, whatever the endpoint, method and company.

    Attributes:
        tokens: most that are wanted.
    """

    prompt: str
    temperature: float
    seed: int
    tokens: int

    @property
    def messages(self) -> list[dict[str, str]]:
        return [{"role": "user", "content": self.prompt}]


@dataclass(frozen=True)
class Outcome:
    """What a reply said.

    Attributes:
        finish: ``stop`` or ``length``; None where the reply did not say.
        tokens: of the output, by the reply's own count; None where it has none.
        id: of the request; the same in every event of a stream.
    """

    text: str
    finish: str | None
    tokens: int | None
    id: str | None = None


@dataclass(frozen=True)
class Endpoint:
    """One way to ask.

    Attributes:
        chat: whether the model's template is applied.
        seeded: whether it takes a seed.
        body: (question, stream) -> the request's JSON.
        whole: a reply's JSON -> what it said.
        streamed: the events of a stream -> what they said.
    """

    path: str
    chat: bool
    seeded: bool
    body: Callable[[Question, bool], dict[str, Any]]
    whole: Callable[[Any], Outcome]
    streamed: Callable[[Sequence[ServerEvent]], Outcome]


def _finish(reason: str | None) -> str | None:
    named = {"limit": "length", "max_tokens": "length", "eos": "stop", "word": "stop"}
    named |= {"end_turn": "stop", "stop_sequence": "stop", "none": None}
    return reason if reason is None else named.get(reason, reason)


def _data(event: ServerEvent) -> Any:
    try:
        value = json.loads(event.data)
    except ValueError:
        raise BrokenReplyError(f"an event that is no JSON: {event.data[:200]!r}") from None
    if isinstance(value, dict) and (event.name == "error" or value.get("error")):
        raise BrokenReplyError(f"an error event: {event.data[:400]!r}")
    return value


def _same_id(ids: Sequence[Any]) -> str | None:
    if len(set(ids)) > 1:
        raise BrokenReplyError(f"events of several requests in one stream: {sorted(set(ids))[:4]}")
    return None if not ids or ids[0] is None else str(ids[0])


def _native_body(question: Question, stream: bool) -> dict[str, Any]:
    return {
        "prompt": question.prompt,
        "n_predict": question.tokens,
        "temperature": question.temperature,
        "seed": question.seed,
        "stream": stream,
    }


def _native(reply: Any) -> Outcome:
    return Outcome(reply["content"], _finish(reply["stop_type"]), reply["tokens_predicted"])


def _native_stream(events: Sequence[ServerEvent]) -> Outcome:
    """``/completion``: the last event has ``stop`` and the counts."""
    parts = [_data(event) for event in events]
    text = "".join(part["content"] for part in parts)
    if not parts or not parts[-1]["stop"]:
        return Outcome(text, None, None)
    last = parts[-1]
    return Outcome(text, _finish(last["stop_type"]), last["tokens_predicted"])


def _openai_body(question: Question, stream: bool) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": "any",
        "max_tokens": question.tokens,
        "temperature": question.temperature,
        "seed": question.seed,
        "stream": stream,
    }
    return {**body, "stream_options": {"include_usage": True}} if stream else body


def _text_body(question: Question, stream: bool) -> dict[str, Any]:
    return {**_openai_body(question, stream), "prompt": question.prompt}


def _chat_body(question: Question, stream: bool) -> dict[str, Any]:
    return {**_openai_body(question, stream), "messages": question.messages}


def _openai(text: Callable[[Any], str]) -> Callable[[Any], Outcome]:
    def said(reply: Any) -> Outcome:
        (choice,) = reply["choices"]
        tokens = reply["usage"]["completion_tokens"]
        return Outcome(text(choice), _finish(choice["finish_reason"]), tokens, reply["id"])

    return said


def _openai_stream(text: Callable[[Any], str]) -> Callable[[Sequence[ServerEvent]], Outcome]:
    """The last event is ``[DONE]``; usage comes in one without choices before it."""

    def said(events: Sequence[ServerEvent]) -> Outcome:
        done = bool(events) and events[-1].data == b"[DONE]"
        parts = [_data(event) for event in events if event.data != b"[DONE]"]
        choices = [choice for part in parts for choice in part["choices"]]
        whole = "".join(text(choice) for choice in choices)
        reasons = [c["finish_reason"] for c in choices if c.get("finish_reason")]
        usage = next((p["usage"] for p in reversed(parts) if p.get("usage")), None)
        tokens = None if usage is None else usage["completion_tokens"]
        finish = _finish(reasons[-1]) if reasons and done else None
        return Outcome(whole, finish, tokens, _same_id([part["id"] for part in parts]))

    return said


def _messages_body(question: Question, stream: bool) -> dict[str, Any]:
    return {
        "model": "any",
        "max_tokens": question.tokens,
        "temperature": question.temperature,
        "messages": question.messages,
        "stream": stream,
    }


def _message(reply: Any) -> Outcome:
    text = "".join(block["text"] for block in reply["content"] if block["type"] == "text")
    return Outcome(
        text, _finish(reply["stop_reason"]), reply["usage"]["output_tokens"], reply["id"]
    )


def _message_stream(events: Sequence[ServerEvent]) -> Outcome:
    """``message_start``, blocks of deltas, ``message_delta`` with the reason, ``message_stop``."""
    parts = [_data(event) for event in events]
    deltas = [part["delta"] for part in parts if part["type"] == "content_block_delta"]
    text = "".join(d["text"] for d in deltas if d["type"] == "text_delta")
    ids = [part["message"]["id"] for part in parts if part["type"] == "message_start"]
    if not parts or parts[-1]["type"] != "message_stop":
        return Outcome(text, None, None, _same_id(ids))
    last = next(part for part in reversed(parts) if part["type"] == "message_delta")
    reason, tokens = last["delta"]["stop_reason"], last["usage"]["output_tokens"]
    return Outcome(text, _finish(reason), tokens, _same_id(ids))


def _content(choice: Mapping[str, Any]) -> str:
    part = choice.get("delta") or choice.get("message") or {}
    return part.get("content") or ""


def _text(choice: Mapping[str, Any]) -> str:
    return str(choice["text"])


ENDPOINTS: Final = (
    Endpoint("/completion", False, True, _native_body, _native, _native_stream),
    Endpoint("/v1/completions", False, True, _text_body, _openai(_text), _openai_stream(_text)),
    Endpoint(
        "/v1/chat/completions", True, True, _chat_body, _openai(_content), _openai_stream(_content)
    ),
    Endpoint("/v1/messages", True, False, _messages_body, _message, _message_stream),
)


def outcome_of(endpoint: Endpoint, given: Any) -> Outcome:
    """What a reply's JSON, or a list of events, said.

    Raises:
        BrokenReplyError: a field is missing or of another kind, or an event tells of an error.
    """
    try:
        return endpoint.streamed(given) if isinstance(given, list) else endpoint.whole(given)
    except (KeyError, TypeError, ValueError, IndexError, StopIteration) as problem:
        raise BrokenReplyError(
            f"{endpoint.path}: {type(problem).__name__} {problem} in {str(given)[:400]}"
        ) from None
