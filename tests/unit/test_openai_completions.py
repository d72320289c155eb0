"""``/v1/completions`` and ``/v1/models`` over outputs that are written beforehand."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.testclient import TestClient

from openai_scripts import END, ScriptedService, app_of, failed, messages_of, said, tokenizer_with
from slipstream.server import models, openai_completions
from slipstream.server.logprob_formats import completion_logprobs
from slipstream.server.openai_completions import prompt_list
from slipstream.server.outputs import merged
from slipstream.server.wire import WireEvent, WireToken

PATH = "/v1/completions"


def ask(service: ScriptedService, prompt: Any = "the", **body: Any) -> Any:
    with TestClient(app_of(service, openai_completions.routes)) as client:
        return client.post(PATH, json={"prompt": prompt, **body})


def answered(service: ScriptedService, prompt: Any = "the", **body: Any) -> dict[str, Any]:
    reply = ask(service, prompt, **body)
    assert reply.status_code == 200, reply.text
    return dict(reply.json())


def streamed(service: ScriptedService, prompt: Any = "the", **body: Any) -> list[Any]:
    reply = ask(service, prompt, stream=True, **body)
    assert reply.status_code == 200, reply.text
    return messages_of(reply.text)


def texts_of(chunks: list[Any]) -> dict[int, str]:
    texts: dict[int, str] = {}
    for chunk in chunks:
        for choice in chunk["choices"]:
            texts[choice["index"]] = texts.get(choice["index"], "") + choice["text"]
    return texts


def test_a_whole_reply() -> None:
    service = ScriptedService(said("re", " and"))
    reply = answered(service)
    assert (reply["id"], reply["object"]) == ("cmpl-n0", "text_completion")
    assert reply["choices"] == [
        {"index": 0, "text": "re and", "logprobs": None, "finish_reason": "stop"}
    ]
    assert reply["usage"]["prompt_tokens"] == len(service.orders[0].prompt)
    assert reply["timings"]["predicted_n"] == reply["usage"]["completion_tokens"]
    assert reply["seed"] is not None


def test_a_stream_says_the_same() -> None:
    *chunks, usage, done = streamed(
        ScriptedService(said("re", " and")), stream_options={"include_usage": True}
    )
    assert done == "[DONE]"
    assert texts_of(chunks) == {0: "re and"}
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    assert usage["usage"] == answered(ScriptedService(said("re", " and")))["usage"]


def test_every_form_of_prompt() -> None:
    tokenizer = tokenizer_with()
    ids = tokenizer.encode("the")
    for prompt, wanted in (
        ("the", [ids]),
        (["the"], [ids]),
        (ids, [ids]),
        ([ids, [5]], [ids, [5]]),
        (["the", [5, 6]], [ids, [5, 6]]),
    ):
        service = ScriptedService()
        answered(service, prompt)
        assert [list(order.prompt) for order in service.orders] == wanted


@pytest.mark.parametrize("prompt", [[], {}, 3, True, [True], [[]], ["a", 1], [[1], 2], [1.5], None])
def test_malformed_prompts(prompt: Any) -> None:
    reply = ask(ScriptedService(), prompt)
    assert reply.status_code == 400
    assert "`prompt`" in reply.json()["error"]["message"]


@pytest.mark.parametrize("prompt", [[-1], [400], [5, 10**30]])
def test_ids_beyond_the_vocabulary(prompt: list[int]) -> None:
    service = ScriptedService()
    assert ask(service, prompt).status_code == 400
    assert service.orders == []


@pytest.mark.parametrize("stream", [False, True])
def test_several_prompts_and_choices(stream: bool) -> None:
    scripts = [said("one", " two"), said("three")]
    if stream:
        *chunks, usage, _ = streamed(
            ScriptedService(*scripts), ["a", "b"], n=2, stream_options={"include_usage": True}
        )
        texts, counts = texts_of(chunks), usage["usage"]
    else:
        reply = answered(ScriptedService(*scripts), ["a", "b"], n=2)
        texts = {choice["index"]: choice["text"] for choice in reply["choices"]}
        counts = reply["usage"]
        assert all("timings" in choice for choice in reply["choices"])
    assert texts == {0: "one two", 1: "one two", 2: "three", 3: "three"}
    assert counts["prompt_tokens"] == 2
    assert counts["prompt_tokens_details"]["cached_tokens"] == 6


def test_too_many_outputs_at_once() -> None:
    assert ask(ScriptedService(), ["a"] * 65, n=2).status_code == 400


@pytest.mark.parametrize("stream", [False, True])
def test_one_prompt_that_fails_ends_them_all(stream: bool) -> None:
    service = ScriptedService(said("one"), [failed()])
    reply = ask(service, ["a", "b"], stream=stream)
    assert reply.status_code == 504
    assert all(one.closed or one.cancelled for one in service.generations)


def test_a_prompt_that_fails_within_a_stream() -> None:
    service = ScriptedService(said("one"), [*said("two")[:1], failed()])
    body = ask(service, ["a", "b"], stream=True).text
    assert messages_of(body)[-1]["error"]["code"] == "deadline_exceeded"
    assert all(one.closed for one in service.generations)


def test_echo() -> None:
    script = said("re")
    assert answered(ScriptedService(script), echo=True)["choices"][0]["text"] == "there"
    ids = tokenizer_with().encode("the")
    assert answered(ScriptedService(script), ids, echo=True)["choices"][0]["text"] == "there"
    *chunks, _ = streamed(ScriptedService(script), echo=True)
    assert texts_of(chunks) == {0: "there"}
    assert ask(ScriptedService(), echo=True, logprobs=1).status_code == 422


@pytest.mark.parametrize("name", ["max_tokens", "n_predict"])
def test_no_token_is_wanted(name: str) -> None:
    """The prompt is computed; one token is, and nobody sees it."""
    script = said("re", top=1)
    service = ScriptedService(script)
    for echo, text in ((True, "the"), (False, "")):
        reply = answered(service, echo=echo, **{name: 0})
        [choice] = reply["choices"]
        assert (choice["text"], choice["finish_reason"]) == (text, "length")
        assert reply["usage"]["completion_tokens"] == reply["timings"]["predicted_n"] == 0
        *chunks, done = streamed(ScriptedService(script), echo=echo, **{name: 0})
        assert done == "[DONE]"
        assert texts_of(chunks) == {0: text}
        assert chunks[-1]["choices"][0]["finish_reason"] == "length"
    assert {order.sampling.max_tokens for order in service.orders} == {1}
    assert answered(service, logprobs=1, **{name: 0})["choices"][0]["logprobs"]["tokens"] == []
    assert ask(ScriptedService([failed()]), **{name: 0}).status_code == 504
    assert ask(ScriptedService(), max_tokens=False).status_code == 400


def test_without_the_cache_nothing_is_reused() -> None:
    service = ScriptedService(said("re"))
    answered(service, cache_prompt=False)
    answered(service, cache_prompt=True)
    assert [order.reuse for order in service.orders] == [False, True]


def test_logprobs_of_every_token_but_the_end() -> None:
    script = said("the", "re", drafted=1, top=2)
    service = ScriptedService(script)
    told = answered(service, logprobs=2)["choices"][0]["logprobs"]
    assert service.orders[0].sampling.logprobs == 2
    assert "".join(told["tokens"]) == "there"
    assert told["text_offset"] == [
        sum(map(len, told["tokens"][:place])) for place in range(len(told["tokens"]))
    ]
    assert set(told["token_logprobs"]) == {-0.5}
    assert all(len(top) == 2 for top in told["top_logprobs"])
    *chunks, _ = streamed(ScriptedService(script), logprobs=2)
    parts = [chunk["choices"][0]["logprobs"] for chunk in chunks]
    for key in told:
        assert [item for part in parts if part for item in part[key] or ()] == told[key]


def test_logprobs_of_parts_of_characters() -> None:
    tokenizer = tokenizer_with()
    ids = tokenizer.encode("é", add_special=False)
    assert len(ids) == 2
    tokens = [WireToken(ids[0], "", False, -1.0, ((ids[1], -0.1),)), WireToken(ids[1], "é", False)]
    told = completion_logprobs(tokens, tokenizer, 7)
    assert told["tokens"] == ["bytes:\\xc3", "bytes:\\xa9"]
    assert told["top_logprobs"] == [{"bytes:\\xa9": -0.1, "bytes:\\xc3": -1.0}, {}]
    assert told["text_offset"] == [7, 7]


def test_ids_beyond_the_vocabulary_have_no_bytes() -> None:
    told = completion_logprobs([WireToken(9999, "", False, -1.0)], tokenizer_with(), 0)
    assert told["tokens"] == [""]
    assert told["top_logprobs"] is None


def test_a_suffix_needs_a_model_that_fills_gaps() -> None:
    reply = ask(ScriptedService(), suffix="x")
    assert reply.status_code == 422
    marks = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")
    tokenizer = tokenizer_with(*marks)
    service = ScriptedService(said("b"), tokenizer=tokenizer)
    assert answered(service, "a", suffix="c")["choices"][0]["text"] == "b"
    before, after, middle = (tokenizer.token_id(mark) for mark in marks)
    letters = [tokenizer.encode(letter, add_special=False)[0] for letter in "ac"]
    assert list(service.orders[0].prompt) == [before, letters[0], after, letters[1], middle]
    assert ask(service, [5], suffix="c").status_code == 400


def test_keys_without_effect() -> None:
    assert ask(ScriptedService(), best_of=2, n=2).status_code == 200
    assert ask(ScriptedService(), best_of=3, n=2).status_code == 422
    assert ask(ScriptedService(), messages=[]).status_code == 400


def test_a_prompt_is_demanded() -> None:
    with TestClient(app_of(ScriptedService(), openai_completions.routes)) as client:
        reply = client.post(PATH, json={})
    assert reply.json()["error"]["message"].startswith("expected `prompt`; found nothing")


def test_merged_streams_end_together() -> None:
    async def run() -> list[int]:
        event = WireEvent(1, (WireToken(END, "", False),), "")
        closed: list[int] = []

        async def stream(place: int) -> Any:
            try:
                while True:
                    await asyncio.sleep(0)
                    yield 0, event
            finally:
                closed.append(place)

        both = merged([stream(0), stream(1)])
        seen = {(await anext(both))[0] for _ in range(20)}
        assert seen == {0, 1}
        await both.aclose()  # type: ignore[attr-defined]
        return sorted(closed)

    assert asyncio.run(run()) == [0, 1]


def test_prompts_are_told_apart() -> None:
    assert prompt_list("a") == ["a"]
    assert prompt_list([1, 2]) == [[1, 2]]
    assert prompt_list([[1], "a"]) == [[1], "a"]


@pytest.mark.parametrize("path", ["/v1/models", "/models"])
def test_models(path: str) -> None:
    service = ScriptedService()
    service.name = "owner/tiny.gguf"
    with TestClient(app_of(service, models.routes)) as client:
        (listed,) = client.get(path).json()["data"]
        one = client.get(f"{path}/owner/tiny.gguf")
        missing = client.get(f"{path}/gpt-4")
    assert one.json() == listed
    assert (listed["id"], listed["object"]) == ("owner/tiny.gguf", "model")
    assert listed["meta"]["context"] == 512
    assert missing.status_code == 404
    assert missing.json()["error"]["code"] == "model_not_found"
