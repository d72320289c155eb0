"""What OpenAI's endpoints accept, and the order that comes of it.

Every option of ``SamplingOptions`` may stand in a request under its own name or an alias of it;
the others are fields of the structs here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Generic, TypeVar

import msgspec
from msgspec import Meta
from starlette.requests import Request

from slipstream.errors import RequestError
from slipstream.keywords import changed, spread
from slipstream.options import GRAMMARS, SamplingOptions, describe
from slipstream.server.auth import caller_of
from slipstream.server.bodies import ANY, Neutral, document, fill, require_neutral
from slipstream.server.openai_messages import ChatMessage
from slipstream.server.order import Caller, Order, Service
from slipstream.server.speculative_body import speculation_of

WORKLOAD_HEADER: Final = "x-slipstream-workload"
MOST_CHOICES: Final = 128
MOST_TAG_CHARACTERS: Final = 128

Text = Annotated[str, Meta(max_length=MOST_TAG_CHARACTERS)]

SAMPLING_KEYS: Final = frozenset(
    name
    for option in describe(SamplingOptions)
    if option.name != "logprobs"
    for name in (option.name, *option.aliases)
)
"""Keys that ``SamplingOptions`` checks. OpenAI's ``logprobs`` is another thing in each endpoint."""

OPENAI_NEUTRAL: Final[Neutral] = {
    "user": ANY,
    "metadata": ANY,
    "safety_identifier": ANY,
    "prompt_cache_key": ANY,
    "prompt_cache_retention": ANY,
    "store": False,
    "service_tier": ("auto", "default"),
    "modalities": (["text"],),
    "audio": None,
    "prediction": None,
    "reasoning_effort": ("none",),
    "verbosity": ("medium",),
    "web_search_options": None,
    "moderation": None,
    "functions": ([],),
    "function_call": ("none", "auto"),
}
LLAMA_NEUTRAL: Final[Neutral] = {
    "id_slot": -1,
    "n_keep": 0,
    "n_discard": 0,
    "typical_p": 1.0,
    "top_n_sigma": -1.0,
    "dynatemp_range": 0.0,
    "dynatemp_exponent": 1.0,
    "xtc_probability": 0.0,
    "xtc_threshold": ANY,
    "dry_multiplier": 0.0,
    "dry_base": ANY,
    "dry_allowed_length": ANY,
    "dry_penalty_last_n": ANY,
    "dry_sequence_breakers": ANY,
    "mirostat": 0,
    "mirostat_tau": ANY,
    "mirostat_eta": ANY,
    "min_keep": 0,
    "return_tokens": False,
    "return_progress": False,
    "post_sampling_probs": False,
    "reasoning_format": ("none", "auto"),
    "add_generation_prompt": True,
    "lora": ([],),
}
NEUTRAL: Final[Neutral] = {**OPENAI_NEUTRAL, **LLAMA_NEUTRAL}


