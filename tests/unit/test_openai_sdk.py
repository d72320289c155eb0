"""The official OpenAI package against the endpoints; its types check every reply."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import openai
import pydantic
import pytest
from starlette.testclient import TestClient

from openai_scripts import ScriptedService, app_of, failed, said
from slipstream.errors import OverloadedError
from slipstream.server import models, openai_chat, openai_completions

HELLO = [{"role": "user", "content": "Hello"}]
ADD = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Adds numbers.",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
            "additionalProperties": False,
        },
        "strict": True,
    },
}
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call>'


@contextmanager
def client_of(service: ScriptedService) -> Iterator[Any]:
    app = app_of(service, openai_chat.routes, openai_completions.routes, models.routes)
    with (
        TestClient(app) as http,
        openai.OpenAI(
            api_key="k", base_url="http://testserver/v1", http_client=http, max_retries=0
        ) as client,
    ):
        yield client


def chat(client: Any, **options: Any) -> Any:
    return client.chat.completions.create(model="m", messages=HELLO, **options)


def test_chat() -> None:
    with client_of(ScriptedService(said("Hello", " there."))) as client:
        reply = chat(client, max_tokens=5)
        assert reply.choices[0].message.content == "Hello there."
        assert reply.usage.total_tokens > reply.usage.completion_tokens > 0
        assert reply.model_extra["timings"]["predicted_n"] == reply.usage.completion_tokens


def test_streams() -> None:
    with client_of(ScriptedService(said("Hello", " there."))) as client:
        chunks = list(chat(client, stream=True, stream_options={"include_usage": True}))
        text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
        assert text == "Hello there."
        assert chunks[-1].usage.prompt_tokens > 0
        with client.chat.completions.stream(model="m", messages=HELLO) as stream:
            final = stream.get_final_completion()
        assert final.choices[0].message.content == "Hello there."


@pytest.mark.parametrize("cut", [3, 200])
def test_tools(cut: int) -> None:
    pieces = [CALL[i : i + cut] for i in range(0, len(CALL), cut)]
    with client_of(ScriptedService(said(*pieces), said("3"))) as client:
        with client.chat.completions.stream(model="m", messages=HELLO, tools=[ADD]) as stream:
            message = stream.get_final_completion().choices[0].message
        (call,) = message.tool_calls
        assert (call.function.name, json.loads(call.function.arguments)) == (
            "add",
            {"a": 1, "b": 2},
        )
        answer = {"role": "tool", "tool_call_id": call.id, "content": "3"}
        sent_back = message.model_dump(exclude={"parsed"})
        sent_back["tool_calls"][0]["function"].pop("parsed_arguments", None)
        reply = client.chat.completions.create(
            model="m", messages=[*HELLO, sent_back, answer], tools=[ADD]
        )
        assert reply.choices[0].message.content == "3"


def test_a_message_of_ours_may_be_sent_back() -> None:
    service = ScriptedService(said(CALL), said("3"))
    with client_of(service) as client:
        message = chat(client, tools=[ADD]).choices[0].message
        answer = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "3"}
        client.chat.completions.create(model="m", messages=[*HELLO, message, answer])
    assert CALL.replace("\n", "") in service.prompts[-1]


def test_a_schema_is_parsed() -> None:
    class Answer(pydantic.BaseModel):
        value: int

    service = ScriptedService(said('{"value": 3}'))
    with client_of(service) as client:
        reply = client.chat.completions.parse(model="m", messages=HELLO, response_format=Answer)
        assert reply.choices[0].message.parsed.value == 3
    schema = json.loads(str(service.orders[0].sampling.json_schema))
    assert schema["properties"]["value"]["type"] == "integer"


def test_logprobs() -> None:
    with client_of(ScriptedService(said("the", "re", top=2))) as client:
        content = chat(client, logprobs=True, top_logprobs=2).choices[0].logprobs.content
        assert "".join(token.token for token in content) == "there"
        assert all(len(token.top_logprobs) == 2 for token in content)
        told = client.completions.create(model="m", prompt="a", logprobs=2).choices[0].logprobs
        assert len(told.tokens) == len(told.token_logprobs) == len(told.text_offset)


def test_completions_and_models() -> None:
    with client_of(ScriptedService(said("b", "c"))) as client:
        reply = client.completions.create(model="m", prompt=["a", "x"], n=2)
        assert [choice.text for choice in reply.choices] == ["bc"] * 4
        chunks = client.completions.create(model="m", prompt="a", stream=True)
        assert "".join(chunk.choices[0].text for chunk in chunks) == "bc"
        (listed,) = client.models.list().data
        assert client.models.retrieve(listed.id) == listed
        with pytest.raises(openai.NotFoundError):
            client.models.retrieve("gpt-4")


def test_errors_have_their_classes() -> None:
    with client_of(ScriptedService()) as client:
        with pytest.raises(openai.BadRequestError) as caught:
            chat(client, extra_body={"temprature": 1})
        assert caught.value.param == "temprature"
        assert "`temperature`" in caught.value.message
        with pytest.raises(openai.UnprocessableEntityError):
            chat(client, extra_body={"mirostat": 1})
    busy = ScriptedService(refusal=OverloadedError("room", "none", "Wait."))
    with client_of(busy) as client, pytest.raises(openai.RateLimitError):
        chat(client)


def test_an_error_within_a_stream_is_raised() -> None:
    service = ScriptedService([*said("Hello")[:1], failed()])
    with client_of(service) as client, pytest.raises(openai.APIError) as caught:
        list(chat(client, stream=True))
    assert caught.value.code == "deadline_exceeded"
