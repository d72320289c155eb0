"""The verdict: one word per runtime x workload x condition x concurrency."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from lab_records import PROMPTS, RUN, SUFFIX, Story, digest, manifest, rolled_back
from slipstream.lab.contract.plan import Arrivals, Rules, RuntimePlan
from slipstream.lab.contract.records import Counts, FindingRecord, Line, RequestRecord
from slipstream.lab.judging.cells import Cell
from slipstream.lab.judging.verdict import Verdict, verdicts


def faster(_turn: int, condition: str, _prompt: str) -> float:
    return 1.0 if condition == "none" else 0.8


GOOD = Story(seconds=faster)


def only(lines: list[Line], **more: Any) -> Verdict:
    (made,) = verdicts(manifest(**more), lines)
    return made


def run(story: Story = GOOD, pairs: int = 6) -> list[Line]:
    return [*story.lines(pairs), *rolled_back()]


def test_all_gates_passed_is_adopt() -> None:
    made = only(run())
    assert made.word == "adopt"
    assert made.reasons == ("speed-up 1.250 [1.250, 1.250]",)
    assert all(gate.passed for gate in made.gates)
    assert (made.runtime, made.stratum, made.condition, made.slots) == ("own", "chat", "suffix", 1)


def test_one_failed_gate_is_reject() -> None:
    made = only(run(), rules=Rules(margin=0.3))
    assert made.word == "reject"
    assert made.reasons[0].startswith("time: speed-up 1.250")


def test_what_cannot_be_measured_is_inconclusive() -> None:
    made = only(GOOD.lines(6))
    assert made.word == "inconclusive"
    assert made.reasons == ("rollback not measurable: own was not started again",)


def test_a_failure_weighs_more_than_the_unknown() -> None:
    def changed(_turn: int, name: str, prompt: str) -> Mapping[str, Any]:
        return {"ids_sha256": digest("x")} if name == "suffix" and prompt == PROMPTS[0] else {}

    made = only(Story(seconds=faster, changed=changed).lines(6))
    assert made.word == "reject"
    assert made.reasons[0].startswith("output: 18 of 24 outputs equal")
    assert "diverged" in made.findings


def suffix_counts(counts: Counts) -> Story:
    return Story(
        seconds=faster,
        changed=lambda _turn, name, _prompt: {"counts": counts} if name == "suffix" else {},
    )


def test_a_drafter_that_never_fired_is_no_gain() -> None:
    made = only(run(suffix_counts(Counts(drafted=0, accepted=0, source="request"))))
    assert made.word == "reject"
    assert made.reasons == ("never-fired: nothing was drafted in 24 requests",)
    noise = only(run(suffix_counts(Counts(drafted=90, accepted=1, source="request"))))
    assert (noise.word, noise.findings[0]) == ("reject", "drafter-is-noise")


def test_drafting_that_nobody_saw_is_not_adopted() -> None:
    made = only(run(suffix_counts(Counts())))
    assert made.word == "inconclusive"
    assert made.reasons == ("nothing shows that anything was drafted: the runtime tells no counts",)


def test_nothing_is_adopted_without_a_long_typical_sequence() -> None:
    short = manifest()
    prompts = tuple(msgspec.structs.replace(p, typical=False) for p in short.prompts)
    (made,) = verdicts(msgspec.structs.replace(short, prompts=prompts), run())
    assert made.word == "inconclusive"
    assert "typical" in made.reasons[0]


def test_a_typical_sequence_that_only_failed_does_not_count() -> None:
    first = manifest()
    prompts = tuple(msgspec.structs.replace(p, typical=p.id == PROMPTS[0]) for p in first.prompts)

    def failing(_turn: int, _name: str, prompt: str) -> Mapping[str, Any]:
        return {"error": "broke"} if prompt == PROMPTS[0] else {}

    story = Story(seconds=faster, changed=failing)
    (made,) = verdicts(msgspec.structs.replace(first, prompts=prompts), run(story, 8))
    assert made.word == "inconclusive"
    assert any("typical" in r for r in made.reasons)


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("flag-ignored", "inconclusive"),
        ("counters-reset", "inconclusive"),
        ("stalled", "inconclusive"),
        ("crashed", "reject"),
        ("rows-left-range", "reject"),
        ("identity-changed", "reject"),
        ("router", "not run"),
        ("wrong-model", "not run"),
        ("path-unknown", "adopt"),
        ("drifted", "adopt"),
    ],
)
def test_findings_have_their_say(name: str, word: str) -> None:
    found = FindingRecord(run=RUN, name=name, text="as recorded", condition="suffix")
    made = only([*run(), found])
    assert made.word == word
    assert word == "adopt" or any("as recorded" in reason for reason in made.reasons)
    elsewhere = msgspec.structs.replace(found, condition="another")
    assert only([*run(), elsewhere]).word == "adopt"
    at_load = msgspec.structs.replace(found, slots=8)
    assert only([*run(), at_load]).word == "adopt"


def test_where_every_block_was_disturbed_that_is_the_reason() -> None:
    lost = Story(seconds=faster, block=lambda _turn, _name: {"outcome": "inconclusive"})
    made = only(lost.lines(8))
    assert made.word == "inconclusive"
    assert made.reasons[0].startswith("no block of it counts")
    assert not any("tells no counts" in reason for reason in made.reasons)


def test_what_never_came_to_a_request_was_not_run() -> None:
    failed = [
        x
        for x in Story(
            block=lambda _turn, name: {"outcome": "failed"} if name != "none" else {}
        ).lines(1)
        if not (isinstance(x, RequestRecord) and x.condition != "none")
    ]
    stop = FindingRecord(run=RUN, name="flag-ignored", text="asked", condition="suffix", stops=True)
    made = only([*failed, stop])
    assert (made.word, made.reasons) == ("not run", ("flag-ignored: asked",))


def test_a_swept_condition_says_what_to_do_next() -> None:
    swept = msgspec.structs.replace(SUFFIX, stage="ngram-sweep")
    given = manifest(methods=[swept])
    short = [msgspec.structs.replace(p, typical=False, kind="repetitive") for p in given.prompts]
    made = verdicts(msgspec.structs.replace(given, prompts=tuple(short)), run())[0]
    assert any("make it a condition of its own" in reason for reason in made.reasons)


def test_an_unexecuted_plan_is_a_valid_state() -> None:
    made = only([])
    assert (made.word, made.reasons, made.gates) == ("not run", ("the plan was not executed",), ())


def test_what_was_not_run_says_why() -> None:
    refused = msgspec.structs.replace(SUFFIX, condition="other", not_run="no such flag")
    made = {v.condition: v for v in verdicts(manifest(methods=[SUFFIX, refused]), run())}
    assert made["suffix"].word == "adopt"
    assert (made["other"].word, made["other"].reasons) == ("not run", ("no such flag",))


def test_a_reason_of_the_ladder_is_passed_on() -> None:
    other = msgspec.structs.replace(SUFFIX, condition="other")
    given = manifest(methods=[SUFFIX, other])
    assert verdicts(given, run())[1].reasons == ("no block was executed",)
    reasons = {Cell("own", "other", "chat"): "its trial failed"}
    assert verdicts(given, run(), reasons)[1].reasons == ("its trial failed",)
    stop = FindingRecord(run=RUN, name="diverged", text="its trial", condition="other", stops=True)
    assert verdicts(given, [*run(), stop])[1].reasons == ("diverged: its trial",)


def test_a_sweep_runs_on_repetitive_alone() -> None:
    sweep = msgspec.structs.replace(SUFFIX, condition="swept", stage="ngram-sweep")
    made = verdicts(manifest(methods=[SUFFIX, sweep]), run())
    assert made[1].reasons == ("a sweep runs on repetitive alone",)


def test_latency_and_throughput_are_separate_verdicts() -> None:
    loaded = Story(seconds=lambda _t, n, _p: 1.0 if n == "none" else 1.1, slots=4, first_block=200)
    lines = [*run(), *loaded.lines(6)]
    made = {v.slots: v for v in verdicts(manifest(slots=4), lines)}
    assert (made[1].word, made[4].word) == ("adopt", "reject")
    assert made[4].reasons[0].startswith("time: throughput 0.9")


def test_a_condition_that_fell_at_one_slot_says_so_of_the_others() -> None:
    slow = Story(seconds=lambda _turn, name, _prompt: 1.0 if name == "none" else 2.0)
    made = {v.slots: v for v in verdicts(manifest(slots=4), run(slow))}
    assert (made[4].word, made[4].reasons) == ("not run", ("reject at one slot",))


def test_a_mix_is_one_workload_under_load() -> None:
    plan = {"arrivals": Arrivals(slots=4, mix={"chat": 1.0})}
    made = [(v.stratum, v.slots) for v in verdicts(manifest(plan=plan), run())]
    assert made == [("chat", 1), ("mix", 4)]


def test_a_build_that_is_kept_for_the_rollback_is_not_judged() -> None:
    base = manifest(plan={"runtimes": {"own": RuntimePlan(kind="slipstream")}, "rollback": "old"})
    old = msgspec.structs.replace(base.runtimes[0], name="old")
    both = msgspec.structs.replace(base, runtimes=(old, *base.runtimes))
    assert {v.runtime for v in verdicts(both, [])} == {"own"}


def test_methods_are_each_runtimes_own() -> None:
    ours = msgspec.structs.replace(SUFFIX, runtime="own", not_run="")
    theirs = msgspec.structs.replace(SUFFIX, runtime="other", not_run="no such flag")
    made = only(run(), methods=[theirs, ours])
    assert made.word == "adopt"
