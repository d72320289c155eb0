"""Talking to an engine process from a test, without an event loop."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

from slipstream.options import (
    EngineOptions,
    ModelOptions,
    SamplingOptions,
    SpeculationOptions,
    from_mapping,
)
from slipstream.server.engine_process import EngineProcess
from slipstream.server.plan import Plan
from slipstream.server.wire import (
    Answer,
    Ask,
    Framing,
    FromWorker,
    Load,
    Ready,
    Slot,
    StepFrame,
    Submit,
    ToWorker,
    WireEvent,
    framed,
)

PATIENCE_S = 120.0
BACKEND = "reference" if find_spec("slipstream._native") is None else "cpu"


def plan_of(model: Path, queue: int = 16, **keywords: Any) -> Plan:
    """A plan; keywords are those of ``slipstream.Model``."""
    from slipstream.keywords import spread

    structs = (ModelOptions, EngineOptions, SpeculationOptions)
    first = {"model": str(model), "backend": BACKEND, **keywords}
    model_options, engine, speculation = (
        from_mapping(struct, part)  # type: ignore[type-var]
        for struct, part in zip(structs, spread(first, *structs), strict=True)
    )
    return Plan(
        model=model_options,  # type: ignore[arg-type]
        engine=engine,  # type: ignore[arg-type]
        speculation=speculation,  # type: ignore[arg-type]
        queue=queue,
    )


class Talk:
    """
    Attributes:
        events: number of a request -> its events so far.
        started: likewise, its place.
        loads: of every frame.
    """

    def __init__(self, process: EngineProcess, ready: Ready) -> None:
        self.process = process
        self.ready = ready
        self.events: dict[int, list[WireEvent]] = {}
        self.started: dict[int, Slot] = {}
        self.loads: list[Load] = []
        self.answers: dict[int, Answer] = {}
        self._numbers = count(1)
        self._framing = Framing(FromWorker)
        process.connection.settimeout(PATIENCE_S)

    def send(self, frame: ToWorker) -> None:
        self.process.connection.sendall(framed(frame))

    def submit(self, prompt: list[int], **keywords: Any) -> int:
        """The number of a new request; keywords: fields of ``Submit`` and ``SamplingOptions``."""
        known = {name: keywords.pop(name) for name in Submit.__struct_fields__ if name in keywords}
        number = next(self._numbers)
        self.events[number] = []
        sampling = SamplingOptions(**{"seed": 1, **keywords})
        self.send(Submit(request=number, prompt=prompt, sampling=sampling, **known))
        return number

    def take(self) -> bool:
        """Read what came; False at the end of the process."""
        data = self.process.connection.recv(1 << 16)
        for frame in self._framing.feed(data):
            match frame:
                case StepFrame():
                    self._step(frame)
                case Answer():
                    self.answers[frame.number] = frame
                case other:
                    raise AssertionError(other)
        return bool(data)

    def _step(self, frame: StepFrame) -> None:
        self.loads.append(frame.load)
        for slot in frame.started:
            assert slot.request not in self.started
            self.started[slot.request] = slot
        for event in frame.events:
            assert not self.is_over(event.request), "nothing after the last event"
            self.events[event.request].append(event)

    def is_over(self, number: int) -> bool:
        events = self.events[number]
        return bool(events) and events[-1].finish_reason is not None

    def until(self, *numbers: int) -> list[WireEvent]:
        """The last events of some requests, once they are there."""
        limit = time.monotonic() + PATIENCE_S
        while not all(map(self.is_over, numbers)):
            assert self.take(), "the process ended"
            assert time.monotonic() < limit
        return [self.events[number][-1] for number in numbers]

    def until_tokens(self, number: int, tokens: int) -> None:
        """Until a request has so many tokens."""
        while len(self.ids(number)) < tokens:
            assert not self.is_over(number)
            assert self.take(), "the process ended"

    def ids(self, number: int) -> list[int]:
        return [token.id for event in self.events[number] for token in event.tokens]

    def text(self, number: int) -> str:
        return "".join(event.text for event in self.events[number])

    def ask(self, what: str, session: str | None = None) -> Answer:
        number = next(self._numbers)
        self.send(Ask(number=number, what=what, session=session))
        while number not in self.answers:
            assert self.take(), "the process ended"
        return self.answers[number]


@contextmanager
def talking(plan: Plan) -> Iterator[Talk]:
    """An engine process that is ready."""
    with EngineProcess(plan) as process:
        yield Talk(process, process.wait_until_ready())
