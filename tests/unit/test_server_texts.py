"""The limit on texts and ids, and work beside the event loop that is given up."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import msgspec
import pytest

from scripted_service import ScriptedService, ask, tokenizer
from slipstream.errors import RequestError
from slipstream.server import llama_completion, llama_text
from slipstream.server.beside import LONG, AbandonedWorkError, Beside, GoOn
from slipstream.server.openai_completions import routes as completion_routes
from slipstream.server.texts import ESCAPED, PARTS_BYTES, SLICE, Texts

MOST = 300
PATIENCE_S = 30.0


def service() -> ScriptedService:
    made = ScriptedService()
    made.longest = MOST
    return made


def post(path: str, **body: Any) -> httpx.Response:
    made = service()
    routes = [
        *llama_text.routes(made),
        *llama_completion.routes(made),
        *completion_routes(made),
    ]
    return ask(routes, "POST", path, body)


def refusal(reply: httpx.Response) -> str:
    assert reply.status_code in (400, 413), reply.text
    error = reply.json()["error"]
    assert error["type"] == "invalid_request_error"
    message: str = error["message"]
    return message


def test_a_text_to_tokenise_may_be_as_long_as_a_prompt() -> None:
    assert post("/tokenize", content="a" * MOST).status_code == 200
    assert post("/tokenize", content="\U0001f600" * MOST).status_code == 200
    assert post("/tokenize", content="a" * MOST, with_pieces=True).status_code == 200
    for body in ({"content": "a" * (MOST + 1)}, {"content": "a" * (MOST + 1), "with_pieces": True}):
        assert f"at most {MOST} characters" in refusal(post("/tokenize", **body))


def test_a_body_that_can_hold_no_text_is_not_read() -> None:
    texts = Texts(tokenizer(), MOST)
    texts.require_body(ESCAPED * MOST + PARTS_BYTES)
    with pytest.raises(RequestError, match=f"{MOST} characters"):
        texts.require_body(ESCAPED * MOST + PARTS_BYTES + 1)
    assert "bytes" in refusal(post("/tokenize", content="a" * (ESCAPED * MOST + PARTS_BYTES)))


def test_ids_to_detokenise_may_be_as_many_as_characters() -> None:
    assert post("/detokenize", tokens=[5] * MOST).status_code == 200
    for count in (MOST + 1, MOST + 2):
        assert f"at most {MOST} token ids" in refusal(post("/detokenize", tokens=[5] * count))


@pytest.mark.parametrize("path", ["/completion", "/v1/completions"])
def test_prompts_are_measured_before_any_is_encoded(path: str) -> None:
    assert "characters" in refusal(
        post(path, prompt=["a", "a" * (MOST + 1)], n_predict=1)
        if path == "/completion"
        else post(path, prompt=["a", "a" * (MOST + 1)])
    )
    context = ScriptedService().context
    for prompt in ([5] * context, [[5], [5] * context], [5] * (context + 5000)):
        message = refusal(post(path, prompt=prompt))
        assert f"at most {context - 1} tokens" in message


def test_texts_and_ids_of_one_prompt_count_together() -> None:
    half = "a" * (MOST // 2)
    assert post("/completion", prompt=[5, half], n_predict=1).status_code != 400
    assert "characters" in refusal(post("/completion", prompt=[5, half, half, "a"], n_predict=1))


def test_the_beginning_of_a_filling_is_measured_and_what_surrounds_it_is_cut() -> None:
    far = {"input_prefix": "a" * 5 * MOST, "input_suffix": "b" * 5 * MOST, "n_predict": 2}
    extra = [{"text": "c" * MOST, "filename": f"f{i}"} for i in range(9)]
    assert post("/infill", **far, input_extra=extra).status_code == 200
    assert "characters" in refusal(post("/infill", **far, prompt="a" * (MOST + 1)))


def test_pieces_are_those_of_each_id() -> None:
    made = tokenizer()
    ids = made.encode("é the end 日", add_special=False) * SLICE
    pieces = msgspec.json.decode(asyncio.run(Texts(made, 1 << 20).pieces(ids)))
    assert [piece["id"] for piece in pieces] == ids
    data = [
        p["piece"].encode() if isinstance(p["piece"], str) else bytes(p["piece"]) for p in pieces
    ]
    assert data == [made.token_bytes(token) for token in ids]
    assert json.loads(asyncio.run(Texts(made, 9).pieces([]))) == []


def running(test: Callable[[Beside], Awaitable[None]]) -> None:
    async def run() -> None:
        beside = Beside()
        try:
            await asyncio.wait_for(test(beside), PATIENCE_S)
        finally:
            beside.close()

    asyncio.run(run())


class Endless:
    """Work that ends only when nobody waits for it.

    Attributes:
        begun, ended: set by its thread.
    """

    def __init__(self) -> None:
        self.begun, self.ended = threading.Event(), threading.Event()

    def __call__(self, go_on: GoOn) -> None:
        self.begun.set()
        try:
            while True:
                go_on()
                self.begun.wait(0.001)
        except AbandonedWorkError:
            self.ended.set()
            raise


@pytest.mark.parametrize("size", [LONG - 1, LONG])
def test_a_client_that_leaves_ends_its_work(size: int) -> None:
    async def test(beside: Beside) -> None:
        work = Endless()
        waiting = asyncio.ensure_future(beside.run(work, size))
        assert await asyncio.to_thread(work.begun.wait, PATIENCE_S)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert await asyncio.to_thread(work.ended.wait, PATIENCE_S)

    running(test)


def test_the_end_of_the_server_ends_work() -> None:
    async def test(beside: Beside) -> None:
        work = Endless()
        waiting = asyncio.ensure_future(beside.run(work, LONG))
        assert await asyncio.to_thread(work.begun.wait, PATIENCE_S)
        beside.close()
        with pytest.raises(AbandonedWorkError):
            await waiting

    running(test)


def test_long_work_does_not_keep_short_work_waiting() -> None:
    async def test(beside: Beside) -> None:
        long = [asyncio.ensure_future(beside.run(Endless(), LONG)) for _ in range(99)]
        assert await beside.run(lambda _: 7, LONG - 1) == 7
        for one in long:
            one.cancel()
        await asyncio.gather(*long, return_exceptions=True)
        assert await beside.run(lambda _: 8, LONG) == 8

    running(test)
