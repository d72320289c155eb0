"""One pass over a list of requests: who sends which, and when."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from slipstream.errors import SlipstreamError
from slipstream.lab.client.asking import Asked, Refused, Reply, Send
from slipstream.lab.contract.records import RowProbe
from slipstream.lab.contract.runtimes import Endpoint

GIVE_UP_AFTER = 2
"""So many requests in a row that fail, and one for each client more, end a pass."""


@dataclass(frozen=True)
class Item:
    """A request of a pass.

    Attributes:
        index: its place among the block's requests, warm-ups included.
        prompt: its id.
        at_s: when it is to be sent, from the pass's start; None = as soon as a client is free.
        row_probe: the divergence that its answer is to explain.
    """

    index: int
    prompt: str
    asked: Asked
    at_s: float | None = None
    tenant: str = ""
    row_probe: RowProbe | None = None


Heard = Callable[[Item, Reply], None]
"""Called with each reply in the order they came; of several clients at once, after the pass."""


@dataclass(frozen=True)
class Pass:
    """How a pass went.

    Attributes:
        heard: replies, in the order they came.
        given_up: so many requests were not sent, as those before them failed in a row.
        late_s: the most that a request with a time of its own was sent after it.
    """

    heard: int
    given_up: int
    late_s: float = 0.0


def run_pass(
    send: Send, endpoint: Endpoint, items: Sequence[Item], clients: int, heard: Heard
) -> Pass:
    """Send every item and wait for all replies.

    Args:
        clients: of a closed loop; of no effect where the items have times of their own.
    """
    if clients == 1 and all(item.at_s is None for item in items):
        return asyncio.run(_one_by_one(send, endpoint, items, heard))
    work = _Many(send, endpoint, items, clients)
    replies = asyncio.run(work.run())
    for item, reply in replies:
        heard(item, reply)
    return Pass(len(replies), len(items) - len(replies), work.late_s)


async def _sent(send: Send, endpoint: Endpoint, item: Item) -> Reply:
    try:
        return await send(endpoint, item.asked)
    except SlipstreamError as problem:
        return Refused(error=str(problem), sent_s=time.perf_counter())


async def _one_by_one(send: Send, endpoint: Endpoint, items: Sequence[Item], heard: Heard) -> Pass:
    failed = 0
    for number, item in enumerate(items, 1):
        reply = await _sent(send, endpoint, item)
        heard(item, reply)
        failed = failed + 1 if reply.failed else 0
        if failed == GIVE_UP_AFTER:
            return Pass(number, len(items) - number)
    return Pass(len(items), 0)


class _Many:
    """Several requests at a time: clients of a closed loop, or arrivals at times of their own."""

    def __init__(self, send: Send, endpoint: Endpoint, items: Sequence[Item], clients: int) -> None:
        self._send, self._endpoint = send, endpoint
        self._waiting = deque(items)
        self._clients = clients
        self._timed = any(item.at_s is not None for item in items)
        self._replies: list[tuple[Item, Reply]] = []
        self._failed = 0
        self.late_s = 0.0

    async def run(self) -> list[tuple[Item, Reply]]:
        if self._timed:
            begin = time.perf_counter()
            await _all(self._arrive(item, begin) for item in list(self._waiting))
        else:
            await _all(self._client() for _ in range(self._clients))
        return self._replies

    @property
    def _given_up(self) -> bool:
        return self._failed >= GIVE_UP_AFTER + self._clients

    async def _client(self) -> None:
        while self._waiting and not self._given_up:
            await self._ask(self._waiting.popleft())

    async def _arrive(self, item: Item, begin: float) -> None:
        due = begin + (item.at_s or 0.0)
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        self.late_s = max(self.late_s, time.perf_counter() - due)
        if not self._given_up:
            await self._ask(item)

    async def _ask(self, item: Item) -> None:
        reply = await _sent(self._send, self._endpoint, item)
        self._failed = self._failed + 1 if reply.failed else 0
        self._replies.append((item, reply))


async def _all(work: Iterable[Coroutine[Any, Any, None]]) -> None:
    async with asyncio.TaskGroup() as group:
        for one in work:
            group.create_task(one)
