"""The listening socket: no more connections than there are file descriptors for."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import resource
import socket
import time
from collections import deque
from typing import Any, Final

from slipstream.errors import UnavailableError
from slipstream.server.error_shapes import error_headers, openai_error
from slipstream.server.http_messages import whole_reply

_LOG: Final = logging.getLogger("slipstream")
MOST_CONNECTIONS: Final = 4096
RESERVED: Final = 64
"""File descriptors for all else: files, the engine's socket, connections that are refused."""

MOST_LINGERING: Final = 16
LINGER_S: Final = 1.0
LOG_S: Final = 60.0
_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_PAUSE_S: Final = 0.005
_READ_BYTES: Final = 1 << 16

Accepted = tuple[socket.socket, Any]


def most_connections() -> int:
    """Connections that the limit of file descriptors allows, once it is raised as far as it goes.

    The soft limit is raised towards the hard one, never lowered.
    """
    wanted = MOST_CONNECTIONS + RESERVED
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        raised = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return MOST_CONNECTIONS
    return min(MOST_CONNECTIONS, max(soft - RESERVED, soft // 2, 1))


class Listener(socket.socket):
    """A listening socket of an event loop; what is beyond its limit gets a 503 and is closed.

    asyncio accepts in a loop and makes transports later, so the limit is kept where the file
    descriptor comes into being.

    Attributes:
        most: connections at a time.
    """

    def __init__(self, family: int, kind: int, protocol: int) -> None:
        super().__init__(family, kind, protocol)
        self.most = MOST_CONNECTIONS
        self._open: set[socket.socket] = set()
        self._lingering: deque[socket.socket] = deque()
        self._spare = os.open(os.devnull, os.O_RDONLY)
        self._log = SeldomLog()

    def accept(self) -> Accepted:
        """
        Raises:
            BlockingIOError: none waits, or one was refused; asyncio asks again.
        """
        try:
            connection, address = super().accept()
        except OSError as problem:
            if problem.errno not in _EXHAUSTED:
                raise
            self._refuse_with_spare()
            raise BlockingIOError(errno.EAGAIN, "out of file descriptors") from None
        if self._is_full():
            self._refuse(connection)
            raise BlockingIOError(errno.EAGAIN, "too many connections")
        self._open.add(connection)
        return connection, address

    def close(self) -> None:
        while self._lingering:
            self._lingering.popleft().close()
        if self._spare >= 0:
            os.close(self._spare)
            self._spare = -1
        super().close()

    def _is_full(self) -> bool:
        if len(self._open) >= self.most:
            self._open = {one for one in self._open if one.fileno() >= 0}
        return len(self._open) >= self.most

    def _refuse(self, connection: socket.socket) -> None:
        """Answer without waiting for the request; closed at once, unread bytes would reset it."""
        self._log.say(f"more than {self.most} connections at a time: refused")
        connection.setblocking(False)
        try:
            connection.send(_too_many(self.most))
            connection.shutdown(socket.SHUT_WR)
        except OSError:
            connection.close()
            return
        self._lingering.append(connection)
        asyncio.get_running_loop().call_later(LINGER_S, _dismiss, connection)
        if len(self._lingering) > MOST_LINGERING:
            _dismiss(self._lingering.popleft())

    def _refuse_with_spare(self) -> None:
        """Accept with the file descriptor that was kept for it, so that the client is told."""
        self._log.say("no file descriptor for a connection: refused")
        if self._spare >= 0:
            os.close(self._spare)
            self._spare = -1
        with contextlib.suppress(OSError):
            connection, _ = super().accept()
            connection.setblocking(False)
            with connection, contextlib.suppress(OSError):
                connection.send(_too_many(self.most))
        try:
            self._spare = os.open(os.devnull, os.O_RDONLY)
        except OSError:
            time.sleep(_PAUSE_S)  # nothing can be accepted, and asyncio would ask at once


class SeldomLog:
    """A warning at most once a minute, with the number of those that were not told."""

    def __init__(self) -> None:
        self._told_s: float | None = None
        self._untold = 0

    def say(self, text: str) -> None:
        now_s = time.monotonic()
        if self._told_s is not None and now_s - self._told_s < LOG_S:
            self._untold += 1
            return
        more = f" (and {self._untold} times before)" if self._untold else ""
        self._told_s, self._untold = now_s, 0
        _LOG.warning("%s%s", text, more)


def _dismiss(connection: socket.socket) -> None:
    """Close it, what it sent read."""
    with contextlib.suppress(OSError):
        connection.recv(_READ_BYTES)
    connection.close()


def _too_many(most: int) -> bytes:
    error = UnavailableError(
        f"at most {most} connections at a time", "more", "Try again later, or keep fewer open."
    )
    return whole_reply(503, openai_error(error, 503), error_headers(error))
