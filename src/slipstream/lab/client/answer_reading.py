"""From a reply that has come to an ``Answer``; a server may say anything."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from slipstream.lab.client import told
from slipstream.lab.client.answer import Answer, Top
from slipstream.lab.client.event_stream import (
    BrokenReplyError,
    Payload,
    TimedBytes,
    events,
    json_of,
    payload_of,
)
from slipstream.lab.client.exchange import RawReply

_SHOWN: Final = 300
_MOST_SAID: Final = 1 << 16
_MOST_TOPS: Final = 100
_STREAM: Final = "text/event-stream"


@dataclass
class _Reading:
    """What was read so far; ``last`` is the event that ends a stream."""

    sent_s: float
    times: list[float] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: dict[int, dict[str, str]] = field(default_factory=dict)
    ids: list[int] = field(default_factory=list)
    tops: list[Top] = field(default_factory=list)
    timings: Mapping[str, Any] = field(default_factory=dict)
    usage: Mapping[str, Any] = field(default_factory=dict)
    last: Mapping[str, Any] = field(default_factory=dict)
    last_s: float | None = None
    finish_reason: str = ""
    error: str = ""

    def came(self, at_s: float, tokens: int) -> None:
        self.times += [at_s - self.sent_s] * max(tokens, 1)

    def likeliest(self, entries: list[Any], tokens: int) -> None:
        """Each at the place of its token; llama-server tells none of a token that was drafted."""
        missing = max(tokens, 1) - len(entries)
        self.tops += [*(_top(entry) for entry in entries), *(() for _ in range(missing))]


def read(raw: RawReply, dialect: str, timeout_s: float) -> Answer:
    """The answer in a reply; never raises for what a server sent."""
    reading = _Reading(raw.sent_s)
    try:
        payload = payload_of(raw) if raw.parts else None
        if payload is not None:
            _read_payload(payload, dialect, reading)
    except BrokenReplyError as problem:
        reading.error = f"broken reply: {problem}"
    return _answer(raw, reading, timeout_s)


def _read_payload(payload: Payload, dialect: str, reading: _Reading) -> None:
    kind = payload.headers.get("content-type", "")
    if payload.status != 200:
        reading.error = f"HTTP {payload.status}: {_said(payload)}"
        return
    if kind and not kind.lower().startswith(_STREAM):
        reading.error = f"no stream of events but {kind:.80}: {_said(payload)}"
        return
    take = _TAKES[dialect]
    for event in events(payload.parts):
        if event.data == b"[DONE]":
            reading.last_s = reading.last_s or event.at_s
            continue
        value = json_of(event.data)
        if not isinstance(value, dict):
            raise BrokenReplyError(f"an event that is no JSON object: {event.data[:40]!r}")
        if value.get("error"):
            reading.error = f"error event: {error_text(value, '')}"
            return
        take(reading, value, event)


def _said(payload: Payload) -> str:
    body = payload.body[:_MOST_SAID]
    return error_text(json_of(body), body.decode("utf-8", "replace"))


def error_text(value: Any, otherwise: str) -> str:
    """The message of an error in JSON, shortened, on one line."""
    error = told.mapping(value).get("error", value)
    message = told.text(told.mapping(error).get("message")) or told.text(error)
    return " ".join((message or otherwise or repr(value)).split())[:_SHOWN]


def _take_llama(reading: _Reading, value: Mapping[str, Any], event: TimedBytes) -> None:
    text, ids = told.text(value.get("content")), told.ids(value.get("tokens"))
    if text or ids:
        reading.came(event.at_s, len(ids))
        reading.texts.append(text)
        reading.ids += ids
    if text or ids:  # ik_llama.cpp tells all of them once more at the end
        reading.likeliest(told.items(value.get("completion_probabilities")), len(ids))
    if value.get("stop") is True:
        reading.last, reading.last_s = value, event.at_s
        reading.timings = told.mapping(value.get("timings"))
        reading.finish_reason = told.text(value.get("stop_type")) or _older_reason(value)


def _older_reason(value: Mapping[str, Any]) -> str:
    """As llama-server told it once, and ik_llama.cpp's does: one truth value each."""
    told_so = (name for name in ("limit", "eos", "word") if value.get(f"stopped_{name}") is True)
    return next(told_so, "")


def _take_openai(reading: _Reading, value: Mapping[str, Any], event: TimedBytes) -> None:
    reading.timings = told.mapping(value.get("timings")) or reading.timings
    reading.usage = told.mapping(value.get("usage")) or reading.usage
    for choice in told.items(value.get("choices"))[:1]:
        _take_choice(reading, told.mapping(choice), event)
    if reading.finish_reason:
        reading.last, reading.last_s = value, event.at_s


