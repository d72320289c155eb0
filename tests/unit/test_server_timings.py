"""What a request cost, under llama.cpp's names and ours."""

from __future__ import annotations

from typing import Any

import pytest

from slipstream.server.order import Timing
from slipstream.server.timings import observe, timings
from slipstream.server.wire import WireEvent, WireToken

LLAMA_NUMBERS = (
    "cache_n prompt_n prompt_ms prompt_per_token_ms prompt_per_second predicted_n predicted_ms "
    "predicted_per_token_ms predicted_per_second"
)
SUMMARY: dict[str, Any] = {
    "prompt_tokens": 30,
    "reused_tokens": 20,
    "target_passes": 4,
    "verification_steps": 2,
    "tested": 5,
    "discarded": 1,
    "acceptance_at": (1.0, 0.5),
    "drafters": ("suffix", "draft-simple"),
    "observed": ["avx2/matmul"],
    "times": {"queue_s": 0.1, "prompt_s": 0.4, "draft_s": 0.01, "verify_s": 0.02, "sample_s": 0.0},
}


def event(tokens: int, drafted: int = 0, accepted: int = 0, **keys: Any) -> WireEvent:
    emitted = tuple(WireToken(i, "x", i < accepted) for i in range(tokens))
    return WireEvent(1, emitted, "x" * tokens, drafted, drafted, accepted, **keys)


def finished() -> Timing:
    timing = Timing(10.0)
    observe(timing, event(1), 10.5)
    observe(timing, event(4, 6, 3), 11.0)
    observe(timing, event(2, 1, 1, finish_reason="stop", summary=SUMMARY), 11.5)
    return timing


def test_rates_are_of_the_tokens_after_the_first() -> None:
    found = timings(finished())
    assert found["predicted_n"] == 7
    assert found["predicted_ms"] == 1000.0
    assert found["predicted_per_second"] == 6.0
    assert found["predicted_per_token_ms"] == pytest.approx(1000 / 6, abs=0.001)


def test_the_prompt_counts_without_what_was_reused_and_without_the_queue() -> None:
    found = timings(finished())
    assert (found["cache_n"], found["prompt_n"]) == (20, 10)
    assert found["prompt_ms"] == 400.0
    assert found["prompt_per_second"] == 25.0
    assert found["queue_ms"] == 100.0


def test_drafts_are_told_where_there_were_some() -> None:
    found = timings(finished())
    assert (found["draft_n"], found["draft_n_accepted"]) == (7, 4)
    plain = Timing(0.0)
    observe(plain, event(1, summary={"target_passes": 1}, finish_reason="length"), 1.0)
    assert "draft_n" not in timings(plain)


def test_counts_by_position_are_of_what_was_examined() -> None:
    """A draft that was not verified reached no position, though it counts as drafted."""
    timing = Timing(0.0)
    observe(timing, event(4, 6, 3, reached=4), 1.0)
    observe(timing, event(1, 2, 0, reached=1), 1.0)
    observe(timing, event(1, 2, 0), 1.0)
    found = timings(timing)
    assert found["draft_n"] == 10
    assert found["reached_at"] == [2, 1, 1, 1]
    assert found["accepted_at"] == [1, 1, 1]
    assert sum(found["accepted_at"]) == found["draft_n_accepted"]


def test_ours_beside_them() -> None:
    found = timings(finished(), {"exact": True})
    assert found["target_passes"] == 4
    assert found["verification_steps"] == 2
    assert (found["tested_n"], found["discarded_n"]) == (5, 1)
    assert found["acceptance_at"] == [1.0, 0.5]
    assert (found["draft_ms"], found["verify_ms"], found["commit_ms"]) == (10.0, 20.0, None)
    assert found["method"] == "suffix,draft-simple"
    assert found["kernel_paths"] == ["avx2/matmul"]
    assert found["exact"] is True


@pytest.mark.parametrize(
    ("summary", "facts", "exact"),
    [
        ({"seed_exact": False}, {"exact": True}, False),
        ({"seed_exact": True}, {"exact": "not guaranteed (matmul)"}, "not guaranteed (matmul)"),
        ({}, {}, True),
    ],
)
def test_exact_is_not_claimed_where_it_is_not_known(
    summary: dict[str, Any], facts: dict[str, Any], exact: bool | str
) -> None:
    timing = Timing(0.0, summary={"target_passes": 1, **summary})
    assert timings(timing, facts)["exact"] == exact


def test_a_path_that_was_not_seen_is_unknown() -> None:
    assert timings(Timing(0.0, summary={"target_passes": 1}))["kernel_paths"] == "unknown"
    assert timings(Timing(0.0, summary={"target_passes": 1}))["method"] == "none"


def test_while_the_output_grows_only_what_is_known() -> None:
    timing = Timing(1.0, summary={"prompt_tokens": 8})
    assert all(timings(timing)[name] == 0 for name in LLAMA_NUMBERS.split() if name != "prompt_n")
    observe(timing, event(1), 3.0)
    observe(timing, event(2, 3, 1), 4.0)
    found = timings(timing)
    assert set(LLAMA_NUMBERS.split()) | {
        "draft_n",
        "draft_n_accepted",
        "reached_at",
        "accepted_at",
    } == set(found)
    assert found["prompt_ms"] == 2000.0
    assert found["predicted_per_second"] == 2.0


def test_no_token_at_all() -> None:
    timing = Timing(1.0)
    observe(timing, event(0, finish_reason="cancelled", summary={"target_passes": 0}), 2.0)
    found = timings(timing)
    assert found["predicted_n"] == 0
    assert timing.first_s is None
    assert all(isinstance(found[name], int | float) for name in LLAMA_NUMBERS.split())
