"""``/v1/completions``: text or tokens continued, in OpenAI's older shape."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from slipstream.errors import RequestError, SlipstreamError, UnsupportedError
from slipstream.options import SamplingOptions
from slipstream.server.bodies import require_neutral, shown
from slipstream.server.completion_stream import CompletionStream
from slipstream.server.llama_prompts import (
    Gap,
    gap_ids,
    require_ids,
    require_length,
    require_short_lists,
)
from slipstream.server.logprob_formats import completion_logprobs
from slipstream.server.openai_bodies import (
    MOST_CHOICES,
    Asked,
    CompletionBody,
    read,
    sampling_of,
    with_a_token,
)
from slipstream.server.openai_replies import Frame, shown_drafts, usage
from slipstream.server.order import Generation, Service
from slipstream.server.outputs import Output, Silent, all_collected, merged
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

PATHS: Final = ("/v1/completions",)
LEAST_RESERVE: Final = 128
"""Positions kept for a filling of unlimited length."""


def routes(service: Service) -> list[Route]:
    completions = Completions(service)
    return [Route(path, answering(completions.answer), methods=["POST"]) for path in PATHS]


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt.

    Attributes:
        echo: its text, where the reply begins with it.
    """

    ids: Sequence[int]
    echo: str = ""


class Completions:
    """The endpoint.

    Args:
        service: of the server.
    """

    def __init__(self, service: Service) -> None:
        self._service = service

    async def answer(self, request: Request, data: bytes) -> Response:
        """
        Raises:
            SlipstreamError: what is wrong with the request, or failed before any output.
        """
        asked = read(CompletionBody, request, data)
        body = asked.body
        if body.best_of is not None:
            require_neutral("best_of", body.best_of, body.n)
        if body.echo and body.logprobs is not None:
            raise UnsupportedError(
                "`echo` without `logprobs`",
                "both",
                "A prompt is computed without the log-probabilities of its tokens.",
            )
        sampling = sampling_of(
            self._service.sampling,
            with_a_token(asked.sampling),
            logprobs=body.logprobs,
            json_schema=schema_of(body.response_format),
        )
        prompts = await self._prompts(body, sampling)
        generations = await self._generations(asked, prompts, sampling)
        reply = CompletionReply(self._service, generations, prompts, asked)
        if not body.stream:
            return json_reply(reply.whole(await all_collected(generations, asked.arrived_s)))
        streams = await _all_begun(generations)
        return stream_reply(reply.chunks(streams), on_close=lambda: _cancel(generations))

    async def _generations(
        self,
        asked: Asked[CompletionBody],
        prompts: Sequence[Prompt],
        sampling: SamplingOptions,
    ) -> list[Generation]:
        """One per prompt; where one is refused, none runs."""
        generations: list[Generation] = []
        try:
            for prompt in prompts:
                order = asked.order(self._service, prompt.ids, sampling)
                generation = await self._service.generate(order, asked.caller)
                generations.append(Silent(generation) if asked.computes_only else generation)
        except BaseException:
            _cancel(generations)
            raise
        return generations

    async def _prompts(self, body: CompletionBody, sampling: SamplingOptions) -> list[Prompt]:
        require_short_lists(body.prompt, self._service.context)
        items = prompt_list(body.prompt)
        if len(items) * body.n > MOST_CHOICES:
            raise RequestError(
                f"`n` times the prompts to be at most {MOST_CHOICES} outputs",
                f"{len(items) * body.n}",
                "Send several requests.",
            )
        if not body.suffix:
            for item in items:
                require_length(self._service, item)
        return [await self._prompt(item, body, sampling) for item in items]

    async def _prompt(
        self, item: str | list[int], body: CompletionBody, sampling: SamplingOptions
    ) -> Prompt:
        service = self._service
        if isinstance(item, str):
            echo = item if body.echo else ""
            if body.suffix:
                gap = Gap(prefix=item, suffix=body.suffix)
                return Prompt(await gap_ids(service, gap, self._reserve(sampling)), echo)
            return Prompt(await service.prompt_ids(item), echo)
        if body.suffix:
            raise RequestError(
                "`prompt` as a text beside `suffix`", "token ids", "Send the text before the gap."
            )
        require_ids(item, service.tokenizer)
        return Prompt(item, await service.texts.text(item) if body.echo else "")

    def _reserve(self, sampling: SamplingOptions) -> int:
        """Positions to leave for the output, at most half of the context."""
        wanted = LEAST_RESERVE if sampling.max_tokens < 0 else sampling.max_tokens
        return min(wanted, self._service.context // 2)


def prompt_list(value: Any) -> list[str | list[int]]:
    """The prompts of a request.

    Raises:
        RequestError: no text, list of texts, list of token ids or list of such lists.
    """
    if isinstance(value, str):
        return [value]
    if isinstance(value, list) and value:
        if all(_is_id(item) for item in value):
            return [value]
        if all(isinstance(item, str) or _is_ids(item) for item in value):
            return value
    raise RequestError(
        "`prompt` to be a text, token ids, or a list of such prompts",
        shown(value) if not isinstance(value, list | dict) else "other values",
        "Send one prompt, or a list that is not empty.",
    )


def _is_id(item: Any) -> bool:
    return type(item) is int


def _is_ids(item: Any) -> bool:
    return isinstance(item, list) and bool(item) and all(map(_is_id, item))


def _cancel(generations: Sequence[Generation]) -> None:
    for generation in generations:
        generation.cancel()


async def _all_begun(generations: Sequence[Generation]) -> list[Events]:
    """The streams of several generations, once each has its first event; errors as ``begun``."""
    tasks = [asyncio.ensure_future(begun(generation)) for generation in generations]
    try:
        return list(await asyncio.gather(*tasks))
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        _cancel(generations)
        raise


class CompletionReply:
    """What the generations of one request are told as.

    Args:
        generations: one per prompt.
        prompts: theirs.
    """

    def __init__(
        self,
        service: Service,
        generations: Sequence[Generation],
        prompts: Sequence[Prompt],
        asked: Asked[CompletionBody],
    ) -> None:
        self._tokenizer = service.tokenizer
        self._frame = Frame(service, generations[0], "cmpl", "text_completion")
        self._generations = generations
        self._prompts = prompts
        self._body = asked.body
        self._arrived_s = asked.arrived_s

    def whole(self, outputs: Sequence[Sequence[Output]]) -> dict[str, Any]:
        """The reply of a request without ``stream``.

        Args:
            outputs: per prompt and choice.
        """
        every = [output for choices in outputs for output in choices]
        timings = [[output.timing for output in choices] for choices in outputs]
        choices = [self._choice(index, output) for index, output in enumerate(every)]
        if len(every) > 1:
            for choice, output in zip(choices, every, strict=True):
                choice["timings"] = self._frame.timings(output.timing)
        ending = {"usage": self._usage(timings), **self._frame.extras(every[0].timing)}
        return {**self._frame.head, "choices": choices, **ending}

    def _usage(self, timings: Sequence[Sequence[Any]]) -> dict[str, Any]:
        return usage([len(one.order.prompt) for one in self._generations], timings)

    def _choice(self, index: int, output: Output) -> dict[str, Any]:
        made: dict[str, Any] = {
            "index": index,
            "text": self._prompts[index // self._body.n].echo + output.text,
            "logprobs": None,
            "finish_reason": output.finish_reason,
        }
        if self._body.logprobs is not None:
            tokens = output.text_tokens(self._tokenizer)
            made["logprobs"] = completion_logprobs(tokens, self._tokenizer, 0)
        if self._body.show_drafts:
            made["slipstream"] = shown_drafts(output.tokens)
        return made

    async def chunks(self, streams: Sequence[Events]) -> AsyncIterator[bytes]:
        """Server-sent events; the last one is ``[DONE]``, or tells an error."""
        echoes = [prompt.echo for prompt in self._prompts for _ in range(self._body.n)]
        stream = CompletionStream(
            self._frame, self._body, self._tokenizer, self._generations, echoes, self._arrived_s
        )
        clock = asyncio.get_running_loop().time
        events = merged(streams)
        try:
            async for prompt, choice, event in events:
                require_no_error(event)
                data = stream.add(prompt * self._body.n + choice, event, clock())
                if data:
                    yield data
            yield stream.ending(self._usage(stream.timings_by_prompt)) + DONE
        except SlipstreamError as error:
            yield error_message(error)
        finally:
            await close(events)
