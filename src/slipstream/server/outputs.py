"""Events of a generation gathered into outputs, for replies that are sent whole."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

import msgspec

from slipstream.server.logprob_formats import text_tokens
from slipstream.server.order import Generation, Timing
from slipstream.server.replies import Events, close, require_no_error
from slipstream.server.timings import observe
from slipstream.server.wire import WireEvent, WireToken
from slipstream.tokenizer import Tokenizer


@dataclass
class Output:
    """One choice.

    Attributes:
        texts: what each event released.
        tokens: an end-of-generation token included.
        finish_reason: ``stop`` or ``length``.
        stop: the stop string that ended it, if one did.
    """

    timing: Timing
    texts: list[str] = field(default_factory=list)
    tokens: list[WireToken] = field(default_factory=list)
    finish_reason: str | None = None
    stop: str | None = None

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def text_tokens(self, tokenizer: Tokenizer) -> Sequence[WireToken]:
        """Its tokens without the one that ended it, which is no text."""
        return text_tokens(self.tokens, self.finish_reason, self.stop, tokenizer)

    def add(self, event: WireEvent, now_s: float) -> None:
        """
        Raises:
            SlipstreamError: the event's.
        """
        require_no_error(event)
        observe(self.timing, event, now_s)
        self.texts.append(event.text)
        self.tokens += event.tokens
        self.finish_reason, self.stop = event.finish_reason, event.stop


class Silent:
    """A generation of which nothing is wanted but that its prompt is computed.

    Args:
        generation: of one token.
    """

    def __init__(self, generation: Generation) -> None:
        self.order = generation.order
        self.id = generation.id
        self.created_s = generation.created_s
        self.speculation = generation.speculation
        self._generation = generation

    async def events(self) -> AsyncIterator[tuple[int, WireEvent]]:
        """See ``order.Generation``: no text, no tokens, an end by ``length``."""
        events = self._generation.events()
        try:
            async for choice, event in events:
                reason = event.finish_reason and ("length" if event.error is None else "error")
                yield (
                    choice,
                    msgspec.structs.replace(
                        event, tokens=(), text="", finish_reason=reason, stop=None
                    ),
                )
        finally:
            await close(events)

    def cancel(self) -> None:
        self._generation.cancel()


def new_timing(generation: Generation, arrived_s: float) -> Timing:
    """Of one choice, before its first event."""
    return Timing(arrived_s, summary={"prompt_tokens": len(generation.order.prompt)})


async def collected(generation: Generation, arrived_s: float) -> list[Output]:
    """The outputs of all choices; where one fails, the others are cancelled.

    Raises:
        SlipstreamError: the first that an event carries.
    """
    outputs = [Output(new_timing(generation, arrived_s)) for _ in range(generation.order.choices)]
    clock = asyncio.get_running_loop().time
    events = generation.events()
    try:
        async for choice, event in events:
            outputs[choice].add(event, clock())
    except BaseException:
        generation.cancel()
        raise
    finally:
        await close(events)
    return outputs


async def all_collected(generations: Sequence[Generation], arrived_s: float) -> list[list[Output]]:
    """As ``collected``, of several generations that run at the same time."""
    tasks = [asyncio.ensure_future(collected(one, arrived_s)) for one in generations]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def merged(streams: Sequence[Events]) -> AsyncIterator[tuple[int, int, WireEvent]]:
    """(stream, choice, event) of several streams as they come; closing it closes them all."""
    if len(streams) == 1:
        try:
            async for choice, event in streams[0]:
                yield 0, choice, event
        finally:
            await close(streams[0])
        return
    queue: asyncio.Queue[tuple[int, int, WireEvent] | BaseException | None] = asyncio.Queue(64)
    tasks = [
        asyncio.ensure_future(_pour(place, stream, queue)) for place, stream in enumerate(streams)
    ]
    try:
        left = len(tasks)
        while left:
            item = await queue.get()
            if item is None:
                left -= 1
            elif isinstance(item, BaseException):
                raise item
            else:
                yield item
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _pour(
    place: int,
    stream: Events,
    queue: asyncio.Queue[tuple[int, int, WireEvent] | BaseException | None],
) -> None:
    try:
        async for choice, event in stream:
            await queue.put((place, choice, event))
        await queue.put(None)
    except Exception as error:
        await queue.put(error)
    finally:
        await close(stream)
