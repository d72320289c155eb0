"""The engine process's end of the socket pair: it waits for nothing while there is work."""

from __future__ import annotations

import contextlib
import select
import socket
from typing import Any, Final

from slipstream.server.wire import Framing, FromWorker, ToWorker, framed

READ_BYTES: Final = 1 << 18
SOCKET_BYTES: Final = 1 << 20
MOST_UNSENT_BYTES: Final = 1 << 26
"""Beyond so many bytes that the other process has not read, ``send`` waits for it."""


class Channel:
    """
    Args:
        connection: one end of a stream socket pair.
        most_unsent: bytes kept for a reader that is slow.

    Attributes:
        closed: whether the other process is gone; nothing comes any more, and what is sent is lost.
    """

    def __init__(
        self,
        connection: socket.socket,
        kind: Any = ToWorker,
        most_unsent: int = MOST_UNSENT_BYTES,
    ) -> None:
        connection.setblocking(False)
        with contextlib.suppress(OSError):  # a system may allow less
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BYTES)
        self._connection = connection
        self._framing = Framing(kind)
        self._most_unsent = most_unsent
        self._unsent = bytearray()
        self._woken, self._waker = socket.socketpair()
        self._woken.setblocking(False)
        self._waker.setblocking(False)
        self.closed = False

    def receive(self, timeout_s: float | None = 0.0) -> list[Any]:
        """The frames that came.

        Args:
            timeout_s: how long to wait for one, or for ``wake``; None = for ever.

        Raises:
            ValueError, msgspec.DecodeError: the other process is no peer of this one.
        """
        self._push()
        if timeout_s != 0.0 and not self.closed:
            self._wait(timeout_s)
        frames: list[Any] = []
        while not self.closed:
            try:
                data = self._connection.recv(READ_BYTES)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            if not data:
                self.closed = True
            frames += self._framing.feed(data)
        return frames

    def send(self, frame: FromWorker) -> None:
        """Send what the socket takes now and keep the rest for later."""
        self._unsent += framed(frame)
        self._push()
        while len(self._unsent) > self._most_unsent and not self.closed:
            select.select([], [self._connection], [])
            self._push()

    def flush(self, timeout_s: float) -> None:
        """Send what is left, as far as the other process reads it in time."""
        self._push()
        while self._unsent and not self.closed:
            _, writable, _ = select.select([], [self._connection], [], timeout_s)
            if not writable:
                return
            self._push()

    def wake(self) -> None:
        """End a wait of ``receive``; for other threads."""
        with contextlib.suppress(BlockingIOError):
            self._waker.send(b"\0")

    def close(self) -> None:
        for end in (self._connection, self._woken, self._waker):
            end.close()

    def _push(self) -> None:
        while self._unsent:
            try:
                sent = self._connection.send(self._unsent)
            except BlockingIOError:
                return
            except OSError:
                self.closed = True
                self._unsent.clear()
                return
            del self._unsent[:sent]

    def _wait(self, timeout_s: float | None) -> None:
        writing = [self._connection] if self._unsent else []
        select.select([self._connection, self._woken], writing, [], timeout_s)
        with contextlib.suppress(BlockingIOError):
            self._woken.recv(4096)
