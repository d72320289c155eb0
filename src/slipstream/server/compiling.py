"""Grammars are compiled on threads beside the step loop."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final, Protocol

from slipstream.constraint import Constraint
from slipstream.errors import SlipstreamError
from slipstream.options import GRAMMARS, SamplingOptions
from slipstream.server.wire_errors import fault

THREADS: Final = 3  # a grammar that takes long keeps one of them from the others
STACK_BYTES: Final = 8 << 20

Compiled = Constraint | SlipstreamError


class Compiler(Protocol):
    """What compiles; safe to use from several threads (``structured.Grammars``)."""

    def constraint(self, sampling: SamplingOptions) -> Constraint | None: ...


def has_grammar(sampling: SamplingOptions) -> bool:
    return any(getattr(sampling, name) is not None for name in GRAMMARS)


class Compiling:
    """
    Args:
        compiler: see its contract.
        done: called on another thread whenever ``finished`` has something.
    """

    def __init__(self, compiler: Compiler, done: Callable[[], None]) -> None:
        self._compiler = compiler
        self._done = done
        self._wanted: SimpleQueue[tuple[int, SamplingOptions]] = SimpleQueue()
        self._finished: SimpleQueue[tuple[int, Compiled]] = SimpleQueue()
        self._threads = 0

    def begin(self, request: int, sampling: SamplingOptions) -> None:
        """Compile the grammar among some options."""
        self._wanted.put((request, sampling))
        if self._threads < THREADS:
            self._threads += 1
            threading.stack_size(STACK_BYTES)
            threading.Thread(target=self._work, name="grammar", daemon=True).start()

    def finished(self) -> list[tuple[int, Compiled]]:
        """What was compiled since the last call, or why it could not be."""
        found = []
        while not self._finished.empty():
            found.append(self._finished.get())
        return found

    def _work(self) -> None:
        while True:
            request, sampling = self._wanted.get()
            self._finished.put((request, self._compiled(sampling)))
            self._done()

    def _compiled(self, sampling: SamplingOptions) -> Compiled:
        try:
            constraint = self._compiler.constraint(sampling)
        except SlipstreamError as error:
            return error
        except Exception as problem:
            return fault(problem)
        assert constraint is not None, "there is a grammar"
        return constraint
