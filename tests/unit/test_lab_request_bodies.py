"""What a body says of sampling, tools and constraints, in each dialect."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from slipstream.errors import OptionError
from slipstream.lab.client.answer import Prompt
from slipstream.lab.client.request_bodies import BODIES
from slipstream.options import SamplingOptions

TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
PROMPT = Prompt(messages=({"role": "user", "content": "?"},), ids=(1, 2), tools=(TOOL,))
CHANGED: dict[str, Any] = {
    "temperature": 0.5,
    "top_k": 7,
    "top_p": 0.5,
    "min_p": 0.25,
    "repetition_penalty": 1.5,
    "frequency_penalty": 0.5,
    "presence_penalty": 0.75,
    "penalty_window": 9,
    "logit_bias": {3: 1.5},
    "seed": 11,
    "stop": ("x",),
    "max_tokens": 17,
    "logprobs": 3,
    "ignore_eos": True,
    "json_schema": '{"type": "object"}',
    "grammar": 'start: "a"',
    "regex": "a",
}


def body(dialect: str, **changed: Any) -> dict[str, Any]:
    return BODIES[dialect][1](PROMPT, SamplingOptions(**changed), "")


def test_every_option_is_tried() -> None:
    assert set(CHANGED) == {field.name for field in msgspec.structs.fields(SamplingOptions)}


@pytest.mark.parametrize("dialect", list(BODIES))
@pytest.mark.parametrize("name", list(CHANGED))
def test_no_option_is_dropped_in_silence(dialect: str, name: str) -> None:
    try:
        changed = body(dialect, **{name: CHANGED[name]})
    except OptionError:
        assert name in ("grammar", "regex") or (dialect, name) == ("openai", "penalty_window")
    else:
        assert changed != body(dialect)


@pytest.mark.parametrize("dialect", ["llama", "llama-chat"])
def test_defaults_are_said_where_a_server_has_its_own(dialect: str) -> None:
    said = body(dialect)
    neutral = {"top_p": 1.0, "min_p": 0.0, "repeat_penalty": 1.0, "repeat_last_n": 64}
    assert neutral.items() <= said.items()
    assert (said["temperature"], said["top_k"]) == (0.0, 1)
    assert body(dialect, temperature=1.0)["top_k"] == 0


def test_a_strict_server_gets_no_key_that_it_may_refuse() -> None:
    assert set(body("openai", seed=1, stop=("x",))) == {
        *("messages", "stream", "stream_options", "tools", "temperature", "top_p", "seed", "stop"),
        *("frequency_penalty", "presence_penalty", "max_tokens"),
    }


def test_tools_go_to_chats_and_are_in_the_ids_otherwise() -> None:
    assert body("openai")["tools"] == body("llama-chat")["tools"] == [TOOL]
    assert "tools" not in body("llama")
    assert body("llama")["prompt"] == [1, 2]


def test_a_schema_constrains_in_every_dialect() -> None:
    schema = {"type": "object"}
    given = json.dumps(schema)
    assert body("llama", json_schema=given)["json_schema"] == schema
    for dialect in ("openai", "llama-chat"):
        form = body(dialect, json_schema=given)["response_format"]
        assert form["json_schema"]["schema"] == schema
