"""Streams of /completion, timed by the client's clock; the same client for every server."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from http_exchange import Address, BrokenReplyError, Exchange, post_json

ANSWER_S: Final = 900.0


@dataclass(frozen=True)
class Streamed:
    """One stream.

    Attributes:
        first_s, whole_s: from the first byte sent to any server to the first event and the last.
        tokens: emitted, as the last event says.
        drafted, accepted: None where nothing was drafted.
        text_sha256: of the text, shortened.
    """

    first_s: float
    whole_s: float
    tokens: int
    drafted: int | None
    accepted: int | None
    text_sha256: str

    @property
    def tok_s(self) -> float:
        """Tokens after the first per second."""
        return (self.tokens - 1) / (self.whole_s - self.first_s)

    def plain(self) -> dict[str, Any]:
        return {**asdict(self), "tok_s": self.tok_s}


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def body_of(ids: Sequence[int], tokens: int, **more: Any) -> dict[str, Any]:
    """Greedy, ends by its length, reuses nothing; keys that llama-server has too."""
    asked = {"prompt": list(ids), "n_predict": tokens, "temperature": 0.0, "top_k": 1, "seed": 1}
    return {**asked, "ignore_eos": True, "cache_prompt": False, "stream": True, **more}


def timed(address: Address, bodies: Sequence[Mapping[str, Any]]) -> list[Streamed]:
    """All of them at once.

    Raises:
        BrokenReplyError: a stream was refused, or did not end as it should.
        TimeoutError: it took longer than ``ANSWER_S``.
    """
    return asyncio.run(_timed(address, [post_json("/completion", body) for body in bodies]))


async def _timed(address: Address, requests: Sequence[bytes]) -> list[Streamed]:
    async with asyncio.timeout(ANSWER_S):
        opened = await asyncio.gather(*(Exchange.open(address) for _ in requests))
        begin = time.perf_counter()
        streams = zip(opened, requests, strict=True)
        return await asyncio.gather(*(_stream(one, data, begin) for one, data in streams))


async def _stream(exchange: Exchange, request: bytes, begin: float) -> Streamed:
    async with exchange:
        await exchange.send(request)
        head = await exchange.head()
        if head.status != 200:
            body = b"".join([part async for part in exchange.parts()])
            raise BrokenReplyError(f"status {head.status}: {body[:400]!r}")
        came = [(time.perf_counter() - begin, event.data) async for event in exchange.events()]
    return _streamed(came)


def _streamed(came: Sequence[tuple[float, bytes]]) -> Streamed:
    """Nothing is parsed before the stream is over: the clock is for the server alone."""
    parts = [json.loads(data) for _, data in came if data != b"[DONE]"]
    if not parts or not parts[-1].get("stop") or "timings" not in parts[-1]:
        raise BrokenReplyError(f"a stream without a last event: {came[-1:]}")
    timings = parts[-1]["timings"]
    return Streamed(
        first_s=came[0][0],
        whole_s=came[len(parts) - 1][0],
        tokens=int(timings["predicted_n"]),
        drafted=timings.get("draft_n"),
        accepted=timings.get("draft_n_accepted"),
        text_sha256=digest("".join(part["content"] for part in parts)),
    )
