"""Named findings: each rule on records that break it, and on records that just do not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from lab_records import PROMPTS, RUN, SUFFIX, Story, digest, manifest, observed
from slipstream.lab.contract.plan import Rules
from slipstream.lab.contract.records import Counts, Divergence, FindingRecord, Line
from slipstream.lab.judging.findings import DETECTORS, EFFECTS, NAMES, findings

QUIET = observed("suffix", {}, kernel_paths=("few-row",))
QUIET_NONE = observed("none", {}, kernel_paths=("one-row",))


def names(lines: list[Line], **more: Any) -> list[str]:
    return [f.name for f in findings(manifest(**more), [*lines, QUIET, QUIET_NONE])]


def only(lines: list[Line], **more: Any) -> FindingRecord:
    (found,) = findings(manifest(**more), [*lines, QUIET, QUIET_NONE])
    return found


def story(condition: str = "suffix", prompt: str | None = PROMPTS[1], **fields: Any) -> list[Line]:
    """Two turns in which requests of one condition have other fields."""

    def changed(_turn: int, name: str, of: str) -> Mapping[str, Any]:
        return fields if name == condition and prompt in (None, of) else {}

    return Story(changed=changed).lines(2)


def blocks(condition: str = "suffix", **fields: Any) -> list[Line]:
    return Story(block=lambda _turn, name: fields if name == condition else {}).lines(2)


def counts(drafted: int, accepted: int, **more: Any) -> Counts:
    return Counts(**{"drafted": drafted, "accepted": accepted, "source": "request", **more})


def test_names_are_those_of_the_decision() -> None:
    decided = (
        "never-fired drafter-is-noise flag-ignored flag-unknown counts-disagree counters-reset "
        "stalled diverged crashed router wrong-model drifted rows-left-range shared-pool "
        "degenerate-output path-unknown identity-changed"
    )
    assert set(decided.split()) <= set(NAMES) == set(EFFECTS)
    assert set(DETECTORS) <= set(NAMES)


def test_an_honest_run_has_no_findings() -> None:
    assert names(Story().lines(5)) == []


def test_never_fired() -> None:
    found = only(story(prompt=None, counts=counts(0, 0)))
    assert (found.name, found.condition, found.slots) == ("never-fired", "suffix", 1)
    assert names(story(counts=counts(0, 0))) == []
    assert names(story(prompt=None, counts=Counts())) == []


def test_never_fired_is_seen_in_counters_too() -> None:
    def silent(_turn: int, _name: str, _prompt: str) -> Mapping[str, Any]:
        return {"counts": Counts()}

    window = Counts(drafted=0, accepted=0, steps=0, source="counters")
    lines = Story(changed=silent, block=lambda _turn, _name: {"counts": window}).lines(2)
    assert only(lines).name == "never-fired"


def test_drafter_is_noise() -> None:
    assert only(story(prompt=None, counts=counts(200, 2))).name == "drafter-is-noise"
    assert names(story(prompt=None, counts=counts(200, 12))) == []
    assert names(story(prompt=None, counts=counts(10, 0))) == []  # 80 drafts are too few


def test_a_flag_that_the_program_says_is_another() -> None:
    told = observed("suffix", {}, differs={"n_max": ("16", "4")}, kernel_paths=("few-row",))
    found = only([*Story().lines(2), told])
    assert (found.name, found.text) == ("flag-ignored", "n_max: asked 16, in effect 4")


def test_drafts_under_none_are_a_flag_that_was_ignored() -> None:
    found = only(story("none", counts=counts(9, 3)))
    assert (found.name, found.condition) == ("flag-ignored", "none")


def test_longer_drafts_or_outputs_than_asked_for() -> None:
    long = counts(100, 50, steps=5)
    found = only(story(prompt=None, counts=long, output_tokens=60))
    assert found.name == "flag-ignored"
    assert "at most 16" in found.text
    assert names(story(prompt=None, counts=counts(80, 40, steps=5), output_tokens=60)) == []
    found = only(story(output_tokens=97))
    assert found.name == "flag-ignored"
    assert "97 tokens" in found.text


def test_flag_unknown() -> None:
    lacking = msgspec.structs.replace(SUFFIX, not_run="its help has no `--spec-type`")
    found = only([], methods=[lacking])
    assert (found.name, found.stops) == ("flag-unknown", True)
    other = msgspec.structs.replace(SUFFIX, not_run="the pairing is not confirmed")
    assert names([], methods=[other]) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"counts": counts(10, 11)},
        {"counts": counts(10, 5, steps=0)},
        {"counts": counts(60, 6, accepted_at=(5, 2), reached_at=(9, 9))},
        {"counts": counts(60, 6, accepted_at=(6, 0), reached_at=(5, 5))},
        {"counts": counts(60, 6, steps=11)},
        {"output_tokens": 7},
        {"output_tokens": 30, "total_s": 3.0, "decode_tok_s": 8.0},
    ],
)
def test_counts_disagree(wrong: dict[str, Any]) -> None:
    assert only(story(**wrong)).name == "counts-disagree"


def test_counts_that_may_be_true_are_left_alone() -> None:
    fine = counts(60, 6, steps=8, accepted_at=(5, 1), reached_at=(9, 5))
    assert names(story(counts=fine, decode_tok_s=12.0, output_tokens=8)) == []


def timed(told: float, *, first_late: float = 0.0, last_late: float = 0.0) -> dict[str, Any]:
    """60 tokens in 1 s after a prompt of 0.5 s, some read late; what the server tells of it."""
    first, last = 0.5 + first_late, 1.5 + last_late
    times = tuple(first + (last - first) * i / 59 for i in range(60))
    return {
        "output_tokens": 60,
        "total_s": 1.5 + last_late,
        "token_times_s": times,
        "decode_tok_s": told,
    }


@pytest.mark.parametrize("late", [{"first_late": 0.55}, {"last_late": 0.6}])
def test_a_client_that_reads_late_is_no_lie_of_the_server(late: dict[str, float]) -> None:
    """59 tokens/s told; 131 by a clock that began late, 37 by one that ended late."""

    def some(_turn: int, name: str, of: str) -> Mapping[str, Any]:
        disturbed = name == "suffix" and of in PROMPTS[:2]
        return timed(59.0, **late) if disturbed else timed(59.0)

    assert names(Story(changed=some).lines(2)) == []  # two prompts of four
    found = only(story(prompt=None, **timed(59.0, **late)))
    assert found.name == "clock-disagrees"
    assert EFFECTS[found.name] == "note"
    assert "8 of 8 requests" in found.text
    assert "59 tokens/s told" in found.text


def test_a_server_that_tells_another_rate_is_named() -> None:
    assert names(story(prompt=None, **timed(59.0))) == []
    found = only(story(**timed(30.0)))  # 1.97 s of decoding in a request of 1.5 s
    assert (found.name, EFFECTS[found.name]) == ("counts-disagree", "inconclusive")
    assert "1.967 s of decoding told (30 tokens/s), all of it took 1.5 s" in found.text
    assert only(story(prompt=None, **timed(590.0))).name == "clock-disagrees"


def test_the_deepest_positions_may_be_counted_together() -> None:
    deep = counts(150, 100, steps=10, accepted_at=(*(1,) * 64, 36), reached_at=(10,) * 65)
    assert names(story(prompt=None, counts=deep, output_tokens=90)) == []


def test_requests_that_tell_more_than_the_counters() -> None:
    window = Counts(drafted=239, accepted=24, steps=40, source="counters")
    found = only(blocks(counts=window))
    assert found.name == "counts-disagree"
    assert "240 drafted" in found.text
    more = Counts(drafted=300, accepted=30, steps=50, source="counters")
    assert names(blocks(counts=more)) == []


def test_a_block_that_lies_is_named_too() -> None:
    window = Counts(drafted=240, accepted=241, steps=40, source="counters")
    assert only(blocks(counts=window)).name == "counts-disagree"


def text(value: float, start: float = 5.0) -> str:
    return (
        "# TYPE drafted counter\n"
        f'drafted_total{{model="a b"}} {value}\n'
        f"process_start_time_seconds {start}\nqueue_depth {10 - value}\nbroken{{\n"
    )


@pytest.mark.parametrize(
    "fields",
    [
        {"counts": Counts(drafted=-5, source="counters")},
        {"metrics_before": text(7), "metrics_after": text(6)},
        {"metrics_before": text(7), "metrics_after": text(8, start=6.0)},
    ],
)
def test_counters_reset(fields: dict[str, Any]) -> None:
    assert only(blocks(**fields)).name == "counters-reset"


def test_counters_that_grow_are_fine() -> None:
    assert names(blocks(metrics_before=text(7), metrics_after=text(8))) == []


def test_stalled() -> None:
    late = tuple(0.1 * i + (3.0 if i > 5 else 0.0) for i in range(10))
    found = only(story(token_times_s=late))
    assert found.name == "stalled"
    assert "3.1 s without a token, after 6" in found.text
    slow = tuple(0.5 * i + (3.0 if i > 5 else 0.0) for i in range(10))  # 3.5 s, of 0.5 s usually
    assert names(story(token_times_s=slow)) == []
    timeout = story(error="no answer in 600 s", timed_out=True, total_s=None)
    assert "stalled" in names(timeout)


def test_diverged_says_where_and_why() -> None:
    where = Divergence(at=40, gap=1.25, cause="defect")
    found = only(story(ids_sha256=digest("x"), verdict="diverged", divergence=where))
    assert found.name == "diverged"
    assert "leaves none at token 40 (gap 1.25): defect" in found.text
    assert "2 of 8 outputs" in found.text


def test_crashed() -> None:
    found = only(blocks(outcome="failed", reason="exit code 139"))
    assert found.name == "crashed"
    assert "exit code 139" in found.text

    def from_the_second_on(turn: int, name: str, prompt: str) -> Mapping[str, Any]:
        gone = name == "suffix" and turn == 1 and prompt != PROMPTS[0]
        return {"error": "connection refused"} if gone else {}

    found = only(Story(changed=from_the_second_on).lines(2))
    assert found.name == "crashed"
    assert "at request 1: connection refused" in found.text


def test_one_error_is_no_crash() -> None:
    assert names(story(error="refused")) == []


def test_drifted_and_degenerate() -> None:
    assert only(blocks(outcome="inconclusive", drift=0.3)).name == "drifted"
    found = only(story(diagnostics=("degenerate: loop of 2 tokens",)))
    assert found.name == "degenerate-output"
    assert PROMPTS[1] in found.text


def test_rows_left_the_range() -> None:
    inside = {"rules": Rules(rows_range=(2, 8))}
    assert names(Story().lines(2), **inside) == []  # 7 rows per step
    found = only(Story().lines(2), rules=Rules(rows_range=(2, 6)))
    assert (found.name, found.stops) == ("rows-left-range", True)
    assert names(Story().lines(2), rules=Rules(rows_range=(2, 0))) == []
    assert names(Story().lines(2), rules=Rules(rows_range=(8, 0))) == ["rows-left-range"]
    told = observed(
        "suffix", {}, rows_histogram={"1": 50, "7": 9, "9": 1}, kernel_paths=("few-row",)
    )
    found = only([*Story().lines(2), told], **inside)
    assert found.name == "rows-left-range"
    assert "steps of 9 rows" in found.text


def test_shared_pool() -> None:
    modular = msgspec.structs.replace(SUFFIX, method="ngram-mod", parameters={})
    found = only(Story().lines(2), methods=[modular], kind="llama-server")
    assert found.name == "shared-pool"
    assert "one table for all slots" in found.text


def test_path_unknown() -> None:
    found = findings(manifest(), Story().lines(2))
    assert [f.name for f in found] == ["path-unknown"] * 2
    unknown = observed("suffix", {})
    assert len(findings(manifest(), [*Story().lines(2), unknown, QUIET_NONE])) == 1


def test_what_was_noted_by_name_becomes_a_finding() -> None:
    assert names(story(diagnostics=("counts-disagree: drafted: 3 by the request",))) == [
        "counts-disagree"
    ]
    assert names(blocks(log_findings=("router: several models", "nothing: here"))) == ["router"]


def test_what_the_run_recorded_is_not_found_again() -> None:
    recorded = FindingRecord(
        run=RUN,
        name="never-fired",
        text="as recorded",
        runtime="own",
        condition="suffix",
        stratum="chat",
    )
    assert only([*story(prompt=None, counts=counts(0, 0)), recorded]).text == "as recorded"


def test_findings_come_in_the_order_of_their_names() -> None:
    lines = story(prompt=None, counts=counts(0, 0), ids_sha256=digest("x"))
    assert names(lines) == ["never-fired", "diverged"]


def test_absurd_metrics_are_bounded() -> None:
    huge = "a_total 1\n" * 200_000 + "b_total 5\n"
    assert names(blocks(metrics_before=huge, metrics_after="b_total 1\n")) == []
    odd = "a_total nan\na_total\n}\n{} 1\na_total 1e999\n \x00\n"
    assert names(blocks(metrics_before=odd, metrics_after=odd)) == []
