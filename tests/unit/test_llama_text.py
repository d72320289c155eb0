"""``/tokenize``, ``/detokenize``, ``/apply-template``, ``/props`` and ``/slots``."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from scripted_service import ScriptedService, ask, tokenizer
from slipstream.options import SamplingOptions
from slipstream.server import llama_text, props
from slipstream.server.meters import Meters
from slipstream.server.order import Order
from slipstream.server.wire import Slot, WireEvent, WireToken


def post(path: str, service: ScriptedService | None = None, **body: Any) -> httpx.Response:
    return ask(llama_text.routes(service or ScriptedService()), "POST", path, body)


def test_a_text_becomes_ids() -> None:
    service = ScriptedService()
    reply = post("/tokenize", service, content="the end")
    assert reply.json() == {"tokens": service.tokenizer.encode("the end", add_special=False)}


def test_special_tokens_of_a_text() -> None:
    made = tokenizer()
    text = "<|im_start|>a"
    parsed = post("/tokenize", content=text).json()["tokens"]
    plain = post("/tokenize", content=text, parse_special=False).json()["tokens"]
    assert parsed == made.encode(text, add_special=False, parse_special=True)
    assert plain == made.encode(text, add_special=False)
    assert len(plain) > len(parsed)


def test_the_beginning_of_a_text() -> None:
    service = ScriptedService()
    service.tokenizer = tokenizer(add_bos_token=True)
    bos = service.tokenizer.bos_id
    assert post("/tokenize", service, content="a", add_special=True).json()["tokens"][0] == bos
    assert post("/tokenize", service, content="a").json()["tokens"][0] != bos


def test_pieces_that_are_no_text_are_bytes() -> None:
    tokens = post("/tokenize", content="é!", with_pieces=True).json()["tokens"]
    assert [token["piece"] for token in tokens] == [[0xC3], [0xA9], "!"]


@pytest.mark.parametrize("text", ["", "the and in", "é 😀\n\t", "a" * 20000])
def test_ids_become_the_text_again(text: str) -> None:
    tokens = post("/tokenize", content=text).json()["tokens"]
    assert post("/detokenize", tokens=tokens).json() == {"content": text}


def test_ids_outside_the_vocabulary() -> None:
    for wrong in (-1, 10**9, 10**30):
        reply = post("/detokenize", tokens=[1, wrong])
        assert reply.status_code == 400
    assert post("/detokenize", tokens="x").status_code == 400
    assert post("/tokenize").status_code == 400
    reply = post("/tokenize", content="a", add_specials=True)
    assert reply.status_code == 400
    assert "`add_special`" in reply.json()["error"]["message"]


def test_a_conversation_becomes_a_prompt() -> None:
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "hi <|im_end|>"}]
    prompt = post("/apply-template", messages=messages).json()["prompt"]
    assert prompt == (
        "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\nhi <|im_end|><|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_a_prompt_goes_without_the_mark_that_completion_adds() -> None:
    service = ScriptedService()
    service.tokenizer = tokenizer(add_bos_token=True, bos_token_id=0)
    messages = [{"role": "user", "content": "hi"}]
    prompt = post("/apply-template", service, messages=messages).json()["prompt"]
    assert prompt.startswith("<|im_start|>user")


def meters() -> Meters:
    made = Meters(("suffix",), places=3)
    made.arrived(41, Order([1] * 9, SamplingOptions(max_tokens=20)), 0.0)
    made.started(Slot(41, 4, 0.0))
    made.arrived(42, Order([1] * 9, SamplingOptions()), 0.0)
    tokens = tuple(WireToken(5, "hush", True) for _ in range(2))
    made.event(WireEvent(41, tokens, "hushhush", 6, 6, 2), 1.0)
    return made


def get(path: str, counted: Meters | None = None, method: str = "GET") -> httpx.Response:
    return ask(props.routes(ScriptedService(), counted or meters()), method, path)


def test_slots() -> None:
    first, *idle = get("/slots").json()
    assert [slot["id"] for slot in (first, *idle)] == [0, 1, 2]
    assert [slot["is_processing"] for slot in (first, *idle)] == [True, False, False]
    assert first["id_task"] == 41
    assert first["n_ctx"] == 128
    assert first["speculative"] is True
    assert first["n_prompt_tokens"] == 11
    assert first["n_prompt_tokens_processed"] == 5
    assert first["n_prompt_tokens_cache"] == 4
    assert first["next_token"] == [{"has_next_token": True, "n_remain": 18, "n_decoded": 2}]
    assert first["params"]["n_predict"] == 20


def test_slots_say_nothing_of_texts() -> None:
    assert "hush" not in get("/slots").text


def test_what_slots_and_adapters_do_not_do() -> None:
    assert get("/lora-adapters").json() == []
    for path in ("/slots/0?action=save", "/slots/0?action=erase", "/lora-adapters"):
        reply = get(path, method="POST")
        assert reply.status_code == 422, path
        assert reply.json()["error"]["type"] == "invalid_request_error"
        assert reply.json()["error"]["message"].startswith("expected ")


def test_no_slot_is_free() -> None:
    full = Meters(places=1)
    assert get("/slots?fail_on_no_slot=1", full).status_code == 200
    full.arrived(1, Order([1], SamplingOptions()), 0.0)
    full.started(Slot(1, 0, 0.0))
    assert get("/slots", full).status_code == 200
    assert get("/slots?fail_on_no_slot=1", full).status_code == 503


def test_properties() -> None:
    found = get("/props").json()
    assert found["total_slots"] == 3
    assert found["model_alias"] == "tiny"
    assert found["model_path"] == "tiny.gguf"
    assert found["chat_template"].startswith("{% for m in messages %}")
    assert (found["bos_token"], found["eos_token"]) == ("<|im_start|>", "<|im_end|>")
    assert found["build_info"].startswith("slipstream ")
    settings = found["default_generation_settings"]
    assert settings["n_ctx"] == 128
    assert settings["params"]["temperature"] == 0.0
    assert settings["params"]["n_predict"] == 128


def test_the_methods_and_why_others_are_not_offered() -> None:
    methods = get("/props").json()["slipstream"]["draft_methods"]
    assert methods["suffix"] == {"offered": True, "parameters": {"suffix_match": 1}}
    assert methods["draft-simple"] == {"offered": False, "reason": "no draft model d.gguf"}


def test_no_folder_is_told() -> None:
    assert "secret" not in get("/props").text


def test_properties_are_not_changed() -> None:
    reply = get("/props", method="POST")
    assert reply.status_code == 405
