"""A whole server as a child process: the one place that knows how it is started and stopped.

Used by tests and by the scripts in benchmarks/; of other packages it needs psutil alone until a
client is asked for.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psutil

if TYPE_CHECKING:
    import anthropic
    import httpx
    import openai

    from slipstream import Model

PROGRAM: list[str] = [sys.executable, "-m", "slipstream", "serve"]
"""What stands before the model; a test may put another program here."""
HOST: Final = "127.0.0.1"
READY_S, STOP_S = 300.0, 120.0
ANSWER_S: Final = 300.0
_LAST_LINES: Final = 12


class ServerFailedError(RuntimeError):
    """It ended by itself, or was not ready in time; the message holds its last lines."""


def tiny_backend() -> list[str]:
    """Flags for tiny models: the native core where it is built."""
    native = find_spec("slipstream._native") is not None
    return ["--backend", "cpu" if native else "reference"]


def reference(model: str | Path, **options: Any) -> Model:
    """The model without a server, on the backend of ``tiny_backend``."""
    from slipstream import Model

    return Model(str(model), backend=tiny_backend()[-1], **options)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's, with search paths that hold in any folder."""
    parts = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    source = Path(__file__).resolve().parents[1] / "src"
    if find_spec("slipstream") is None:
        parts.insert(0, str(source))
    paths = os.pathsep.join(str(Path(part).resolve()) for part in parts)
    return {**os.environ, "PYTHONPATH": paths, "PYTHONUNBUFFERED": "1", **(more or {})}


class RunningServer:
    """A server that answers.

    Args:
        command: the whole command line.
        port: where it will listen; None = it says so in its first line of JSON.

    Raises:
        ServerFailedError: it ended, or was not ready in time.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        port: int | None = None,
        more_environment: Mapping[str, str] | None = None,
    ) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._last_words: str | None = None
        self.host = HOST
        with self._file("out").open("wb") as out, self._file("err").open("wb") as err:
            self.process = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=environment(more_environment),
            )
        try:
            if port is None:
                self.host, self.port = self._told()
            else:
                self.port = port
                self._await(self._healthy)
        except BaseException:
            self.kill()
            raise

    def _file(self, name: str) -> Path:
        return Path(self._folder.name) / name

    def _told(self) -> tuple[str, int]:
        """Host and port, once its first line is there."""
        line = b""

        def came() -> bool:
            nonlocal line
            with self._file("out").open("rb") as out:
                line = out.readline()
            return line.endswith(b"\n")

        self._await(came)
        said = json.loads(line)
        assert said["ready"] is True, said
        return str(said["host"]), int(said["port"])

    def _healthy(self) -> bool:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(f"{self.url}/health", timeout=5) as reply:
                return bool(reply.status == 200)
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False

    def _await(self, came: Callable[[], bool]) -> None:
        limit = time.monotonic() + READY_S
        while not came():
            if self.process.poll() is not None:
                raise ServerFailedError(self._ending(f"exit code {self.process.returncode}"))
            if time.monotonic() > limit:
                raise ServerFailedError(self._ending(f"not ready after {READY_S:.0f} s"))
            time.sleep(0.02)

    def _ending(self, what: str) -> str:
        return "\n".join([*self.said().splitlines()[-_LAST_LINES:], what])

    def said(self) -> str:
        """All of its stdout and stderr so far, also after its end."""
        if self._last_words is not None:
            return self._last_words
        return "".join(self._file(n).read_text(errors="replace") for n in ("out", "err"))

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def processes(self) -> list[psutil.Process]:
        """The HTTP process, then those it started; what ended meanwhile is left out."""
        with contextlib.suppress(psutil.NoSuchProcess):
            first = psutil.Process(self.process.pid)
            return [first, *first.children(recursive=True)]
        return []

    def rss_bytes(self) -> int:
        """Resident memory of all its processes."""
        total = 0
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                total += process.memory_info().rss
        return total

    def pause(self) -> None:
        """Stop all its processes (SIGSTOP); ``resume`` wakes them, the workers first."""
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        for process in reversed(self.processes()):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGCONT)

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def wait(self) -> int:
        """Its exit code.

        Raises:
            subprocess.TimeoutExpired: it goes on.
        """
        return self.process.wait(STOP_S)

    def stop(self) -> int:
        """SIGTERM; its exit code. What does not end is killed, with an error."""
        if self.process.poll() is None:
            self.terminate()
        try:
            return self.wait()
        finally:
            self.kill()

    def kill(self) -> None:
        family = self.processes()
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.wait()
        psutil.wait_procs(family[1:], timeout=STOP_S)
        self._last_words = self.said()
        self._folder.cleanup()

    def client(self, key: str | None = None, timeout_s: float = ANSWER_S) -> httpx.Client:
        """A plain HTTP client that asks no proxy."""
        import httpx

        headers = {} if key is None else {"Authorization": f"Bearer {key}".strip()}
        return httpx.Client(base_url=self.url, headers=headers, timeout=timeout_s, trust_env=False)

    def openai(self, key: str = "none", *, strict: bool = True) -> openai.OpenAI:
        """The official client, nothing retried.

        Args:
            strict: every reply is checked against the package's types.
        """
        import openai

        return openai.OpenAI(
            base_url=f"{self.url}/v1",
            api_key=key,
            max_retries=0,
            timeout=ANSWER_S,
            http_client=openai.DefaultHttpxClient(trust_env=False),
            _strict_response_validation=strict,
        )

    def anthropic(self, key: str = "none") -> anthropic.Anthropic:
        """The official client, as ``openai``."""
        import anthropic

        return anthropic.Anthropic(
            base_url=self.url,
            api_key=key,
            max_retries=0,
            timeout=ANSWER_S,
            http_client=anthropic.DefaultHttpxClient(trust_env=False),
            _strict_response_validation=True,
        )


def command(model: str | Path, *flags: str) -> list[str]:
    """The command line of ``start``."""
    return [*PROGRAM, str(model), "--host", HOST, "--port", "0", "--json", *flags]


def start(model: str | Path, *flags: str, **more_environment: str) -> RunningServer:
    """A server on a free port; the caller stops it."""
    return RunningServer(command(model, *flags), more_environment=more_environment)


@contextlib.contextmanager
def serving(model: str | Path, *flags: str, **more_environment: str) -> Iterator[RunningServer]:
    """A server for a while; it must end by itself when it is told to, with exit code 0."""
    server = start(model, *flags, **more_environment)
    try:
        yield server
    except BaseException:
        server.kill()
        raise
    code = server.process.poll()
    assert code is None, f"the server ended by itself with exit code {code}"
    ended = server.stop()
    assert ended == 0, f"exit code {ended} after SIGTERM"


def server_events(lines: Iterator[str]) -> Iterator[tuple[str, Any]]:
    """(event, data) of a stream of server-sent events; ``[DONE]`` is given as a text.

    Args:
        lines: without line ends, as ``httpx.Response.iter_lines`` gives them.
    """
    name = ""
    for line in lines:
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            name = value
        elif field == "data":
            yield name, value if value == "[DONE]" else json.loads(value)
        elif not line:
            name = ""
