"""Anthropic's messages: by its official package, and byte by byte where that is not installed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from servers import RunningServer, reference, server_events, serving, tiny_backend
from slipstream import Model

CONTEXT = 1024
HELLO = [{"role": "user", "content": "hello there"}]
ASKED: dict[str, Any] = {"model": "m", "max_tokens": 20, "messages": HELLO}
REASONS = {"length": "max_tokens", "stop": "end_turn"}


@pytest.fixture(scope="module")
def server(chatty: Path) -> Iterator[RunningServer]:
    flags = ["--parallel", "2", "--context", str(CONTEXT)]
    with serving(chatty, *flags, *tiny_backend()) as running:
        yield running


@pytest.fixture(scope="module")
def http(server: RunningServer) -> Iterator[Any]:
    with server.client() as client:
        yield client


@pytest.fixture(scope="module")
def client(server: RunningServer) -> Iterator[Any]:
    with server.anthropic() as made:
        yield made


@pytest.fixture(scope="module")
def model(chatty: Path) -> Model:
    return reference(chatty, context=CONTEXT)


def post(http: Any, body: dict[str, Any]) -> Any:
    return http.post("/v1/messages", json=body, headers={"anthropic-version": "2023-06-01"})


def test_a_message_is_the_models_own(http: Any, model: Model) -> None:
    wanted = model.chat(HELLO, max_tokens=20)
    reply = post(http, ASKED)
    assert reply.status_code == 200, reply.text
    body = reply.json()
    assert (body["type"], body["role"]) == ("message", "assistant")
    assert [(block["type"], block["text"]) for block in body["content"]] == [("text", wanted.text)]
    assert body["stop_reason"] == REASONS[wanted.finish_reason]
    assert body["stop_sequence"] is None
    usage = body["usage"]
    read = usage.get("cache_read_input_tokens") or 0
    assert usage["input_tokens"] + read == len(model.chat_ids(HELLO))
    assert usage["output_tokens"] == len(wanted.ids)


def test_a_system_text_and_parts_of_content(http: Any, model: Model) -> None:
    wanted = model.chat([{"role": "system", "content": "be brief"}, *HELLO], max_tokens=20)
    parts = [{"type": "text", "text": "hello"}, {"type": "text", "text": " there"}]
    for system in ("be brief", [{"type": "text", "text": "be brief"}]):
        reply = post(http, {**ASKED, "system": system})
        assert reply.json()["content"][0]["text"] == wanted.text
    split = post(http, {**ASKED, "messages": [{"role": "user", "content": parts}]})
    assert split.status_code == 200
    assert split.json()["content"][0]["text"]


def test_the_events_of_a_stream(http: Any, model: Model) -> None:
    wanted = model.chat(HELLO, max_tokens=20)
    with http.stream("POST", "/v1/messages", json={**ASKED, "stream": True}) as reply:
        assert reply.headers["content-type"].startswith("text/event-stream")
        events = [event for event in server_events(reply.iter_lines()) if event[0] != "ping"]
    names = [name for name, _ in events]
    assert names[:2] == ["message_start", "content_block_start"]
    assert names[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert set(names[2:-3]) == {"content_block_delta"}
    assert all(data["type"] == name for name, data in events)
    deltas = [data["delta"] for name, data in events if name == "content_block_delta"]
    assert "".join(delta["text"] for delta in deltas) == wanted.text
    start, last = events[0][1]["message"], events[-2][1]
    assert start["content"] == []
    assert start["stop_reason"] is None
    assert last["delta"]["stop_reason"] == REASONS[wanted.finish_reason]
    assert last["usage"]["output_tokens"] == len(wanted.ids)


def test_stop_sequences(http: Any, model: Model) -> None:
    options = {"max_tokens": 20, "temperature": 1.0, "seed": 5}
    whole = model.chat(HELLO, **options).text
    stop = whole[4:7]
    body = {**ASKED, "temperature": 1.0, "seed": 5, "stop_sequences": [stop]}
    reply = post(http, body).json()
    assert reply["content"][0]["text"] == whole[: whole.index(stop)]
    assert (reply["stop_reason"], reply["stop_sequence"]) == ("stop_sequence", stop)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"temprature": 1}, "temprature"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "role"),
        ({"speculative": {"typo": "none"}}, "typo"),
    ],
)
def test_mistakes_are_told_in_anthropics_shape(http: Any, change: Any, word: str) -> None:
    reply = post(http, {**ASKED, **change})
    assert reply.status_code == 400, reply.text
    body = reply.json()
    assert body["type"] == "error"
    assert body["error"]["type"] == "invalid_request_error"
    assert word in body["error"]["message"]


def test_an_image_is_refused(http: Any) -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}
    reply = post(http, {**ASKED, "messages": [{"role": "user", "content": [image]}]})
    assert reply.status_code in (400, 422)
    assert "image" in reply.json()["error"]["message"]


def test_tokens_are_counted(http: Any, model: Model) -> None:
    reply = http.post("/v1/messages/count_tokens", json={"model": "m", "messages": HELLO})
    assert reply.json() == {"input_tokens": len(model.chat_ids(HELLO))}


@pytest.mark.parametrize("method", ["none", "suffix"])
def test_speculation_changes_nothing_and_is_echoed(http: Any, model: Model, method: str) -> None:
    messages = [{"role": "user", "content": "one two three one two three one two"}]
    wanted = model.chat(messages, max_tokens=48)
    asked = {**ASKED, "messages": messages, "max_tokens": 48, "speculative": {"type": method}}
    reply = post(http, asked).json()
    assert reply["content"][0]["text"] == wanted.text
    assert reply["speculative"]["type"] == method


def test_the_official_client(client: Any, model: Model) -> None:
    wanted = model.chat(HELLO, max_tokens=20)
    message = client.messages.create(model="m", max_tokens=20, messages=HELLO)
    assert message.content[0].text == wanted.text
    with client.messages.stream(model="m", max_tokens=20, messages=HELLO) as stream:
        assert "".join(stream.text_stream) == wanted.text
        final = stream.get_final_message()
    assert final.stop_reason == REASONS[wanted.finish_reason]
    assert final.usage.output_tokens == len(wanted.ids)
    counted = client.messages.count_tokens(model="m", messages=HELLO)
    assert counted.input_tokens == len(model.chat_ids(HELLO))


def test_the_official_clients_error(client: Any) -> None:
    import anthropic

    with pytest.raises(anthropic.BadRequestError, match="temperature"):
        client.messages.create(
            model="m", max_tokens=2, messages=HELLO, extra_body={"temperature": 1e9}
        )
