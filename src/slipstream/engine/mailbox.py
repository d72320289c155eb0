"""One engine, several readers: whoever wants an event next runs the step and deals out its events.

The lock stands for the ownership of the engine; engines that share a program share it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from threading import Lock

from slipstream.engine.engine import Engine
from slipstream.engine.events import Event
from slipstream.engine.sequence import Request


class Mailbox:
    """
    Args:
        engine: used through this mailbox only.
        lock: held during submit, cancel and step.
    """

    def __init__(self, engine: Engine, lock: Lock) -> None:
        self.engine = engine
        self._lock = lock
        self._boxes: dict[int, deque[Event]] = {}

    def run(self, request: Request) -> Iterator[Event]:
        """Submit a request and yield its events; closing the iterator early cancels it.

        Raises:
            InputError, OverloadedError: the request was refused (see ``Engine.submit``).
        """
        with self._lock:
            identity = self.engine.submit(request)
            self._boxes[identity] = deque()
        finished = False
        try:
            while not finished:
                event = self._next(identity)
                finished = event.finish_reason is not None
                yield event
        finally:
            with self._lock:
                del self._boxes[identity]
                self.engine.cancel(identity)

    def _next(self, identity: int) -> Event:
        box = self._boxes[identity]
        while True:
            with self._lock:
                if not box:
                    self._deal()
                if box:
                    return box.popleft()

    def _deal(self) -> None:
        for event in self.engine.step():
            box = self._boxes.get(event.request)
            if box is not None:
                box.append(event)
