"""llama-server's endpoints of a server, asked over plain HTTP as its own clients ask."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from servers import RunningServer, reference, serving, tiny_backend
from servers import server_events as events_of
from slipstream import Model
from slipstream.options import METHODS

CONTEXT = 1024
LOOP = "one two three one two three one two"
TIMINGS = {
    *("prompt_n", "prompt_ms", "predicted_n", "predicted_ms", "predicted_per_second", "cache_n"),
    *("queue_ms", "target_passes", "verification_steps", "acceptance_at", "draft_ms", "verify_ms"),
    *("sample_ms", "commit_ms", "method", "kernel_paths", "exact"),
}
ENDPOINTS = {
    *("/v1/chat/completions", "/v1/completions", "/v1/models", "/completion", "/infill"),
    *("/tokenize", "/detokenize", "/apply-template", "/health", "/props", "/slots", "/metrics"),
    "/v1/messages",
}


@pytest.fixture(scope="module")
def server(chatty: Path) -> Iterator[RunningServer]:
    flags = ["--parallel", "3", "--context", str(CONTEXT), "--metrics"]
    with serving(chatty, *flags, *tiny_backend()) as running:
        yield running


@pytest.fixture(scope="module")
def http(server: RunningServer) -> Iterator[Any]:
    with server.client() as client:
        yield client


@pytest.fixture(scope="module")
def model(chatty: Path) -> Model:
    return reference(chatty, context=CONTEXT)


def complete(http: Any, **body: Any) -> dict[str, Any]:
    reply = http.post("/completion", json=body)
    assert reply.status_code == 200, reply.text
    made: dict[str, Any] = reply.json()
    return made


def streamed(http: Any, path: str, body: dict[str, Any]) -> list[Any]:
    with http.stream("POST", path, json={**body, "stream": True}) as reply:
        assert reply.status_code == 200
        return [data for _, data in events_of(reply.iter_lines()) if data != "[DONE]"]


def test_a_completion_is_the_models_own(http: Any, model: Model) -> None:
    wanted = model.complete(LOOP, max_tokens=24)
    made = complete(http, prompt=LOOP, n_predict=24, return_tokens=True)
    assert made["content"] == wanted.text
    assert made["tokens"] == list(wanted.ids)
    assert (made["stop"], made["stop_type"]) == (True, "limit")
    assert made["tokens_predicted"] == len(wanted.ids)
    assert made["tokens_evaluated"] == wanted.statistics.prompt_tokens
    assert made["generation_settings"]["n_predict"] == 24
    ids = model.tokenizer.encode(LOOP, parse_special=True)
    assert complete(http, prompt=ids, n_predict=24)["content"] == wanted.text


def test_values_of_llama_cpp_that_mean_off_or_the_best(http: Any, model: Model) -> None:
    plain = model.complete(LOOP, max_tokens=24)
    best = complete(http, prompt=LOOP, n_predict=24, temperature=1.0, seed=3, top_p=0)
    assert best["content"] == plain.text
    assert model.complete(LOOP, max_tokens=24, temperature=1.0, seed=3, top_p=0.0).ids == plain.ids
    drawn = model.complete(LOOP, max_tokens=24, temperature=1.0, seed=3)
    off = complete(http, prompt=LOOP, n_predict=24, temperature=1.0, seed=3, top_k=-1)
    assert off["content"] == drawn.text


def test_a_prompt_computed_alone_is_kept(http: Any) -> None:
    body = {"prompt": LOOP * 3, "max_tokens": 0, "echo": True, "session": "alone"}
    made = http.post("/v1/completions", json=body).json()
    assert made["choices"][0]["text"] == LOOP * 3
    assert made["usage"]["completion_tokens"] == 0
    later = complete(http, prompt=LOOP * 3, n_predict=4, session="alone")
    assert later["timings"]["cache_n"] > 0
    anew = complete(http, prompt=LOOP * 3, n_predict=4, session="alone", cache_prompt=False)
    assert anew["timings"]["cache_n"] == 0
    assert anew["content"] == later["content"]


def test_a_stream_is_the_same_in_parts(http: Any, model: Model) -> None:
    wanted = model.complete(LOOP, max_tokens=24, temperature=1.0, seed=9)
    body = {"prompt": LOOP, "n_predict": 24, "temperature": 1.0, "seed": 9}
    *parts, last = streamed(http, "/completion", body)
    assert "".join(part["content"] for part in [*parts, last]) == wanted.text
    assert not any(part["stop"] for part in parts)
    assert last["stop"] is True
    assert [token for part in parts for token in part["tokens"]] == list(wanted.ids)
    assert last["timings"]["predicted_n"] == len(wanted.ids)


@pytest.mark.parametrize("method", ["none", "ngram-simple", "ngram-mod", "suffix", "auto"])
def test_timings_and_speculation(http: Any, model: Model, method: str) -> None:
    wanted = model.complete(LOOP, max_tokens=64)
    asked = {"type": method, "n_max": 6, "n_min": 0, "p_min": 0.0, "scope": "request"}
    made = complete(http, prompt=LOOP, n_predict=64, speculative=asked, cache_prompt=False)
    assert made["content"] == wanted.text
    timings = made["timings"]
    assert set(timings) >= TIMINGS
    assert timings["predicted_n"] == len(wanted.ids)
    assert timings["prompt_n"] + timings["cache_n"] == wanted.statistics.prompt_tokens
    assert timings["cache_n"] == 0
    assert timings["exact"] is True
    told = made["speculative"]
    chosen = "suffix" if method == "auto" else method
    assert (told["type"], told["n_max"], told["scope"]) == (chosen, 6, "request")
    drafted = timings.get("draft_n", 0)
    assert (timings["method"] == "none") == (method == "none")
    assert timings.get("draft_n_accepted", 0) <= drafted
    assert timings["target_passes"] + timings.get("draft_n_accepted", 0) >= len(wanted.ids)
    assert len(timings["acceptance_at"]) <= 6
    reached, accepted = timings.get("reached_at", []), timings.get("accepted_at", [])
    accepted = [*accepted, *[0] * (len(reached) - len(accepted))]
    assert sum(accepted) == timings.get("draft_n_accepted", 0)
    rates = [a / r for a, r in zip(accepted, reached, strict=True)]
    assert timings["acceptance_at"] == rates
    if method == "none":
        assert drafted == timings["verification_steps"] == 0


def test_no_draft_token_where_none_are_wanted(http: Any) -> None:
    asked = {"type": "suffix", "n_max": 0}
    made = complete(http, prompt=LOOP, n_predict=48, speculative=asked)
    assert made["timings"].get("draft_n", 0) == 0
    assert made["speculative"]["n_max"] == 0


def test_stop_words_and_ends(http: Any, model: Model) -> None:
    options: dict[str, Any] = {"temperature": 1.0, "seed": 3}
    stop = model.complete(LOOP, max_tokens=24, **options).text[6:9]
    wanted = model.complete(LOOP, max_tokens=24, stop=(stop,), **options)
    made = complete(http, prompt=LOOP, n_predict=24, stop=[stop], **options)
    assert made["content"] == wanted.text
    assert (made["stop_type"], made["stopping_word"]) == ("word", stop)


def test_probabilities_of_every_token(http: Any, model: Model) -> None:
    wanted = model.complete(LOOP, max_tokens=32, logprobs=2)
    asked = {"type": "suffix"}
    made = complete(http, prompt=LOOP, n_predict=32, n_probs=2, speculative=asked)
    told = made["completion_probabilities"]
    assert [t["id"] for t in told] == list(wanted.ids)
    assert [t["logprob"] for t in told] == pytest.approx(wanted.logprobs, abs=1e-6)
    for entry, token in zip(told, wanted.tokens, strict=True):
        assert [t["id"] for t in entry["top_logprobs"]] == [token_id for token_id, _ in token.top]


def test_a_drawn_seed_can_be_used_again(http: Any) -> None:
    first = complete(http, prompt=LOOP, n_predict=16, temperature=1.0)
    seed = first["generation_settings"]["seed"]
    assert seed >= 0
    again = complete(http, prompt=LOOP, n_predict=16, temperature=1.0, seed=seed)
    assert again["content"] == first["content"]


@pytest.mark.parametrize(
    ("body", "status", "word"),
    [
        ({}, 400, "prompt"),
        ({"prompt": "a", "n_predikt": 2}, 400, "n_predict"),
        ({"prompt": "a", "temperature": -1}, 400, "temperature"),
        ({"prompt": "a", "speculative": {"type": "draft-simple"}}, 400, "draft model"),
        ({"prompt": "a", "speculative": {"ngram_mod_n_match": 3}}, 400, "server"),
        ({"prompt": "a", "speculative": "suffix"}, 400, "object"),
        ({"prompt": "a", "mirostat": 2}, 422, "mirostat"),
        ({"prompt": [10**9]}, 400, ""),
        ({"prompt": "a", "json_schema": {"type": "nothing"}}, 400, ""),
    ],
)
def test_mistakes(http: Any, body: dict[str, Any], status: int, word: str) -> None:
    reply = http.post("/completion", json=body)
    assert reply.status_code == status, reply.text
    assert word in reply.json()["error"]["message"]


def test_tokens_and_texts(http: Any, model: Model) -> None:
    text = "the rain and <|im_end|> é"
    plain = http.post("/tokenize", json={"content": text, "parse_special": False}).json()["tokens"]
    parsed = http.post("/tokenize", json={"content": text, "parse_special": True}).json()["tokens"]
    assert parsed == model.tokenizer.encode(text, add_special=False, parse_special=True)
    assert plain == model.tokenizer.encode(text, add_special=False, parse_special=False)
    assert len(parsed) < len(plain)
    assert http.post("/detokenize", json={"tokens": plain}).json()["content"] == text
    told = http.post("/tokenize", json={"content": "the é", "with_pieces": True}).json()
    pieces = told["tokens"]
    assert all(set(piece) == {"id", "piece"} for piece in pieces)
    assert http.post("/detokenize", json={"tokens": [10**9]}).status_code == 400


def test_a_template_is_applied(http: Any, model: Model) -> None:
    messages = [{"role": "user", "content": "hello"}]
    told = http.post("/apply-template", json={"messages": messages}).json()
    assert told["prompt"] == model.template.render(messages)


def test_health_props_and_slots(http: Any, server: RunningServer) -> None:
    assert http.get("/health").json() == {"status": "ok"}
    props = http.get("/props").json()
    assert props["total_slots"] == 3
    assert props["default_generation_settings"]["n_ctx"] == CONTEXT
    slots = http.get("/slots").json()
    assert len(slots) == 3
    assert not any(slot["is_processing"] for slot in slots)
    assert server.said().count("Traceback") == 0


def test_every_method_is_offered_or_has_a_reason(http: Any) -> None:
    told = http.get("/props").json()["slipstream"]["draft_methods"]
    assert set(told) == set(METHODS) - {"none", "auto"}
    offered = {name for name, entry in told.items() if entry["offered"]}
    assert offered == {name for name in told if name.startswith("ngram-")} | {"suffix"}
    assert told["ngram-mod"]["parameters"]["ngram_mod_n_match"] == 24
    for name in set(told) - offered:
        assert told[name]["reason"]
        reply = http.post("/completion", json={"prompt": "a", "speculative": {"type": name}})
        assert reply.status_code == 400


def test_the_document_lists_every_endpoint(http: Any) -> None:
    document = http.get("/openapi.json").json()
    assert document["openapi"].startswith("3.")
    assert set(document["paths"]) >= ENDPOINTS
    page = http.get("/")
    assert page.status_code == 200
    assert "html" in page.headers["content-type"]


def test_without_the_flag_there_are_no_metrics(chatty: Path) -> None:
    with serving(chatty, *tiny_backend()) as server, server.client() as http:
        assert http.get("/metrics").status_code == 404


def test_infill_needs_a_model_for_it(http: Any) -> None:
    reply = http.post("/infill", json={"input_prefix": "a", "input_suffix": "b", "n_predict": 2})
    assert reply.status_code in (400, 422)
    assert json.loads(reply.text)["error"]["message"]
