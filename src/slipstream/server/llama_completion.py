"""``/completion``, ``/completions`` and ``/infill``: llama-server's own endpoints.

Beyond its keys a reply has ``speculative`` (what drafted) and, where ``show_drafts`` asks for it,
``from_draft`` beside the tokens.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from slipstream.errors import RequestError, SlipstreamError
from slipstream.server.bodies import shown
from slipstream.server.llama_body import (
    Body,
    InfillBody,
    LlamaBody,
    read,
    sampling_of,
)
from slipstream.server.llama_output import LlamaOutput
from slipstream.server.llama_prompts import Gap, gap_ids, prompt_ids, prompts_of, require_length
from slipstream.server.llama_reply import LlamaReply
from slipstream.server.openai_bodies import Asked
from slipstream.server.order import Generation, Service
from slipstream.server.outputs import merged
from slipstream.server.replies import (
    Events,
    answering,
    begun,
    close,
    error_message,
    json_reply,
    message,
    stream_reply,
)

COMPLETION_PATHS: Final = ("/completion", "/completions")
LEAST_RESERVE: Final = 128
"""Positions kept for a filling of unlimited length."""


def routes(service: Service) -> list[Route]:
    async def complete(request: Request, data: bytes) -> Response:
        asked = read(LlamaBody, request, data)
        if asked.body.prompt is None:
            raise RequestError("`prompt`", "nothing", "Give it.")
        prompts = prompts_of(asked.body.prompt, service.context)
        for prompt in prompts:
            require_length(service, prompt)
        ids = [await prompt_ids(service, prompt) for prompt in prompts]
        texts = [prompt if isinstance(prompt, str) else None for prompt in prompts]
        return await _answer(service, asked, ids, texts)

    async def infill(request: Request, data: bytes) -> Response:
        asked = read(InfillBody, request, data)
        ids = await gap_ids(service, _gap(asked.body), _reserve(service, asked))
        return await _answer(service, asked, [ids], [None])

    paths = [Route(path, answering(complete), methods=["POST"]) for path in COMPLETION_PATHS]
    return [*paths, Route("/infill", answering(infill), methods=["POST"])]


def _gap(body: InfillBody) -> Gap:
    middle = "" if body.prompt is None else body.prompt
    if not isinstance(middle, str):
        raise RequestError("`prompt` to be a text", shown(middle), "Send a text.")
    return Gap(
        prefix=body.input_prefix,
        suffix=body.input_suffix,
        middle=middle,
        extra=body.input_extra,
    )


def _reserve(service: Service, asked: Asked[InfillBody]) -> int:
    """Positions to leave for the output: its limit, at most half of the context."""
    wanted = sampling_of(asked, service).max_tokens
    return min(LEAST_RESERVE if wanted < 0 else wanted, service.context // 2)


async def _answer(
    service: Service, asked: Asked[Body], prompts: Sequence[list[int]], texts: Sequence[str | None]
) -> Response:
    """
    Args:
        prompts: token ids of each.
        texts: what the client wrote, where it was a text.

    Raises:
        SlipstreamError: what is wrong with the request, or failed before any output.
    """
    sampling = sampling_of(asked, service)
    orders = [asked.order(service, ids, sampling) for ids in prompts]
    generations: list[Generation] = []
    try:
        for order in orders:
            generation = await service.generate(order, asked.caller)
            generations.append(generation)
        reply = LlamaReply(service, asked.body, generations, texts)
        outputs = reply.outputs(asked.arrived_s, silent=asked.computes_only)
        streams = [await begun(generation) for generation in generations]
    except BaseException:
        _cancel(generations)
        raise
    if asked.body.stream:
        chunks = _chunks(reply, generations, streams, outputs)
        return stream_reply(chunks, on_close=lambda: _cancel(generations))
    try:
        async for _ in _taken(generations, streams, outputs):
            pass
    except BaseException:
        _cancel(generations)
        raise
    found = [reply.whole(output) for output in outputs]
    return json_reply(found[0] if len(found) == 1 else found)


def _cancel(generations: Sequence[Generation]) -> None:
    for generation in generations:
        generation.cancel()


async def _taken(
    generations: Sequence[Generation], streams: Sequence[Events], outputs: Sequence[LlamaOutput]
) -> AsyncIterator[LlamaOutput]:
    """Each output after each of its events; what ends early is cancelled and read to its end.

    Raises:
        SlipstreamError: an event's.
    """
    clock = asyncio.get_running_loop().time
    choices = len(outputs) // len(generations)
    events = merged(streams)
    try:
        async for place, choice, event in events:
            siblings = outputs[place * choices : (place + 1) * choices]
            output = siblings[choice]
            was_cut = output.cut
            output.take(event, clock())
            if output.cut and not was_cut and all(other.over for other in siblings):
                generations[place].cancel()
            if not was_cut or output.finish_reason is not None:
                yield output
    finally:
        await close(events)


async def _chunks(
    reply: LlamaReply,
    generations: Sequence[Generation],
    streams: Sequence[Events],
    outputs: Sequence[LlamaOutput],
) -> AsyncIterator[bytes]:
    """Server-sent events; an error is the last one."""
    taken = _taken(generations, streams, outputs)
    try:
        async for output in taken:
            if output.has_news:
                yield message(reply.part(output))
            if output.finish_reason is not None:
                yield message(reply.last(output))
    except SlipstreamError as error:
        _cancel(generations)
        yield error_message(error)
    finally:
        await close(taken)
