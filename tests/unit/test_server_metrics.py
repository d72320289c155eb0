"""Counting, and Prometheus's text read back by the library's own parser."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from scripted_service import ScriptedService, ask
from slipstream.options import SamplingOptions
from slipstream.server import metrics
from slipstream.server.meters import MOST_LABELS, MOST_POSITIONS, Histogram, Meters
from slipstream.server.metrics import MOST_LABEL_CHARACTERS, exposition
from slipstream.server.order import Order
from slipstream.server.wire import Load, Slot, Speculation, WireError, WireEvent, WireToken

LLAMA = (
    "prompt_tokens_total prompt_tokens_cached_total prompt_seconds_total tokens_predicted_total "
    "tokens_predicted_seconds_total n_decode_total n_busy_slots_per_decode prompt_tokens_seconds "
    "predicted_tokens_seconds requests_processing requests_deferred n_tokens_max "
    "spec_decode_num_draft_tokens_total spec_decode_num_accepted_tokens_total "
    "spec_decode_num_drafts_total"
)
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def order(prompt: int = 5, methods: tuple[str, ...] | None = None, path: str = "/a") -> Order:
    speculation = None if methods is None else Speculation(methods=methods)
    sampling = SamplingOptions(max_tokens=9)
    return Order(list(range(prompt)), sampling, speculation=speculation, endpoint=path)


def event(request: int, tokens: int, drafted: int = 0, accepted: int = 0, **keys: Any) -> WireEvent:
    emitted = tuple(WireToken(i, "x", i < accepted) for i in range(tokens))
    return WireEvent(request, emitted, "x" * tokens, drafted, drafted, accepted, **keys)


def samples(meters: Meters, **facts: Any) -> Samples:
    text = exposition(meters, facts).decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(meters: Meters, name: str, **labels: str) -> float:
    return samples(meters)[name, tuple(sorted(labels.items()))]


def one_request() -> Meters:
    """30 prompt tokens of which 20 were kept; 7 tokens in 3 passes, 4 of 7 drafted ones kept."""
    meters = Meters(("suffix",), places=2)
    meters.arrived(1, order(30), 10.0)
    meters.loaded(Load(running=1, waiting=0, steps=1, rows=10))
    meters.started(Slot(1, 20, 0.25))
    meters.event(event(1, 1), 11.0)
    meters.loaded(Load(running=1, steps=2, rows=15, verified_rows=(5,)))
    meters.event(event(1, 4, 6, 3), 12.0)
    meters.loaded(Load(running=0, steps=3, rows=17, verified_rows=(5, 200)))
    times = {"draft_s": 0.5, "verify_s": 1.5}
    summary = {"discarded": 2, "times": times}
    meters.event(event(1, 2, 1, 1, finish_reason="stop", summary=summary), 14.0)
    return meters


def test_llama_cpp_names() -> None:
    meters = one_request()
    expected = {
        "prompt_tokens_total": 10,
        "prompt_tokens_cached_total": 20,
        "prompt_seconds_total": 0.75,
        "tokens_predicted_total": 7,
        "tokens_predicted_seconds_total": 3.0,
        "n_decode_total": 3,
        "n_busy_slots_per_decode": 1.0,
        "prompt_tokens_seconds": 10 / 0.75,
        "predicted_tokens_seconds": 2.0,
        "requests_processing": 0,
        "requests_deferred": 0,
        "n_tokens_max": 37,
        "spec_decode_num_draft_tokens_total": 7,
        "spec_decode_num_accepted_tokens_total": 4,
        "spec_decode_num_drafts_total": 2,
    }
    assert set(expected) == set(LLAMA.split())
    for name, number in expected.items():
        assert value(meters, f"llamacpp:{name}") == pytest.approx(number), name
    per_position = "llamacpp:spec_decode_num_accepted_tokens_per_pos_total"
    assert [value(meters, per_position, position=str(i)) for i in range(3)] == [2, 1, 1]


def test_our_names() -> None:
    meters = one_request()
    for name, number in {
        "prompt": 10,
        "reused": 20,
        "generated": 7,
        "drafted": 7,
        "tested": 7,
        "accepted": 4,
        "discarded": 2,
    }.items():
        assert value(meters, f"slipstream_{name}_tokens_total", method="suffix") == number
    labels = {"endpoint": "/a", "finish_reason": "stop"}
    assert value(meters, "slipstream_requests_total", **labels) == 1
    assert value(meters, "slipstream_target_passes_total") == 3
    assert value(meters, "slipstream_rows_total") == 17
    assert value(meters, "slipstream_verification_steps_total") == 2
    assert value(meters, "slipstream_verifying_passes_total", rows="5") == 2
    assert value(meters, "slipstream_verifying_passes_total", rows="64+") == 1
    assert value(meters, "slipstream_phase_seconds_total", phase="verify") == 1.5
    assert value(meters, "slipstream_places") == 2


def test_histograms() -> None:
    meters = one_request()
    for name, count, total in (
        ("queue_seconds", 1, 0.25),
        ("time_to_first_token_seconds", 1, 1.0),
        ("inter_token_seconds", 6, 3.0),
        ("tokens_per_pass", 3, 7),
    ):
        assert value(meters, f"slipstream_{name}_count") == count
        assert value(meters, f"slipstream_{name}_sum") == pytest.approx(total)
        assert value(meters, f"slipstream_{name}_bucket", le="+Inf") == count
    assert value(meters, "slipstream_inter_token_seconds_bucket", le="0.25") == 4
    assert value(meters, "slipstream_tokens_per_pass_bucket", le="1.0") == 1


def test_accepted_tokens_that_nobody_got_do_not_count() -> None:
    meters = Meters(("suffix",))
    meters.arrived(1, order(), 0.0)
    # eight were accepted, and a stop string ended the output at the third
    cut = WireEvent(1, tuple(WireToken(0, "", True) for _ in range(3)), "", 8, 8, 8)
    meters.event(cut, 1.0)
    assert value(meters, "llamacpp:spec_decode_num_accepted_tokens_total") == 3
    assert value(meters, "llamacpp:tokens_predicted_total") == 3


def test_nothing_counts_before_a_token_is_out() -> None:
    meters = Meters(("suffix",))
    meters.arrived(1, order(30), 0.0)
    meters.started(Slot(1, 3, 0.1))
    meters.event(event(1, 0), 1.0)
    assert value(meters, "llamacpp:prompt_tokens_total") == 0
    assert value(meters, "slipstream_time_to_first_token_seconds_count") == 0
    meters.event(event(1, 0, finish_reason="cancelled", summary={}), 2.0)
    assert value(meters, "llamacpp:tokens_predicted_total") == 0
    assert meters.requests == {}


@pytest.mark.parametrize(
    ("last", "reason"),
    [
        (event(1, 1, finish_reason="length", summary={}), "length"),
        (
            event(
                1,
                0,
                finish_reason="error",
                error=WireError(kind="DeadlineError", expected="a", found="b", remedy="c"),
            ),
            "deadline",
        ),
        (
            event(
                1,
                0,
                finish_reason="error",
                error=WireError(kind="BackendError", expected="a", found="b", remedy="c"),
            ),
            "error",
        ),
    ],
)
def test_why_a_request_ended(last: WireEvent, reason: str) -> None:
    meters = Meters()
    meters.arrived(1, order(), 0.0)
    meters.event(last, 1.0)
    meters.finished(1, "error")
    assert dict(meters.ended) == {("/a", reason): 1}


def test_refused_and_lost_requests() -> None:
    meters = Meters()
    meters.refused("/b")
    meters.arrived(1, order(), 0.0)
    meters.finished(1, "error")
    meters.event(event(1, 1), 1.0)
    meters.started(Slot(7, 0, 0.0))
    assert dict(meters.ended) == {("/b", "refused"): 1, ("/a", "error"): 1}
    assert value(meters, "llamacpp:tokens_predicted_total") == 0


def test_a_request_is_counted_under_the_drafters_open_for_it() -> None:
    meters = Meters(("suffix", "draft-simple"))
    asked: Sequence[tuple[str, ...] | None] = (None, (), ("none",), ("ngram-mod",))
    for number, methods in enumerate(asked):
        meters.arrived(number, order(methods=methods), 0.0)
        meters.event(event(number, 1), 1.0)
    assert {name: c.generated for name, c in meters.methods.items()} == {
        "draft-simple,suffix": 1,
        "none": 2,
        "ngram-mod": 1,
    }


def test_places_are_given_again() -> None:
    meters = Meters(places=3)
    for number in range(4):
        meters.arrived(number, order(), 0.0)
        meters.started(Slot(number, 0, 0.0))
    assert [meters.requests[n].place for n in range(4)] == [0, 1, 2, 3]
    meters.finished(1, "stop")
    meters.arrived(9, order(), 0.0)
    meters.started(Slot(9, 0, 0.0))
    assert meters.requests[9].place == 1


def test_labels_are_few_whatever_requests_say() -> None:
    meters = Meters()
    for number in range(500):
        meters.arrived(number, order(methods=(f"m{number}",), path=f"/{number}"), 0.0)
        meters.event(event(number, 1, finish_reason="stop", summary={}), 1.0)
        meters.refused(f"/no/{number}")
    assert len(meters.methods) <= MOST_LABELS + 1
    assert len(meters.ended) <= 2 * MOST_LABELS + 2
    assert value(meters, "llamacpp:tokens_predicted_total") == 500


def test_deep_positions_are_counted_together() -> None:
    meters = Meters(("suffix",))
    meters.arrived(1, order(), 0.0)
    meters.event(event(1, 90, 90, 90), 1.0)
    name = "slipstream_accepted_tokens_at_total"
    assert value(meters, name, position=str(MOST_POSITIONS - 1)) == 1
    assert value(meters, name, position=f"{MOST_POSITIONS}+") == 90 - MOST_POSITIONS


def test_requests_that_share_passes() -> None:
    meters = Meters(places=4)
    for steps in range(1, 11):
        meters.loaded(Load(running=3, waiting=2, steps=steps, memory_bytes=5, kept_prefixes=6))
    assert value(meters, "llamacpp:n_busy_slots_per_decode") == 3
    assert value(meters, "llamacpp:requests_deferred") == 2
    assert value(meters, "slipstream_memory_bytes") == 5
    assert value(meters, "slipstream_kept_prefixes") == 6


@given(st.text(), st.text())
def test_any_text_is_a_label(model: str, isa: str) -> None:
    found = samples(Meters(), model=model, isa=isa)
    [labels] = [dict(labels) for name, labels in found if name == "slipstream_model_info"]
    shown = model[:MOST_LABEL_CHARACTERS].encode("utf-8", "replace").decode()
    assert labels["model"] == shown


def test_a_lone_surrogate_is_no_fault() -> None:
    assert b"slipstream_model_info" in exposition(Meters(), {"model": "a\udc80b"})


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[int, int, int, float]]:
    """(request, tokens, accepted, seconds since the event before)."""
    steps = st.tuples(
        st.integers(0, 3), st.integers(1, 9), st.integers(0, 8), st.floats(0, 2, width=16)
    )
    return draw(st.lists(steps, max_size=30))


@given(histories())
def test_every_exposition_can_be_read_and_adds_up(
    history: list[tuple[int, int, int, float]],
) -> None:
    meters = Meters(("suffix",), places=4)
    now_s = 0.0
    for number in range(4):
        meters.arrived(number, order(), now_s)
        meters.started(Slot(number, 0, 0.0))
    for request, tokens, accepted, elapsed_s in history:
        now_s += elapsed_s
        meters.event(event(request, tokens, 8, min(accepted, tokens - 1)), now_s)
    found = samples(meters)
    total = sum(tokens for _, tokens, _, _ in history)
    assert found["llamacpp:tokens_predicted_total", ()] == total
    begun = len({request for request, *_ in history})
    assert found["slipstream_time_to_first_token_seconds_count", ()] == begun
    assert found["slipstream_tokens_per_pass_count", ()] == len(history)
    assert found["slipstream_tokens_per_pass_sum", ()] == total
    assert all(number >= 0 for number in found.values())
    for name in {name for name, _ in found if name.endswith("_bucket")}:
        buckets = [number for (other, _), number in found.items() if other == name]
        assert buckets == sorted(buckets)


def test_names_and_types_are_given_once() -> None:
    text = exposition(one_request(), {}).decode()
    described = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(described) == len(set(described))
    assert all(name.startswith(("slipstream_", "llamacpp:")) for name in described)
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert len({line.rpartition(" ")[0] for line in lines}) == len(lines)


def test_a_bound_belongs_to_its_bucket() -> None:
    histogram = Histogram((1.0, 2.0))
    for number in (0.5, 1.0, 1.5, 2.0, 9.0):
        histogram.observe(number)
    assert histogram.buckets() == [("1.0", 2), ("2.0", 4), ("+Inf", 5)]


@pytest.fixture
def service() -> ScriptedService:
    return ScriptedService()


def test_the_endpoint(service: ScriptedService) -> None:
    reply = ask(metrics.routes(service, one_request(), enabled=True), "GET", "/metrics")
    assert reply.status_code == 200
    assert reply.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert list(text_string_to_metric_families(reply.text))
    assert "/secret" not in reply.text


def test_the_endpoint_is_there_where_it_was_asked_for(service: ScriptedService) -> None:
    reply = ask(metrics.routes(service, one_request(), enabled=False), "GET", "/metrics")
    assert reply.status_code == 404
    assert "--metrics" in reply.json()["error"]["message"]
    assert "tokens" not in reply.text
