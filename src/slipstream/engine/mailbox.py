"""One engine, several readers: whoever wants an event next runs the step and deals out its events.

Engines that share a program share a ``Mailroom``: one lock, and places for sequences. A reader
whose request waits for a place that another engine holds runs that engine's steps meanwhile; events
are kept for their readers. So a request is served even when its thread holds a half-read one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from threading import Lock

from slipstream.engine.engine import Engine
from slipstream.engine.events import Event
from slipstream.engine.scheduler import Places
from slipstream.engine.sequence import Request


@dataclass(frozen=True)
class Mailroom:
    """What the mailboxes of one program share.

    Attributes:
        places: of the program's memory; their engines share them.
        identities: of their sequences.
        lock: held during submit, cancel and step of any of the engines.
        open: mailboxes with requests.
    """

    places: Places
    identities: Iterator[int] = field(default_factory=count)
    lock: Lock = field(default_factory=Lock)
    open: list[Mailbox] = field(default_factory=list)


class Mailbox:
    """
    Args:
        engine: used through this mailbox only.
        room: shared with the other engines of the program.
    """

    def __init__(self, engine: Engine, room: Mailroom) -> None:
        self.engine = engine
        self._room = room
        self._boxes: dict[int, deque[Event]] = {}

    def run(self, request: Request) -> Iterator[Event]:
        """Submit a request and yield its events; closing the iterator early cancels it.

        Raises:
            InputError, OverloadedError: the request was refused (see ``Engine.submit``).
        """
        with self._room.lock:
            identity = self.engine.submit(request)
            self._boxes[identity] = deque()
            if self not in self._room.open:
                self._room.open.append(self)
        finished = False
        try:
            while not finished:
                event = self._next(identity)
                finished = event.finish_reason is not None
                yield event
        finally:
            with self._room.lock:
                del self._boxes[identity]
                self.engine.cancel(identity)
                if not self._boxes:
                    self._room.open.remove(self)

    def _next(self, identity: int) -> Event:
        box = self._boxes[identity]
        while True:
            with self._room.lock:
                if not box:
                    self._advance()
                if box:
                    return box.popleft()

    def _advance(self) -> None:
        """One step of this engine, or of the one whose requests hold or get the next place."""
        for mailbox in (self, *self._room.open):
            if mailbox.engine.ready:
                mailbox._deal()
                return
        raise RuntimeError("requests wait and no engine gets on")

    def _deal(self) -> None:
        for event in self.engine.step():
            box = self._boxes.get(event.request)
            if box is not None:
                box.append(event)
