"""``/tokenize``, ``/detokenize`` and ``/apply-template``: texts, ids and prompts without a model's
work."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from slipstream.server.bodies import ANY, Neutral, parse
from slipstream.server.llama_prompts import require_ids
from slipstream.server.openai_bodies import NEUTRAL
from slipstream.server.openai_messages import ChatMessage, template_messages
from slipstream.server.order import Service
from slipstream.server.replies import answering, json_reply
from slipstream.tokenizer import Tokenizer

_MODEL: Final[Neutral] = {"model": ANY}


class TokenizeBody(msgspec.Struct, kw_only=True):
    """Attributes:
    content: the text.
    add_special: put BOS and EOS around it, where the vocabulary asks for them.
    parse_special: find control tokens in it.
    with_pieces: tell each id's text too, or its bytes where they are no text.
    """

    content: str
    add_special: bool = False
    parse_special: bool = True
    with_pieces: bool = False


class DetokenizeBody(msgspec.Struct, kw_only=True):
    """Attributes:
    tokens: ids; a space that belongs before a text is taken away again.
    """

    tokens: list[int]


class TemplateBody(msgspec.Struct, kw_only=True):
    """Attributes:
    messages, tools, chat_template_kwargs: as of ``/v1/chat/completions``.
    """

    messages: Annotated[list[ChatMessage], Meta(min_length=1)]
    tools: list[dict[str, Any]] | None = None
    chat_template_kwargs: dict[str, Any] = {}


def routes(service: Service) -> list[Route]:
    tokenizer = service.tokenizer

    async def tokenize(request: Request, data: bytes) -> Response:
        del request
        body = parse(TokenizeBody, data, _MODEL)
        ids = await service.texts.ids(
            body.content, add_special=body.add_special, parse_special=body.parse_special
        )
        if body.with_pieces:
            return json_reply({"tokens": msgspec.Raw(await service.texts.pieces(ids))})
        return json_reply({"tokens": ids})

    async def detokenize(request: Request, data: bytes) -> Response:
        del request
        tokens = parse(DetokenizeBody, data, _MODEL).tokens
        service.texts.require_ids(len(tokens))
        require_ids(tokens, tokenizer)
        return json_reply({"content": await service.texts.text(tokens)})

    async def apply_template(request: Request, data: bytes) -> Response:
        del request
        body = parse(TemplateBody, data, {**NEUTRAL, **_MODEL, "cache_prompt": ANY})
        ids = await service.chat_ids(
            template_messages(body.messages, parsed=True),
            tools=body.tools or None,
            variables=body.chat_template_kwargs or None,
        )
        return json_reply({"prompt": await service.texts.text(_without_bos(ids, tokenizer))})

    def require_text(data: bytes) -> None:
        service.texts.require_body(len(data))

    def require_few(data: bytes) -> None:
        service.texts.require_ids(data.count(b","))

    return [
        Route("/tokenize", answering(tokenize, before=require_text), methods=["POST"]),
        Route("/detokenize", answering(detokenize, before=require_few), methods=["POST"]),
        Route("/apply-template", answering(apply_template), methods=["POST"]),
    ]


def _without_bos(ids: list[int], tokenizer: Tokenizer) -> list[int]:
    """Without the BOS that ``/completion`` puts before a text."""
    if tokenizer.add_bos and ids[:1] == [tokenizer.bos_id]:
        return ids[1:]
    return ids
