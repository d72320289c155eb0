"""``/v1/chat/completions``: a conversation, in OpenAI's shape."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from slipstream.errors import RequestError, SlipstreamError, TemplateError
from slipstream.server.chat_parts import ChoiceParts
from slipstream.server.chat_stream import ChatStream
from slipstream.server.logprob_formats import chat_logprobs
from slipstream.server.openai_bodies import Asked, ChatBody, read
from slipstream.server.openai_messages import template_messages
from slipstream.server.openai_replies import Frame, shown_drafts, usage
from slipstream.server.order import Generation, Service, Timing
from slipstream.server.outputs import Output, collected, new_timing
from slipstream.server.replies import (
    DONE,
    Events,
    answering,
    begun,
    close,
    error_message,
    json_reply,
    require_no_error,
    stream_reply,
)
from slipstream.server.response_format import schema_of
from slipstream.server.tools import ToolSupport, ToolUse

PATHS: Final = ("/v1/chat/completions", "/chat/completions")
RESERVED: Final = frozenset(
    {"messages", "tools", "add_generation_prompt", "bos_token", "eos_token"}
)


def routes(service: Service) -> list[Route]:
    chat = Chat(service)
    return [Route(path, answering(chat.answer), methods=["POST"]) for path in PATHS]


class Chat:
    """The endpoint.

    Args:
        service: of the server.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._tools = ToolSupport(service)

    async def answer(self, request: Request, data: bytes) -> Response:
        """
        Raises:
            SlipstreamError: what is wrong with the request, or failed before any output.
        """
        asked = read(ChatBody, request, data)
        schema = schema_of(asked.body.response_format)
        use = await self._tools.use(
            asked.body.tools,
            asked.body.tool_choice,
            several=asked.body.parallel_tool_calls,
            answer=schema,
        )
        grammar = None if use is None else use.grammar
        sampling = asked.sampling_with(
            self._service.sampling,
            logprobs=_logprobs(asked.body),
            grammar=grammar,
            json_schema=schema if grammar is None else None,
        )
        order = asked.order(self._service, await self._prompt(asked.body, use), sampling)
        generation = await self._service.generate(order, asked.caller)
        reply = ChatReply(self._service, generation, asked, use)
        if not asked.body.stream:
            return json_reply(reply.whole(await collected(generation, asked.arrived_s)))
        events = await begun(generation)
        return stream_reply(reply.chunks(events), on_close=generation.cancel)

    async def _prompt(self, body: ChatBody, use: ToolUse | None) -> list[int]:
        for name in RESERVED.intersection(body.chat_template_kwargs):
            raise RequestError(
                "`chat_template_kwargs` with variables of the template's own",
                f"`{name}`",
                "Leave it out.",
            )
        try:
            return await self._rendered(body, use, parsed=True)
        except TemplateError:
            if not any(message.tool_calls for message in body.messages):
                raise
            # some templates join the arguments to a text and want them to be one
            return await self._rendered(body, use, parsed=False)

    async def _rendered(self, body: ChatBody, use: ToolUse | None, *, parsed: bool) -> list[int]:
        return await self._service.chat_ids(
            template_messages(body.messages, parsed=parsed),
            tools=None if use is None else use.offered,
            variables=body.chat_template_kwargs or None,
        )


def _logprobs(body: ChatBody) -> int | None:
    if body.top_logprobs is not None and not body.logprobs:
        raise RequestError("`logprobs` true beside `top_logprobs`", "false", "Set `logprobs`.")
    return (body.top_logprobs or 0) if body.logprobs else None


class ChatReply:
    """What one generation is told as.

    Args:
        use: what it may do with functions, or None.
    """

    def __init__(
        self,
        service: Service,
        generation: Generation,
        asked: Asked[ChatBody],
        use: ToolUse | None,
    ) -> None:
        self._service = service
        self._generation = generation
        self._body = asked.body
        self._arrived_s = asked.arrived_s
        self._use = use

    def _frame(self, kind: str) -> Frame:
        return Frame(self._service, self._generation, "chatcmpl", kind)

    def _parts(self, index: int) -> ChoiceParts:
        return ChoiceParts(self._use, f"call_{self._generation.id}_{index}")

    def _usage(self, timings: Sequence[Timing]) -> dict[str, Any]:
        return usage([len(self._generation.order.prompt)], [timings])

    def whole(self, outputs: Sequence[Output]) -> dict[str, Any]:
        """The reply of a request without ``stream``."""
        frame = self._frame("chat.completion")
        timings = [output.timing for output in outputs]
        choices = [self._choice(index, output) for index, output in enumerate(outputs)]
        if len(outputs) > 1:
            for choice, timing in zip(choices, timings, strict=True):
                choice["timings"] = frame.timings(timing)
        ending = {"usage": self._usage(timings), **frame.extras(timings[0])}
        return {**frame.head, "choices": choices, **ending}

    def _choice(self, index: int, output: Output) -> dict[str, Any]:
        splitter = self._parts(index)
        parts = splitter.feed(output.text, output.tokens) + splitter.finish()
        made: dict[str, Any] = {
            "index": index,
            "message": splitter.message(parts),
            "logprobs": None,
            "finish_reason": splitter.reason(output.finish_reason),
        }
        if self._body.logprobs:
            tokenizer = self._service.tokenizer
            made["logprobs"] = chat_logprobs(output.text_tokens(tokenizer), tokenizer)
        if self._body.show_drafts:
            made["slipstream"] = shown_drafts(output.tokens)
        return made

    async def chunks(self, events: Events) -> AsyncIterator[bytes]:
        """Server-sent events; the last one is ``[DONE]``, or tells an error."""
        indices = range(self._generation.order.choices)
        timings = [new_timing(self._generation, self._arrived_s) for _ in indices]
        stream = ChatStream(
            self._frame("chat.completion.chunk"),
            self._body,
            self._service.tokenizer,
            [self._parts(index) for index in indices],
            timings,
        )
        clock = asyncio.get_running_loop().time
        try:
            async for choice, event in events:
                require_no_error(event)
                data = stream.add(choice, event, clock())
                if data:
                    yield data
            yield stream.ending(self._usage(timings)) + DONE
        except SlipstreamError as error:
            yield error_message(error)
        finally:
            await close(events)
