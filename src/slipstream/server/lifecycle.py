"""From a started engine process to the server's exit code."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import math
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from slipstream.errors import OperationError, UnavailableError
from slipstream.options import SamplingOptions
from slipstream.server.app import create_app
from slipstream.server.auth import Keys
from slipstream.server.engine_process import EngineProcess
from slipstream.server.http_protocol import protocol_for
from slipstream.server.link import Link
from slipstream.server.listener import Listener, most_connections
from slipstream.server.meters import Meters
from slipstream.server.prompts import ModelText
from slipstream.server.service import EngineService, Rules
from slipstream.server.wire import Ready
from slipstream.server_options import ServerOptions

KEEP_ALIVE_S: Final = 75  # longer than clients keep a connection, so that they close it
LAST_EVENTS_S: Final = 5.0  # for the last events to be read, and for the engine process to end
LAST_WORDS_S: Final = 0.5  # after a second signal, for clients to be told
UNHEALTHY_S: Final = 1.0  # in which /health tells that the engine process is gone
SWITCH_S: Final = 0.001  # so soon the event loop gets the interpreter back from another thread
INTERRUPTED: Final = 130


@dataclass(frozen=True)
class Serving:
    """What a server consists of.

    Attributes:
        name: of the model, in replies.
    """

    process: EngineProcess
    ready: Ready
    text: ModelText
    sampling: SamplingOptions
    options: ServerOptions
    keys: Keys
    name: str
    meters: Meters
    rules: Rules | None = None


def listening(options: ServerOptions) -> Listener:
    """A socket bound to the server's address; it does not listen yet.

    The limit of file descriptors is raised as far as it goes, and bounds the connections.

    Raises:
        OperationError: the address cannot be had.
    """
    try:
        found = socket.getaddrinfo(options.host, options.port, type=socket.SOCK_STREAM)
        family, kind, protocol, _, address = min(found, key=lambda entry: entry[0])
        bound = Listener(family, kind, protocol)
        try:
            bound.most = most_connections()
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
        except OSError:
            bound.close()
            raise
    except OSError as problem:
        raise OperationError(
            f"to listen on {options.host} port {options.port}",
            problem.strerror or "an error",
            "Check `--host`."
            if isinstance(problem, socket.gaierror)
            else "Stop what listens there, or choose another port (0 = any free one).",
        ) from None
    return bound


def url_of(bound: socket.socket) -> str:
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def run(serving: Serving, bound: socket.socket, ready: Callable[[], None]) -> int:
    """Serve until a signal or the end of the engine process; returns the exit code.

    SIGTERM and SIGINT let outputs go on for a grace time; what then still runs ends with an error
    event. A second signal ends everything at once.

    Args:
        bound: see ``listening``; closed at the end.
        ready: called once requests are answered.

    Raises:
        SlipstreamError: the engine process ended by itself.
    """
    sys.setswitchinterval(SWITCH_S)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # threads of ours wait already
    return asyncio.run(_serve(serving, bound, ready))


async def _serve(serving: Serving, bound: socket.socket, ready: Callable[[], None]) -> int:
    process = serving.process
    link = await Link.over(process.connection, process.death)
    service = EngineService(
        link,
        serving.ready,
        serving.text,
        serving.sampling,
        serving.options,
        name=serving.name,
        rules=serving.rules,
        meter=serving.meters,
    )
    app = create_app(service, serving.options, serving.keys, serving.meters)
    server = HttpServer(_config(app, serving.options), ready)
    ending = Ending(service, server, serving.options.grace_s)
    link.gone.add_done_callback(lambda _: ending.died())
    with _handled(ending.signalled):
        gc.collect()
        gc.freeze()  # a full collection would walk the vocabulary
        await ending.awaited(asyncio.ensure_future(server.serve([bound])))
        service.close()
        failure = service.failure
        await link.stop(LAST_EVENTS_S if ending.patient else 0.0)
    if ending.code is None or (failure is not None and ending.patient):
        raise failure or OperationError("a server that goes on", "it ended", "Start it again.")
    return ending.code


def _config(app: ASGIApp, options: ServerOptions) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=protocol_for(options.body_timeout_s),
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="critical",  # what fails is logged by `Limits`
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=math.ceil(options.grace_s + LAST_EVENTS_S),
    )


class HttpServer(uvicorn.Server):
    """uvicorn's server; signals are handled elsewhere."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Ending:
    """Why and how the server ends.

    Args:
        grace_s: seconds that outputs may go on after the first signal.

    Attributes:
        code: the exit code; None while it goes on, and where the engine process ended by itself.
        patient: whether nobody asked for the end twice.
    """

    def __init__(self, service: EngineService, server: uvicorn.Server, grace_s: float) -> None:
        self.code: int | None = None
        self.patient = True
        self._service = service
        self._server = server
        self._grace_s = grace_s
        self._loop = asyncio.get_running_loop()
        self._at_once: asyncio.Future[None] = self._loop.create_future()

    def signalled(self, number: signal.Signals) -> None:
        """SIGINT or SIGTERM came."""
        if self.code is not None:
            self.code = 128 + number
            self.patient = False
            if not self._at_once.done():
                self._at_once.set_result(None)
            return
        self.code = INTERRUPTED if number == signal.SIGINT else 0
        self._service.stop_accepting()
        if self._service.active and sys.stderr.isatty():
            print(self._farewell(), file=sys.stderr, flush=True)
        self._server.should_exit = True
        self._loop.call_later(self._grace_s, self._end_outputs)

    def _farewell(self) -> str:
        active = self._service.active
        outputs = "1 output" if active == 1 else f"{active} outputs"
        return f"ending: {outputs} may go on for {self._grace_s:g} s; a second signal ends at once"

    def died(self) -> None:
        """The engine process is gone."""
        self._service.stop_accepting()
        self._loop.call_later(UNHEALTHY_S, setattr, self._server, "should_exit", True)

    def _end_outputs(self) -> None:
        ended = ("an output that runs to its end", "a server that ends", "Ask it again.")
        self._service.end_all(UnavailableError(*ended))

    async def awaited(self, serving: asyncio.Future[None]) -> None:
        """Until the server is down, or is to be at once."""
        await asyncio.wait((serving, self._at_once), return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            serving.result()
            return
        self._end_outputs()
        await asyncio.wait((serving,), timeout=LAST_WORDS_S)
        serving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await serving


@contextlib.contextmanager
def _handled(handler: Callable[[signal.Signals], None]) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM)
    for number in numbers:
        loop.add_signal_handler(number, handler, number)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
