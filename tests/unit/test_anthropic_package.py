"""Anthropic's official Python client against the endpoint."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import anthropic
import httpx2
import pytest
from starlette.applications import Starlette

from character_service import CharacterService, ended, failed, said
from slipstream.errors import OverloadedError
from slipstream.server.anthropic import routes

Result = TypeVar("Result")
ASKED: dict[str, Any] = {
    "model": "any",
    "max_tokens": 20,
    "messages": [{"role": "user", "content": "Hello"}],
}
TOOL = {
    "name": "weather",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>'


def heat(temperature: float) -> dict[str, Any]:
    """The package has no argument for it any more; the protocol has the key."""
    return {"extra_body": {"temperature": temperature}}


def run(service: CharacterService, use: Callable[[Any], Awaitable[Result]]) -> Result:
    """What a function does with a client of the service."""

    async def connected() -> Result:
        app = Starlette(routes=routes(service))  # type: ignore[arg-type]
        http = httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app))
        async with anthropic.AsyncAnthropic(
            api_key="key", base_url="http://server", http_client=http, max_retries=0
        ) as client:
            return await use(client)

    return asyncio.run(connected())


def test_a_message() -> None:
    service = CharacterService()
    message = run(service, lambda client: client.messages.create(**ASKED, **heat(0.5)))
    assert message.content[0].text == "Hello there."
    assert (message.role, message.stop_reason) == ("assistant", "end_turn")
    assert message.usage.output_tokens == 4
    assert service.orders[0].sampling.temperature == 0.5


def test_a_stream() -> None:
    async def use(client: Any) -> tuple[str, Any]:
        async with client.messages.stream(**ASKED) as stream:
            text = "".join([piece async for piece in stream.text_stream])
            return text, await stream.get_final_message()

    text, message = run(CharacterService(), use)
    assert text == message.content[0].text == "Hello there."
    assert message.stop_reason == "end_turn"
    assert message.usage.output_tokens == 4


@pytest.mark.parametrize("stream", [False, True])
def test_tools(stream: bool) -> None:
    service = CharacterService([*(said(part) for part in ("Hm.", *CALL)), ended()])

    async def use(client: Any) -> Any:
        if not stream:
            return await client.messages.create(**ASKED, tools=[TOOL])
        async with client.messages.stream(**ASKED, tools=[TOOL]) as events:
            return await events.get_final_message()

    message = run(service, use)
    assert [block.type for block in message.content] == ["text", "tool_use"]
    assert message.content[1].input == {"city": "Paris"}
    assert message.stop_reason == "tool_use"

    async def answer(client: Any) -> Any:
        result = {"type": "tool_result", "tool_use_id": message.content[1].id, "content": "Sun."}
        talk = [
            *ASKED["messages"],
            {"role": "assistant", "content": message.content},
            {"role": "user", "content": [result]},
        ]
        return await client.messages.create(**{**ASKED, "messages": talk}, tools=[TOOL])

    run(service, answer)
    assert [turn["role"] for turn in service.said[-1][0]] == ["user", "assistant", "tool"]


def test_tokens_are_counted() -> None:
    asked = {"model": "any", "messages": ASKED["messages"]}
    counted = run(CharacterService(), lambda client: client.messages.count_tokens(**asked))
    assert counted.input_tokens == len("<user>Hello")


def test_errors_are_the_packages_own() -> None:
    refused = CharacterService(refusal=OverloadedError("room", "none", "Wait."))
    with pytest.raises(anthropic.RateLimitError):
        run(refused, lambda client: client.messages.create(**ASKED))
    with pytest.raises(anthropic.BadRequestError, match="temperature"):
        run(CharacterService(), lambda c: c.messages.create(**ASKED, **heat(1e9)))
    with pytest.raises(anthropic.InternalServerError):
        run(CharacterService([failed()]), lambda client: client.messages.create(**ASKED))


def test_an_error_amid_a_stream_is_raised() -> None:
    async def use(client: Any) -> None:
        async with client.messages.stream(**ASKED) as stream:
            async for _ in stream.text_stream:
                pass

    with pytest.raises(anthropic.APIStatusError):
        run(CharacterService([said("Hel"), failed()]), use)
