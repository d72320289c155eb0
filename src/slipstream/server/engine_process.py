"""The engine process as the HTTP process sees it: started, waited for, ended."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from types import TracebackType
from typing import Final, Self

import msgspec

from slipstream.backends.base import Progress as ProgressCallback
from slipstream.errors import BackendError
from slipstream.server.plan import IGNORED, Plan
from slipstream.server.wire import Failed, Framing, FromWorker, Progress, Ready
from slipstream.server.wire_errors import error_of

PROGRAM: Final = "slipstream.server.worker"
READ_BYTES: Final = 1 << 16
END_S: Final = 10.0


class EngineProcess:
    """
    Args:
        plan: what it opens.

    Attributes:
        connection: this process's end of the socket pair.
        process: the other one.

    Raises:
        BackendError: it could not be started.
    """

    def __init__(self, plan: Plan) -> None:
        self.connection, theirs = socket.socketpair()
        try:
            self.process = _started(theirs.fileno(), msgspec.msgpack.encode(plan))
        except OSError as problem:
            self.connection.close()
            found = problem.strerror or "it could not be started"
            raise BackendError("a second process for the engine", found, "Free memory.") from None
        finally:
            theirs.close()

    @property
    def exit_code(self) -> int | None:
        """Negative where a signal ended it; None while it goes on."""
        return self.process.poll()

    def wait_until_ready(self, progress: ProgressCallback | None = None) -> Ready:
        """
        Args:
            progress: called with (weight bytes done, weight bytes in all).

        Raises:
            SlipstreamError: why the model could not be opened.
            BackendError: the process ended without a word.
        """
        framing = Framing(FromWorker)
        while data := self._read():
            for frame in framing.feed(data):
                match frame:
                    case Progress():
                        if progress is not None:
                            progress(frame.done, frame.total)
                    case Failed():
                        raise error_of(frame.error)
                    case Ready():
                        return frame
        self.wait(END_S)
        raise self.death()

    def _read(self) -> bytes:
        try:
            return self.connection.recv(READ_BYTES)
        except OSError:
            return b""

    def death(self) -> BackendError:
        """What to say when it is gone."""
        code = self.exit_code
        found = "it ended"
        if code is not None:
            found = f"it was ended by {_signal(-code)}" if code < 0 else f"it ended with {code}"
        return BackendError(
            "the engine process to go on", found, "Start the server again; its log may say more."
        )

    def wait(self, timeout_s: float) -> bool:
        """Whether it ended in time."""
        try:
            self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def end(self, timeout_s: float = END_S) -> None:
        """Close the socket, at which it ends; kill it where it does not in time."""
        self.connection.close()
        if not self.wait(timeout_s):
            self.process.kill()
            self.process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # nobody waits for what it could still say
        self.end(END_S if kind is None else 1.0)


def _started(connection: int, plan: bytes) -> subprocess.Popen[bytes]:
    """The process, which has read its plan or will."""
    # it finds the package where this process did, and nothing in the folder where it was started
    path = os.pathsep.join(filter(None, sys.path))
    with _signals_held():
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", PROGRAM, str(connection)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,  # standard output is for what the server says
            pass_fds=(connection,),
            env={"TOKENIZERS_PARALLELISM": "false", **os.environ, "PYTHONPATH": path},
        )
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError), process.stdin:  # its death is told by its socket
        process.stdin.write(plan)
    return process


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


@contextlib.contextmanager
def _signals_held() -> Iterator[None]:
    """Within, what ends this process waits; one that starts holds it until it ignores it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, IGNORED)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
