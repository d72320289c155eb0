"""Requests beside each other, sessions that share nothing, streams that are given up."""

from __future__ import annotations

import math
import secrets
import time
from typing import Any, Final

from slipstream.lab.client import told
from slipstream.lab.conformance.asking import Asker, chat
from slipstream.lab.conformance.checks import Room, measurable, require
from slipstream.lab.conformance.comparing import Output, parting
from slipstream.lab.conformance.outcomes import ContractError, UnmeasuredError
from slipstream.lab.conformance.prompts import COUNT, marked, salted
from slipstream.lab.conformance.replies import Reply
from slipstream.lab.observation.metrics_text import requests_running
from slipstream.lab.running.isolation import RISE_OF_OUTPUT
from slipstream.lab.runtimes.observing import json_at, text_at

MOST_AT_ONCE: Final = 4
_ROUNDS: Final = 2
_EVENTS_BEFORE_CUT: Final = 3
_LEAST_CANCEL_SHARE: Final = 0.25
"""Of the time that a cancelled stream would go on, within which it must have ended."""
_TOKENS: Final = (64, 4096)
_CAUTIOUS_TOKENS: Final = 512  # where the context is not told
_PROMPT_TOKENS: Final = 128  # more than its prompt
_POLL_S: Final = 0.05


def slots(asker: Asker, room: Room) -> list[Output]:
    """At temperature 0 requests at the same time answer as alone, and hold nothing of others."""
    people = marked(min(max(room.slots or MOST_AT_ONCE, 2), MOST_AT_ONCE))
    bodies = [chat(prompt, 48 + 8 * place) for place, (_, prompt) in enumerate(people)]
    alone = [asker.answer(body) for body in bodies]
    for _ in range(_ROUNDS):
        for place, reply in enumerate(asker.together(bodies)):
            _require_own(reply, place, [marker for marker, _ in people])
            if reply.text != alone[place].text:
                where = parting(reply.text, alone[place].text)
                found = f"beside {len(bodies) - 1} others it differs from character {where} on"
                raise ContractError(found, reply.request)
    return []


def _require_own(reply: Reply, place: int, markers: list[str]) -> None:
    require(reply.status == 200, f"HTTP {reply.status}: {reply.error_text}", reply)
    others = [marker for n, marker in enumerate(markers) if n != place and marker in reply.text]
    require(not others, f"text of another request: {others}", reply)


def scopes(asker: Asker, room: Room) -> list[Output]:
    """What one session asked makes another's request neither cached nor better drafted."""
    measurable(room.flavour == "slipstream", "the server declares no sessions that keep apart")
    prompt = salted(secrets.token_hex(4))
    names = [f"conformance-{secrets.token_hex(8)}" for _ in range(3)]
    alone = _in_session(asker, prompt, names[0])
    _require_private_scope(alone)
    for _ in range(2):
        _in_session(asker, prompt, names[1])
    after = _in_session(asker, prompt, names[2])
    for reply in (alone, after):
        cached = reply.cached_tokens
        require(not cached, f"{cached} prompt tokens came from another session's cache", reply)
    rise = (after.accepted or 0) - (alone.accepted or 0)
    tokens = after.output_tokens or 0
    require(
        rise <= RISE_OF_OUTPUT * tokens,
        f"{after.accepted} draft tokens accepted after another session asked the same, "
        f"{alone.accepted} before, of {tokens}",
        after,
    )
    return []


def _in_session(asker: Asker, prompt: str, session: str) -> Reply:
    return asker.answer(chat(prompt, 64, session=session))


def _require_private_scope(reply: Reply) -> None:
    scope = told.mapping(reply.speculative).get("scope")
    if scope == "all":
        raise UnmeasuredError("the server says that drafters learn across sessions (scope `all`)")


def cancel(asker: Asker, room: Room) -> list[Output]:
    """A stream that its client leaves gives its slot back soon."""
    running = _running(asker)
    measurable(running is not None, "it tells in neither /slots nor /metrics what is running")
    measurable(running == 0, f"{running} other requests are running")
    body, expected_s = _long(asker, room)
    count = min(max(room.slots or 1, 1), MOST_AT_ONCE)
    cut = asker.abandoned([body] * count, _EVENTS_BEFORE_CUT)
    measurable(cut == count, "the streams ended before they could be left")
    grace_s = expected_s * _LEAST_CANCEL_SHARE
    freed = _freed(asker, grace_s)
    request = {"path": "/v1/chat/completions", "body": asker.body(body)}
    if not freed:
        raise ContractError(
            f"{_running(asker)} requests still run {grace_s:.1f} s after {count} streams were left",
            request,
        )
    return []


def _freed(asker: Asker, grace_s: float) -> bool:
    limit = time.monotonic() + min(grace_s, asker.left_s)
    while _running(asker) != 0:
        if time.monotonic() > limit:
            return False
        time.sleep(_POLL_S)
    return True


def _long(asker: Asker, room: Room) -> tuple[dict[str, Any], float]:
    """A body of an output that lasts, and how long it would take."""
    trial = asker.answer(chat(COUNT, 32, stream=True))
    tokens = trial.output_tokens or trial.pieces
    measurable(tokens > 1, "its output is too short to be left")
    token_s = (trial.last_s - trial.first_s) / (tokens - 1)
    least, most = _TOKENS
    room_tokens = _CAUTIOUS_TOKENS if room.context is None else room.context - _PROMPT_TOKENS
    wanted = math.ceil(room.cancel_s / max(token_s, 1e-6))
    asked = max(min(wanted, most, room_tokens), least)
    more = {} if room.flavour == "unknown" else {"ignore_eos": True}
    expected_s = asked * token_s
    measurable(
        expected_s >= room.cancel_s * _LEAST_CANCEL_SHARE,
        f"{asked} tokens take {expected_s:.1f} s here, too short to see what leaving them does",
    )
    return chat(COUNT, asked, stream=True, **more), expected_s


def _running(asker: Asker) -> int | None:
    """Requests at work; None = not told."""
    endpoint = asker.side.endpoint
    slots_told = json_at(endpoint, "/slots")
    if isinstance(slots_told, list) and slots_told:
        return sum(told.mapping(slot).get("is_processing") is True for slot in slots_told)
    return requests_running(text_at(endpoint, "/metrics"))