def _take_choice(reading: _Reading, choice: Mapping[str, Any], event: TimedBytes) -> None:
    delta = told.mapping(choice.get("delta"))
    text = told.text(delta.get("content"))
    thought = told.text(delta.get("reasoning_content")) or told.text(delta.get("reasoning"))
    ids = told.ids(choice.get("token_ids"))
    entries = told.items(told.mapping(choice.get("logprobs")).get("content"))
    called = _take_calls(reading, told.items(delta.get("tool_calls")))
    if text or thought or ids or called:
        reading.came(event.at_s, max(len(ids), len(entries)))
    reading.texts.append(text)
    reading.reasoning.append(thought)
    reading.ids += ids
    if text or thought or ids:
        reading.likeliest(entries, len(ids))
    reading.finish_reason = told.text(choice.get("finish_reason")) or reading.finish_reason


def _take_calls(reading: _Reading, calls: Iterable[Any]) -> bool:
    found = False
    for call in calls:
        function = told.mapping(told.mapping(call).get("function"))
        place = told.whole(told.mapping(call).get("index")) or 0
        kept = reading.calls.setdefault(min(place, 127), {"name": "", "arguments": ""})
        for name in kept:
            kept[name] += told.text(function.get(name))
        found = True
    return found


_TAKES: Final[Mapping[str, Callable[[_Reading, Mapping[str, Any], TimedBytes], None]]] = {
    "llama": _take_llama,
    "openai": _take_openai,
    "llama-chat": _take_openai,
}


def _top(entry: Any) -> Top:
    """The likeliest tokens of one place; llama-server's own, OpenAI's and ik_llama.cpp's form."""
    place = told.mapping(entry)
    listed = told.items(place.get("top_logprobs")) or told.items(place.get("probs"))
    found: list[tuple[int | str, float]] = []
    for candidate in listed[:_MOST_TOPS]:
        one = told.mapping(candidate)
        token, value = told.whole(one.get("id")), _logprob(one)
        if value is not None:
            text = told.text(one.get("token")) or told.text(one.get("tok_str"))
            found.append((text if token is None else token, value))
    return tuple(found)


def _logprob(candidate: Mapping[str, Any]) -> float | None:
    probability = told.number(candidate.get("prob"))
    if probability:
        return math.log(probability)
    return told.logarithm(candidate.get("logprob"))


def _answer(raw: RawReply, reading: _Reading, timeout_s: float) -> Answer:
    complete = reading.last_s is not None and not reading.error
    last_s = reading.last_s if reading.last_s is not None else raw.ended_s
    answer = Answer(
        sent_s=raw.sent_s,
        token_times_s=tuple(reading.times),
        total_s=last_s - raw.sent_s if complete else None,
        text="".join(reading.texts),
        reasoning="".join(reading.reasoning),
        tool_calls=tuple(reading.calls[place] for place in sorted(reading.calls)),
        ids=tuple(reading.ids),
        tops=tuple(reading.tops) if any(reading.tops) else (),
        finish_reason=reading.finish_reason,
        settings=told.mapping(reading.last.get("generation_settings")),
        error="" if complete else reading.error or _ending(raw, len(reading.times), timeout_s),
        timed_out=raw.ended == "timeout" and not complete,
    )
    return replace(answer, **timings_told(reading.timings, reading.usage, reading.last))


def timings_told(
    timings: Mapping[str, Any], usage: Mapping[str, Any], last: Mapping[str, Any]
) -> dict[str, Any]:
    """Counts and rates as the server tells them: usage first, then timings, then the last event."""
    fields = told.timing_fields(timings)
    computed, reused = told.whole(timings.get("prompt_n")), fields["reused_tokens"]
    prompt = None if computed is None else computed + (reused or 0)
    details = told.mapping(usage.get("prompt_tokens_details"))
    fields["reused_tokens"] = _first(reused, told.whole(details.get("cached_tokens")))
    fields["prompt_tokens"] = _first(
        told.whole(usage.get("prompt_tokens")), told.whole(last.get("tokens_evaluated")), prompt
    )
    fields["output_tokens"] = _first(
        told.whole(usage.get("completion_tokens")),
        told.whole(timings.get("predicted_n")),
        told.whole(last.get("tokens_predicted")),
    )
    return fields


def _first(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)


def _ending(raw: RawReply, tokens: int, timeout_s: float) -> str:
    """Why a reply is not complete."""
    after = f"after {tokens} tokens" if tokens else "before any token"
    if raw.ended == "timeout":
        return f"timeout: no end within {timeout_s:g} s, {after}"
    if raw.ended == "too long":
        return f"endless stream: given up {after}"
    if raw.ended.startswith("no connection"):
        return raw.ended
    return f"the reply ended early, {after}"
