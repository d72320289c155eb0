"""``/v1/messages``: a conversation, as Anthropic's clients have it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from slipstream.errors import RequestError, SlipstreamError, TemplateError
from slipstream.options import SamplingOptions
from slipstream.server.anthropic_bodies import (
    MOST_TAG_CHARACTERS,
    CountBody,
    MessagesBody,
    ToolChoice,
    count_body,
    messages_body,
)
from slipstream.server.anthropic_prompt import conversation, functions, with_text_arguments
from slipstream.server.anthropic_replies import (
    PING,
    CountReply,
    Frame,
    MessageStream,
)
from slipstream.server.auth import caller_of
from slipstream.server.error_shapes import anthropic_error
from slipstream.server.openai_bodies import WORKLOAD_HEADER, sampling_of
from slipstream.server.order import Generation, Order, Service
from slipstream.server.outputs import collected, new_timing
from slipstream.server.replies import (
    answering,
    close,
    error_message,
    json_reply,
    require_no_error,
    stream_reply,
)
from slipstream.server.speculative_body import speculation_of
from slipstream.server.timings import observe
from slipstream.server.tools import ToolSupport, ToolUse
from slipstream.server.wire import WireEvent

PATH: Final = "/v1/messages"
PING_S: Final = 10.0
_CHOICES: Final = {"any": "required", "auto": "auto", "none": "none"}

Item = TypeVar("Item")
Paced = AsyncIterator[tuple[int, WireEvent] | None]


def routes(service: Service) -> list[Route]:
    """Errors have Anthropic's shape. The headers ``anthropic-version`` and ``anthropic-beta`` may
    be anything."""
    messages = Messages(service)
    return [
        Route(PATH, answering(messages.answer, anthropic_error), methods=["POST"]),
        Route(f"{PATH}/count_tokens", answering(messages.count, anthropic_error), methods=["POST"]),
    ]


class Messages:
    """The endpoints.

    Args:
        service: of the server.
        ping_s: seconds without an event after which a stream says that it lives.
    """

    def __init__(self, service: Service, ping_s: float = PING_S) -> None:
        self._service = service
        self._tools = ToolSupport(service)
        self._ping_s = ping_s

    async def answer(self, request: Request, data: bytes) -> Response:
        """
        Raises:
            SlipstreamError: what is wrong with the request, or failed before any output.
        """
        arrived_s = asyncio.get_running_loop().time()
        body = messages_body(data)
        use = await self._use(body)
        order = Order(
            prompt=await self._prompt(body, use),
            sampling=self._sampling(body, use),
            speculation=speculation_of(body.speculative, self._service.methods),
            workload=_workload(body, request),
            deadline_s=body.deadline_s,
            endpoint=PATH,
        )
        caller = caller_of(request.scope, body.session)
        generation = await self._service.generate(order, caller)
        frame = Frame(self._service, generation, use)
        if body.stream:
            return await self._streamed(generation, frame, arrived_s)
        [output] = await collected(generation, arrived_s)
        return json_reply(frame.whole(output))

    async def count(self, _request: Request, data: bytes) -> Response:
        """Errors as ``answer``."""
        body = count_body(data)
        prompt = await self._prompt(body, await self._use(body))
        return json_reply(CountReply(len(prompt)))

    async def _use(self, body: CountBody) -> ToolUse | None:
        choice = body.tool_choice
        wanted: Any = None
        if choice is not None:
            wanted = _CHOICES.get(choice.type) or _named(choice)
        return await self._tools.use(
            functions(body.tools),
            wanted,
            several=choice is None or not choice.disable_parallel_tool_use,
            answer=_schema(body),
        )

    async def _prompt(self, body: CountBody, use: ToolUse | None) -> list[int]:
        said = conversation(body)
        try:
            ids = await self._rendered(said.messages, use)
        except TemplateError:
            if not any("tool_calls" in message for message in said.messages):
                raise
            ids = await self._rendered(with_text_arguments(said.messages), use)
        return ids + await self._opening(said.opening)

    async def _rendered(
        self, messages: Sequence[Mapping[str, Any]], use: ToolUse | None
    ) -> list[int]:
        return await self._service.chat_ids(messages, tools=None if use is None else use.offered)

    async def _opening(self, text: str) -> list[int]:
        return await self._service.prompt_ids(text, add_special=False) if text else []

    def _sampling(self, body: MessagesBody, use: ToolUse | None) -> SamplingOptions:
        given = {
            "max_tokens": body.max_tokens,
            "temperature": body.temperature,
            "top_p": body.top_p,
            "top_k": body.top_k,
            "seed": body.seed,
            "stop": tuple(body.stop_sequences) or None,
        }
        grammar = None if use is None else use.grammar
        return sampling_of(
            self._service.sampling,
            {name: value for name, value in given.items() if value is not None},
            grammar=grammar,
            json_schema=_schema(body) if grammar is None else None,
        )

    async def _streamed(self, generation: Generation, frame: Frame, arrived_s: float) -> Response:
        """An error before the first event has its own status; later ones end the stream."""
        paced = pinging(generation.events(), self._ping_s)
        try:
            first = await anext(paced)
            if first is not None:
                require_no_error(first[1])
        except BaseException:
            await close(paced)
            generation.cancel()
            raise
        chunks = _chunks(generation, frame, arrived_s, _resumed(first, paced))
        return stream_reply(chunks, on_close=generation.cancel)


def _named(choice: ToolChoice) -> dict[str, Any]:
    """OpenAI's way to choose one tool."""
    if choice.name is None:
        raise RequestError("`tool_choice.name` beside the type tool", "nothing", "Name a tool.")
    return {"type": "function", "function": {"name": choice.name}}


