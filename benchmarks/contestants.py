"""The servers under comparison: each stopped (SIGSTOP) whenever it is not asked."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from http_exchange import Address
from server_worker import HOST, Server
from stream_timing import Streamed, body_of, timed

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import servers


class Contestant:
    """A server that runs only while it is asked.

    Attributes:
        name: of the engine.
        address: where it listens.
    """

    name: str
    address: Address

    def pause(self) -> None:
        raise NotImplementedError

    def resume(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def body(self, ids: Sequence[int], tokens: int) -> dict[str, Any]:
        return body_of(ids, tokens)

    def stream(self, prompts: Sequence[Sequence[int]], tokens: int) -> list[Streamed]:
        """One stream per prompt, all at once."""
        bodies = [self.body(ids, tokens) for ids in prompts]
        self.resume()
        try:
            return timed(self.address, bodies)
        finally:
            self.pause()

    def __enter__(self) -> Contestant:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()


class Own(Contestant):
    """Our server.

    Args:
        speculation: of every request.
    """

    name = "slipstream"

    def __init__(self, model: str, flags: Sequence[str], speculation: Mapping[str, Any]) -> None:
        self._speculation = dict(speculation)
        self._server = servers.start(model, *flags)
        self.address = Address(self._server.host, self._server.port)
        self.pause()

    def body(self, ids: Sequence[int], tokens: int) -> dict[str, Any]:
        return body_of(ids, tokens, speculative=self._speculation)

    def speculating(self, speculation: Mapping[str, Any]) -> None:
        """From now on requests ask for this."""
        self._speculation = dict(speculation)

    def pause(self) -> None:
        self._server.pause()

    def resume(self) -> None:
        self._server.resume()

    def close(self) -> None:
        self._server.kill()


class Llama(Contestant):
    """A llama-server.

    Args:
        fresh: start anew before every request, as it learns over requests.
    """

    name = "llama"

    def __init__(self, command: list[str], *, fresh: bool = False) -> None:
        self._command = command
        self._fresh = fresh
        self._start()

    def _start(self) -> None:
        self._server = Server(self.name, self._command)
        self.address = Address(HOST, self._server.port)

    def stream(self, prompts: Sequence[Sequence[int]], tokens: int) -> list[Streamed]:
        if self._fresh:
            self.close()
            self._start()
        return super().stream(prompts, tokens)

    def pause(self) -> None:
        if self._server.process.poll() is None:
            self._server.pause()

    def resume(self) -> None:
        self._server.resume()

    def close(self) -> None:
        self._server.close()
