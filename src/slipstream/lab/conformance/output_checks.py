"""What comes out: log-probabilities, stop texts, streams, and the same text as without drafts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from slipstream.lab.client import told
from slipstream.lab.conformance.asking import Asker, chat
from slipstream.lab.conformance.checks import Room, measurable, require
from slipstream.lab.conformance.comparing import Output, parting
from slipstream.lab.conformance.outcomes import ContractError
from slipstream.lab.conformance.prompts import COPY, PLAIN
from slipstream.lab.conformance.replies import Reply

TOPS: Final = 3
STOP_CHARACTERS: Final = 6
_STOP_SEARCHED: Final = 12  # places for one
_ENOUGH_STOPS: Final = 8  # replies
_SLACK: Final = 1e-3


def logprobs(asker: Asker, room: Room) -> list[Output]:
    """Every token has its log-probability and the likeliest ones, drafted or not."""
    del room
    found = []
    for stream in (False, True):
        asked = chat(COPY, 48, stream=stream, logprobs=True, top_logprobs=TOPS)
        reply = asker.answer(asked)
        told_tokens = checked_entries(reply)
        label = "streamed" if stream else "whole"
        found.append(Output(label, told_tokens, reply.request, reply.text))
    return found


def checked_entries(reply: Reply) -> list[tuple[str, float]]:
    """Token and log-probability of each token of a greedy reply.

    Raises:
        ContractError: one lacks something, or they are not the output.
    """
    entries = reply.entries
    require(entries is not None, "no `logprobs.content`", reply)
    assert entries is not None
    tokens = reply.output_tokens
    ended = reply.finish_reason == "stop"
    if tokens is not None and not tokens - ended <= len(entries) <= tokens:
        raise ContractError(
            f"log-probabilities of {len(entries)} tokens, {tokens} were output", reply.request
        )
    found = [_entry(place, entry, reply) for place, entry in enumerate(entries)]
    texts = _texts(entries)
    require(
        reply.reasoned or texts.strip() == reply.text.strip(),
        f"the texts of its tokens make another output, from character "
        f"{parting(texts.strip(), reply.text.strip())} on",
        reply,
    )
    return found


def _texts(entries: Sequence[Mapping[str, Any]]) -> str:
    """The tokens' texts in a row, by their bytes where they are told."""
    data = b"".join(
        bytes(min(byte, 255) for byte in told.ids(entry.get("bytes")))
        or told.text(entry.get("token")).encode("utf-8", "replace")
        for entry in entries
    )
    return data.decode("utf-8", "replace")


def _entry(place: int, entry: Mapping[str, Any], reply: Reply) -> tuple[str, float]:
    value = told.logarithm(entry.get("logprob"))
    token = told.text(entry.get("token"))
    if value is None or value > _SLACK or not isinstance(entry.get("token"), str):
        raise ContractError(f"token {place} has no log-probability", reply.request)
    tops = [told.logarithm(told.mapping(top).get("logprob")) for top in _tops(entry)]
    values = [top for top in tops if top is not None]
    if len(values) < TOPS or len(values) < len(tops):
        found = f"token {place} {token!r} has {len(values)} of {TOPS} `top_logprobs`"
        raise ContractError(found, reply.request)
    falling = all(a >= b - _SLACK for a, b in pairwise(values[:TOPS]))
    if (
        not falling
        or sum(map(math.exp, (min(v, 0.0) for v in values))) > 1.0 + len(values) * _SLACK
    ):
        found = f"token {place} {token!r}: `top_logprobs` {values} are no distribution"
        raise ContractError(found, reply.request)
    if value < values[0] - _SLACK:
        found = f"token {place} {token!r} was taken at temperature 0, another is likelier"
        raise ContractError(found, reply.request)
    return token, value


def _tops(entry: Mapping[str, Any]) -> list[Any]:
    return told.items(entry.get("top_logprobs"))


def stop_texts(asker: Asker, room: Room) -> list[Output]:
    """An output ends just before a stop text, wherever it lies among drafted tokens."""
    del room
    found = []
    for number, prompt in enumerate(PLAIN, start=1):
        whole = asker.answer(chat(prompt))
        for stop, place in _stops(whole.text):
            for stream in (False, True):
                reply = asker.answer(chat(prompt, stop=[stop], stream=stream))
                _require_stopped(reply, stop, whole.text[:place])
                label = f"prompt {number}, at {place}"
                found.append(Output(label, reply.output_tokens, reply.request, whole.text))
        if len(found) >= _ENOUGH_STOPS:
            break
    measurable(found, "no output has a text in it that could serve as a stop text")
    return found


def _stops(text: str) -> Iterator[tuple[str, int]]:
    """Up to two (text, place) that occur at their place first, spread over the text."""
    for share in (0.4, 0.7):
        start = max(int(len(text) * share), 1)
        for place in range(start, min(start + _STOP_SEARCHED, len(text) - STOP_CHARACTERS)):
            stop = text[place : place + STOP_CHARACTERS]
            if text.find(stop) == place and stop.strip() == stop:
                yield stop, place
                break


def _require_stopped(reply: Reply, stop: str, wanted: str) -> None:
    text = reply.text
    if stop in text:
        raise ContractError(f"the stop text {stop!r} is in the output", reply.request)
    if text.strip() != wanted.strip():
        went = len(text) - len(wanted)
        way = f"{went} characters past" if went > 0 else f"{-went} characters before"
        found = f"ended {way} the stop text {stop!r}, or has another text"
        raise ContractError(found, reply.request)
    require(reply.finish_reason == "stop", f"finish reason {reply.finish_reason!r}", reply)


def streaming(asker: Asker, room: Room) -> list[Output]:
    """A stream is the whole reply in pieces, with one end."""
    del room
    for prompt in PLAIN[:3]:
        whole = asker.answer(chat(prompt, 48))
        stream = asker.answer(chat(prompt, 48, stream=True))
        if stream.text != whole.text:
            place = parting(stream.text, whole.text)
            found = f"the stream differs from the whole reply from character {place} on"
            raise ContractError(found, stream.request)
        require(stream.done, "the stream ends without [DONE]", stream)
        require(len(stream.ids) <= 1, "the chunks of one reply have different ids", stream)
        reasons = list(stream.finishes)
        require(len(reasons) == 1, f"a stream with the finish reasons {reasons}", stream)
        require(stream.pieces > 1, "the stream came in one piece", stream)
    return []


def greedy(asker: Asker, room: Room) -> list[Output]:
    """At temperature 0 the text of a prompt is one and the same."""
    del room
    found = []
    for place, prompt in enumerate(PLAIN):
        first, second = asker.answer(chat(prompt)), asker.answer(chat(prompt))
        if first.text != second.text:
            where = parting(first.text, second.text)
            raise ContractError(
                f"asked twice, it differs from character {where} on", second.request
            )
        require(first.text, "an empty output", first)
        found.append(Output(f"prompt {place + 1}", first.text, first.request))
    return found