def _schema(body: CountBody) -> str | None:
    """JSON schema of the answer, as text."""
    form = None if body.output_config is None else body.output_config.format
    return None if form is None else json.dumps(form.schema, ensure_ascii=False)


def _workload(body: MessagesBody, request: Request) -> str | None:
    tag = body.workload or request.headers.get(WORKLOAD_HEADER)
    if tag is not None and len(tag) > MOST_TAG_CHARACTERS:
        raise RequestError(
            f"`{WORKLOAD_HEADER}` of at most {MOST_TAG_CHARACTERS} characters",
            f"{len(tag)}",
            "Shorten it.",
        )
    return tag or None


async def _chunks(
    generation: Generation, frame: Frame, arrived_s: float, events: Paced
) -> AsyncIterator[bytes]:
    timing = new_timing(generation, arrived_s)
    stream = MessageStream(frame, timing)
    clock = asyncio.get_running_loop().time
    try:
        yield stream.start()
        async for item in events:
            if item is None:
                yield PING
                continue
            event = item[1]
            require_no_error(event)
            observe(timing, event, clock())
            data = stream.feed(event)
            ending = b"" if event.finish_reason is None else stream.end(event)
            if data or ending:
                yield data + ending
    except SlipstreamError as error:
        generation.cancel()
        yield error_message(error, anthropic_error)
    finally:
        await close(events)


async def _resumed(first: tuple[int, WireEvent] | None, rest: Paced) -> Paced:
    try:
        yield first
        async for item in rest:
            yield item
    finally:
        await close(rest)


async def pinging(source: AsyncIterator[Item], every_s: float) -> AsyncIterator[Item | None]:
    """The items of a source, and None whenever none came for a while; closing it closes it.

    Args:
        every_s: how long a while is.
    """
    pending: asyncio.Future[Item] | None = None
    try:
        while True:
            pending = asyncio.ensure_future(anext(source))
            while not pending.done():
                done, _ = await asyncio.wait((pending,), timeout=every_s)
                if not done:
                    yield None
            try:
                item = pending.result()
            except StopAsyncIteration:
                return
            yield item
    finally:
        if pending is not None and not pending.done():
            pending.cancel()
            await asyncio.gather(pending, return_exceptions=True)
        await close(source)
