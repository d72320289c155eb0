"""What replies look like, for the OpenAPI document; clients must bear keys that are not listed."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

ANTHROPIC_EVENTS: Final = (
    *("message_start", "content_block_start", "content_block_delta", "content_block_stop"),
    *("message_delta", "message_stop", "ping", "error"),
)


class ErrorDetail(msgspec.Struct):
    message: str
    type: str
    param: str | None = None
    code: str | int | None = None


class ErrorReply(msgspec.Struct):
    """OpenAI's shape. The message says what was expected, what was found and what to do."""

    error: ErrorDetail


class AnthropicErrorDetail(msgspec.Struct):
    type: str
    message: str


class AnthropicErrorReply(msgspec.Struct):
    """Anthropic's shape."""

    type: Literal["error"]
    error: AnthropicErrorDetail


class Timings(msgspec.Struct, kw_only=True):
    """llama.cpp's names first, then ours, which come once an output is complete.

    ``acceptance_at[i]`` is drafts accepted at position i / drafts that reached it, which
    ``accepted_at`` and ``reached_at`` count; these also come while the output grows.
    """

    cache_n: int
    prompt_n: int
    prompt_ms: float
    prompt_per_token_ms: float
    prompt_per_second: float
    predicted_n: int
    predicted_ms: float
    predicted_per_token_ms: float
    predicted_per_second: float
    draft_n: int = 0
    draft_n_accepted: int = 0
    reached_at: list[int] = []
    accepted_at: list[int] = []
    queue_ms: float | None = None
    target_passes: int = 0
    verification_steps: int = 0
    tested_n: int = 0
    discarded_n: int = 0
    acceptance_at: list[float] = []
    draft_ms: float | None = None
    verify_ms: float | None = None
    sample_ms: float | None = None
    commit_ms: float | None = None
    method: str = "none"
    kernel_paths: Any = None
    exact: bool | str = True


class SpeculationInEffect(msgspec.Struct, kw_only=True):
    """Who drafted; ``workload`` only where the server has a profile."""

    type: str
    n_max: int | None = None
    n_min: int = 0
    p_min: float = 0.0
    scope: str | None = None
    workload: str | None = None
    workload_known: bool | None = None


class TokenUsage(msgspec.Struct, kw_only=True):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: dict[str, int] = {}


class CalledFunctionReply(msgspec.Struct):
    """``arguments`` is JSON as text."""

    name: str
    arguments: str


class ToolCallReply(msgspec.Struct):
    id: str
    type: Literal["function"]
    function: CalledFunctionReply


class ChatMessageReply(msgspec.Struct, kw_only=True):
    role: Literal["assistant"]
    content: str | None
    refusal: None = None
    tool_calls: list[ToolCallReply] = []


class ChatChoice(msgspec.Struct, kw_only=True):
    index: int
    message: ChatMessageReply
    logprobs: Any = None
    finish_reason: str


class ChatReply(msgspec.Struct, kw_only=True):
    """``speculative``, ``seed`` and ``timings`` are ours."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    system_fingerprint: str | None = None
    choices: list[ChatChoice]
    usage: TokenUsage
    speculative: SpeculationInEffect
    seed: int
    timings: Timings


class TextChoice(msgspec.Struct, kw_only=True):
    index: int
    text: str
    logprobs: Any = None
    finish_reason: str


class TextCompletionReply(msgspec.Struct, kw_only=True):
    """As ``ChatReply``."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    system_fingerprint: str | None = None
    choices: list[TextChoice]
    usage: TokenUsage
    speculative: SpeculationInEffect
    seed: int
    timings: Timings


class ModelReply(msgspec.Struct, kw_only=True):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    meta: dict[str, Any] = {}


class ModelListReply(msgspec.Struct):
    object: Literal["list"]
    data: list[ModelReply]


class LlamaReply(msgspec.Struct, kw_only=True):
    """llama-server's; ``stop_type`` is eos, word or limit."""

    index: int
    content: str
    tokens: list[int]
    stop: bool
    stop_type: str
    stopping_word: str
    model: str
    tokens_predicted: int
    tokens_evaluated: int
    tokens_cached: int
    truncated: bool
    timings: Timings
    speculative: SpeculationInEffect


class TokensReply(msgspec.Struct):
    """Ids, or objects with ``id`` and ``piece``."""

    tokens: list[Any]


class ContentReply(msgspec.Struct):
    content: str


class PromptReply(msgspec.Struct):
    prompt: str


class HealthReply(msgspec.Struct):
    status: Literal["ok"]


class DraftMethod(msgspec.Struct, kw_only=True):
    """``parameters`` where it is offered, ``reason`` where it is not."""

    offered: bool
    parameters: dict[str, Any] = {}
    reason: str | None = None


class ServerFacts(msgspec.Struct, kw_only=True):
    draft_methods: dict[str, DraftMethod]
    exact: bool | str = True


class PropsReply(msgspec.Struct, kw_only=True):
    """llama-server's keys; ``slipstream`` has ours."""

    model_alias: str
    total_slots: int
    chat_template: str
    default_generation_settings: dict[str, Any]
    slipstream: ServerFacts


class SlotReply(msgspec.Struct, kw_only=True):
    """Counts of one place; no text, and no options of whoever runs there."""

    id: int
    n_ctx: int
    is_processing: bool
