"""A reply of chat completions, whole or streamed, as far as the contract speaks of it.

A server may say anything: values of other types count as not said, and what cannot be read at all
is a ``ContractError``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from slipstream.lab.client import told
from slipstream.lab.client.event_stream import (
    BrokenReplyError,
    Payload,
    events,
    json_of,
    payload_of,
)
from slipstream.lab.client.exchange import RawReply
from slipstream.lab.conformance.outcomes import ContractError, Request

_SHOWN: Final = 160


@dataclass(frozen=True)
class Reply:
    """What came.

    Attributes:
        request: it answers.
        streamed: whether it came in events.
        value: JSON of a reply that is no stream; None = it is no JSON.
        page: text of a reply that is no JSON.
        text: reasoning and answer.
        reasoned: whether there is reasoning; its marks are tokens and not in ``text``.
        entries: of ``logprobs.content``; None where the server has none.
        pieces: number of chunks with text.
        finishes: finish reasons in the order they came; a whole reply has one.
        ids: different ids of the chunks.
        done: whether ``[DONE]`` came (True for a whole reply).
        first_s, last_s: when the first and the last text came, from the request on.
    """

    request: Request
    status: int
    streamed: bool = False
    value: Any = None
    page: str = ""
    text: str = ""
    reasoned: bool = False
    entries: tuple[Mapping[str, Any], ...] | None = None
    pieces: int = 0
    finishes: tuple[str, ...] = ()
    usage: Mapping[str, Any] = field(default_factory=dict)
    timings: Mapping[str, Any] = field(default_factory=dict)
    speculative: Any = None
    ids: frozenset[str] = frozenset()
    done: bool = True
    first_s: float = 0.0
    last_s: float = 0.0

    @property
    def finish_reason(self) -> str:
        return self.finishes[-1] if self.finishes else ""

    @property
    def output_tokens(self) -> int | None:
        return told.whole(self.usage.get("completion_tokens"))

    @property
    def cached_tokens(self) -> int | None:
        """Prompt tokens taken from a cache."""
        details = told.mapping(self.usage.get("prompt_tokens_details"))
        found = told.whole(details.get("cached_tokens"))
        return told.whole(self.timings.get("cache_n")) if found is None else found

    @property
    def drafted(self) -> int | None:
        """Draft tokens of this reply; llama.cpp's timings leave them out where there were none."""
        return told.whole(self.timings.get("draft_n", 0)) if self.timings else None

    @property
    def accepted(self) -> int | None:
        return told.whole(self.timings.get("draft_n_accepted", 0)) if self.timings else None

    @property
    def error_text(self) -> str:
        """What an error says, shortened; of what is no JSON, its beginning."""
        error = told.mapping(self.value).get("error", self.value)
        message = told.text(told.mapping(error).get("message")) or told.text(error)
        return shown(message or self.page or repr(self.value))


def shown(text: str) -> str:
    """On one line and shortened."""
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else line[:_SHOWN] + ".."


def reply_of(raw: RawReply, request: Request, timeout_s: float) -> Reply:
    """
    Raises:
        ContractError: no whole HTTP reply came in time, or a stream that cannot be read.
    """
    try:
        payload = payload_of(raw) if raw.parts else None
        if raw.ended in ("timeout", "too long") or payload is None:
            raise ContractError(_no_end(raw, timeout_s), request)
        if not payload.whole:
            raise ContractError("a reply that ends early", request)
        return _read(payload, raw, request)
    except BrokenReplyError as problem:
        raise ContractError(f"a broken reply: {shown(str(problem))}", request) from None


def _no_end(raw: RawReply, timeout_s: float) -> str:
    if raw.ended == "timeout":
        return f"no end of the reply within {timeout_s:.0f} s"
    if raw.ended == "too long":
        return "a reply without end: given up"
    return "no reply" if raw.ended == "closed" else raw.ended


def _read(payload: Payload, raw: RawReply, request: Request) -> Reply:
    streams = "event-stream" in payload.headers.get("content-type", "").lower()
    if payload.status == 200 and streams:
        return _streamed(payload, raw, request)
    value = payload.json()
    if not isinstance(value, dict):
        return Reply(request, payload.status, page=payload.text)
    choice = _first(value)
    message = told.mapping(choice.get("message"))
    thought = _thought(message)
    text = thought + told.text(message.get("content"))
    finish = told.text(choice.get("finish_reason"))
    return Reply(
        request,
        payload.status,
        value=value,
        text=text,
        reasoned=bool(thought),
        entries=_entries(choice),
        pieces=1 if text else 0,
        finishes=(finish,) if finish else (),
        usage=told.mapping(value.get("usage")),
        timings=told.mapping(value.get("timings")),
        speculative=value.get("speculative"),
    )


def _first(value: Mapping[str, Any]) -> Mapping[str, Any]:
    return told.mapping(next(iter(told.items(value.get("choices"))), None))


def _thought(message: Mapping[str, Any]) -> str:
    return told.text(message.get("reasoning_content")) or told.text(message.get("reasoning"))


def _entries(choice: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...] | None:
    content = told.mapping(choice.get("logprobs")).get("content")
    if not isinstance(content, list):
        return None
    return tuple(told.mapping(entry) for entry in content)


@dataclass
class _Stream:
    """Chunks so far."""

    texts: list[str] = field(default_factory=list)
    reasoned: bool = False
    entries: list[Mapping[str, Any]] | None = None
    finishes: list[str] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)
    last: dict[str, Any] = field(default_factory=dict)
    times: list[float] = field(default_factory=list)

    def take(self, value: Mapping[str, Any], at_s: float) -> None:
        self.last |= {key: value[key] for key in _LAST if value.get(key) is not None}
        self.ids |= {told.text(value.get("id"))} - {""}
        choice = _first(value)
        delta = told.mapping(choice.get("delta"))
        thought = _thought(delta)
        self.reasoned |= bool(thought)
        if text := thought + told.text(delta.get("content")):
            self.texts.append(text)
            self.times.append(at_s)
        entries = _entries(choice)
        if entries is not None:
            self.entries = [*(self.entries or ()), *entries]
        if finish := told.text(choice.get("finish_reason")):
            self.finishes.append(finish)


_LAST: Final = ("usage", "timings", "speculative")


def _streamed(payload: Payload, raw: RawReply, request: Request) -> Reply:
    stream, done = _Stream(), False
    for event in events(payload.parts):
        if event.data == b"[DONE]":
            done = True
            continue
        value = json_of(event.data)
        if not isinstance(value, dict):
            raise BrokenReplyError(f"an event that is no JSON object: {event.data[:80]!r}")
        if value.get("error"):
            raise ContractError(f"an error in the stream: {shown(repr(value['error']))}", request)
        if done:
            raise ContractError("chunks after [DONE]", request)
        stream.take(value, event.at_s - raw.sent_s)
    return Reply(
        request,
        payload.status,
        streamed=True,
        text="".join(stream.texts),
        reasoned=stream.reasoned,
        entries=None if stream.entries is None else tuple(stream.entries),
        pieces=len(stream.texts),
        finishes=tuple(stream.finishes),
        usage=told.mapping(stream.last.get("usage")),
        timings=told.mapping(stream.last.get("timings")),
        speculative=stream.last.get("speculative"),
        ids=frozenset(stream.ids),
        done=done,
        first_s=stream.times[0] if stream.times else 0.0,
        last_s=stream.times[-1] if stream.times else 0.0,
    )
