"""Bodies of requests: the same sampling for every server, every setting said explicitly.

Servers differ in their defaults (llama-server: temperature 0.8, top-k 40, top-p 0.95, min-p 0.05),
so what ``SamplingOptions`` leaves at its default is sent too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from slipstream.errors import OptionError
from slipstream.lab.client.answer import Prompt
from slipstream.options import SamplingOptions, from_mapping

# option -> key of llama-server's /completion
_LLAMA_KEYS: Final[Mapping[str, str]] = {
    "temperature": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "repetition_penalty": "repeat_penalty",
    "frequency_penalty": "frequency_penalty",
    "presence_penalty": "presence_penalty",
    "penalty_window": "repeat_last_n",
    "seed": "seed",
    "stop": "stop",
    "max_tokens": "n_predict",
    "ignore_eos": "ignore_eos",
}
_OPENAI_KEYS: Final = (
    "temperature",
    "top_p",
    "frequency_penalty",
    "presence_penalty",
    "seed",
    "stop",
    "max_tokens",
)
# beyond OpenAI's: sent only where asked for, as strict servers refuse them
_OPENAI_EXTENSIONS: Final = ("top_k", "min_p", "repetition_penalty", "ignore_eos")
_NOT_OPENAI: Final = ("penalty_window",)


def options_of(sampling: Mapping[str, Any] | SamplingOptions) -> SamplingOptions:
    """
    Raises:
        OptionError: an unknown key or a value out of bounds.
    """
    if isinstance(sampling, SamplingOptions):
        return sampling
    options: SamplingOptions = from_mapping(SamplingOptions, sampling)
    return options


def llama_body(prompt: Prompt, options: SamplingOptions, tenant: str) -> dict[str, Any]:
    """A body of ``/completion``: ids where there are some, nothing reused of other requests.

    Raises:
        OptionError: an empty prompt, or a grammar in a language that llama-server does not have.
    """
    _require_schema_alone(options)
    asked: Any = list(prompt.ids) or prompt.text
    if not asked:
        raise OptionError("a prompt of ids or text", "an empty one", "Tokenise the messages first.")
    body: dict[str, Any] = {"prompt": asked, "stream": True, "cache_prompt": False}
    body |= _llama_settings(options)
    if options.logit_bias:
        body["logit_bias"] = [[token, bias] for token, bias in options.logit_bias.items()]
    if options.json_schema:
        body["json_schema"] = json.loads(options.json_schema)
    body |= {"n_probs": options.logprobs} if options.logprobs else {}
    body |= {"session": tenant} if tenant else {}
    return _without_none(body) | dict(prompt.extra)


def openai_body(prompt: Prompt, options: SamplingOptions, tenant: str) -> dict[str, Any]:
    """A body of ``/v1/chat/completions``; the model's name is the endpoint's.

    Raises:
        OptionError: no messages, or a setting that the dialect has no key for.
    """
    foreign = [name for name in _NOT_OPENAI if _changed(options, name) is not None]
    if foreign:
        raise OptionError(
            "settings that OpenAI's API has", ", ".join(foreign), "Leave them at their defaults."
        )
    body = _chat(prompt, options)
    body |= {name: _plain(getattr(options, name)) for name in _OPENAI_KEYS}
    body["max_tokens"] = options.max_tokens if options.max_tokens > 0 else None
    body |= {name: _changed(options, name) for name in _OPENAI_EXTENSIONS}
    body |= {"user": tenant} if tenant else {}
    return _without_none(body) | dict(prompt.extra)


def llama_chat_body(prompt: Prompt, options: SamplingOptions, tenant: str) -> dict[str, Any]:
    """``openai_body`` for llama.cpp's server and Slipstream's, with all that they can be told.

    Raises:
        OptionError: no messages, or a grammar in a language that llama-server does not have.
    """
    body = _chat(prompt, options) | _llama_settings(options)
    body["max_tokens"] = body.pop("n_predict")
    body |= {"user": tenant} if tenant else {}
    return _without_none(body) | dict(prompt.extra)


def _chat(prompt: Prompt, options: SamplingOptions) -> dict[str, Any]:
    if not prompt.messages:
        raise OptionError("messages of a chat", "none", "This server takes no bare prompts.")
    _require_schema_alone(options)
    body: dict[str, Any] = {
        "messages": [dict(message) for message in prompt.messages],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if prompt.tools:
        body["tools"] = [dict(tool) for tool in prompt.tools]
    if options.logit_bias:
        body["logit_bias"] = {str(token): bias for token, bias in options.logit_bias.items()}
    if options.json_schema:
        schema = {"name": "output", "schema": json.loads(options.json_schema), "strict": True}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    if options.logprobs:
        body |= {"logprobs": True, "top_logprobs": options.logprobs}
    return body


Maker = Callable[[Prompt, SamplingOptions, str], dict[str, Any]]

BODIES: Final[Mapping[str, tuple[str, Maker]]] = {
    "llama": ("/completion", llama_body),
    "openai": ("/v1/chat/completions", openai_body),
    "llama-chat": ("/v1/chat/completions", llama_chat_body),
}
"""Dialect -> path and maker of bodies."""


def _llama_settings(options: SamplingOptions) -> dict[str, Any]:
    """Sampling and limits under llama-server's names, all of them."""
    made = {key: _plain(getattr(options, name)) for name, key in _LLAMA_KEYS.items()}
    if options.temperature == 0 and options.top_k == 0:
        made["top_k"] = 1  # the same token, without sorting a vocabulary
    return made


def _require_schema_alone(options: SamplingOptions) -> None:
    if options.grammar or options.regex:
        raise OptionError(
            "`json_schema` for constrained outputs", "`grammar` or `regex`", "Use a schema."
        )


def _changed(options: SamplingOptions, name: str) -> Any:
    """The option's value where it is not the default, else None."""
    fields = {field.name: field.default for field in msgspec.structs.fields(SamplingOptions)}
    value = getattr(options, name)
    return None if value == fields[name] else value


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _without_none(body: Mapping[str, Any]) -> dict[str, Any]:
    empty = {name for name in ("stop",) if not body.get(name)}
    return {key: value for key, value in body.items() if value is not None and key not in empty}
