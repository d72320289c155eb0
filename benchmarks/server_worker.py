"""A peer's llama-server as a child process, asked over HTTP; stopped whenever it is not asked."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from workers import LAST_LINES

HOST = "127.0.0.1"
READY_S = 180.0
ANSWER_S = 900.0


class ServerEndedError(RuntimeError):
    """It ended by itself, or was not ready in time: the message holds its last lines."""


@dataclass(frozen=True)
class Answer:
    """One completion.

    Attributes:
        tokens: generated, the first included.
        decode_s: from the first token to the last, as the server says.
        drafted, accepted: None where nothing was drafted, or the server does not say.
    """

    text: str
    tokens: int
    decode_s: float
    prompt_s: float
    drafted: int | None
    accepted: int | None

    @property
    def tok_s(self) -> float:
        """Tokens after the first per second, as for our own outputs."""
        return (self.tokens - 1) / self.decode_s if self.decode_s > 0 else 0.0


def answer_of(body: dict[str, Any]) -> Answer:
    """From the JSON of ``/completion``, whose fields both peers share.

    Raises:
        KeyError: a field is missing.
    """
    timings = body["timings"]
    return Answer(
        text=body["content"],
        tokens=int(timings["predicted_n"]),
        decode_s=float(timings["predicted_ms"]) / 1e3,
        prompt_s=float(timings["prompt_ms"]) / 1e3,
        drafted=timings.get("draft_n"),
        accepted=timings.get("draft_n_accepted"),
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


class Server:
    """
    Args:
        command: without host and port.

    Raises:
        ServerEndedError: it does not offer a flag, or fails to load the model.
    """

    def __init__(self, name: str, command: list[str]) -> None:
        self.name = name
        self.port = _free_port()
        self._url = f"http://{HOST}:{self.port}"
        self._output = tempfile.TemporaryFile()  # noqa: SIM115
        # a proxy of the environment must not be asked for a server on this machine
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        self.process = subprocess.Popen(
            [*command, "--host", HOST, "--port", str(self.port)],
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
        )
        try:
            self._await_ready()
        except BaseException:
            self.close()
            raise
        self.pause()

    def _await_ready(self) -> None:
        limit = time.monotonic() + READY_S
        while time.monotonic() < limit:
            if self.process.poll() is not None:
                raise ServerEndedError(
                    self._ending(f"ended with exit code {self.process.returncode}")
                )
            with (
                contextlib.suppress(urllib.error.URLError, ConnectionError, TimeoutError),
                self._opener.open(f"{self._url}/health", timeout=5) as reply,
            ):
                if reply.status == 200:
                    return
            time.sleep(0.1)
        raise ServerEndedError(self._ending(f"was not ready after {READY_S:.0f} s"))

    def _ending(self, what: str) -> str:
        self._output.seek(0)
        last = b"\n".join(self._output.read().splitlines()[-LAST_LINES:])
        return f"{last.decode(errors='replace')}\n{self.name} {what}"

    def pause(self) -> None:
        os.kill(self.process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.process.pid, signal.SIGCONT)

    def complete(self, ids: list[int], count: int) -> Answer:
        """Greedy, from token ids, nothing reused of earlier prompts.

        Raises:
            ServerEndedError: it ended while it was asked.
        """
        request = {
            "prompt": ids,
            "n_predict": count,
            "temperature": 0.0,
            "top_k": 1,
            "seed": 1,
            "cache_prompt": False,
            "stream": False,
        }
        self.resume()
        try:
            return answer_of(self._post("/completion", request))
        except (urllib.error.URLError, ConnectionError) as problem:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(5)
            raise ServerEndedError(self._ending(f"did not answer: {problem}")) from None
        finally:
            if self.process.poll() is None:
                self.pause()

    def _post(self, path: str, request: dict[str, Any]) -> dict[str, Any]:
        data = json.dumps(request).encode()
        headers = {"Content-Type": "application/json"}
        wanted = urllib.request.Request(f"{self._url}{path}", data, headers)
        with self._opener.open(wanted, timeout=ANSWER_S) as reply:
            body: dict[str, Any] = json.load(reply)
            return body

    def close(self) -> None:
        if self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGCONT)
            self.process.kill()
        self.process.wait()
        self._output.close()

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()
