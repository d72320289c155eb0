"""A server asked by the official OpenAI package: every reply is checked against its types."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import openai
import pytest

from servers import RunningServer, reference, serving, tiny_backend
from slipstream import Model

CONTEXT = 1024
HELLO = [{"role": "user", "content": "hello there"}]
TALK = [
    {"role": "system", "content": "be brief"},
    {"role": "user", "content": "the rain in"},
    {"role": "assistant", "content": "the train"},
    {"role": "user", "content": "and the"},
]
SCHEMA = {
    "type": "object",
    "properties": {"colour": {"enum": ["red", "green"]}, "count": {"enum": [1, 2, 3]}},
    "required": ["colour", "count"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def server(chatty: Path) -> Iterator[RunningServer]:
    flags = ["--parallel", "4", "--context", str(CONTEXT)]
    with serving(chatty, *flags, *tiny_backend()) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: RunningServer) -> Iterator[Any]:
    with server.openai() as made:
        yield made


def completion_parts(server: RunningServer, **asked: Any) -> list[Any]:
    """The choices of a streamed completion.

    The API's documentation gives all chunks but the last ``"finish_reason": null``, which the
    package's type for them, that of a whole reply, does not have: null is put aside for the check.
    """
    parts: list[Any] = []
    with server.openai(strict=False) as client:
        for chunk in client.completions.create(model="m", stream=True, **asked):
            told = chunk.model_dump()
            for choice in told["choices"]:
                choice["finish_reason"] = choice["finish_reason"] or "stop"
            type(chunk).model_validate(told)
            parts += chunk.choices
    assert all(part.finish_reason is None for part in parts[:-1])
    return parts


@pytest.fixture(scope="module")
def model(chatty: Path) -> Model:
    return reference(chatty, context=CONTEXT)


def test_models(client: Any) -> None:
    (listed,) = client.models.list().data
    assert listed.object == "model"
    assert client.models.retrieve(listed.id).id == listed.id
    reply = client.chat.completions.create(model="whatever", messages=HELLO, max_tokens=1)
    assert reply.model == listed.id
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("no-such-model")


@pytest.mark.parametrize("messages", [HELLO, TALK])
def test_a_chat_is_the_models_own(client: Any, model: Model, messages: Any) -> None:
    wanted = model.chat(messages, max_tokens=24)
    reply = client.chat.completions.create(model="m", messages=messages, max_tokens=24)
    (choice,) = reply.choices
    assert choice.message.content == wanted.text
    assert choice.message.role == "assistant"
    assert choice.finish_reason == wanted.finish_reason
    assert reply.usage.prompt_tokens == len(model.chat_ids(messages))
    assert reply.usage.completion_tokens == len(wanted.ids)
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + len(wanted.ids)


def test_a_stream_is_the_same_in_parts(client: Any, model: Model) -> None:
    wanted = model.chat(TALK, max_tokens=24)
    options: dict[str, Any] = {"model": "m", "messages": TALK, "max_tokens": 24}
    chunks = list(
        client.chat.completions.create(
            **options, stream=True, stream_options={"include_usage": True}
        )
    )
    *parts, last = chunks
    assert len({chunk.id for chunk in chunks}) == 1
    assert parts[0].choices[0].delta.role == "assistant"
    assert "".join(c.delta.content or "" for p in parts for c in p.choices) == wanted.text
    reasons = [c.finish_reason for p in parts for c in p.choices]
    assert [r for r in reasons if r] == [wanted.finish_reason]
    assert reasons[-1] == wanted.finish_reason
    assert last.choices == []
    assert last.usage.completion_tokens == len(wanted.ids)
    plain = list(client.chat.completions.create(**options, stream=True))
    assert all(chunk.usage is None for chunk in plain)
    assert all(chunk.choices for chunk in plain)


@pytest.mark.parametrize("stream", [False, True])
def test_choices_use_the_seeds_that_follow(client: Any, model: Model, stream: bool) -> None:
    options = {"max_tokens": 16, "temperature": 1.0}
    made = [model.chat(HELLO, seed=7 + i, **options) for i in range(3)]
    wanted = [one.text for one in made]
    assert len(set(wanted)) > 1
    reply = client.chat.completions.create(
        model="m", messages=HELLO, n=3, seed=7, stream=stream, **options
    )
    texts = dict.fromkeys(range(3), "")
    if stream:
        for chunk in reply:
            for choice in chunk.choices:
                texts[choice.index] += choice.delta.content or ""
    else:
        assert reply.usage.completion_tokens == sum(len(one.ids) for one in made)
        texts = {choice.index: choice.message.content for choice in reply.choices}
    assert [texts[i] for i in range(3)] == wanted


def test_a_seed_that_was_drawn_is_told(client: Any, model: Model) -> None:
    options = {"max_tokens": 16, "temperature": 1.0}
    first = client.chat.completions.create(model="m", messages=HELLO, **options)
    other = client.chat.completions.create(model="m", messages=HELLO, **options)
    seeds = [reply.model_extra["seed"] for reply in (first, other)]
    assert seeds[0] != seeds[1]
    for seed, reply in zip(seeds, (first, other), strict=True):
        wanted = model.chat(HELLO, seed=seed, **options)
        assert reply.choices[0].message.content == wanted.text


def test_completions(server: RunningServer, client: Any, model: Model) -> None:
    texts = ["the rain", "one and"]
    wanted = [model.complete(text, max_tokens=12) for text in texts]
    one = client.completions.create(model="m", prompt=texts[0], max_tokens=12)
    both = client.completions.create(model="m", prompt=texts, max_tokens=12)
    ids = model.tokenizer.encode(texts[0], parse_special=True)
    as_ids = client.completions.create(model="m", prompt=ids, max_tokens=12)
    assert one.choices[0].text == as_ids.choices[0].text == wanted[0].text
    assert [choice.text for choice in both.choices] == [done.text for done in wanted]
    assert [choice.index for choice in both.choices] == [0, 1]
    assert both.usage.completion_tokens == sum(len(done.ids) for done in wanted)
    streamed = completion_parts(server, prompt=texts[0], max_tokens=12)
    assert "".join(part.text for part in streamed) == wanted[0].text
    echoed = client.completions.create(model="m", prompt=texts[0], max_tokens=12, echo=True)
    assert echoed.choices[0].text == texts[0] + wanted[0].text


@pytest.mark.parametrize("method", ["none", "ngram-simple", "suffix"])
def test_logprobs_of_every_token_drafted_or_not(client: Any, model: Model, method: str) -> None:
    text = "one two three one two three one two"
    messages = [{"role": "user", "content": text}]
    wanted = model.chat(messages, max_tokens=48, logprobs=3)
    reply = client.chat.completions.create(
        model="m",
        messages=messages,
        max_tokens=48,
        logprobs=True,
        top_logprobs=3,
        extra_body={"speculative": {"type": method}},
    )
    content = reply.choices[0].logprobs.content
    assert reply.choices[0].message.content == wanted.text
    assert len(content) == len(wanted.ids)
    assert [t.logprob for t in content] == pytest.approx(wanted.logprobs, abs=1e-6)
    for told, token in zip(content, wanted.tokens, strict=True):
        tops = [top.logprob for top in told.top_logprobs]
        assert tops == pytest.approx([logprob for _, logprob in token.top], abs=1e-6)
        assert all(left >= right for left, right in pairwise(tops))
        assert bytes(told.bytes) == model.tokenizer.token_bytes(token.id)


def test_logprobs_of_completions(client: Any, model: Model) -> None:
    wanted = model.complete("the rain", max_tokens=8, logprobs=2)
    reply = client.completions.create(model="m", prompt="the rain", max_tokens=8, logprobs=2)
    told = reply.choices[0].logprobs
    assert told.token_logprobs == pytest.approx(list(wanted.logprobs), abs=1e-6)
    assert len(told.tokens) == len(told.top_logprobs) == len(told.text_offset) == 8
    assert told.text_offset == sorted(told.text_offset)
    assert all(len(top) >= 2 for top in told.top_logprobs)


@pytest.mark.parametrize("stream", [False, True])
def test_stop_texts(server: RunningServer, client: Any, model: Model, stream: bool) -> None:
    whole = model.complete("the rain", max_tokens=24, temperature=1.0, seed=3).text
    stop = whole[5:8]
    wanted = model.complete("the rain", max_tokens=24, temperature=1.0, seed=3, stop=(stop,))
    assert wanted.text == whole[: whole.index(stop)]
    asked = {"max_tokens": 24, "temperature": 1.0, "seed": 3, "stop": [stop, "never there"]}
    if stream:
        choices = completion_parts(server, prompt="the rain", **asked)
    else:
        choices = client.completions.create(model="m", prompt="the rain", **asked).choices
    assert "".join(choice.text for choice in choices) == wanted.text
    assert choices[-1].finish_reason == "stop"


@pytest.mark.parametrize(
    ("asked", "same"),
    [
        ({"presence_penalty": 1.5}, {"presence_penalty": 1.5}),
        ({"frequency_penalty": 1.5}, {"frequency_penalty": 1.5}),
        ({"top_p": 0.5, "temperature": 1.0, "seed": 1}, None),
        ({"logit_bias": {"20": 100.0, "21": 100.0}}, {"logit_bias": {20: 100.0, 21: 100.0}}),
        ({"max_completion_tokens": 5}, {"max_tokens": 5}),
    ],
)
def test_options_are_obeyed(
    client: Any, model: Model, asked: dict[str, Any], same: dict[str, Any] | None
) -> None:
    wanted = model.chat(HELLO, **{"max_tokens": 20, **(asked if same is None else same)})
    length = {} if "max_completion_tokens" in asked else {"max_tokens": 20}
    reply = client.chat.completions.create(model="m", messages=HELLO, **length, **asked)
    assert reply.choices[0].message.content == wanted.text
    assert reply.usage.completion_tokens == len(wanted.ids)


@pytest.mark.parametrize("method", ["none", "suffix"])
def test_a_schema_is_kept(client: Any, model: Model, method: str) -> None:
    wanted = model.chat(HELLO, max_tokens=200, json_schema=SCHEMA)
    described = {"name": "thing", "schema": SCHEMA, "strict": True}
    reply = client.chat.completions.create(
        model="m",
        messages=HELLO,
        max_tokens=200,
        response_format={"type": "json_schema", "json_schema": described},
        extra_body={"speculative": {"type": method}},
    )
    (choice,) = reply.choices
    assert choice.message.content == wanted.text
    made = json.loads(choice.message.content)
    assert made["colour"] in ("red", "green")
    assert set(made) == {"colour", "count"}
    assert choice.finish_reason == "stop"


def test_json_mode_begins_an_object(client: Any) -> None:
    reply = client.chat.completions.create(
        model="m", messages=HELLO, max_tokens=12, response_format={"type": "json_object"}
    )
    assert reply.choices[0].message.content.lstrip().startswith("{")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"extra_body": {"temprature": 1}}, ["temprature", "temperature"]),
        ({"temperature": 1e9}, ["temperature"]),
        ({"max_tokens": "many"}, ["max_tokens"]),
        ({"messages": []}, ["messages"]),
        ({"messages": [{"role": "user"}]}, ["content"]),
        ({"n": 0}, ["n"]),
        ({"top_logprobs": 3}, ["logprobs"]),
        ({"response_format": {"type": "poem"}}, ["response_format"]),
        ({"extra_body": {"speculative": {"type": "magic"}}}, ["magic"]),
        ({"extra_body": {"speculative": {"n_maxx": 3}}}, ["n_maxx", "n_max"]),
        ({"extra_body": {"speculative": {"fixed": True}}}, ["fixed"]),
        ({"extra_body": {"json_schema": {"type": "nothing"}}}, []),
    ],
)
def test_mistakes_are_told_in_openais_shape(
    client: Any, change: dict[str, Any], words: Sequence[str]
) -> None:
    asked: dict[str, Any] = {"model": "m", "messages": HELLO, "max_tokens": 2, **change}
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(**asked)
    assert caught.value.status_code == 400
    assert caught.value.type == "invalid_request_error"
    assert caught.value.body["message"]
    for word in words:
        assert word in caught.value.message


def test_a_prompt_beyond_the_context(client: Any) -> None:
    with pytest.raises(openai.APIStatusError) as caught:
        client.completions.create(model="m", prompt=[5] * (CONTEXT + 1), max_tokens=2)
    assert caught.value.status_code in (400, 413)
    assert "context" in caught.value.message


def test_what_no_path_or_method_has(server: RunningServer) -> None:
    with server.client() as http:
        missing, wrong = http.get("/v1/nothing"), http.get("/v1/chat/completions")
        broken = http.post("/v1/chat/completions", content=b"{")
    assert (missing.status_code, wrong.status_code, broken.status_code) == (404, 405, 400)
    for reply in (missing, wrong, broken):
        assert reply.json()["error"]["message"]


@pytest.mark.parametrize("method", ["none", "suffix", "ngram-simple", "auto"])
def test_speculation_is_echoed(client: Any, method: str) -> None:
    reply = client.chat.completions.create(
        model="m",
        messages=HELLO,
        max_tokens=4,
        extra_body={"speculative": {"type": method, "n_max": 5, "n_min": 1, "p_min": 0.1}},
    )
    told = reply.model_extra["speculative"]
    assert told["type"] == ("suffix" if method == "auto" else method)
    assert (told["n_max"], told["n_min"], told["p_min"]) == (5, 1, 0.1)
    assert reply.model_extra["timings"]["predicted_n"] == 4
