"""What a real code model is asked for: filling in the middle, and calls of tools."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from servers import RunningServer, server_events, serving

pytestmark = [pytest.mark.model, pytest.mark.native]

PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 20}},
    "required": ["city"],
    "additionalProperties": False,
}
ABOUT = {"name": "weather", "description": "The weather in a city."}
TOOL: Any = {"type": "function", "function": {**ABOUT, "parameters": PARAMETERS}}
QUESTION: Any = [{"role": "user", "content": "What is the weather in Paris? Use the tool."}]
NAMED = {"type": "function", "function": {"name": "weather"}}


@pytest.fixture(scope="module")
def coder(model_path: Any) -> Iterator[RunningServer]:
    flags = ["--context", "2048", "--parallel", "2"]
    with serving(model_path("qwen2.5-coder-0.5b"), *flags) as running:
        yield running


def test_infill(coder: RunningServer) -> None:
    body = {
        "input_prefix": "def add(a, b):\n    ",
        "input_suffix": "\n\nprint(add(1, 2))\n",
        "n_predict": 24,
        "temperature": 0.0,
    }
    with coder.client() as http:
        plain = http.post("/infill", json={**body, "speculative": {"type": "none"}})
        drafted = http.post("/infill", json={**body, "speculative": {"type": "ngram-simple"}})
        with http.stream("POST", "/infill", json={**body, "stream": True}) as reply:
            parts = [data["content"] for _, data in server_events(reply.iter_lines())]
    assert plain.status_code == drafted.status_code == 200, plain.text
    text = plain.json()["content"]
    assert "return a + b" in text
    assert drafted.json()["content"] == text
    assert "".join(parts) == text


@pytest.mark.parametrize("choice", ["required", NAMED], ids=["required", "named"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_tool_is_called(coder: RunningServer, choice: Any, stream: bool) -> None:
    with coder.openai() as client:
        reply: Any = client.chat.completions.create(
            model="m",
            messages=QUESTION,
            tools=[TOOL],
            tool_choice=choice,
            max_tokens=120,
            stream=stream,
        )
        name, arguments, reason = "", "", None
        for chunk in reply if stream else [reply]:
            for said in chunk.choices:
                part = said.delta if stream else said.message
                for call in part.tool_calls or []:
                    name += call.function.name or ""
                    arguments += call.function.arguments or ""
                reason = said.finish_reason or reason
    assert name == "weather"
    assert set(json.loads(arguments)) == {"city"}
    assert reason in ("tool_calls", "stop")


def test_what_a_tool_gave_is_read(coder: RunningServer) -> None:
    call = {"name": "weather", "arguments": '{"city": "Paris"}'}
    messages: Any = [
        *QUESTION,
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "call_1", "type": "function", "function": call}],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "17 degrees and rain"},
    ]
    with coder.openai() as client:
        reply = client.chat.completions.create(
            model="m", messages=messages, tools=[TOOL], tool_choice="none", max_tokens=60
        )
    assert "17" in str(reply.choices[0].message.content)


@pytest.mark.parametrize("stream", [False, True])
def test_a_tool_of_a_message_is_used(coder: RunningServer, stream: bool) -> None:
    body = {
        "model": "m",
        "max_tokens": 120,
        "messages": QUESTION,
        "tools": [{**ABOUT, "input_schema": PARAMETERS}],
        "tool_choice": {"type": "tool", "name": "weather"},
        "stream": stream,
    }
    with coder.client() as http:
        if stream:
            with http.stream("POST", "/v1/messages", json=body) as reply:
                used, given, reason = _streamed([e for _, e in server_events(reply.iter_lines())])
        else:
            message = http.post("/v1/messages", json=body).json()
            (used,) = [block for block in message["content"] if block["type"] == "tool_use"]
            given, reason = used["input"], message["stop_reason"]
    assert used["name"] == "weather"
    assert used["id"]
    assert set(given) == {"city"}
    assert reason == "tool_use"


def _streamed(events: list[Any]) -> tuple[Any, Any, str]:
    begun = [e["content_block"] for e in events if e["type"] == "content_block_start"]
    (used,) = [block for block in begun if block["type"] == "tool_use"]
    deltas = [e["delta"] for e in events if e["type"] == "content_block_delta"]
    parts = [d["partial_json"] for d in deltas if d["type"] == "input_json_delta"]
    (reason,) = [e["delta"]["stop_reason"] for e in events if e["type"] == "message_delta"]
    return used, json.loads("".join(parts)), reason
