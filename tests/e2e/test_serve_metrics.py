"""/metrics as Prometheus reads it: counters are what was emitted, no more and no less."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import parser

from servers import RunningServer, serving, tiny_backend

LOOP = "one two three one two three one two"
COUNTERS = {
    "llamacpp:tokens_predicted_total": "predicted_n",
    "llamacpp:prompt_tokens_total": "prompt_n",
    "llamacpp:prompt_tokens_cached_total": "cache_n",
    "llamacpp:spec_decode_num_draft_tokens_total": "draft_n",
    "llamacpp:spec_decode_num_accepted_tokens_total": "draft_n_accepted",
    "llamacpp:spec_decode_num_drafts_total": "verification_steps",
}
"""Counter -> the field of ``timings`` that it adds up."""
HISTOGRAMS = ("queue_seconds", "time_to_first_token_seconds", "inter_token_seconds")
GAUGES = ("requests_processing", "requests_deferred")


@pytest.fixture(scope="module")
def server(chatty: Path) -> Iterator[RunningServer]:
    flags = ["--parallel", "2", "--context", "1024", "--metrics"]
    with serving(chatty, *flags, *tiny_backend()) as running:
        yield running


@pytest.fixture(scope="module")
def http(server: RunningServer) -> Iterator[Any]:
    with server.client() as client:
        yield client


def samples(http: Any) -> dict[str, float]:
    """Sums over labels; a bucket keeps its bound."""
    reply = http.get("/metrics")
    assert reply.status_code == 200
    assert reply.headers["content-type"].startswith("text/plain")
    found: dict[str, float] = {}
    for family in parser.text_string_to_metric_families(reply.text):
        assert family.documentation, family.name
        for sample in family.samples:
            bound = f"/{sample.labels['le']}" if "le" in sample.labels else ""
            name = f"{sample.name}{bound}"
            found[name] = found.get(name, 0.0) + sample.value
    return found


def settled(http: Any) -> dict[str, float]:
    """The samples once nothing runs."""
    limit = time.monotonic() + 60
    while time.monotonic() < limit:
        found = samples(http)
        if not any(found[f"llamacpp:{gauge}"] for gauge in GAUGES):
            return found
        time.sleep(0.05)
    raise AssertionError("requests run for ever")


def test_counters_are_the_sums_of_what_replies_say(http: Any) -> None:
    before = settled(http)
    said = []
    for number, method in enumerate(("none", "suffix", "ngram-simple", "none", "auto")):
        body = {"prompt": LOOP, "n_predict": 30 + number, "speculative": {"type": method}}
        said.append(http.post("/completion", json=body).json()["timings"])
    after = settled(http)
    for counter, field in COUNTERS.items():
        wanted = sum(timings.get(field, 0) for timings in said)
        assert after[counter] - before.get(counter, 0.0) == wanted, counter
    assert sum(timings["predicted_n"] for timings in said) == 5 * 30 + 10
    positions = "llamacpp:spec_decode_num_accepted_tokens_per_pos_total"
    accepted = sum(timings.get("draft_n_accepted", 0) for timings in said)
    assert after.get(positions, 0.0) - before.get(positions, 0.0) == accepted


def test_ours_and_llama_cpps_agree(http: Any) -> None:
    http.post("/v1/completions", json={"prompt": LOOP, "max_tokens": 40})
    found = settled(http)
    for ours, theirs in (
        ("generated", "tokens_predicted"),
        ("prompt", "prompt_tokens"),
        ("drafted", "spec_decode_num_draft_tokens"),
        ("accepted", "spec_decode_num_accepted_tokens"),
    ):
        assert found[f"slipstream_{ours}_tokens_total"] == found[f"llamacpp:{theirs}_total"]


def test_tokens_cut_off_by_a_stop_are_not_counted(http: Any) -> None:
    before = settled(http)
    body = {"prompt": LOOP, "max_tokens": 64}
    whole = http.post("/v1/completions", json=body).json()["choices"][0]["text"]
    stop = whole[len(whole) // 2 :][:3]
    reply = http.post("/v1/completions", json={**body, "stop": stop}).json()
    after = settled(http)
    emitted = after["llamacpp:tokens_predicted_total"] - before["llamacpp:tokens_predicted_total"]
    assert emitted == 64 + reply["usage"]["completion_tokens"]
    assert reply["usage"]["completion_tokens"] < 64


def test_a_stream_that_is_left_counts_what_it_had(http: Any) -> None:
    before = settled(http)["llamacpp:tokens_predicted_total"]
    body = {"prompt": LOOP, "n_predict": 900, "ignore_eos": True, "stream": True}
    with http.stream("POST", "/completion", json=body) as reply:
        lines = reply.iter_lines()
        for _ in range(6):
            next(lines)
    emitted = settled(http)["llamacpp:tokens_predicted_total"] - before
    assert 1 <= emitted <= 900


def test_histograms(http: Any) -> None:
    before = settled(http)
    http.post("/completion", json={"prompt": "a", "n_predict": 11})
    after = settled(http)
    for name in HISTOGRAMS:
        count = f"slipstream_{name}_count"
        grown = after[count] - before[count]
        assert grown == (10 if name == "inter_token_seconds" else 1), name
        assert after[f"slipstream_{name}_bucket/+Inf"] == after[count]
        assert after[f"slipstream_{name}_sum"] >= before[f"slipstream_{name}_sum"]
    passes = "slipstream_tokens_per_pass"
    assert after[f"{passes}_sum"] - before[f"{passes}_sum"] == 11


def test_no_request_without_effect_moves_a_counter_of_tokens(http: Any) -> None:
    before = settled(http)
    assert http.post("/completion", json={"prompt": "a", "oops": 1}).status_code == 400
    assert http.post("/tokenize", json={"content": LOOP}).status_code == 200
    after = settled(http)
    moved = {k for k in after if "tokens" in k and after[k] != before.get(k, 0.0)}
    assert moved == set()
