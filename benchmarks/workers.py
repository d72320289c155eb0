"""Engines under comparison as child processes; at most one of them runs at any time (SIGSTOP)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

HERE = Path(__file__).resolve().parent
PEERS = ("llama", "ik_llama")
LAST_LINES = 12  # of a failed worker's errors


class Worker:
    """A child that answers one JSON line per request; stopped whenever it is not asked.

    What it writes to stderr is shown only when it ends by itself: peers print pages of text.
    """

    def __init__(self, name: str, command: list[str]) -> None:
        self.name = name
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            bufsize=1,
        )
        self.ready = self._answer()
        self.pause()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                answer: dict[str, Any] = json.loads(line)
                return answer
        code = self.process.wait()
        self._errors.seek(0)
        last = b"\n".join(self._errors.read().splitlines()[-LAST_LINES:])
        raise SystemExit(
            f"{last.decode(errors='replace')}\n{self.name} ended with exit code {code}"
        )

    def pause(self) -> None:
        os.kill(self.process.pid, signal.SIGSTOP)

    def ask(self, **request: Any) -> dict[str, Any]:
        """One request, with the process running only until it has answered."""
        assert self.process.stdin is not None
        os.kill(self.process.pid, signal.SIGCONT)
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        answer = self._answer()
        self.pause()
        return answer

    def close(self) -> None:
        if self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGCONT)
            self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self._errors):
            if stream is not None:
                stream.close()

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()


def require(names: Iterable[str], peers: Path) -> None:
    """End with a message unless every named peer is built; asked before anything is started."""
    for name in names:
        python = peers / name / "bin" / "python"
        if name != "slipstream" and not python.exists():
            raise SystemExit(f"no peer at {python}: run benchmarks/build_peers.sh first")


def start(name: str, model: str, *, threads: int, context: int, peers: Path) -> Worker:
    """``slipstream``, ``llama`` or ``ik_llama`` on one model file."""
    require([name], peers)
    options = ["--threads", str(threads), "--context", str(context)]
    if name == "slipstream":
        return Worker(name, [sys.executable, str(HERE / "own_worker.py"), model, *options])
    python = peers / name / "bin" / "python"
    return Worker(name, [str(python), str(HERE / "peer_worker.py"), name, model, *options])
