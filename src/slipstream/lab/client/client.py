"""Asking a server: one request, timed by the client's clock, and everything it answered.

Nothing is parsed while a reply comes. ``send`` gives what came, still unread, so that of several
requests at a time none waits while another is read; ``ask`` reads at once. What a server does
wrong is a part of the answer (``error``, ``timed_out``, ``diagnostics``), never an exception.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from slipstream.errors import OptionError, PeerRuntimeError
from slipstream.lab.client.answer import Answer, Prompt, gap_of, ids_digest, text_digest
from slipstream.lab.client.answer_reading import read
from slipstream.lab.client.diagnoses import diagnose
from slipstream.lab.client.event_stream import BrokenReplyError, Payload, payload_of
from slipstream.lab.client.exchange import (
    MOST_BYTES,
    NO_LIMIT,
    RawReply,
    exchange,
    request_bytes,
    waited,
)
from slipstream.lab.client.request_bodies import BODIES, options_of
from slipstream.lab.contract.address import address_of
from slipstream.lab.contract.runtimes import FRESH, Endpoint
from slipstream.options import SamplingOptions

__all__ = [
    "Answer",
    "Prompt",
    "Sent",
    "ask",
    "ask_now",
    "fetch",
    "gap_of",
    "ids_digest",
    "send",
    "text_digest",
]

FETCH_S: Final = 10.0
MOST_FETCHED_BYTES: Final = 8 << 20
_EVENTS_BEYOND: Final = 64
"""Events of a stream that hold no token; beyond those and twice the tokens it has no end."""
_BYTES_OF_A_TOKEN: Final = 1 << 14  # with a hundred of the likeliest beside it
_BYTES_BEYOND: Final = 9 << 20  # a last event may repeat the prompt


@dataclass(frozen=True)
class Sent:
    """A request that was answered, or given up; nothing of it is read yet."""

    raw: RawReply
    prompt: Prompt
    options: SamplingOptions
    dialect: str
    timeout_s: float

    def answer(self) -> Answer:
        """What came."""
        found = read(self.raw, self.dialect, self.timeout_s)
        asked = self.prompt if self.dialect == "llama" else replace(self.prompt, ids=())
        return replace(found, diagnostics=diagnose(found, asked, self.options))


async def send(
    endpoint: Endpoint,
    prompt: Prompt,
    sampling: Mapping[str, Any] | SamplingOptions,
    *,
    speculation: Mapping[str, Any] | None = None,
    timeout_s: float,
    tenant: str = "",
) -> Sent:
    """One request and its reply.

    Args:
        sampling: ``SamplingOptions``' keys; ``logprobs`` asks for the likeliest tokens (a server
            may not tell them while it drafts).
        speculation: body's ``speculative``, for a server that lets a request choose.
        tenant: whose request it is, for a server that keeps tenants apart.

    Raises:
        OptionError: the request cannot be said in the endpoint's dialect.
    """
    if endpoint.dialect not in BODIES:
        raise OptionError(
            f"a dialect of {', '.join(BODIES)}", f"`{endpoint.dialect}`", "Correct the runtime."
        )
    options = options_of(sampling)
    path, make = BODIES[endpoint.dialect]
    body = _extra(endpoint, tenant) | make(prompt, options, tenant)
    body |= {"model": endpoint.model} if endpoint.model else {}
    body |= {"speculative": dict(speculation)} if speculation is not None else {}
    address = address_of(endpoint.url)
    raw = await exchange(
        address,
        request_bytes(address, path, body, endpoint.headers),
        timeout_s=timeout_s,
        most_bytes=_most_bytes(options),
        most_events=_most_events(options),
    )
    return Sent(raw, prompt, options, endpoint.dialect, timeout_s)


async def ask(
    endpoint: Endpoint,
    prompt: Prompt,
    sampling: Mapping[str, Any] | SamplingOptions,
    *,
    speculation: Mapping[str, Any] | None = None,
    timeout_s: float,
    tenant: str = "",
) -> Answer:
    """``send``, read at once."""
    sent = await send(
        endpoint, prompt, sampling, speculation=speculation, timeout_s=timeout_s, tenant=tenant
    )
    return sent.answer()


def ask_now(
    endpoint: Endpoint,
    prompt: Prompt,
    sampling: Mapping[str, Any] | SamplingOptions,
    *,
    timeout_s: float,
) -> Answer:
    """``ask`` for code that may wait; untimed uses alone."""
    return waited(lambda: ask(endpoint, prompt, sampling, timeout_s=timeout_s))


def _extra(endpoint: Endpoint, tenant: str) -> dict[str, Any]:
    fresh = tenant or secrets.token_hex(8)
    return {key: fresh if value == FRESH else value for key, value in endpoint.extra.items()}


def _most_bytes(options: SamplingOptions) -> int:
    if options.max_tokens < 0:
        return MOST_BYTES
    return min(MOST_BYTES, _BYTES_BEYOND + _BYTES_OF_A_TOKEN * options.max_tokens)


def _most_events(options: SamplingOptions) -> int:
    if options.max_tokens < 0:
        return NO_LIMIT
    return 2 * options.max_tokens + _EVENTS_BEYOND


def fetch(
    url: str,
    path: str,
    *,
    headers: Mapping[str, str] | None = None,
    body: Mapping[str, Any] | None = None,
    timeout_s: float = FETCH_S,
    most_bytes: int = MOST_FETCHED_BYTES,
) -> Payload:
    """One whole reply, whatever its status, for code that may wait: ``/props``, ``/metrics``.

    Raises:
        PeerRuntimeError: nobody listens, or no whole reply of at most ``most_bytes`` came in time.
    """
    address = address_of(url)
    request = request_bytes(address, path, body, headers or {})
    raw = waited(lambda: exchange(address, request, timeout_s=timeout_s, most_bytes=most_bytes))
    try:
        payload = payload_of(raw)
    except BrokenReplyError as problem:
        raise _no_reply(url + path, raw.ended if not raw.parts else str(problem)) from None
    if not payload.whole or raw.ended == "too long":
        raise _no_reply(url + path, f"only its beginning ({raw.ended})")
    return payload


def _no_reply(where: str, found: str) -> PeerRuntimeError:
    return PeerRuntimeError(
        f"a whole reply of {where}", found, "See the server's log; raise the timeout if it is slow."
    )
