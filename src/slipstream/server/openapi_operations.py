"""Every endpoint in words and examples, for the OpenAPI document."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from slipstream.server import anthropic_bodies, llama_body, openapi_examples, openapi_replies
from slipstream.server.anthropic_bodies import CountBody, MessagesBody
from slipstream.server.anthropic_replies import CountReply, MessageReply
from slipstream.server.bodies import ANY, Neutral
from slipstream.server.llama_body import InfillBody, LlamaBody
from slipstream.server.llama_text import DetokenizeBody, TemplateBody, TokenizeBody
from slipstream.server.openai_bodies import NEUTRAL, SAMPLING_KEYS, ChatBody, CompletionBody
from slipstream.server.speculative_body import SpeculativeBody

Value = dict[str, Any]
WRONG: Final = (400, 408, 413, 422)
FAILED: Final = (429, 500, 503, 504)
_SPECULATIVE: Final = {"speculative": SpeculativeBody}
_MODEL: Final[Neutral] = {"model": ANY}


@dataclass(frozen=True, slots=True)
class Operation:
    """One HTTP method of one path.

    Attributes:
        summary: in a line.
        tag: group of the document.
        body: struct that reads the request's JSON; None = no body.
        sampling: names and aliases of ``SamplingOptions`` that the body may have beside.
        neutral: keys of the body that are known and have no effect.
        narrower: key of the body -> struct that reads it later on.
        examples: bodies by name.
        reply: struct of the reply's JSON, or a list of such; None = no JSON.
        reply_example: of it.
        media: type of the reply's body.
        streams: what a stream of server-sent events holds; empty = it never streams.
        events: names of these.
        query: query parameter -> what it does.
        errors: statuses beside success.
        is_open: whether it needs no API key.
    """

    summary: str
    tag: str
    body: type[msgspec.Struct] | None = None
    sampling: Collection[str] = ()
    neutral: Neutral = field(default_factory=dict)
    narrower: Mapping[str, type[msgspec.Struct]] = field(default_factory=dict)
    examples: Mapping[str, Value] = field(default_factory=dict)
    reply: Any = None
    reply_example: Any = None
    media: str = "application/json"
    streams: str = ""
    events: Sequence[str] = ("message", "error")
    query: Mapping[str, str] = field(default_factory=dict)
    errors: Sequence[int] = ()
    is_open: bool = False


_CHAT: Final = Operation(
    "A reply to a conversation",
    "OpenAI",
    body=ChatBody,
    sampling=SAMPLING_KEYS,
    neutral=NEUTRAL,
    narrower=_SPECULATIVE,
    examples=openapi_examples.CHAT,
    reply=openapi_replies.ChatReply,
    reply_example=openapi_examples.CHAT_REPLY,
    streams="Chunks of type `chat.completion.chunk`, then `[DONE]`; an event `error` ends a stream "
    "that failed. With `show_drafts` a chunk's `slipstream.tokens` tells which text was drafted.",
    errors=(*WRONG, *FAILED),
)
_COMPLETION: Final = Operation(
    "Text or tokens continued",
    "OpenAI",
    body=CompletionBody,
    sampling=SAMPLING_KEYS,
    neutral=NEUTRAL,
    narrower=_SPECULATIVE,
    examples=openapi_examples.COMPLETION,
    reply=openapi_replies.TextCompletionReply,
    reply_example=openapi_examples.COMPLETION_REPLY,
    streams="Chunks of type `text_completion`, then `[DONE]`.",
    errors=(*WRONG, *FAILED),
)
_MODELS: Final = Operation(
    "The model of this server, as a list of one",
    "OpenAI",
    reply=openapi_replies.ModelListReply,
    reply_example={"object": "list", "data": [openapi_examples.MODEL]},
)
_ONE_MODEL: Final = Operation(
    "The model by its name",
    "OpenAI",
    reply=openapi_replies.ModelReply,
    reply_example=openapi_examples.MODEL,
    errors=(404,),
)
_LLAMA: Final = Operation(
    "Text or tokens continued",
    "llama-server",
    body=LlamaBody,
    sampling=SAMPLING_KEYS,
    neutral=llama_body.NEUTRAL,
    narrower=_SPECULATIVE,
    examples=openapi_examples.LLAMA,
    reply=openapi_replies.LlamaReply,
    reply_example=openapi_examples.LLAMA_REPLY,
    streams="Objects with `content` and `stop`; the last one has the counts.",
    errors=(*WRONG, *FAILED),
)
_INFILL: Final = Operation(
    "The text between a prefix and a suffix",
    "llama-server",
    body=InfillBody,
    sampling=SAMPLING_KEYS,
    neutral=llama_body.NEUTRAL,
    narrower=_SPECULATIVE,
    examples=openapi_examples.INFILL,
    reply=openapi_replies.LlamaReply,
    reply_example=openapi_examples.LLAMA_REPLY,
    streams="As `/completion`.",
    errors=(*WRONG, *FAILED),
)
_HEALTH: Final = Operation(
    "Whether the engine goes on",
    "Server",
    reply=openapi_replies.HealthReply,
    reply_example={"status": "ok"},
    errors=(503,),
    is_open=True,
)
_MESSAGES: Final = Operation(
    "A reply to a conversation",
    "Anthropic",
    body=MessagesBody,
    neutral=anthropic_bodies.NEUTRAL,
    narrower=_SPECULATIVE,
    examples=openapi_examples.MESSAGES,
    reply=MessageReply,
    reply_example=openapi_examples.MESSAGES_REPLY,
    streams="Events message_start, content_block_start, content_block_delta, content_block_stop, "
    "message_delta, message_stop and ping; an event error ends a stream that failed.",
    events=openapi_replies.ANTHROPIC_EVENTS,
    errors=(*WRONG, *FAILED),
)
_PAGE: Final = Operation("The built-in page", "Server", media="text/html", is_open=True)
_SCRIPT: Final = Operation("A script of it", "Server", media="text/javascript", is_open=True)

OPERATIONS: Final[Mapping[tuple[str, str], Operation]] = {
    ("POST", "/v1/chat/completions"): _CHAT,
    ("POST", "/chat/completions"): _CHAT,
    ("POST", "/v1/completions"): _COMPLETION,
    ("GET", "/v1/models"): _MODELS,
    ("GET", "/models"): _MODELS,
    ("GET", "/v1/models/{id}"): _ONE_MODEL,
    ("GET", "/models/{id}"): _ONE_MODEL,
    ("POST", "/v1/messages"): _MESSAGES,
    ("POST", "/v1/messages/count_tokens"): Operation(
        "How many tokens a conversation is",
        "Anthropic",
        body=CountBody,
        neutral=anthropic_bodies.NEUTRAL,
        examples=openapi_examples.COUNT,
        reply=CountReply,
        reply_example={"input_tokens": 36},
        errors=WRONG,
    ),
    ("POST", "/completion"): _LLAMA,
    ("POST", "/completions"): _LLAMA,
    ("POST", "/infill"): _INFILL,
    ("POST", "/tokenize"): Operation(
        "Ids of a text",
        "llama-server",
        body=TokenizeBody,
        neutral=_MODEL,
        examples={"text": {"content": "Hello", "add_special": True}},
        reply=openapi_replies.TokensReply,
        reply_example={"tokens": [1, 19556]},
        errors=WRONG,
    ),
    ("POST", "/detokenize"): Operation(
        "Text of ids",
        "llama-server",
        body=DetokenizeBody,
        neutral=_MODEL,
        examples={"ids": {"tokens": [19556]}},
        reply=openapi_replies.ContentReply,
        reply_example={"content": "Hello"},
        errors=WRONG,
    ),
    ("POST", "/apply-template"): Operation(
        "The prompt that a conversation becomes",
        "llama-server",
        body=TemplateBody,
        neutral={**NEUTRAL, **_MODEL, "cache_prompt": ANY},
        examples={"conversation": {"messages": [{"role": "user", "content": "Hello"}]}},
        reply=openapi_replies.PromptReply,
        reply_example={"prompt": "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"},
        errors=WRONG,
    ),
    ("GET", "/props"): Operation(
        "What the server is, and which draft methods it offers or why not",
        "Server",
        reply=openapi_replies.PropsReply,
        reply_example=openapi_examples.PROPS_REPLY,
    ),
    ("POST", "/props"): Operation("Refused: properties are flags", "Server", errors=(405,)),
    ("GET", "/slots"): Operation(
        "What runs, one entry per place",
        "Server",
        reply=list[openapi_replies.SlotReply],
        reply_example=[{"id": 0, "n_ctx": 4096, "is_processing": False}],
        query={"fail_on_no_slot": "1: 503 where every place is taken."},
        errors=(503,),
    ),
    ("POST", "/slots/{id}"): Operation(
        "Refused: prefixes are kept by content", "llama-server", errors=(422,)
    ),
    ("GET", "/lora-adapters"): Operation(
        "No adapters", "llama-server", reply=list[Any], reply_example=[]
    ),
    ("POST", "/lora-adapters"): Operation("Refused", "llama-server", errors=(422,)),
    ("GET", "/metrics"): Operation(
        "Counters and histograms, with --metrics", "Server", media="text/plain", errors=(404,)
    ),
    ("GET", "/health"): _HEALTH,
    ("GET", "/v1/health"): _HEALTH,
    ("GET", "/openapi.json"): Operation("This document", "Server"),
    ("GET", "/"): _PAGE,
    ("GET", "/page/page.css"): Operation("Its style", "Server", media="text/css", is_open=True),
    ("GET", "/page/page.js"): _SCRIPT,
    ("GET", "/page/figures.js"): _SCRIPT,
    ("GET", "/page/transcript.js"): _SCRIPT,
}
