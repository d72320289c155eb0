"""A server as a child process: started, waited for, ended with all that it started."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from slipstream.lab.observation.process_memory import PeakMemory
from slipstream.lab.runtimes.faults import CrashedError
from slipstream.lab.runtimes.kept_log import KeptLog, heard_nothing

HOST: Final = "127.0.0.1"
GRACE_S: Final = 15.0
_LAST_LINES: Final = 12
_LAST_BYTES: Final = 1 << 14
_LAST_CHARACTERS: Final = 300
_POLL_S: Final = 0.02
_LEFT_OVER: Final = ".pid"
_EXITING: Final = 0x4  # PF_EXITING, include/linux/sched.h
_SAME_S: Final = 2.0  # a start is told from the boot, whose time a corrected clock moves


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


class ServerProcess:
    """
    Args:
        log: file for what it writes; beside it a file with its number lies while it runs.
        heard: gets what it writes there, once it is asked for.
        stdout: another file for what it writes to stdout; None = the log.
        environment: variables beside this process's own.

    Raises:
        CrashedError: it cannot be started.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        *,
        heard: Callable[[bytes], None] = heard_nothing,
        stdout: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name, self.log = name, log
        self._asked_to_end = False
        log.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as files:
            self.kept = KeptLog(log, heard)
            file = self.kept.write_end
            out = file if stdout is None else files.enter_context(stdout.open("wb"))
            try:
                self._process = subprocess.Popen(
                    list(command),
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=file,
                    env={**os.environ, **(environment or {})},
                    start_new_session=True,  # Ctrl-C is the lab's; it ends the server itself
                )
            except OSError as problem:
                self.kept.abandon()
                raise CrashedError(
                    f"to start {name}", f"{command[0]}: {problem.strerror}", "Check the path."
                ) from None
            self.kept.started()
        self._note = log.with_name(log.name + _LEFT_OVER)
        self._note.write_text(json.dumps([self.pid, _created(self.pid)]))
        self.memory = PeakMemory([self.pid])

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def await_ready(self, ready: Callable[[], bool], timeout_s: float) -> None:
        """
        Raises:
            CrashedError: it ended, or ``ready`` was not true in time; the message holds its last
                lines.
        """
        limit = time.monotonic() + timeout_s
        while True:
            is_ready = ready()
            if self.exit_code is not None:  # also where another program answers at its port
                raise self._crashed(f"exit code {self.exit_code} before it was ready")
            if is_ready:
                return
            if time.monotonic() > limit:
                raise self._crashed(f"not ready after {timeout_s:.0f} s")
            time.sleep(_POLL_S)

    def _crashed(self, found: str) -> CrashedError:
        return CrashedError(
            f"{self.name} to be ready",
            f"{found}; its last lines:\n{self.last_lines()}",
            "See them.",
        )

    def last_lines(self) -> str:
        """The end of its log, of each line its beginning."""
        lines = self.kept.last(_LAST_BYTES).decode("utf-8", "replace").splitlines()
        return "\n".join(line[:_LAST_CHARACTERS] for line in lines[-_LAST_LINES:])

    def end(self, grace_s: float = GRACE_S) -> tuple[str, ...]:
        """End it and everything that it started; what was wrong with its end. Idempotent."""
        if self._asked_to_end:
            return ()
        self._asked_to_end = True
        self.memory.close()
        code = self._own_exit(grace_s)
        if code is not None:
            self._kill_group()
            return (f"crashed: exit code {code} before it was asked to end",)
        self._process.terminate()
        try:
            self._process.wait(grace_s)
        except subprocess.TimeoutExpired:
            return (f"crashed: it did not end within {grace_s:.0f} s and was killed",)
        finally:  # also when the wait is interrupted
            self._kill_group()
        return ()

    def _own_exit(self, grace_s: float) -> int | None:
        """How it ended by itself; None = it runs.

        Its connections are gone before its exit code is there, so one that is exiting is awaited.
        """
        if self.exit_code is None and _is_exiting(self.pid):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(grace_s)
        return self.exit_code

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        self.kept.close()
        self._note.unlink(missing_ok=True)


def end_left_over(folder: Path) -> tuple[int, ...]:
    """End servers that a lab killed in mid-run left behind in a folder of logs; their numbers.

    A number that the system gave to another process since is left alone.
    """
    import psutil

    ended = []
    for note in sorted(folder.rglob(f"*{_LEFT_OVER}")):
        with contextlib.suppress(OSError, ValueError, TypeError, psutil.Error):
            pid, created = json.loads(note.read_text()[:200])
            began = _created(int(pid))
            if began is not None and abs(began - float(created)) < _SAME_S:
                for process in [*psutil.Process(pid).children(True), psutil.Process(pid)]:
                    with contextlib.suppress(psutil.Error):
                        process.kill()
                ended.append(int(pid))
        note.unlink(missing_ok=True)
    return tuple(ended)


def _is_exiting(pid: int) -> bool:
    """Whether a process is on its way out; False where the system does not tell.

    Source: proc_pid_stat(5), field 9, the kernel's flags of the process.
    """
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return bool(int(fields[6]) & _EXITING)
    return False


def _created(pid: int) -> float | None:
    import psutil

    with contextlib.suppress(psutil.Error):
        return float(psutil.Process(pid).create_time())
    return None
