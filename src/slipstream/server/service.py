"""What endpoints use: prompts, generations, questions; over one link to the engine process."""

from __future__ import annotations

import asyncio
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any, Final, Protocol

import msgspec

from slipstream.chat import ChatTemplate, Message
from slipstream.errors import OptionError, OverloadedError, SlipstreamError, UnavailableError
from slipstream.noise import draw_seed
from slipstream.options import SamplingOptions
from slipstream.server.generation import EngineGeneration, Inbox
from slipstream.server.link import Link
from slipstream.server.method_choice import echo, in_effect
from slipstream.server.order import Caller, Order
from slipstream.server.order_checks import require_fit
from slipstream.server.prompts import ModelText, Prompts
from slipstream.server.refusals import BusyError
from slipstream.server.texts import Texts
from slipstream.server.wire import Load, Ready, Slot, Submit, WireEvent
from slipstream.server.wire_errors import told
from slipstream.server_options import ServerOptions

LONGEST_RETRY_S: Final = 60
RECENT: Final = 0.2  # weight of the newest output in the mean duration
MOST_UNREAD: Final = 1 << 17
"""Tokens and alternatives to them that are kept for a client which reads slowly."""


class Meter(Protocol):
    """What counts (``meters.Meters``); seconds are the event loop's."""

    def arrived(self, request: int, order: Order, now_s: float) -> None: ...

    def refused(self, endpoint: str) -> None: ...

    def started(self, slot: Slot) -> None: ...

    def event(self, event: WireEvent, now_s: float) -> None: ...

    def finished(self, request: int, reason: str) -> None: ...

    def loaded(self, load: Load) -> None: ...


class InEffect(Protocol):
    """Which of a profile's rules an order runs under."""

    def echo(self) -> dict[str, object]: ...


class Rules(Protocol):
    """What a profile does to orders (``profile.Profile``)."""

    def applied(self, order: Order) -> tuple[Order, InEffect]: ...

    def require_offered(self, methods: Mapping[str, Mapping[str, Any]]) -> None: ...


@dataclasses.dataclass(slots=True)
class Live:
    """An output that is not over."""

    inbox: Inbox
    choice: int
    began_s: float


