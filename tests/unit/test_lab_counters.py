"""Differences of counters around a quiet window."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from slipstream.lab.contract.records import REACHED, STEPS, Counts
from slipstream.lab.contract.runtimes import Metrics
from slipstream.lab.observation.counters import (
    GONE,
    Window,
    added,
    between,
    caught_up,
    completed,
    disagreement,
)
from slipstream.lab.observation.metrics_text import metrics_of

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
START = "vllm:x 1\nvllm:spec_decode_num_drafts_total 3\nprocess_start_time_seconds 1.79e+09\n"


def llama(drafted: int, accepted: int, steps: int, first: int, second: int) -> str:
    return LLAMA.format(drafted=drafted, accepted=accepted, steps=steps, first=first, second=second)


def _metrics(
    drafted: int | None, accepted: int | None = 0, steps: int | None = 0, **more: object
) -> Metrics:
    resets = more.pop("resets", 1.0)
    counts = Counts(drafted=drafted, accepted=accepted, steps=steps, **more)  # type: ignore[arg-type]
    return Metrics("raw", counts, resets)  # type: ignore[arg-type]


def test_a_window_is_the_difference() -> None:
    before = _metrics(10, 5, 4, accepted_at=(4, 1), reached_at=(4, 4), denominator="steps")
    after = _metrics(30, 9, 8, accepted_at=(7, 2, 0), reached_at=(8, 8, 0), denominator="steps")
    counts, wrong = between(before, after)
    assert wrong == ()
    assert counts == Counts(
        drafted=20,
        accepted=4,
        steps=4,
        accepted_at=(3, 1),
        reached_at=(4, 4),
        denominator="steps",
        source="counters",
    )


def test_a_counter_that_is_absent_until_it_counts_began_at_nothing() -> None:
    counts, wrong = between(_metrics(None, None, None), _metrics(3, 1, 1))
    assert (counts.drafted, counts.accepted, counts.steps, wrong) == (3, 1, 1, ())


def test_nothing_told_is_unknown() -> None:
    counts, wrong = between(_metrics(None, None, None), _metrics(None, None, None))
    assert (counts, wrong) == (Counts(), ())


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (_metrics(10), _metrics(9)),
        (_metrics(10, 5), _metrics(20, 4)),
        (_metrics(1, accepted_at=(2,)), _metrics(2, accepted_at=(1,))),
        (_metrics(1, accepted_at=(2, 1)), _metrics(2, accepted_at=(2,))),
        (_metrics(1, resets=1.0), _metrics(2, resets=2.0)),
    ],
)
def test_counters_that_began_anew_tell_nothing(before: Metrics, after: Metrics) -> None:
    counts, wrong = between(before, after)
    assert counts == Counts()
    assert wrong


def test_a_request_is_completed_by_the_counters() -> None:
    told = Counts(drafted=8, accepted=2, source="request")
    window = Counts(drafted=8, accepted=2, steps=4, accepted_at=(2,), reached_at=(4,))
    assert completed(told, window).steps == 4
    assert completed(told, window).source == "request"
    assert completed(told, window).accepted_at == (2,)
    assert completed(Counts(), window) == window
    whole = Counts(drafted=8, accepted=2, steps=3, source="request")
    assert completed(whole, window) == whole
    placed = msgspec.structs.replace(whole, steps=4)
    assert completed(placed, window).accepted_at == (2,)
    assert completed(placed, window).denominator == window.denominator


def test_a_request_and_the_counters_may_disagree() -> None:
    told = Counts(drafted=8, accepted=2)
    assert disagreement(told, Counts(drafted=8, accepted=2, steps=4)) == ""
    assert disagreement(told, Counts(drafted=9, accepted=2)).startswith("drafted: 8")
    assert disagreement(Counts(), Counts(drafted=9)) == ""


def test_positions_that_a_request_tells_come_before_the_counters() -> None:
    told = Counts(drafted=8, accepted=2, steps=4, accepted_at=(2, 0), reached_at=(4, 1))
    told = msgspec.structs.replace(told, denominator=REACHED, source="request")
    window = Counts(drafted=8, accepted=2, steps=4, accepted_at=(2,), reached_at=(4,))
    assert completed(told, window) == told


def test_counters_that_are_behind_are_waited_for() -> None:
    told = [Counts(drafted=5), Counts(drafted=4)]
    assert not caught_up(told, Counts(drafted=8))
    assert caught_up(told, Counts(drafted=9))
    assert caught_up(told, Counts())


def test_two_processes_of_a_block_add_up() -> None:
    one = Counts(drafted=2, accepted=1, steps=1, accepted_at=(1,), reached_at=(1,))
    other = Counts(drafted=4, accepted=2, steps=1, accepted_at=(1, 1), reached_at=(1, 1))
    one, other = (msgspec.structs.replace(counts, denominator=STEPS) for counts in (one, other))
    made = added(one, other)
    assert (made.drafted, made.accepted, made.steps) == (6, 3, 2)
    assert (made.accepted_at, made.reached_at) == ((2, 1), (2, 2))
    assert added(one, Counts()).drafted is None


def _window(readings: list[Metrics]) -> Window:
    def read(last: Metrics, told: Sequence[Counts]) -> Metrics:
        del last, told
        return readings.pop(0)

    return Window(read, _metrics(0))


def test_each_request_has_a_window_of_its_own() -> None:
    window = _window([_metrics(8, 2, 4), _metrics(20, 5, 9)])
    first, wrong = window.counts(Counts(drafted=8, accepted=2))
    assert (first.steps, wrong) == (4, [])
    second, wrong = window.counts(Counts(drafted=11, accepted=3))
    assert second.steps == 5
    assert wrong == ["counts-disagree: drafted: 11 by the request, 12 by the counters around it"]


def test_a_reset_is_named_and_the_next_window_begins_after_it() -> None:
    window = _window([_metrics(8, resets=2.0), _metrics(12, 1, 1, resets=2.0)])
    _, wrong = window.counts(Counts())
    assert wrong == ["counters-reset: the process started anew within the window"]
    counts, wrong = window.counts(Counts())
    assert (counts.drafted, wrong) == (4, [])


def test_without_counters_a_request_is_taken_at_its_word() -> None:
    told = Counts(drafted=8)
    assert Window(lambda last, _: last, Metrics("", Counts())).counts(told) == (told, [])


def test_a_quiet_between() -> None:
    counts, faults = between(metrics_of(llama(8, 5, 3, 3, 2)), metrics_of(llama(20, 9, 6, 6, 3)))
    assert faults == ()
    assert (counts.drafted, counts.accepted, counts.steps) == (12, 4, 3)
    assert (counts.accepted_at, counts.reached_at) == ((3, 1), (3, 3))
    assert counts.source == "counters"


def test_nothing_drafted_is_zero_and_not_unknown() -> None:
    same = metrics_of(llama(8, 5, 3, 3, 2))
    counts, faults = between(same, same)
    assert (counts.drafted, counts.accepted, counts.accepted_at, faults) == (0, 0, (), ())


@pytest.mark.parametrize(
    "after",
    [llama(7, 5, 3, 3, 2), llama(8, 4, 3, 3, 2), llama(8, 5, 2, 3, 2), llama(8, 5, 3, 2, 3), ""],
)
def test_a_counter_that_went_back_spoils_a_between(after: str) -> None:
    counts, faults = between(metrics_of(llama(8, 5, 3, 3, 2)), metrics_of(after))
    assert counts == Counts()
    assert faults
    assert all(fault.startswith("counters-reset: ") for fault in faults)


def test_a_process_that_started_anew_spoils_a_between() -> None:
    later = START.replace("1.79e+09", "1.8e+09")
    counts, faults = between(metrics_of(START), metrics_of(later))
    assert counts == Counts()
    assert faults == ("counters-reset: the process started anew within the window",)


@pytest.mark.parametrize(
    "after",
    [
        llama(10, 9, 5, 5, 4),  # 4 accepted of 2
        llama(10, 6, 6, 4, 2),  # 3 steps with 2 draft tokens
        llama(20, 9, 6, 6, 2),  # 4 accepted, 3 by position
    ],
)
def test_counts_that_contradict_each_other(after: str) -> None:
    _, faults = between(metrics_of(llama(8, 5, 3, 3, 2)), metrics_of(after))
    assert faults
    assert all(fault.startswith("counts-disagree: ") for fault in faults)


def test_a_position_that_no_draft_had_before_has_the_window_s_steps() -> None:
    before = metrics_of("llamacpp:spec_decode_num_drafts_total 5\n")
    counts, faults = between(before, metrics_of(llama(20, 9, 12, 7, 2)))
    assert (counts.steps, counts.accepted_at, counts.reached_at) == (7, (7, 2), (7, 7))
    assert faults == ()


def test_a_reading_that_is_missing_is_no_window() -> None:
    told = metrics_of(llama(8, 5, 3, 3, 2))
    assert between(metrics_of(""), told) == (Counts(), ())
    assert between(told, metrics_of("")) == (Counts(), (GONE,))
