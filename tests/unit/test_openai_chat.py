"""``/v1/chat/completions`` over outputs that are written beforehand."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from starlette.testclient import TestClient

from openai_scripts import (
    LLAMA_TEMPLATE,
    PLAIN_TEMPLATE,
    SEED,
    ScriptedService,
    app_of,
    failed,
    messages_of,
    said,
    tokenizer_with,
)
from slipstream.errors import ContextFullError, OverloadedError, SlipstreamError
from slipstream.server import openai_chat
from slipstream.server.wire import Speculation, WireEvent, WireToken

HELLO = [{"role": "user", "content": "Hello"}]
PATH = "/v1/chat/completions"
ADD = {
    "type": "function",
    "function": {"name": "add", "parameters": {"type": "object", "properties": {}}},
}
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'


@contextmanager
def client_of(service: ScriptedService) -> Iterator[TestClient]:
    with TestClient(app_of(service, openai_chat.routes)) as client:
        yield client


def ask(service: ScriptedService, path: str = PATH, **body: Any) -> Any:
    with client_of(service) as client:
        return client.post(path, json={"messages": HELLO, **body})


def answered(service: ScriptedService, **body: Any) -> dict[str, Any]:
    reply = ask(service, **body)
    assert reply.status_code == 200, reply.text
    return dict(reply.json())


def streamed(service: ScriptedService, **body: Any) -> list[Any]:
    reply = ask(service, stream=True, **body)
    assert reply.status_code == 200, reply.text
    assert reply.headers["content-type"].startswith("text/event-stream")
    return messages_of(reply.text)


def refused(service: ScriptedService, status: int = 400, **body: Any) -> dict[str, Any]:
    reply = ask(service, **body)
    assert reply.status_code == status, reply.text
    error = dict(reply.json()["error"])
    assert set(error) == {"message", "type", "param", "code"}
    return error


def test_a_whole_reply() -> None:
    service = ScriptedService(said("Hello", " there."))
    reply = answered(service, model="gpt-4", max_tokens=9)
    assert reply["id"] == "chatcmpl-n0"
    assert reply["object"] == "chat.completion"
    assert reply["model"] == "tiny"
    (choice,) = reply["choices"]
    assert choice == {
        "index": 0,
        "message": {"role": "assistant", "content": "Hello there.", "refusal": None},
        "logprobs": None,
        "finish_reason": "stop",
    }
    prompt = len(service.orders[0].prompt)
    emitted = reply["usage"]["completion_tokens"]
    assert reply["usage"] == {
        "prompt_tokens": prompt,
        "completion_tokens": emitted,
        "total_tokens": prompt + emitted,
        "prompt_tokens_details": {"cached_tokens": 3},
    }
    assert reply["timings"]["predicted_n"] == emitted
    assert reply["timings"]["cache_n"] == 3
    assert reply["seed"] == SEED
    assert reply["speculative"] == {"type": "none"}
    assert service.orders[0].endpoint == PATH
    assert service.generations[0].closed


def test_a_stream_says_the_same() -> None:
    service = ScriptedService(said("Hello", "", " there."))
    *chunks, done = streamed(service)
    assert done == "[DONE]"
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert {chunk["id"] for chunk in chunks} == {"chatcmpl-n0"}
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert deltas == [
        {"role": "assistant", "content": ""},
        {"content": "Hello"},
        {"content": " there."},
        {},
    ]
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
    assert reasons == [None, None, None, "stop"]
    assert chunks[-1]["timings"]["predicted_n"] > 0
    assert chunks[-1]["seed"] == SEED
    assert all("usage" not in chunk for chunk in chunks)


def test_usage_at_the_end_of_a_stream() -> None:
    options = {"stream_options": {"include_usage": True}}
    *chunks, usage, done = streamed(ScriptedService(), **options)
    assert done == "[DONE]"
    assert all(chunk["usage"] is None for chunk in chunks)
    assert usage["choices"] == []
    assert usage["usage"] == answered(ScriptedService())["usage"]
    assert usage["timings"]["predicted_n"] == usage["usage"]["completion_tokens"]


def test_several_choices() -> None:
    service = ScriptedService(said("Yes", "."))
    reply = answered(service, n=3, seed=5)
    assert [choice["index"] for choice in reply["choices"]] == [0, 1, 2]
    assert service.orders[0].choices == 3
    assert reply["seed"] == 5
    each = reply["choices"][0]["timings"]["predicted_n"]
    assert reply["usage"]["completion_tokens"] == 3 * each
    assert reply["usage"]["prompt_tokens"] == len(service.orders[0].prompt)
    *chunks, _ = streamed(ScriptedService(said("Yes", ".")), n=2)
    texts = ["", ""]
    for chunk in chunks:
        (choice,) = chunk["choices"]
        texts[choice["index"]] += choice["delta"].get("content", "")
    assert texts == ["Yes.", "Yes."]


def test_options_reach_the_order() -> None:
    service = ScriptedService()
    body = {
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 40,
        "min_p": 0.1,
        "presence_penalty": 0.5,
        "frequency_penalty": 0.25,
        "repeat_penalty": 1.5,
        "logit_bias": {"7": -100, "8": 5},
        "stop": ["a", "b", "c", "d", "e"],
        "max_completion_tokens": 17,
        "seed": 3,
        "logprobs": True,
        "top_logprobs": 2,
    }
    answered(service, **body)
    sampling = service.orders[0].sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (0.5, 0.9, 40)
    assert (sampling.min_p, sampling.presence_penalty) == (0.1, 0.5)
    assert (sampling.frequency_penalty, sampling.repetition_penalty) == (0.25, 1.5)
    assert sampling.logit_bias == {7: -100.0, 8: 5.0}
    assert sampling.stop == ("a", "b", "c", "d", "e")
    assert (sampling.max_tokens, sampling.seed, sampling.logprobs) == (17, 3, 2)


def test_the_servers_defaults_hold_where_a_request_says_nothing() -> None:
    service = ScriptedService()
    answered(service, stop="end", seed=-1, temperature=None)
    sampling = service.orders[0].sampling
    assert sampling == type(sampling)(stop=("end",))


def test_our_own_keys() -> None:
    service = ScriptedService()
    answered(
        service,
        speculative={"type": "suffix", "n_max": 4, "n_min": 1, "p_min": 0.2, "scope": "request"},
        session="mine",
        workload="code",
        deadline_s=2.5,
        cache_prompt=False,
        user="somebody",
    )
    order = service.orders[0]
    assert not order.reuse
    assert order.speculation == Speculation(
        methods=("suffix",), n_max=4, n_min=1, p_min=0.2, scope="request"
    )
    assert (order.workload, order.deadline_s) == ("code", 2.5)
    assert service.callers[0].session == ":mine"


def test_a_workload_in_a_header() -> None:
    service = ScriptedService()
    with client_of(service) as client:
        headers = {"x-slipstream-workload": "prose"}
        client.post(PATH, json={"messages": HELLO}, headers=headers)
        client.post(PATH, json={"messages": HELLO, "workload": "code"}, headers=headers)
        long = client.post(
            PATH, json={"messages": HELLO}, headers={"x-slipstream-workload": "x" * 200}
        )
    assert [order.workload for order in service.orders] == ["prose", "code"]
    assert long.status_code == 400


def test_messages_reach_the_template() -> None:
    service = ScriptedService()
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    messages = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "A"}, {"type": "text", "text": "B"}]},
        {"role": "assistant", "content": None, "tool_calls": [call], "refusal": None},
        {"role": "tool", "tool_call_id": "c1", "content": "2"},
    ]
    answered(service, messages=messages)
    assert service.prompts[-1] == (
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\nA\nB<|im_end|>\n"
        '<|im_start|>assistant\n<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>'
        "<|im_end|>\n<|im_start|>tool\n2<|im_end|>\n<|im_start|>assistant\n"
    )


def test_a_template_that_wants_arguments_as_text_gets_them_so() -> None:
    service = ScriptedService(template=LLAMA_TEMPLATE)
    call = {"type": "function", "function": {"name": "add", "arguments": {"a": 1}}}
    answered(service, messages=[*HELLO, {"role": "assistant", "tool_calls": [call]}])
    assert 'add({"a": 1})' in service.prompts[-1]


def test_variables_of_the_template() -> None:
    service = ScriptedService(template="{{ thinking }}{{ messages[0].content }}")
    answered(service, chat_template_kwargs={"thinking": "no"})
    assert service.prompts[-1] == "noHello"
    error = refused(service, chat_template_kwargs={"messages": []})
    assert "`messages`" in error["message"]


@pytest.mark.parametrize("cut", [1, 2, 5, 100])
def test_calls_of_functions(cut: int) -> None:
    text = f"Let me see.\n{CALL}\n{CALL}"
    pieces = [text[i : i + cut] for i in range(0, len(text), cut)]
    reply = answered(ScriptedService(said(*pieces)), tools=[ADD])
    (choice,) = reply["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] == "Let me see."
    calls = choice["message"]["tool_calls"]
    assert [call["function"] for call in calls] == [{"name": "add", "arguments": '{"a": 1}'}] * 2
    assert len({call["id"] for call in calls}) == 2
    *chunks, _ = streamed(ScriptedService(said(*pieces)), tools=[ADD])
    assert gathered(chunks) == ("Let me see.", calls, "tool_calls")


def gathered(chunks: list[Any]) -> tuple[str, list[Any], str | None]:
    """Content, calls and reason of a stream, put together as clients do."""
    content, reason = "", None
    calls: dict[int, Any] = {}
    for chunk in chunks:
        (choice,) = chunk["choices"]
        content += choice["delta"].get("content") or ""
        reason = choice["finish_reason"] or reason
        for part in choice["delta"].get("tool_calls", []):
            if "id" in part:
                calls[part["index"]] = {key: part[key] for key in ("id", "type", "function")}
            else:
                function = calls[part["index"]]["function"]
                function["arguments"] += part["function"]["arguments"]
    return content, list(calls.values()), reason


def test_a_call_alone_has_no_content() -> None:
    (choice,) = answered(ScriptedService(said(CALL)), tools=[ADD])["choices"]
    assert choice["message"]["content"] is None


def test_one_call_where_several_are_not_wanted() -> None:
    service = ScriptedService(said(CALL, CALL))
    (choice,) = answered(service, tools=[ADD], parallel_tool_calls=False)["choices"]
    assert len(choice["message"]["tool_calls"]) == 1


def test_a_call_that_is_cut_off_says_so() -> None:
    service = ScriptedService(said(CALL[:45], finish="length"))
    (choice,) = answered(service, tools=[ADD])["choices"]
    assert choice["finish_reason"] == "length"
    assert choice["message"]["tool_calls"][0]["function"]["name"] == "add"


def test_tools_and_their_choice() -> None:
    service = ScriptedService(said(CALL))
    reply = answered(service, tools=[ADD], tool_choice="none")
    assert reply["choices"][0]["message"]["content"] == CALL
    assert "Answer by" not in service.prompts[-1]
    answered(service, tools=[ADD])
    assert "Answer by" in service.prompts[-1]
    assert service.orders[-1].sampling.grammar is None
    answered(service, tools=[ADD], tool_choice="required")
    assert "<tool_call>" in str(service.orders[-1].sampling.grammar)
    refused(ScriptedService(template=PLAIN_TEMPLATE), 422, tools=[ADD])


def test_a_control_token_that_begins_a_call_is_seen() -> None:
    tokenizer = tokenizer_with("<|python_tag|>")
    mark = tokenizer.token_id("<|python_tag|>")
    assert mark is not None
    text = '{"name": "add", "parameters": {"a": 1}}'
    first = WireEvent(1, (WireToken(mark, "", False),), "")
    service = ScriptedService([first, *said(text)], template=LLAMA_TEMPLATE, tokenizer=tokenizer)
    (choice,) = answered(service, tools=[ADD])["choices"]
    assert choice["message"]["tool_calls"][0]["function"]["arguments"] == '{"a": 1}'


def test_formats_of_the_output() -> None:
    service = ScriptedService(said("{}"))
    schema = {"type": "object", "properties": {"ä": {"type": "integer"}}}
    described = {"name": "thing", "schema": schema, "strict": True}
    answered(service, response_format={"type": "json_schema", "json_schema": described})
    answered(service, response_format={"type": "json_object"})
    answered(service, response_format={"type": "json_object", "schema": schema})
    answered(service, response_format={"type": "text"})
    answered(service, grammar="start: /a+/")
    given = [order.sampling.json_schema for order in service.orders]
    assert [None if text is None else json.loads(text) for text in given] == [
        schema,
        {"type": "object"},
        schema,
        None,
        None,
    ]
    assert service.orders[-1].sampling.grammar == "start: /a+/"


def test_logprobs_of_every_token_but_the_end() -> None:
    script = said("the", "re", drafted=1, top=2)
    reply = answered(ScriptedService(script), logprobs=True, top_logprobs=2)
    content = reply["choices"][0]["logprobs"]["content"]
    assert bytes(byte for token in content for byte in token["bytes"]) == b"there"
    assert "".join(token["token"] for token in content) == "there"
    for token in content:
        assert token["logprob"] == -0.5
        assert [top["logprob"] for top in token["top_logprobs"]] == [-0.5, -1.5]
    *chunks, _ = streamed(ScriptedService(script), logprobs=True, top_logprobs=2)
    told = [chunk["choices"][0]["logprobs"] for chunk in chunks]
    assert [token for part in told if part for token in part["content"]] == content


def test_drafted_text_is_shown_where_it_is_wanted() -> None:
    script = said("abc", "def", drafted=2)
    *chunks, _ = streamed(ScriptedService(script), show_drafts=True)
    tokens = [
        token for chunk in chunks for token in chunk.get("slipstream", {"tokens": []})["tokens"]
    ]
    drafted = dict.fromkeys("bcef", True) | dict.fromkeys("ad", False) | {"": False}
    assert tokens == [[text, drafted[text]] for text in (*"abcdef", "")]
    reply = answered(ScriptedService(script), show_drafts=True)
    assert reply["choices"][0]["slipstream"]["tokens"] == tokens
    assert reply["timings"]["draft_n"] == 4


def test_timings_with_every_chunk() -> None:
    *chunks, _ = streamed(ScriptedService(said("ab", "cd")), timings_per_token=True)
    counts = [chunk["timings"]["predicted_n"] for chunk in chunks if "timings" in chunk]
    assert counts == sorted(counts)
    assert len(counts) >= 3


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        ({"messages": []}, 400, "messages"),
        ({"messages": [{"role": "user"}]}, 400, "messages[0].content"),
        ({"messages": [{"role": "robot", "content": "x"}]}, 400, "messages[0].role"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 422, None),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, 400, None),
        ({"messages": [{"role": "user", "content": "x", "image": 1}]}, 400, None),
        ({"temprature": 1}, 400, "temprature"),
        ({"temperature": "hot"}, 400, "temperature"),
        ({"temperature": -1}, 400, "temperature"),
        ({"max_tokens": 0}, 400, "max_tokens"),
        ({"max_tokens": 1, "max_completion_tokens": 2}, 400, "max_completion_tokens"),
        ({"max_tokens": 1, "n_predict": 2}, 400, "max_tokens"),
        ({"n": 0}, 400, "n"),
        ({"n": 129}, 400, "n"),
        ({"stream": "yes"}, 400, "stream"),
        ({"stream_options": {"include_usge": True}}, 400, "include_usge"),
        ({"top_logprobs": 2}, 400, "logprobs"),
        ({"logprobs": True, "top_logprobs": 101}, 400, "top_logprobs"),
        ({"logit_bias": {"a": 1}}, 400, "logit_bias"),
        ({"stop": [""]}, 400, "stop"),
        ({"store": True}, 422, "store"),
        ({"mirostat": 2}, 422, "mirostat"),
        ({"functions": [{}]}, 422, "functions"),
        ({"prediction": {"type": "content", "content": "x"}}, 422, "prediction"),
        ({"deadline_s": 0}, 400, "deadline_s"),
        ({"response_format": {"type": "poem"}}, 400, "response_format"),
        ({"response_format": {"type": "json_schema"}}, 400, "response_format"),
        ({"response_format": {"type": "json_object"}, "grammar": "start: /a/"}, 400, None),
        ({"speculative": {"n_maxx": 3}}, 400, "speculative.n_maxx"),
        ({"speculative": {"fixed": True}}, 400, "fixed"),
        ({"speculative": {"type": "magic"}}, 400, "speculative.type"),
        ({"speculative": {"type": "draft-simple"}}, 400, "speculative.type"),
        ({"speculative": {"type": "none,suffix"}}, 400, "speculative.type"),
        ({"speculative": {"n_max": -1}}, 400, "speculative.n_max"),
        ({"speculative": "suffix"}, 400, "speculative"),
    ],
)
def test_mistakes(body: dict[str, Any], status: int, param: str | None) -> None:
    service = ScriptedService()
    error = refused(service, status, **body)
    assert error["type"] == "invalid_request_error"
    if param is not None:
        assert error["param"] == param
    assert service.orders == []


def test_methods_of_a_request() -> None:
    service = ScriptedService()
    for kind in ("none", "auto", "ngram-mod, suffix", ["ngram-mod"], None):
        answered(service, speculative={"type": kind})
    chosen = [order.speculation and order.speculation.methods for order in service.orders]
    assert chosen == [(), ("suffix",), ("ngram-mod", "suffix"), ("ngram-mod",), None]
    error = refused(service, speculative={"type": "draft-simple"})
    assert "it needs a draft model" in error["message"]


@pytest.mark.parametrize(
    ("refusal", "status", "code", "kind"),
    [
        (ContextFullError("9 tokens", "10", "Shorten."), 413, "context_length_exceeded", "invalid"),
        (OverloadedError("room", "none", "Wait."), 429, "overloaded", "rate_limit"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_refusals_of_the_service(
    refusal: SlipstreamError, status: int, code: str, kind: str, stream: bool
) -> None:
    reply = ask(ScriptedService(refusal=refusal), stream=stream)
    assert reply.status_code == status
    assert reply.json()["error"]["code"] == code
    assert reply.json()["error"]["type"].startswith(kind)
    assert ("retry-after" in reply.headers) is (status == 429)


@pytest.mark.parametrize("stream", [False, True])
def test_an_error_before_any_output_has_its_status(stream: bool) -> None:
    service = ScriptedService([failed()])
    reply = ask(service, stream=stream)
    assert reply.status_code == 504
    assert reply.json()["error"]["code"] == "deadline_exceeded"
    assert service.generations[0].closed


def test_an_error_in_a_stream_is_its_last_event() -> None:
    service = ScriptedService([*said("Hello")[:1], failed("BackendError")])
    body = ask(service, stream=True).text
    last = body.strip().split("\n\n")[-1]
    assert last.startswith("event: error\ndata: ")
    error = messages_of(body)[-1]["error"]
    assert error["type"] == "server_error"
    assert "it did not" not in error["message"]  # what happened inside is the log's
    assert "[DONE]" not in body
    assert service.generations[0].closed
    assert ask(service).status_code == 500


def test_an_output_that_the_server_cancelled_is_an_error() -> None:
    script = said("Hello", finish="cancelled")
    assert ask(ScriptedService(script)).status_code == 429
    assert messages_of(ask(ScriptedService(script), stream=True).text)[-1]["error"]


def test_the_path_without_its_version() -> None:
    assert ask(ScriptedService(), "/chat/completions").status_code == 200


def test_a_base_model_has_no_chat() -> None:
    service = ScriptedService(template="{{ raise_exception('no template') }}")
    assert "no template" in refused(service)["message"]


async def drive(service: ScriptedService, stream: bool, leave: asyncio.Event) -> list[Any]:
    """A request whose client goes away when it is told to; what was sent."""
    body = json.dumps({"messages": HELLO, "stream": stream}).encode()
    incoming = [{"type": "http.request", "body": body, "more_body": False}]
    sent: list[Any] = []

    async def receive() -> Any:
        if incoming:
            return incoming.pop()
        await leave.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)
        if message.get("body", b"").find(b"Hello") >= 0:
            leave.set()

    scope = {"type": "http", "method": "POST", "path": PATH, "headers": [], "query_string": b"",
             "server": ("test", 80), "scheme": "http", "root_path": ""}  # fmt: skip
    await asyncio.wait_for(app_of(service, openai_chat.routes)(scope, receive, send), 5)
    return sent


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("begun", [False, True])
def test_a_client_that_leaves_ends_its_generation(stream: bool, begun: bool) -> None:
    async def run() -> None:
        leave, never = asyncio.Event(), asyncio.Event()
        script = [*said("Hello")[:1], never] if begun else [never]
        service = ScriptedService(script)
        if not (begun and stream):
            asyncio.get_running_loop().call_later(0.05, leave.set)
        sent = await drive(service, stream, leave)
        assert service.generations[0].closed
        assert service.generations[0].cancelled
        assert not any(b"[DONE]" in message.get("body", b"") for message in sent)

    asyncio.run(run())


def test_a_slow_reader_does_not_lose_text() -> None:
    async def run() -> None:
        service = ScriptedService(said(*"abcdef"))
        with_pauses: list[bytes] = []
        body = json.dumps({"messages": HELLO, "stream": True}).encode()
        incoming = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Any:
            if not incoming:
                await asyncio.Event().wait()
            return incoming.pop()

        async def send(message: Any) -> None:
            await asyncio.sleep(0.002)
            with_pauses.append(message.get("body", b""))

        scope = {"type": "http", "method": "POST", "path": PATH, "headers": [],
                 "query_string": b"", "server": ("test", 80), "scheme": "http",
                 "root_path": ""}  # fmt: skip
        await asyncio.wait_for(app_of(service, openai_chat.routes)(scope, receive, send), 5)
        *chunks, _ = messages_of(b"".join(with_pauses).decode())
        assert gathered(chunks)[0] == "abcdef"

    asyncio.run(run())