class EngineService:
    """See ``order.Service``.

    Args:
        link: to the engine process; this object becomes its watcher.
        ready: what the process said of itself.
        sampling: the server's defaults.
        name: of the model, in replies.
        rules: of a profile, or None.
        meter: or None.
    """

    def __init__(
        self,
        link: Link,
        ready: Ready,
        text: ModelText,
        sampling: SamplingOptions,
        options: ServerOptions,
        *,
        name: str,
        rules: Rules | None = None,
        meter: Meter | None = None,
    ) -> None:
        self.name = name
        self.tokenizer = text.tokenizer
        self.context: int = ready.facts["context"]
        self.sampling = sampling
        source = text.template.source if isinstance(text.template, ChatTemplate) else ""
        self.facts: Mapping[str, Any] = {**ready.facts, "chat_template": source}
        self.methods: Mapping[str, Mapping[str, Any]] = ready.methods
        self.load = link.load
        self._link = link
        link.watcher = self
        self._default = ready.speculation
        self._options = options
        self._rules = rules
        self._meter = meter
        self.texts = Texts(text.tokenizer, options.longest_prompt(self.context))
        self._prompts = Prompts(text, self.texts)
        self._places: int = ready.facts["parallel"]
        self._live: dict[int, Live] = {}
        self._numbers = count(1)
        self._clock: Callable[[], float] = asyncio.get_running_loop().time
        self._mean_s = 1.0  # of an output
        self._stopping = False

    @property
    def failure(self) -> SlipstreamError | None:
        """Why the engine does not go on, or None."""
        return self._link.failure

    @property
    def active(self) -> int:
        """Outputs that wait or run."""
        return len(self._live)

    async def prompt_ids(self, text: str, *, add_special: bool = True) -> list[int]:
        return await self.texts.ids(text, add_special=add_special)

    async def chat_ids(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> list[int]:
        return await self._prompts.of_chat(messages, tools, variables or {})

    async def ask(self, what: str, session: str | None) -> dict[str, Any]:
        return await self._link.ask(what, session)

    async def generate(self, order: Order, caller: Caller) -> EngineGeneration:
        try:
            return self._generate(order, caller)
        except SlipstreamError:
            if self._meter is not None:
                self._meter.refused(order.endpoint)
            raise

    def _generate(self, order: Order, caller: Caller) -> EngineGeneration:
        self._link.require_going_on()
        order, told_of_rule = self._arranged(order)
        require_fit(order, self.context, self.tokenizer.vocabulary_size)
        self._require_room(order.choices)
        assert order.speculation is not None
        numbers = [next(self._numbers) for _ in range(order.choices)]
        inbox = Inbox(order.choices)
        generation = EngineGeneration(
            order,
            numbers,
            inbox,
            {**echo(order.speculation, self.methods), **told_of_rule},
            self._cancel,
        )
        for choice, number in enumerate(numbers):
            self._begin(Live(inbox, choice, self._clock()), number, order, caller.session)
        return generation

    def _arranged(self, order: Order) -> tuple[Order, Mapping[str, object]]:
        """The order as it runs: under its profile's rule, its seed drawn, its methods known."""
        more: Mapping[str, object] = {}
        if self._rules is not None:
            order, rule = self._rules.applied(order)
            more = rule.echo()
        sampling = order.sampling
        if sampling.seed is None:
            sampling = msgspec.structs.replace(sampling, seed=draw_seed())
        speculation = in_effect(order.speculation, self._default, self.methods)
        if not order.reuse:
            speculation = msgspec.structs.replace(speculation, scope="request")
        deadlines = [s for s in (order.deadline_s, self._options.deadline_s) if s is not None]
        arranged = dataclasses.replace(
            order,
            sampling=sampling,
            speculation=speculation,
            deadline_s=min(deadlines, default=None),
        )
        return arranged, more

    def _require_room(self, choices: int) -> None:
        """
        Raises:
            BusyError: the queue is full.
            UnavailableError: the server is stopping.
        """
        if self._stopping:
            raise UnavailableError("a server that goes on", "one that stops", "Ask another.")
        most = self._places + self._options.queue
        if choices > most:
            raise OptionError(
                f"`n` of at most {most}, the outputs that may run or wait",
                f"{choices}",
                "Ask for fewer.",
            )
        if len(self._live) + choices > most:
            raise BusyError(
                f"at most {self._options.queue} outputs waiting for a place",
                f"{len(self._live)} that wait or run",
                "Try again later.",
                self._retry_after_s(),
            )

    def _retry_after_s(self) -> int:
        """When a place in the queue is likely to be free."""
        return max(1, min(LONGEST_RETRY_S, math.ceil(self._mean_s / self._places)))

    def _begin(self, live: Live, number: int, order: Order, session: str) -> None:
        self._live[number] = live
        if self._meter is not None:
            self._meter.arrived(number, order, live.began_s)
        frame = Submit(
            request=number,
            prompt=list(order.prompt),
            sampling=order.sampling,
            choice=live.choice,
            session=session,
            speculation=order.speculation,
            deadline_s=order.deadline_s,
            reuse=order.reuse,
        )
        self._link.submit(frame, self._deliver)

    def _deliver(self, event: WireEvent) -> None:
        live = self._live.get(event.request)
        if live is None:
            return
        now_s = self._clock()
        if self._meter is not None:
            self._meter.event(event, now_s)
        if event.finish_reason is not None:
            del self._live[event.request]
            self._mean_s += RECENT * (now_s - live.began_s - self._mean_s)
        live.inbox.put(live.choice, event)
        if live.inbox.weight > MOST_UNREAD:
            self._end([event.request], _unread(live.inbox.weight))

    def _cancel(self, number: int) -> None:
        if number in self._live:
            self._link.cancel(number)

    def started(self, slot: Slot) -> None:
        """See ``link.Watcher``."""
        if self._meter is not None:
            self._meter.started(slot)

    def loaded(self, load: Load) -> None:
        """See ``link.Watcher``."""
        self.load = load
        if self._meter is not None:
            self._meter.loaded(load)

    def stop_accepting(self) -> None:
        """Refuse orders from now on; those that run go on."""
        self._stopping = True

    def end_all(self, error: SlipstreamError) -> None:
        """Give every output that is not over this error as its last event."""
        self._end(list(self._live), error)

    def _end(self, numbers: Sequence[int], error: SlipstreamError) -> None:
        for number in numbers:
            live = self._live.pop(number, None)
            if live is None:
                continue
            if self._meter is not None:
                self._meter.finished(number, "error")
            self._link.cancel(number)
            event = WireEvent(number, (), "", finish_reason="error", error=told(error))
            live.inbox.put(live.choice, event)

    def close(self) -> None:
        self.texts.beside.close()


def _unread(weight: int) -> OverloadedError:
    return OverloadedError(
        "a client that reads what it asked for",
        f"{weight} tokens and alternatives unread",
        "Read faster, or ask for fewer log-probabilities.",
    )
