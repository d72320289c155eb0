"""Prometheus texts of three servers, and texts that are none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.lab.contract.records import Counts
from slipstream.lab.observation.metrics_text import (
    metrics_of,
    requests_running,
    samples,
    target_passes,
    verified_rows,
)

LLAMA = """\
# HELP llamacpp:spec_decode_num_draft_tokens_total Speculative: Total draft tokens generated
# TYPE llamacpp:spec_decode_num_draft_tokens_total counter
llamacpp:spec_decode_num_draft_tokens_total {drafted}
llamacpp:spec_decode_num_accepted_tokens_total {accepted}
llamacpp:spec_decode_num_drafts_total {steps}
llamacpp:spec_decode_num_accepted_tokens_per_pos_total{{position="0"}} {first}
llamacpp:spec_decode_num_accepted_tokens_per_pos_total{{position="1"}} {second}
llamacpp:requests_processing 0
"""
VLLM = """\
vllm:spec_decode_num_drafts_total{engine="0",model_name="a, \\"b\\" {c}"} 3.0
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="a"} 6.0
vllm:spec_decode_num_draft_tokens_total{engine="1",model_name="a"} 3.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="a"} 4.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="a",position="0"} 3.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="a",position="1"} 1.0
vllm:num_requests_running{engine="0"} 2
process_start_time_seconds 1.79e+09
"""
OWN = """\
slipstream_drafted_tokens_total{method="suffix"} 30.0
slipstream_drafted_tokens_total{method="none"} 0.0
slipstream_accepted_tokens_total{method="suffix"} 21.0
slipstream_verification_steps_total 9.0
slipstream_accepted_tokens_at_total{position="0"} 9.0
slipstream_accepted_tokens_at_total{position="2"} 12.0
slipstream_verifying_passes_total{rows="3"} 7.0
slipstream_verifying_passes_total{rows="64+"} 2.0
slipstream_target_passes_total 20.0
slipstream_requests_running 0.0
llamacpp:spec_decode_num_draft_tokens_total 999.0
"""


def llama(drafted: int, accepted: int, steps: int, first: int, second: int) -> str:
    return LLAMA.format(drafted=drafted, accepted=accepted, steps=steps, first=first, second=second)


def test_llama() -> None:
    metrics = metrics_of(llama(8, 5, 3, 3, 2))
    assert metrics.counts == Counts(
        drafted=8, accepted=5, steps=3, accepted_at=(3, 2), reached_at=(3, 3),
        denominator="steps", source="counters",
    )  # fmt: skip
    assert metrics.resets is None
    assert requests_running(metrics.raw) == 0


def test_vllm_sums_its_engines_and_tells_its_start() -> None:
    metrics = metrics_of(VLLM)
    assert (metrics.counts.drafted, metrics.counts.accepted, metrics.counts.steps) == (9, 4, 3)
    assert metrics.counts.accepted_at == (3, 1)
    assert metrics.resets == 1.79e9
    assert requests_running(VLLM) == 2
    assert 'a, "b" {c}' in str(samples(VLLM))


def test_slipstream_comes_before_the_names_that_it_shares() -> None:
    metrics = metrics_of(OWN)
    assert (metrics.counts.drafted, metrics.counts.accepted, metrics.counts.steps) == (30, 21, 9)
    assert metrics.counts.accepted_at == (9, 0, 12)
    assert target_passes(OWN) == 20
    assert verified_rows(OWN) == {"3": 7, "64": 2}


def test_passes_and_rows_are_slipstream_s_alone() -> None:
    assert target_passes(VLLM) == 0
    assert verified_rows(VLLM) == {}
    odd = 'slipstream_verifying_passes_total{rows="%s"} %s\n'
    texts = [odd % pair for pair in (("x", 3), ("-1", 3), ("2", "NaN"), ("3", -1), ("9" * 9, 1))]
    assert verified_rows("".join(texts)) == {}


def test_nobody_s_metrics_have_no_counts() -> None:
    assert metrics_of("").counts == Counts()
    assert metrics_of("other_total 3\n").counts == Counts()
    assert requests_running("other_total 3\n") is None


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "1e300", "-5", "x", "", "0x10"])
def test_absurd_values_are_no_counts(value: str) -> None:
    counts = metrics_of(f"llamacpp:spec_decode_num_drafts_total {value}\n").counts
    assert counts.steps in (None, 0)


@pytest.mark.parametrize("place", ["-1", "1e9", "99999999999", "x", "²", ""])
def test_absurd_positions_are_left_out(place: str) -> None:
    name = "llamacpp:spec_decode_num_accepted_tokens_per_pos_total"
    assert metrics_of(f'{name}{{position="{place}"}} 3\n').counts.accepted_at == ()


def test_a_position_beyond_the_last_counted_apart() -> None:
    name = "slipstream_accepted_tokens_at_total"
    found = metrics_of(f'{name}{{position="1"}} 3\n{name}{{position="2+"}} 4\n').counts
    assert found.accepted_at == (0, 3, 4)


@given(st.text(max_size=400))
def test_any_text_is_read(text: str) -> None:
    metrics = metrics_of(f"llamacpp:x 1\n{text}\nllamacpp:spec_decode_num_drafts_total 4")
    assert metrics.counts.steps is not None


def test_of_a_sample_that_comes_twice_the_last_counts() -> None:
    assert samples("a 1\na 2 1700000000000\n") == {"a": {(): 2.0}}


def test_rows_that_are_not_counted_are_not_none_so_far() -> None:
    assert metrics_of(llama(8, 5, 3, 3, 2)).rows is None
    assert metrics_of("").rows is None
    nothing_yet = "# TYPE slipstream_verifying_passes_total counter\nslipstream_rows_total 3\n"
    assert metrics_of(nothing_yet).rows == {}
    assert metrics_of(OWN).rows == {"3": 7, "64": 2}
