"""Examples of requests and replies; tests hold them to the schemas."""

from __future__ import annotations

from typing import Any, Final

Value = dict[str, Any]

_HELLO: Final = [{"role": "user", "content": "Say hello."}]
_IN_EFFECT: Final[Value] = {
    "type": "suffix",
    "n_max": 16,
    "n_min": 0,
    "p_min": 0.0,
    "scope": "session",
}
_TIMINGS: Final[Value] = {
    "cache_n": 0,
    "prompt_n": 12,
    "prompt_ms": 40.0,
    "prompt_per_token_ms": 3.333,
    "prompt_per_second": 300.0,
    "predicted_n": 3,
    "predicted_ms": 20.0,
    "predicted_per_token_ms": 10.0,
    "predicted_per_second": 100.0,
    "draft_n": 2,
    "draft_n_accepted": 1,
    "queue_ms": 0.2,
    "target_passes": 2,
    "verification_steps": 1,
    "tested_n": 2,
    "discarded_n": 0,
    "reached_at": [1, 1],
    "accepted_at": [1, 0],
    "acceptance_at": [1.0, 0.0],
    "draft_ms": 0.1,
    "verify_ms": 18.0,
    "sample_ms": 0.5,
    "commit_ms": 0.2,
    "method": "suffix",
    "kernel_paths": ["q8_0 few-row avx2"],
    "exact": True,
}
_OURS: Final[Value] = {"speculative": _IN_EFFECT, "seed": 7, "timings": _TIMINGS}
_USAGE: Final[Value] = {
    "prompt_tokens": 12,
    "completion_tokens": 3,
    "total_tokens": 15,
    "prompt_tokens_details": {"cached_tokens": 0},
}
_WEATHER: Final[Value] = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
}

CHAT: Final[dict[str, Value]] = {
    "plain": {"messages": _HELLO, "max_tokens": 32},
    "stream": {
        "messages": _HELLO,
        "max_tokens": 32,
        "stream": True,
        "stream_options": {"include_usage": True},
    },
    "drafts": {
        "messages": _HELLO,
        "max_tokens": 32,
        "stream": True,
        "show_drafts": True,
        "speculative": {"type": "suffix", "n_max": 16},
    },
    "schema": {
        "messages": _HELLO,
        "max_tokens": 64,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "weather", "schema": _WEATHER},
        },
    },
    "tools": {
        "messages": [{"role": "user", "content": "What is the weather in Paris?"}],
        "max_tokens": 64,
        "tools": [
            {"type": "function", "function": {"name": "weather", "parameters": _WEATHER}},
        ],
    },
    "workload": {
        "messages": _HELLO,
        "max_tokens": 32,
        "workload": "code_edit",
        "session": "editor",
    },
}
CHAT_REPLY: Final[Value] = {
    "id": "chatcmpl-0f3a",
    "object": "chat.completion",
    "created": 1796000000,
    "model": "smollm2-135m",
    "system_fingerprint": "fp_0123456789ab",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Hello!", "refusal": None},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ],
    "usage": _USAGE,
    **_OURS,
}
COMPLETION: Final[dict[str, Value]] = {
    "text": {"prompt": "The capital of France is", "max_tokens": 8},
    "ids": {"prompt": [504, 3575], "max_tokens": 8, "temperature": 0.7, "seed": 7},
}
COMPLETION_REPLY: Final[Value] = {
    "id": "cmpl-0f3a",
    "object": "text_completion",
    "created": 1796000000,
    "model": "smollm2-135m",
    "system_fingerprint": None,
    "choices": [{"index": 0, "text": " Paris.", "logprobs": None, "finish_reason": "stop"}],
    "usage": _USAGE,
    **_OURS,
}
MODEL: Final[Value] = {
    "id": "smollm2-135m",
    "object": "model",
    "created": 1796000000,
    "owned_by": "slipstream",
    "meta": {"context": 8192},
}
LLAMA: Final[dict[str, Value]] = {
    "text": {"prompt": "The capital of France is", "n_predict": 8},
    "drafts": {
        "prompt": "1 2 3 1 2 3 1 2",
        "n_predict": 16,
        "speculative": {"type": "suffix"},
        "cache_prompt": False,
    },
}
INFILL: Final[dict[str, Value]] = {
    "function": {
        "input_prefix": "def add(a, b):\n    return ",
        "input_suffix": "\n",
        "n_predict": 16,
    },
}
LLAMA_REPLY: Final[Value] = {
    "index": 0,
    "content": " Paris.",
    "tokens": [],
    "stop": True,
    "stop_type": "eos",
    "stopping_word": "",
    "model": "smollm2-135m",
    "tokens_predicted": 3,
    "tokens_evaluated": 12,
    "tokens_cached": 0,
    "truncated": False,
    "timings": _TIMINGS,
    "speculative": _IN_EFFECT,
}
_TOOL: Final[Value] = {
    "name": "weather",
    "description": "The weather of a city.",
    "input_schema": _WEATHER,
}
MESSAGES: Final[dict[str, Value]] = {
    "plain": {"model": "smollm2-135m", "max_tokens": 32, "messages": _HELLO},
    "system": {
        "max_tokens": 32,
        "system": [{"type": "text", "text": "Be brief."}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}],
        "stream": True,
        "stop_sequences": ["\n\n"],
    },
    "tools": {
        "max_tokens": 64,
        "tools": [_TOOL],
        "tool_choice": {"type": "auto"},
        "messages": [
            {"role": "user", "content": "What is the weather in Paris?"},
            {
                "role": "assistant",
                "content": [
                    {
                        "type": "tool_use",
                        "id": "toolu_01",
                        "name": "weather",
                        "input": {"city": "Paris"},
                    }
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "toolu_01", "content": "Sunny."}
                ],
            },
        ],
    },
}
COUNT: Final[dict[str, Value]] = {"plain": {"messages": _HELLO, "tools": [_TOOL]}}
MESSAGES_REPLY: Final[Value] = {
    "id": "msg_0f3a",
    "type": "message",
    "role": "assistant",
    "model": "smollm2-135m",
    "content": [
        {"type": "text", "text": "Let me look."},
        {"type": "tool_use", "id": "toolu_01", "name": "weather", "input": {"city": "Paris"}},
    ],
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "usage": {
        "input_tokens": 12,
        "output_tokens": 3,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
    },
    **_OURS,
}
PROPS_REPLY: Final[Value] = {
    "model_alias": "smollm2-135m",
    "total_slots": 4,
    "chat_template": "{% for message in messages %}..",
    "default_generation_settings": {"n_ctx": 8192, "params": {"temperature": 0.0}},
    "slipstream": {
        "exact": True,
        "draft_methods": {
            "suffix": {"offered": True, "parameters": {"suffix_n_max": 48}},
            "draft-simple": {"offered": False, "reason": "it needs a draft model"},
        },
    },
}
