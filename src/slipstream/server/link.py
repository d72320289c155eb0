"""The event loop's end of the socket pair to the engine process."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from itertools import count
from typing import Any, Protocol

import msgspec

from slipstream.errors import BackendError, SlipstreamError
from slipstream.server.wire import (
    Answer,
    Ask,
    Cancel,
    Failed,
    Framing,
    FromWorker,
    Load,
    Slot,
    StepFrame,
    Stop,
    Submit,
    ToWorker,
    WireEvent,
    framed,
)
from slipstream.server.wire_errors import error_of, told

Deliver = Callable[[WireEvent], None]


class Watcher(Protocol):
    """Who wants to know of more than events."""

    def started(self, slot: Slot) -> None: ...

    def loaded(self, load: Load) -> None: ...


class Link(asyncio.Protocol):
    """Orders to the engine process, and its events to those who ordered.

    Every number that was submitted gets a last event, whatever becomes of the process.

    Args:
        death: what to say when it is gone without a word.
        watcher: told of requests that start, and of the engine's state.

    Attributes:
        load: the newest state of the engine.
        failure: why the process does not go on, or None.
        gone: done once it does not go on.
    """

    def __init__(
        self, death: Callable[[], SlipstreamError], watcher: Watcher | None = None
    ) -> None:
        self.load = Load()
        self.failure: SlipstreamError | None = None
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.watcher = watcher
        self._death = death
        self._transport: asyncio.WriteTransport | None = None
        self._framing = Framing(FromWorker)
        self._deliver: dict[int, Deliver] = {}
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._questions = count()

    @classmethod
    async def over(
        cls,
        connection: socket.socket,
        death: Callable[[], SlipstreamError],
        watcher: Watcher | None = None,
    ) -> Link:
        """A link over a connected socket, which it owns from now on."""
        loop = asyncio.get_running_loop()
        connection.setblocking(False)
        _, link = await loop.create_connection(lambda: cls(death, watcher), sock=connection)
        return link

    def require_going_on(self) -> None:
        """
        Raises:
            SlipstreamError: why the process does not go on.
        """
        if self.failure is not None:
            raise error_of(told(self.failure))

    def submit(self, frame: Submit, deliver: Deliver) -> None:
        """
        Args:
            deliver: called with each event as it comes, the last one with a ``finish_reason``.

        Raises:
            SlipstreamError: the process does not go on.
        """
        self.require_going_on()
        self._deliver[frame.request] = deliver
        self._send(frame)

    def cancel(self, request: int) -> None:
        """Its last event comes all the same; unknown numbers and those that ended are ignored."""
        if request in self._deliver:
            self._send(Cancel(request=request))

    async def ask(self, what: str, session: str | None = None) -> dict[str, Any]:
        """See ``wire.Ask``.

        Raises:
            SlipstreamError: the question failed, or the process does not go on.
        """
        self.require_going_on()
        number = next(self._questions)
        answer = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        try:
            self._send(Ask(number=number, what=what, session=session))
            found: dict[str, Any] = await answer
            return found
        finally:
            self._answers.pop(number, None)

    async def stop(self, timeout_s: float) -> None:
        """Ask the process to end, and wait for it as long."""
        if self.failure is None:
            self._send(Stop())
        await asyncio.wait([self.gone], timeout=timeout_s)
        if self._transport is not None:
            self._transport.close()

    def _send(self, frame: ToWorker) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(framed(frame))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            frames = self._framing.feed(data)
        except (ValueError, msgspec.MsgspecError) as problem:
            self._fail(_garbled(problem))
            return
        for frame in frames:
            self._take(frame)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._fail(self._death())

    def _take(self, frame: FromWorker) -> None:
        match frame:
            case StepFrame():
                self._step(frame)
            case Answer():
                self._answered(frame)
            case Failed():
                self._fail(error_of(frame.error))

    def _step(self, frame: StepFrame) -> None:
        watcher = self.watcher
        if watcher is not None:
            for slot in frame.started:
                watcher.started(slot)
        for event in frame.events:
            if event.finish_reason is None:
                deliver = self._deliver.get(event.request)
            else:
                deliver = self._deliver.pop(event.request, None)
            if deliver is not None:
                deliver(event)
        self._loaded(frame.load)

    def _loaded(self, load: Load) -> None:
        self.load = load
        if self.watcher is not None:
            self.watcher.loaded(load)

    def _answered(self, frame: Answer) -> None:
        answer = self._answers.pop(frame.number, None)
        if answer is None or answer.done():
            return
        if frame.error is None:
            answer.set_result(frame.value)
        else:
            answer.set_exception(error_of(frame.error))

    def _fail(self, error: SlipstreamError) -> None:
        """Nothing comes any more: end all that waits."""
        if self.failure is not None:
            return
        self.failure = error
        self._loaded(Load())
        waiting, self._deliver = self._deliver, {}
        for number, deliver in waiting.items():
            deliver(WireEvent(number, (), "", finish_reason="error", error=told(error)))
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(error)
        if self._transport is not None:
            self._transport.close()
        if not self.gone.done():
            self.gone.set_result(None)


def _garbled(problem: Exception) -> BackendError:
    return BackendError(
        "frames of an engine process of this version", f"{problem!s:.200}", "Start it again."
    )
