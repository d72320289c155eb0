"""A server's log through a pipe: its first and last part are kept, and all of it is scanned.

A log that fits is written as it comes and read when it is asked about, so that nothing is computed
beside what is measured. Of one that does not fit, what is left out is scanned before it goes.
"""

from __future__ import annotations

import contextlib
import copy
import os
import select
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from slipstream.lab.observation.log_scan import LineFeed, LogScan, LogScanner

MOST_HEAD: Final = 4 << 20
MOST_TAIL: Final = 4 << 20
_PIECE: Final = 1 << 16
_MOST_PIECES: Final = 32
"""Pieces taken at a time: whoever asks about the log does not wait for one without end."""
_PIPE_BYTES: Final = 1 << 20
_SET_PIPE_SIZE: Final = 1031  # F_SETPIPE_SZ of Linux


def heard_nothing(data: bytes) -> None:
    """Of a log that nobody follows."""
    del data


class KeptLog:
    """
    Args:
        path: its file; holds the first part at once, the rest once the log is closed.
        heard: gets everything, in pieces, by the time that ``deliver`` returns.

    Attributes:
        write_end: descriptor to write to; ``started`` closes it once a child has it.
    """

    def __init__(self, path: Path, heard: Callable[[bytes], None] = heard_nothing) -> None:
        self.path, self._heard = path, heard
        self._file = path.open("wb", buffering=0)
        self._end, self.write_end = os.pipe()
        os.set_blocking(self._end, False)
        _widen(self._end)
        self._lock = threading.RLock()
        self._most_head = MOST_HEAD
        self._head = 0
        self._tail = bytearray()
        self._left_out = 0
        self._delivered = 0
        self._feed, self._scanner = LineFeed(), LogScanner()
        self._closing = False
        self._thread = threading.Thread(target=self._follow, name="lab log", daemon=True)

    def started(self) -> None:
        """A child has the end to write to."""
        os.close(self.write_end)
        self._thread.start()

    def _follow(self) -> None:
        while not self._closing:
            ready, _, _ = select.select([self._end], [], [], 0.1)
            with self._lock:
                if self._closing or (ready and not self._pump()):
                    return

    def _pump(self) -> bool:
        """Take what is there now, up to a bound; False = nothing will come any more."""
        for _ in range(_MOST_PIECES):
            try:
                data = os.read(self._end, _PIECE)
            except BlockingIOError:
                return True
            except OSError:
                return False
            if not data:
                return False
            self._take(data)
        return True

    def _take(self, data: bytes) -> None:
        room = max(self._most_head - self._head, 0)
        self._tail += data[self._written(data[:room]) :]
        if len(self._tail) > 2 * MOST_TAIL:
            self._leave_out(len(self._tail) - MOST_TAIL)

    def _written(self, data: bytes) -> int:
        """Bytes that became part of the head; a full disk ends it, not the server."""
        done = 0
        try:
            while done < len(data):
                done += self._file.write(data[done:]) or 0
        except OSError:
            self._most_head = 0
        self._head += done
        return done

    def _leave_out(self, count: int) -> None:
        self._deliver()
        if not self._left_out:
            self._scanner.feed(self._feed, self._first())
        self._scanner.feed(self._feed, bytes(self._tail[:count]))
        del self._tail[:count]
        self._left_out += count

    def _first(self) -> bytes:
        with contextlib.suppress(OSError), self.path.open("rb") as file:
            return file.read(self._head)
        return b""

    def deliver(self) -> None:
        """Everything that was written by now is heard."""
        with self._lock:
            if not self._closing:
                self._pump()
            self._deliver()

    def _deliver(self) -> None:
        at, gone = self._delivered, self._head + self._left_out
        data = self._first()[at:] if at < self._head else b""
        self._heard(data + bytes(self._tail[max(at - gone, 0) :]))
        self._delivered = gone + len(self._tail)

    def scan(self) -> LogScan:
        """Everything that the log holds by now, what was left out included."""
        with self._lock:
            if not self._closing:
                self._pump()
            feed, scanner = copy.deepcopy((self._feed, self._scanner))
            if not self._left_out:
                scanner.feed(feed, self._first())
            scanner.feed(feed, bytes(self._tail))
            scanner.take(feed.rest())
            return scanner.result()

    def last(self, most: int) -> bytes:
        """Its last bytes."""
        with self._lock:
            if not self._closing:
                self._pump()
            tail = bytes(self._tail[-most:])
            return tail if len(tail) == most or self._left_out else (self._first() + tail)[-most:]

    def close(self) -> None:
        """Write the last part, with how much is missing before it. Idempotent."""
        if self._closing:
            return
        self._closing = True
        if self._thread.ident is not None:
            self._thread.join()  # a writer that is gone has woken it
        with self._lock:
            self._pump()
            os.close(self._end)
            with contextlib.suppress(OSError), self._file as file:
                file.write(self._gap() + bytes(self._tail))

    def abandon(self) -> None:
        """No child could be started."""
        os.close(self.write_end)
        self.close()

    def _gap(self) -> bytes:
        if not self._left_out:
            return b""
        text = f"the lab left out {self._left_out:,} bytes here, of {self._bytes:,} in all"
        return f"\n[{text}; they were scanned]\n".encode()

    @property
    def _bytes(self) -> int:
        return self._head + self._left_out + len(self._tail)

    def findings(self) -> tuple[str, ...]:
        """What the log holds, and that it was cut."""
        cut = (
            f"log-cut: {self._left_out:,} of {self._bytes:,} bytes of its log were scanned and "
            f"not kept, from byte {self._head:,} on"
        )
        return (*((cut,) if self._left_out else ()), *self.scan().findings)


def _widen(end: int) -> None:
    """So that a server that logs much at once does not wait; where the system lets it."""
    try:
        import fcntl

        fcntl.fcntl(end, _SET_PIPE_SIZE, _PIPE_BYTES)
    except (ImportError, OSError):
        return