class StreamOptions(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Attributes:
    include_usage: a last chunk with the counts.
    include_obfuscation: only False.
    """

    include_usage: bool = False
    include_obfuscation: bool = False


class GenerationBody(msgspec.Struct, kw_only=True):
    """What chat and completions have in common; keys of our own come last.

    Attributes:
        cache_prompt: llama.cpp's; False: nothing of earlier requests is reused, nothing of this one
            kept.
    """

    model: str = ""
    n: Annotated[int, Meta(ge=1, le=MOST_CHOICES)] = 1
    stream: bool = False
    stream_options: StreamOptions | None = None
    max_completion_tokens: int | None = None
    cache_prompt: bool = True
    timings_per_token: bool = False
    speculative: Any = None
    session: str | None = None
    workload: Text | None = None
    deadline_s: Annotated[float, Meta(gt=0, le=86400)] | None = None
    show_drafts: bool = False

    @property
    def include_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage


class ChatBody(GenerationBody, kw_only=True):
    """``/v1/chat/completions``."""

    messages: Annotated[list[ChatMessage], Meta(min_length=1)]
    logprobs: bool = False
    top_logprobs: Annotated[int, Meta(ge=0, le=100)] | None = None
    response_format: Any = None
    tools: list[Any] = []
    tool_choice: Any = None
    parallel_tool_calls: bool = True
    chat_template_kwargs: dict[str, Any] = {}


class CompletionBody(GenerationBody, kw_only=True):
    """``/v1/completions``."""

    prompt: Any
    suffix: str = ""
    echo: bool = False
    logprobs: Annotated[int, Meta(ge=0, le=100)] | None = None
    best_of: int | None = None
    response_format: Any = None


Body = TypeVar("Body", bound=GenerationBody)


LENGTHS: Final = ("max_tokens", "n_predict", "predict")


@dataclass(frozen=True, slots=True)
class Asked(Generic[Body]):
    """A request as read.

    Attributes:
        sampling: the keys of ``SAMPLING_KEYS`` that it gave.
        arrived_s: on the loop's clock.
    """

    body: Body
    sampling: Mapping[str, Any]
    request: Request
    arrived_s: float

    @property
    def computes_only(self) -> bool:
        """Whether a prompt is to be computed and kept, and no token wanted (``max_tokens`` 0)."""
        return any(_is_zero(self.sampling.get(name)) for name in LENGTHS)

    @property
    def caller(self) -> Caller:
        return caller_of(self.request.scope, self.body.session)

    def sampling_with(self, defaults: SamplingOptions, **settled: Any) -> SamplingOptions:
        """As ``sampling_of``."""
        return sampling_of(defaults, self.sampling, **settled)

    def order(self, service: Service, prompt: Sequence[int], sampling: SamplingOptions) -> Order:
        """
        Raises:
            RequestError: the request's ``speculative`` or ``workload`` is at fault.
        """
        return Order(
            prompt=prompt,
            sampling=sampling,
            speculation=speculation_of(self.body.speculative, service.methods),
            choices=self.body.n,
            workload=self._workload,
            deadline_s=self.body.deadline_s,
            endpoint=self.request.url.path,
            reuse=self.body.cache_prompt,
        )

    @property
    def _workload(self) -> str | None:
        tag = self.body.workload or self.request.headers.get(WORKLOAD_HEADER)
        if tag is not None and len(tag) > MOST_TAG_CHARACTERS:
            raise RequestError(
                f"`{WORKLOAD_HEADER}` of at most {MOST_TAG_CHARACTERS} characters",
                f"{len(tag)}",
                "Shorten it.",
            )
        return tag or None


def read(struct: type[Body], request: Request, data: bytes) -> Asked[Body]:
    """A request's body, read as far as it goes without the model.

    Raises:
        RequestError, UnsupportedError: as ``bodies.parse``.
    """
    arrived_s = asyncio.get_running_loop().time()
    keys = document(data)
    given = {
        name: keys.pop(name) for name in SAMPLING_KEYS.intersection(keys) if keys[name] is not None
    }
    rest = {name: value for name, value in keys.items() if name not in SAMPLING_KEYS}
    body = fill(struct, rest, NEUTRAL, also=SAMPLING_KEYS)
    if body.stream_options is not None:
        obfuscated = body.stream_options.include_obfuscation
        require_neutral("stream_options.include_obfuscation", obfuscated, False)
    if body.max_completion_tokens is not None:
        given.setdefault("max_tokens", body.max_completion_tokens)
        if given["max_tokens"] != body.max_completion_tokens:
            raise RequestError(
                "`max_completion_tokens` or `max_tokens`", "both, and they differ", "Remove one."
            )
    return Asked(body, given, request, arrived_s)


def with_a_token(given: Mapping[str, Any]) -> dict[str, Any]:
    """Sampling keys with 1 for a length of 0, for ``Asked.computes_only``.

    A prefix is kept once a token was sampled, so one is, and nobody sees it.
    """
    return {
        name: 1 if name in LENGTHS and _is_zero(value) else value for name, value in given.items()
    }


def _is_zero(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value == 0


def sampling_of(
    defaults: SamplingOptions, given: Mapping[str, Any], **settled: Any
) -> SamplingOptions:
    """The server's options as a request changes them.

    Args:
        given: option name or alias -> value; of llama.cpp's values seed -1 means drawn, top_k -1
            off.
        settled: option name -> value that the endpoint worked out of other keys, or None.

    Raises:
        OptionError: a value of another type or out of bounds, or an option twice.
        RequestError: two demands on what the output looks like.
    """
    (named,) = spread(given, SamplingOptions)
    if named.get("seed") == -1:
        del named["seed"]
    if named.get("top_k") == -1:
        named["top_k"] = 0
    named |= {name: value for name, value in settled.items() if value is not None}
    shapes = [name for name in GRAMMARS if name in named]
    if shapes:  # the server's own gives way
        named = {**dict.fromkeys(GRAMMARS), **named}
    if len(shapes) > 1:
        raise RequestError(
            "one description of the output",
            " and ".join(f"`{name}`" for name in shapes),
            "`response_format` and `tool_choice` are such descriptions too: leave one out.",
        )
    sampling: SamplingOptions = changed(defaults, named)
    if sampling.max_tokens == 0:
        raise RequestError(
            "`max_tokens` of at least 1, or -1 for as many as fit", "0", "Ask for one token."
        )
    return sampling
