"""Asking one side of a comparison: the server as it drafts, or the same without speculation.

Every request is bounded in time and bytes, and whatever comes back is a ``Reply`` or one of the
errors of ``outcomes``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from slipstream.lab.client.exchange import RawReply, exchange, request_bytes, waited
from slipstream.lab.conformance.outcomes import ContractError, RefusedError, Request
from slipstream.lab.conformance.replies import Reply, reply_of
from slipstream.lab.contract.address import address_of
from slipstream.lab.contract.runtimes import Endpoint
from slipstream.lab.observation.metrics_text import metrics_of
from slipstream.lab.runtimes.observing import text_at

CHAT: Final = "/v1/chat/completions"
MOST_REPLY_BYTES: Final = 8 << 20
DEFAULT_TOKENS: Final = 64
_EVENTS_BEYOND: Final = 64
_LEAST_S: Final = 0.05


def chat(prompt: str, max_tokens: int = DEFAULT_TOKENS, **more: Any) -> dict[str, Any]:
    """A body of chat completions, greedy unless ``more`` says otherwise."""
    body: dict[str, Any] = {
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": max_tokens,
        "temperature": 0,
    }
    if more.get("stream"):
        body["stream_options"] = {"include_usage": True}
    return body | more


@dataclass(frozen=True)
class Side:
    """
    Attributes:
        endpoint: ``extra`` is in every body.
        chosen: further keys of every body, that choose whether it drafts.
        counters: whether ``/metrics`` tells draft tokens.
    """

    endpoint: Endpoint
    chosen: Mapping[str, Any] = field(default_factory=dict)
    counters: bool = False


class Asker:
    """
    Args:
        timeout_s: of everything between two calls of ``begin``.
        clock: monotonic seconds.
    """

    def __init__(
        self, side: Side, timeout_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.side = side
        self._address = address_of(side.endpoint.url)
        self._timeout_s = timeout_s
        self._clock = clock
        self._deadline = 0.0
        self._told: int | None = None
        self._before: int | None = None
        self.begin()

    def begin(self) -> None:
        """A new check: its time begins, and its draft tokens are counted from here."""
        self._told = None
        self._before = self._counter()
        self._deadline = self._clock() + self._timeout_s

    @property
    def drafted(self) -> int | None:
        """Draft tokens since ``begin``: as replies tell them, else as counters do; None = neither.

        Counters hold other clients' requests too.
        """
        if self._told is not None:
            return self._told
        after = self._counter()
        return None if after is None or self._before is None else max(after - self._before, 0)

    def _counter(self) -> int | None:
        if not self.side.counters:
            return None
        return metrics_of(text_at(self.side.endpoint, "/metrics")).counts.drafted

    @property
    def left_s(self) -> float:
        """Of this check's time."""
        return max(self._deadline - self._clock(), 0.0)

    def body(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """As it is sent: what is asked comes before what the side chooses."""
        endpoint = self.side.endpoint
        named = {"model": endpoint.model} if endpoint.model else {}
        return {**named, **endpoint.extra, **self.side.chosen, **asked}

    def ask(self, asked: Mapping[str, Any], path: str = CHAT) -> Reply:
        """One request; its reply whatever the status.

        Raises:
            ContractError: nothing readable came in time.
        """
        return self.together([asked], path)[0]

    def answer(self, asked: Mapping[str, Any]) -> Reply:
        """One request that is answered with 200.

        Raises:
            RefusedError: a status of 4xx or 501.
            ContractError: another status, or nothing readable in time.
        """
        return answered(self.ask(asked))

    def together(self, bodies: Sequence[Mapping[str, Any]], path: str = CHAT) -> list[Reply]:
        """All at the same time; errors as ``ask``."""
        requests = [{"path": path, "body": self.body(asked)} for asked in bodies]
        raws = waited(lambda: self._exchanged(requests))
        found = [
            reply_of(raw, request, self._timeout_s)
            for raw, request in zip(raws, requests, strict=True)
        ]
        for reply in found:
            self._count(reply)
        return found

    async def _exchanged(self, requests: Sequence[Request]) -> list[RawReply]:
        return list(await asyncio.gather(*(self._send(request) for request in requests)))

    async def _send(self, request: Request, most_events: int | None = None) -> RawReply:
        body = request["body"]
        asked = body.get("max_tokens")
        tokens = asked if isinstance(asked, int) else DEFAULT_TOKENS
        data = request_bytes(self._address, request["path"], body, self.side.endpoint.headers)
        return await exchange(
            self._address,
            data,
            timeout_s=max(self.left_s, _LEAST_S),
            most_bytes=MOST_REPLY_BYTES,
            most_events=2 * tokens + _EVENTS_BEYOND if most_events is None else most_events,
        )

    def _count(self, reply: Reply) -> None:
        if reply.drafted is not None:
            self._told = (self._told or 0) + reply.drafted

    def abandoned(self, bodies: Sequence[Mapping[str, Any]], most_events: int) -> int:
        """Streams at the same time, each left after so many events; how many were cut off."""
        requests = [{"path": CHAT, "body": self.body(asked)} for asked in bodies]

        async def streams() -> list[RawReply]:
            return list(await asyncio.gather(*(self._send(r, most_events) for r in requests)))

        return sum(raw.ended == "too long" for raw in waited(streams))

    def damaged(self, asked: Mapping[str, Any]) -> Reply:
        """A request whose body is JSON but for its last byte; errors as ``ask``."""
        body = self.body(asked)
        request = {"path": CHAT, "body": body, "sent": "with `]` as its last byte"}
        data = request_bytes(self._address, CHAT, body, self.side.endpoint.headers)[:-1] + b"]"
        raw = waited(
            lambda: exchange(
                self._address,
                data,
                timeout_s=max(self.left_s, _LEAST_S),
                most_bytes=MOST_REPLY_BYTES,
            )
        )
        return reply_of(raw, request, self._timeout_s)


def answered(reply: Reply) -> Reply:
    """The reply of a request that was served; errors as ``Asker.answer``."""
    if reply.status == 200:
        if not reply.text and not reply.finishes:
            what = "text or finish reason" if reply.streamed or reply.value is not None else "JSON"
            raise ContractError(f"200 without {what}: {reply.error_text}", reply.request)
        return reply
    found = f"HTTP {reply.status}: {reply.error_text}"
    if 400 <= reply.status < 500 and reply.status not in (401, 403, 404, 408, 429):
        raise RefusedError(found, reply.request)
    if reply.status == 501:
        raise RefusedError(found, reply.request)
    raise ContractError(found, reply.request)
