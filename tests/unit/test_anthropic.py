"""Anthropic's Messages API over a scripted service."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.testclient import TestClient

from character_service import CharacterService, Script, ended, failed, said
from slipstream.errors import ContextFullError, DeadlineError, OverloadedError, TemplateError
from slipstream.server.anthropic import Messages, pinging, routes
from slipstream.server.error_shapes import anthropic_error
from slipstream.server.replies import answering

HELLO = [{"role": "user", "content": "Hello"}]
WEATHER = {
    "name": "weather",
    "description": "The weather of a city.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>'


def client_of(service: CharacterService) -> TestClient:
    return TestClient(Starlette(routes=routes(service)))  # type: ignore[arg-type]


def post(service: CharacterService, path: str = "/v1/messages", **body: Any) -> Any:
    asked = {"model": "m", "max_tokens": 20, "messages": HELLO, **body}
    if path.endswith("count_tokens"):
        asked.pop("max_tokens")
    return client_of(service).post(path, json=asked, headers={"anthropic-version": "2023-06-01"})


def reply_to(service: CharacterService, **body: Any) -> dict[str, Any]:
    reply = post(service, **body)
    assert reply.status_code == 200, reply.text
    value: dict[str, Any] = reply.json()
    return value


def events_of(text: str) -> list[tuple[str, dict[str, Any]]]:
    """(name, data) of server-sent events."""
    found = []
    for message in text.strip().split("\n\n"):
        name, data = message.split("\n")
        found.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return found


def streamed(service: CharacterService, **body: Any) -> list[tuple[str, dict[str, Any]]]:
    reply = post(service, stream=True, **body)
    assert reply.status_code == 200, reply.text
    assert reply.headers["content-type"].startswith("text/event-stream")
    events = events_of(reply.text)
    assert all(data["type"] == name for name, data in events)
    return events


def messages_seen(**body: Any) -> list[dict[str, Any]]:
    service = CharacterService()
    reply_to(service, **body)
    return list(map(dict, service.said[-1][0]))


# ---- replies


def test_a_whole_reply() -> None:
    service = CharacterService([said("Hello"), said(" there.", drafted=1), ended(reused_tokens=3)])
    reply = reply_to(service)
    assert reply["content"] == [{"type": "text", "text": "Hello there."}]
    assert (reply["type"], reply["role"], reply["model"]) == ("message", "assistant", "scripted")
    assert (reply["id"], reply["stop_reason"]) == ("msg_0f3a", "end_turn")
    assert reply["stop_sequence"] is None
    prompt = len(service.orders[0].prompt)
    assert reply["usage"] == {
        "input_tokens": prompt - 3,
        "output_tokens": 4,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 3,
    }
    assert reply["speculative"] == {"type": "suffix"}
    assert reply["timings"]["draft_n_accepted"] == 1


@pytest.mark.parametrize(
    ("last", "reason", "sequence"),
    [
        (ended("stop"), "end_turn", None),
        (ended("length"), "max_tokens", None),
        (ended("stop", stop="END"), "stop_sequence", "END"),
    ],
)
def test_why_a_reply_ended(last: Any, reason: str, sequence: str | None) -> None:
    script = [said("Hi"), last]
    reply = reply_to(CharacterService(script))
    assert (reply["stop_reason"], reply["stop_sequence"]) == (reason, sequence)
    _, delta = streamed(CharacterService(script))[-2]
    assert delta["delta"] == {"stop_reason": reason, "stop_sequence": sequence}


def test_the_events_of_a_stream() -> None:
    service = CharacterService([said("Hello"), said(' "there"\n'), ended(reused_tokens=2)])
    events = streamed(service)
    assert [name for name, _ in events] == [
        "message_start",
        "ping",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    start = events[0][1]["message"]
    prompt = len(service.orders[0].prompt)
    assert start["content"] == []
    assert start["stop_reason"] is None
    assert start["usage"]["input_tokens"] == prompt
    assert "timings" not in start
    assert events[2][1] == {
        "type": "content_block_start",
        "index": 0,
        "content_block": {"type": "text", "text": ""},
    }
    assert events[4][1]["delta"] == {"type": "text_delta", "text": ' "there"\n'}
    last = events[-2][1]
    assert last["usage"]["output_tokens"] == 4
    assert last["usage"]["cache_read_input_tokens"] == 2
    assert last["usage"]["input_tokens"] == prompt - 2
    assert last["timings"]["target_passes"] == 3


def test_an_output_without_text_has_no_block() -> None:
    assert reply_to(CharacterService([ended()]))["content"] == []
    names = [name for name, _ in streamed(CharacterService([ended()]))]
    assert names == ["message_start", "ping", "message_delta", "message_stop"]


def test_text_of_the_last_event_comes_before_the_end() -> None:
    events = streamed(CharacterService([said("a"), ended(text="z")]))
    texts = [data["delta"]["text"] for name, data in events if name == "content_block_delta"]
    assert texts == ["a", "z"]
    assert [name for name, _ in events][-3] == "content_block_stop"


# ---- conversations


def test_a_system_prompt_comes_first() -> None:
    blocks = [{"type": "text", "text": "Be"}, {"type": "text", "text": "brief."}]
    assert messages_seen(system="Be brief.")[0] == {"role": "system", "content": "Be brief."}
    assert messages_seen(system=blocks)[0] == {"role": "system", "content": "Be\nbrief."}


def test_turns_of_a_role_in_a_row_become_one() -> None:
    talk = [
        {"role": "user", "content": "one"},
        {"role": "user", "content": [{"type": "text", "text": "two"}]},
        {"role": "assistant", "content": "three"},
        {"role": "user", "content": "four"},
    ]
    assert messages_seen(messages=talk) == [
        {"role": "user", "content": "one\ntwo"},
        {"role": "assistant", "content": "three"},
        {"role": "user", "content": "four"},
    ]


def test_a_last_turn_of_the_assistant_is_continued() -> None:
    service = CharacterService()
    talk = [*HELLO, {"role": "assistant", "content": "The answer is ("}]
    reply_to(service, messages=talk)
    assert "".join(map(chr, service.orders[0].prompt)) == "<user>HelloThe answer is ("
    assert [turn["role"] for turn in service.said[0][0]] == ["user"]


def called(**changes: Any) -> list[dict[str, Any]]:
    use = {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Paris"}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "Sunny."}
    return [
        *HELLO,
        {"role": "assistant", "content": [{"type": "text", "text": "Let me look."}, use]},
        {
            "role": "user",
            "content": [{**result, **changes}, {"type": "text", "text": "Well?"}],
        },
    ]


def test_calls_and_their_results_reach_the_template() -> None:
    _, call, result, question = messages_seen(messages=called(), tools=[WEATHER])
    assert call == {
        "role": "assistant",
        "content": "Let me look.",
        "tool_calls": [
            {
                "id": "t1",
                "type": "function",
                "function": {"name": "weather", "arguments": {"city": "Paris"}},
            }
        ],
    }
    assert result == {
        "role": "tool",
        "tool_call_id": "t1",
        "name": "weather",
        "content": "Sunny.",
    }
    assert question == {"role": "user", "content": "Well?"}


@pytest.mark.parametrize(
    ("changes", "content"),
    [
        ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, "a\nb"),
        ({"content": None}, ""),
        ({"is_error": True}, "Error: Sunny."),
    ],
)
def test_forms_of_a_result(changes: dict[str, Any], content: str) -> None:
    assert messages_seen(messages=called(**changes))[2]["content"] == content


class PickyService(CharacterService):
    """Its template joins arguments to texts, and fails where they are objects."""

    async def chat_ids(self, messages: Any, **rest: Any) -> list[int]:
        for message in messages:
            for call in message.get("tool_calls", ()):
                if not isinstance(call["function"]["arguments"], str):
                    raise TemplateError("a text", "an object", "Send texts.")
        return await super().chat_ids(messages, **rest)


def test_a_template_that_wants_arguments_as_text_gets_them() -> None:
    service = PickyService()
    reply_to(service, messages=called())
    function = service.said[-1][0][1]["tool_calls"][0]["function"]
    assert function["arguments"] == '{"city": "Paris"}'


# ---- options


def test_options_reach_the_order() -> None:
    service = CharacterService()
    reply_to(
        service,
        temperature=0.5,
        top_p=0.9,
        top_k=40,
        seed=11,
        stop_sequences=["END"],
        speculative={"type": "suffix", "n_max": 3},
        workload="code_edit",
        session="s",
        deadline_s=4,
    )
    [order] = service.orders
    sampling = order.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (0.5, 0.9, 40)
    assert (sampling.seed, sampling.stop, sampling.max_tokens) == (11, ("END",), 20)
    assert order.speculation is not None
    assert (order.speculation.methods, order.speculation.n_max) == (("suffix",), 3)
    assert (order.workload, order.deadline_s) == ("code_edit", 4)
    assert order.endpoint == "/v1/messages"
    assert service.callers[0].session.endswith("s")


def test_what_is_not_said_is_the_servers() -> None:
    service = CharacterService()
    reply_to(service)
    assert service.orders[0].sampling.temperature == service.sampling.temperature
    assert service.orders[0].speculation is None


def test_a_workload_may_be_a_header() -> None:
    service = CharacterService()
    client = client_of(service)
    body = {"max_tokens": 3, "messages": HELLO}
    client.post("/v1/messages", json=body, headers={"X-Slipstream-Workload": "chat"})
    assert service.orders[0].workload == "chat"
    long = client.post("/v1/messages", json=body, headers={"X-Slipstream-Workload": "x" * 200})
    assert long.status_code == 400


def test_a_schema_of_the_answer() -> None:
    service = CharacterService()
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    reply_to(service, output_config={"format": {"type": "json_schema", "schema": schema}})
    assert json.loads(service.orders[0].sampling.json_schema or "") == schema


@pytest.mark.parametrize(
    "keys",
    [
        {"metadata": {"user_id": "u"}},
        {"service_tier": "auto"},
        {"thinking": {"type": "disabled"}},
        {"cache_control": {"type": "ephemeral"}},
        {"system": [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}]},
        {"temperature": None, "tools": None, "stop_sequences": None},
    ],
)
def test_keys_without_effect_are_accepted(keys: dict[str, Any]) -> None:
    reply_to(CharacterService(), **keys)


def test_tokens_are_counted() -> None:
    service = CharacterService()
    plain = post(service, "/v1/messages/count_tokens").json()
    assert plain == {"input_tokens": len("<user>Hello")}
    more = post(service, "/v1/messages/count_tokens", tools=[WEATHER]).json()
    assert more["input_tokens"] > plain["input_tokens"]
    assert service.orders == []


# ---- tools


def test_a_call_is_a_block() -> None:
    service = CharacterService([said("Let me look.\n"), said(CALL), ended()])
    reply = reply_to(service, tools=[WEATHER])
    text, use = reply["content"]
    assert text == {"type": "text", "text": "Let me look."}
    assert use["id"].startswith("toolu_")
    assert (use["type"], use["name"], use["input"]) == ("tool_use", "weather", {"city": "Paris"})
    assert reply["stop_reason"] == "tool_use"
    assert service.said[-1][1][0]["function"]["parameters"] == WEATHER["input_schema"]


def test_a_call_is_streamed_as_it_is_written() -> None:
    script = [*(said(part) for part in ("Hm.", *CALL)), ended()]
    events = streamed(CharacterService(script), tools=[WEATHER])
    starts = [data["content_block"] for name, data in events if name == "content_block_start"]
    assert [start["type"] for start in starts] == ["text", "tool_use"]
    assert (starts[1]["name"], starts[1]["input"]) == ("weather", {})
    deltas = [data for name, data in events if name == "content_block_delta"]
    pieces = [d["delta"]["partial_json"] for d in deltas if d["index"] == 1]
    assert len(pieces) > 1
    assert json.loads("".join(pieces)) == {"city": "Paris"}
    assert [data["index"] for name, data in events if name == "content_block_stop"] == [0, 1]
    assert events[-2][1]["delta"]["stop_reason"] == "tool_use"


def test_a_call_that_was_cut_off_is_not_to_be_run() -> None:
    script: Script = [said(CALL[:-25]), ended("length")]
    reply = reply_to(CharacterService(script), tools=[WEATHER])
    assert [block["type"] for block in reply["content"]] == ["text"]
    assert reply["stop_reason"] == "max_tokens"


@pytest.mark.parametrize(
    "arguments", ['{"a": 1e}', '{"a": "\\ud800"}', '{"a": NaN}', '{"a": 1e999}']
)
def test_arguments_that_are_no_json_are_text(arguments: str) -> None:
    call = f'<tool_call>{{"name": "weather", "arguments": {arguments}}}</tool_call>'
    reply = reply_to(CharacterService([said(call), ended()]), tools=[WEATHER])
    assert [block["type"] for block in reply["content"]] == ["text"]
    assert reply["stop_reason"] == "end_turn"


def test_large_numbers_of_a_call_stay_exact() -> None:
    call = f'<tool_call>{{"name": "weather", "arguments": {{"a": {10**30}}}}}</tool_call>'
    reply = reply_to(CharacterService([said(call), ended()]), tools=[WEATHER])
    assert [block["input"] for block in reply["content"]] == [{"a": 10**30}]


@pytest.mark.parametrize(("alone", "count"), [(True, 1), (False, 2)])
def test_parallel_calls_can_be_forbidden(alone: bool, count: int) -> None:
    script = [said(f"{CALL}\n{CALL}"), ended()]
    choice = {"type": "auto", "disable_parallel_tool_use": alone}
    body = {"tools": [WEATHER], "tool_choice": choice}
    assert len(reply_to(CharacterService(script), **body)["content"]) == count
    events = streamed(CharacterService(script), **body)
    assert [name for name, _ in events].count("content_block_start") == count


def test_a_call_can_be_demanded() -> None:
    for choice in ({"type": "any"}, {"type": "tool", "name": "weather"}):
        service = CharacterService([said(CALL), ended()])
        reply_to(service, tools=[WEATHER], tool_choice=choice)
        assert "weather" in (service.orders[0].sampling.grammar or "")


def test_with_none_the_model_does_not_learn_of_tools() -> None:
    service = CharacterService([said(CALL), ended()])
    reply = reply_to(service, tools=[WEATHER], tool_choice={"type": "none"})
    assert reply["content"] == [{"type": "text", "text": CALL}]
    assert service.said[-1][1] is None


# ---- refusals and failures

IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}
RESULT = {"type": "tool_result", "tool_use_id": "t9", "content": "x"}
USE = {"type": "tool_use", "id": "t1", "name": "weather", "input": {}}


@pytest.mark.parametrize(
    ("body", "status", "found"),
    [
        ({"max_tokens": None}, 400, "max_tokens"),
        ({"max_tokens": 0}, 400, "max_tokens"),
        ({"messages": []}, 400, "messages"),
        ({"messages": [{"role": "robot", "content": "x"}]}, 400, "role"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, 400, "the user speaks"),
        ({"messages": [{"role": "user", "content": [IMAGE]}]}, 422, "image"),
        (
            {"messages": [{"role": "user", "content": [{**RESULT, "content": [IMAGE]}]}]},
            422,
            "image",
        ),
        ({"messages": [{"role": "user", "content": [RESULT]}]}, 400, "t9"),
        ({"messages": [{"role": "user", "content": [USE]}]}, 400, "tool_use"),
        ({"messages": [{"role": "assistant", "content": [RESULT]}]}, 400, "tool_result"),
        ({"messages": [*HELLO, {"role": "assistant", "content": [USE]}]}, 400, "tool_result"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, 400, "text"),
        ({"temprature": 1}, 400, "Did you mean `temperature`"),
        ({"temperature": 1e9}, 400, "temperature"),
        ({"top_k": "many"}, 400, "top_k"),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, 422, "thinking"),
        ({"output_config": {"effort": "max"}}, 400, "effort"),
        ({"speculative": {"typo": 1}}, 400, "typo"),
        ({"speculative": {"type": "draft-simple"}}, 400, "no draft model"),
        ({"tools": [{"name": "a b", "input_schema": {}}]}, 400, "tools"),
        ({"tools": [WEATHER, WEATHER]}, 400, "weather"),
        ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, 422, "bash"),
        ({"tools": [WEATHER], "tool_choice": {"type": "tool"}}, 400, "tool_choice"),
        ({"tools": [WEATHER], "tool_choice": {"type": "tool", "name": "x"}}, 400, "weather"),
        ({"tool_choice": {"type": "any"}}, 400, "tools"),
        ({"stop_sequences": [""]}, 400, "stop"),
    ],
)
def test_a_mistake_is_told_in_anthropics_shape(
    body: dict[str, Any], status: int, found: str
) -> None:
    reply = post(CharacterService(), **body)
    assert reply.status_code == status, reply.text
    value = reply.json()
    assert value["type"] == "error"
    assert value["error"]["type"] == "invalid_request_error"
    assert found in value["error"]["message"]


def test_a_model_without_tools_says_so() -> None:
    reply = post(CharacterService(knows_tools=False), tools=[WEATHER])
    assert reply.status_code == 422
    assert "template" in reply.json()["error"]["message"]


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (OverloadedError("room", "none", "Wait."), 429, "rate_limit_error"),
        (ContextFullError("less", "more", "Cut it."), 413, "request_too_large"),
        (DeadlineError("time", "none", "Wait."), 504, "timeout_error"),
    ],
)
def test_a_refusal_has_its_status_and_type(error: Any, status: int, kind: str) -> None:
    for stream in (False, True):
        reply = post(CharacterService(refusal=error), stream=stream)
        assert reply.status_code == status
        assert reply.json()["error"]["type"] == kind
        assert ("retry-after" in reply.headers) == (status == 429)


@pytest.mark.parametrize("stream", [False, True])
def test_a_failure_before_any_output_has_a_status(stream: bool) -> None:
    service = CharacterService([failed()])
    reply = post(service, stream=stream)
    assert reply.status_code == 500
    assert reply.json()["error"]["type"] == "api_error"
    assert "a fault" not in reply.text
    assert service.generations[0].cancelled
    assert service.generations[0].closed


def test_a_failure_amid_a_stream_is_its_last_event() -> None:
    service = CharacterService([said("Hel"), failed("DeadlineError")])
    events = streamed(service)
    name, data = events[-1]
    assert name == "error"
    assert data["error"]["type"] == "timeout_error"
    assert service.generations[0].cancelled


def test_an_error_has_no_more_than_a_type_and_a_message() -> None:
    value = anthropic_error(OverloadedError("room", "none", "Wait."))
    assert value.keys() == {"type", "error"}
    assert value["error"].keys() == {"type", "message"}


# ---- time


def test_a_stream_that_waits_says_that_it_lives() -> None:
    service = CharacterService([0.12, said("Hello"), 0.12, ended()])
    messages = Messages(service, ping_s=0.05)  # type: ignore[arg-type]
    route = answering(messages.answer, anthropic_error)
    app = Starlette(routes=[Route("/v1/messages", route, methods=["POST"])])
    body = {"max_tokens": 3, "messages": HELLO, "stream": True}
    reply = TestClient(app).post("/v1/messages", json=body)
    names = [name for name, _ in events_of(reply.text)]
    assert names.index("content_block_start") >= 3  # message_start, its ping, and one while waiting
    assert names.count("ping") >= 4


class Source:
    """Numbers, then a wait without end."""

    def __init__(self) -> None:
        self.closed = False

    async def numbers(self, count: int) -> AsyncIterator[int]:
        try:
            for number in range(count):
                yield number
            await asyncio.Event().wait()
        finally:
            self.closed = True


def test_pings_lose_nothing_and_close_their_source() -> None:
    async def run() -> list[int | None]:
        source = Source()
        paced = pinging(source.numbers(3), 0.02)
        found = [await anext(paced) for _ in range(5)]
        await paced.aclose()  # type: ignore[attr-defined]
        assert source.closed
        return found

    assert asyncio.run(run()) == [0, 1, 2, None, None]


def test_pings_end_with_their_source() -> None:
    async def items() -> AsyncIterator[int]:
        yield 1

    async def run() -> list[int | None]:
        return [item async for item in pinging(items(), 1.0)]

    assert asyncio.run(run()) == [1]


def test_a_client_that_goes_away_ends_its_output() -> None:
    service = CharacterService([said("Hello"), 60.0, ended()])
    app = Starlette(routes=routes(service))  # type: ignore[arg-type]
    body = json.dumps({"max_tokens": 3, "messages": HELLO, "stream": True}).encode()

    async def run() -> None:
        sent = asyncio.Event()
        messages: Iterator[dict[str, Any]] = iter([{"type": "http.request", "body": body}])

        async def receive() -> dict[str, Any]:
            for message in messages:
                return message
            await sent.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            if b"Hello" in message.get("body", b""):
                sent.set()

        scope = {
            "type": "http",
            "method": "POST",
            "path": "/v1/messages",
            "query_string": b"",
            "headers": [],
        }
        await asyncio.wait_for(app(scope, receive, send), 10)  # type: ignore[arg-type]

    asyncio.run(run())
    assert service.generations[0].cancelled
    assert service.generations[0].closed
