"""The engine process's end of the socket, played by a test on the event loop."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from slipstream.errors import BackendError
from slipstream.server.wire import (
    Framing,
    FromWorker,
    Load,
    StepFrame,
    ToWorker,
    WireEvent,
    WireToken,
    framed,
)

DEATH = BackendError("the engine process to go on", "it ended", "Start it again.")


class Peer:
    """
    Args:
        end: the other end is a ``Link``'s.
    """

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._end.setblocking(False)
        self._framing = Framing(ToWorker)
        self._got: list[Any] = []

    async def next(self) -> Any:
        """The next frame that came."""
        while not self._got:
            data = await asyncio.get_running_loop().sock_recv(self._end, 1 << 16)
            assert data, "the link closed"
            self._got += self._framing.feed(data)
        return self._got.pop(0)

    async def send(self, *frames: FromWorker, cut: int = 1 << 20) -> None:
        await self.send_bytes(b"".join(map(framed, frames)), cut)

    async def send_bytes(self, data: bytes, cut: int = 1 << 20) -> None:
        for start in range(0, len(data), cut):
            await asyncio.get_running_loop().sock_sendall(self._end, data[start : start + cut])
            await asyncio.sleep(0)

    def close(self) -> None:
        self._end.close()


def event(number: int, text: str = "", finish: str | None = None) -> WireEvent:
    """One with a token per character."""
    tokens = tuple(WireToken(ord(letter), letter, False) for letter in text)
    return WireEvent(number, tokens, text, finish_reason=finish)


def step(*events: WireEvent, load: Load | None = None) -> StepFrame:
    return StepFrame(events=events, load=load or Load())


async def settled() -> None:
    """What was sent has been dealt with."""
    for _ in range(20):
        await asyncio.sleep(0.002)
