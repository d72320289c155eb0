"""An order that runs: what is read of it, and what comes in from the engine process."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

from slipstream.server.order import Order
from slipstream.server.wire import WireEvent


class Inbox:
    """Events of one order, kept until they are read; of one reader.

    Args:
        choices: outputs that will each have a last event.

    Attributes:
        unread: choices whose last event was not read.
        weight: tokens in the events held, and alternatives to them.
    """

    def __init__(self, choices: int) -> None:
        self.held: deque[tuple[int, WireEvent]] = deque()
        self.unread = choices
        self.weight = 0
        self._waiter: asyncio.Future[None] | None = None

    def put(self, choice: int, event: WireEvent) -> None:
        self.held.append((choice, event))
        self.weight += _weight(event)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self) -> None:
        """Until there is something to read."""
        if not self.held:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter

    def take(self) -> tuple[int, WireEvent]:
        """The oldest one."""
        choice, event = self.held.popleft()
        self.unread -= event.finish_reason is not None
        self.weight -= _weight(event)
        return choice, event


def _weight(event: WireEvent) -> int:
    return sum(1 + len(token.top) for token in event.tokens)


class EngineGeneration:
    """See ``order.Generation``. It is cancelled when nobody holds it any more.

    Args:
        order: as it runs.
        numbers: of its requests on the wire.
        speculation: in effect, as it is echoed.
        cancel: ends a request by its number; those that are over are ignored.
    """

    def __init__(
        self,
        order: Order,
        numbers: Sequence[int],
        inbox: Inbox,
        speculation: Mapping[str, Any],
        cancel: Callable[[int], None],
    ) -> None:
        self.order = order
        self.id = uuid.uuid4().hex
        self.created_s = int(time.time())
        self.speculation = speculation
        self._numbers = tuple(numbers)
        self._inbox = inbox
        self._cancel = cancel

    async def events(self) -> AsyncIterator[tuple[int, WireEvent]]:
        """(choice, event) as they come, until every choice has its last one."""
        inbox = self._inbox
        try:
            while inbox.unread:
                await inbox.wait()
                while inbox.held:
                    yield inbox.take()
        finally:
            if inbox.unread:
                self.cancel()

    def cancel(self) -> None:
        for number in self._numbers:
            self._cancel(number)

    def __del__(self) -> None:
        # whoever made it may have been cancelled before it read anything
        if self._inbox.unread:
            self.cancel()
