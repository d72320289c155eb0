"""Derived figures of the lab: what they are made of, and when there is none."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from slipstream.lab.contract.records import REACHED, STEPS, Counts, RequestRecord
from slipstream.lab.evidence import definitions as lab
from slipstream.lab.evidence.count_sums import summed


def request(**changed: Any) -> RequestRecord:
    made: dict[str, Any] = {
        "run": "r",
        "block": 0,
        "index": 0,
        "runtime": "own",
        "condition": "none",
        "stratum": "chat",
        "prompt": "chat/1",
        "sent_s": 2.0,
        "first_s": 2.5,
        "total_s": 4.5,
        "token_times_s": (0.5, 1.5, 2.5),
        "output_tokens": 5,
    }
    return RequestRecord(**{**made, **changed})


def test_a_figure_has_its_spread_and_its_count() -> None:
    made = lab.figure([4.0, 1.0, 2.0, 3.0, None, 5.0])
    assert made == lab.Figure(median=3, q1=2, q3=4, least=1, most=5, n=5)
    assert lab.figure([None, math.nan, math.inf]) is None


def test_p95_needs_twenty_values() -> None:
    assert lab.p95([1.0] * 19) is None
    assert lab.p95([*[1.0] * 19, None]) is None
    assert lab.p95(range(21)) == pytest.approx(19.0)


def test_times_are_those_of_the_client() -> None:
    assert lab.total_s(request()) == 4.5
    assert lab.ttft_s(request()) == pytest.approx(0.5)
    assert lab.decode_s(request()) == pytest.approx(2.0)
    assert lab.decode_s(request(token_times_s=())) == pytest.approx(4.0)


def test_the_first_token_does_not_count_in_the_decode_rate() -> None:
    assert lab.decode_rate(request()) == pytest.approx(4 / 2.0)
    assert lab.decode_rate(request(output_tokens=1)) is None
    assert lab.decode_rate(request(output_tokens=None)) is None


@pytest.mark.parametrize("figure", [lab.total_s, lab.ttft_s, lab.decode_s, lab.decode_rate])
def test_an_error_has_no_figures(figure: Any) -> None:
    assert figure(request(error="broke")) is None


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0, 0.0, None])
def test_a_time_that_cannot_be_gives_nothing(value: float | None) -> None:
    assert lab.total_s(request(total_s=value)) is None


def test_a_speed_up_needs_equal_outputs() -> None:
    slow, fast = request(total_s=4.5), request(total_s=1.5)
    assert lab.end_to_end_speedup(slow, fast, equal=True) == pytest.approx(3.0)
    assert lab.end_to_end_speedup(slow, fast, equal=False) is None
    assert lab.end_to_end_speedup(slow, fast, equal=None) is None


def test_unequal_outputs_have_ratios_of_rate_and_length() -> None:
    other = request(output_tokens=9, token_times_s=(0.5, 1.5))
    assert lab.rate_ratio(request(), other) == pytest.approx(8 / 2)
    assert lab.length_ratio(request(), other) == pytest.approx(9 / 5)


def test_throughput_is_total_tokens_over_total_time() -> None:
    fast = [request(sent_s=0.0, total_s=1.0, output_tokens=90)]
    slow = [request(sent_s=5.0, total_s=9.0, output_tokens=10)]
    assert lab.throughput_tok_s([fast, slow]) == pytest.approx(10.0)  # a mean of rates gives 45.6


def test_throughput_of_a_block_is_over_its_span() -> None:
    block = [request(sent_s=1.0, total_s=3.0), request(sent_s=2.0, total_s=4.0)]
    assert lab.span_s(block) == pytest.approx(5.0)
    assert lab.throughput_tok_s([block]) == pytest.approx(2.0)
    failed = request(sent_s=2.0, total_s=9.0, error="broke", output_tokens=None)
    assert lab.throughput_tok_s([[*block, failed]]) == pytest.approx(1.0)
    assert lab.throughput_tok_s([[request(output_tokens=None)]]) is None
    assert lab.throughput_tok_s([]) is None


def test_acceptance_is_undefined_where_nothing_was_drafted() -> None:
    assert lab.acceptance_rate(Counts(drafted=0, accepted=0)) is None
    assert lab.acceptance_rate(Counts()) is None
    assert lab.acceptance_rate(Counts(drafted=8, accepted=0)) == 0.0
    assert lab.acceptance_rate(Counts(drafted=8, accepted=6)) == 0.75
    assert lab.acceptance_rate(Counts(drafted=-8, accepted=-6)) is None


def test_figures_of_steps() -> None:
    counts = Counts(drafted=30, accepted=12, steps=10)
    assert lab.rows_per_step(counts) == 4.0
    assert lab.mean_acceptance_length(counts) == 2.2
    assert lab.rows_per_step(Counts(drafted=0, accepted=0, steps=0)) is None
    at = Counts(accepted_at=(4, 1, 0), reached_at=(5, 2, 0))
    assert lab.acceptance_at(at) == (0.8, 0.5, None)


def test_what_one_request_does_not_tell_is_unknown_of_all() -> None:
    known = Counts(drafted=3, accepted=2, accepted_at=(1, 1), reached_at=(2, 1), source="request")
    whole = summed([known, known])
    assert (whole.drafted, whole.accepted, whole.steps, whole.source) == (6, 4, None, "request")
    assert whole.accepted_at == (2, 2)
    assert whole.reached_at == (4, 2)
    assert summed([known, Counts()]).drafted is None
    assert summed([]).drafted is None


def test_positions_of_different_denominators_are_not_added() -> None:
    drafts = Counts(accepted_at=(1,), reached_at=(2,), denominator="drafts that reached it")
    steps = Counts(accepted_at=(1,), reached_at=(9,), denominator="steps")
    assert summed([drafts, steps]).reached_at == ()


def test_every_step_counts_at_every_position() -> None:
    """A request that accepted less far, or nothing, adds its steps to every position."""
    far = Counts(drafted=40, accepted=10, steps=10, denominator=STEPS)
    far = msgspec.structs.replace(far, accepted_at=(4, 3, 2, 1), reached_at=(10,) * 4)
    near = msgspec.structs.replace(far, accepted=9, steps=90, accepted_at=(9,), reached_at=(90,))
    none = Counts(drafted=2, accepted=0, steps=2)
    made = summed([far, near, none])
    assert made.accepted_at == (13, 3, 2, 1)
    assert made.reached_at == (102,) * 4
    assert made.denominator == STEPS
    assert lab.acceptance_at(made)[3] == pytest.approx(1 / 102)


def test_positions_that_one_request_does_not_tell_are_unknown_of_all() -> None:
    told = Counts(drafted=8, accepted=2, steps=4, accepted_at=(2,), reached_at=(4,))
    steps = msgspec.structs.replace(told, denominator=STEPS)
    silent = Counts(drafted=8, accepted=2, steps=4)
    rejected = msgspec.structs.replace(silent, accepted=0)
    assert summed([steps, silent]).accepted_at == ()
    assert summed([steps, rejected]).reached_at == (8,)
    assert summed([steps, msgspec.structs.replace(rejected, steps=None)]).reached_at == ()
    reached = msgspec.structs.replace(told, denominator=REACHED)
    assert summed([reached, rejected]).reached_at == ()  # how far its drafts were examined?
    assert summed([reached, Counts(drafted=0, accepted=0)]).reached_at == (4,)


def test_drafts_that_reached_a_position_are_added_as_they_are() -> None:
    far = Counts(drafted=9, accepted=5, accepted_at=(3, 2), reached_at=(4, 3), denominator=REACHED)
    near = Counts(drafted=9, accepted=1, accepted_at=(1,), reached_at=(6,), denominator=REACHED)
    made = summed([far, near])
    assert (made.accepted_at, made.reached_at, made.denominator) == ((4, 2), (10, 3), REACHED)


def test_tokens_per_pass_and_step_efficiency() -> None:
    records = [request(output_tokens=30, counts=Counts(accepted=20))]
    assert lab.tokens_per_pass(records) == 3.0
    assert lab.step_efficiency(1.5, 3.0) == 0.5
    assert lab.tokens_per_pass([request()]) is None


def test_memory_and_energy() -> None:
    assert lab.memory_added_bytes([100, None, 120], [150]) == 30
    assert lab.memory_added_bytes([None], [150]) is None
    assert lab.energy_per_token_j([request(energy_j=10.0)]) == 2.0
    assert lab.energy_per_token_j([request()]) is None


def test_where_the_time_goes() -> None:
    told = request(total_s=4.0, phases={"draft": 1.0, "verify": 2.0})
    assert lab.phase_shares([told, request()]) == {"draft": 0.25, "verify": 0.5}
    assert lab.phase_shares([request()]) == {}


def test_the_sign_test_is_one_sided_and_exact() -> None:
    assert lab.sign_test(5, 0) == 1 / 32
    assert lab.sign_test(0, 5) == 1.0
    assert lab.sign_test(7, 1) == pytest.approx(9 / 256)


def test_an_interval_holds_the_median_and_shrinks_with_confidence() -> None:
    ratios = [1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 0.9, 1.25]
    wide, narrow = (lab.bootstrap_median(ratios, c) for c in (0.99, 0.5))
    assert wide[0] < narrow[0] < 1.25 < narrow[1] < wide[1]
    assert lab.bootstrap_median(ratios, 0.99) == wide
    with pytest.raises(ValueError, match="needs a value"):
        lab.bootstrap_median([], 0.95)


def test_a_paired_ratio_counts_its_pairs() -> None:
    made = lab.paired_ratio([1.1, 1.2, 0.9, 1.0], 0.95)
    assert made is not None
    assert (made.figure.n, made.faster, made.slower) == (4, 2, 1)
    assert made.p == lab.sign_test(2, 1)
    assert lab.paired_ratio([], 0.95) is None
