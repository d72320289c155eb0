"""The ladder: what unlocks what, from the manifest and the records alone."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from lab_world import CONFIRMED, DRAFT, SIMPLE, SWEEP, manifest_of, plan_of
from slipstream.lab.contract.manifest import Manifest
from slipstream.lab.contract.plan import Arrivals
from slipstream.lab.contract.records import (
    BlockRecord,
    Counts,
    Divergence,
    FindingRecord,
    Line,
    RequestRecord,
)
from slipstream.lab.scheduling.conditions import Ladder, not_run, rungs
from slipstream.lab.scheduling.schedule import Block, blocks

NEAR = Divergence(at=3, gap=0.01, cause="near-tie")
DEFECT = Divergence(at=3, gap=1.0)


def _first(manifest: Manifest, **wanted: Any) -> Block:
    wanted = {"kind": "measured", **wanted}
    return next(b for b in blocks(manifest) if all(getattr(b, k) == v for k, v in wanted.items()))


def ran(
    block: Block,
    *,
    outcome: str = "ok",
    counts: Counts | None = None,
    attempt: int = 1,
    only: str = "",
    **request: Any,
) -> list[Line]:
    """Records of a block whose requests went as said; ``only`` = the others went well."""
    good = {"total_s": 1.0, "verdict": "equal"}
    requests: list[Line] = [
        RequestRecord(
            run="test-run",
            block=block.number,
            attempt=attempt,
            index=1 + i,
            runtime=block.runtime,
            condition=block.condition,
            stratum=block.stratum,
            prompt=prompt,
            stage=block.record_stage,
            slots=block.slots,
            **{**good, **(request if only in ("", prompt) else {})},
        )
        for i, prompt in enumerate(block.prompts)
    ]
    record = BlockRecord(
        run="test-run",
        block=block.number,
        attempt=attempt,
        runtime=block.runtime,
        condition=block.condition,
        stratum=block.stratum,
        stage=block.record_stage,
        slots=block.slots,
        began="2026-11-30T12:00:00+00:00",
        elapsed_s=1.0,
        outcome=outcome,
        reason="it broke" if outcome == "failed" else "",
        counts=counts or Counts(),
        baseline=block.baseline,
        repeat=block.repeat,
    )
    return [*requests, record]


def _all(manifest: Manifest, **wanted: Any) -> list[Line]:
    """Every such block went well; a condition took half the time of ``none``."""
    lines: list[Line] = []
    for block in blocks(manifest):
        if all(getattr(block, k) == v for k, v in wanted.items()):
            lines += ran(block, total_s=1.0 if block.condition == "none" else 0.5)
    return lines


def _lock(manifest: Manifest, lines: list[Line], block: Block) -> str:
    lock = Ladder(manifest, lines).lock(block)
    return "" if lock is None else lock.reason


def test_nothing_but_none_runs_first() -> None:
    manifest = manifest_of(plan_of(SIMPLE, SWEEP, DRAFT))
    for rung in rungs(manifest, []):
        wanted = "to run" if (rung.condition, rung.stage) == ("none", "none") else "waiting"
        assert rung.state == wanted, rung
    assert not_run(manifest, []) == []


def test_none_must_have_run_without_error_on_the_stratum() -> None:
    manifest = manifest_of(plan_of(SIMPLE))
    block = _first(manifest, condition="ngram-simple", stratum="prose")
    baseline = _first(manifest, condition="none", stratum="prose")
    assert _lock(manifest, ran(baseline), block) == ""
    assert "refused" in _lock(manifest, ran(baseline, error="refused", only="prose/1"), block)
    assert "it broke" in _lock(manifest, ran(baseline, outcome="failed"), block)
    other = _first(manifest, condition="none", stratum="repetitive")
    assert Ladder(manifest, ran(other)).lock(block).waiting  # type: ignore[union-attr]


def test_an_aborted_or_repeated_attempt_unlocks_nothing() -> None:
    manifest = manifest_of(plan_of(SIMPLE))
    block = _first(manifest, condition="ngram-simple", stratum="prose")
    baseline = _first(manifest, condition="none", stratum="prose")
    assert _lock(manifest, ran(baseline)[:-1], block)
    assert _lock(manifest, ran(baseline, outcome="repeated"), block)
    again = [*ran(baseline, outcome="repeated"), *ran(baseline, attempt=2)]
    assert _lock(manifest, again, block) == ""


@pytest.mark.parametrize("part", ["tokenizer", "vocabulary", "template", "architecture"])
def test_every_part_of_the_pairing_must_be_confirmed(part: str) -> None:
    pairing = msgspec.structs.replace(CONFIRMED, **{part: "unknown"})
    manifest = manifest_of(plan_of(DRAFT), pairing=pairing)
    lines = _all(manifest, stage="none", kind="measured")
    trial = _first(manifest, kind="trial")
    assert f"{part}: unknown" in _lock(manifest, lines, trial)
    assert all(
        "not confirmed" in rung.reason
        for rung in not_run(manifest, lines)
        if rung.condition == "draft"
    )
    confirmed = manifest_of(plan_of(DRAFT))
    assert _lock(confirmed, lines, trial) == ""


def test_a_confirmation_needs_its_source() -> None:
    pairing = msgspec.structs.replace(CONFIRMED, template="it loads")
    manifest = manifest_of(plan_of(DRAFT), pairing=pairing)
    lines = _all(manifest, stage="none", kind="measured")
    assert "template: it loads" in _lock(manifest, lines, _first(manifest, kind="trial"))


def _tried(**request: Any) -> str:
    manifest = manifest_of(plan_of(DRAFT))
    lines = _all(manifest, stage="none", kind="measured")
    lines += ran(_first(manifest, kind="trial"), **request)
    return _lock(manifest, lines, _first(manifest, condition="draft"))


def test_a_draft_condition_counts_after_its_trial() -> None:
    manifest = manifest_of(plan_of(DRAFT))
    lines = _all(manifest, stage="none", kind="measured")
    draft = _first(manifest, condition="draft")
    assert Ladder(manifest, lines).lock(draft).waiting  # type: ignore[union-attr]
    assert _tried() == ""
    assert "refused" in _tried(only="prose/0", error="refused", verdict="")
    assert "prose/0 diverged at 3" in _tried(only="prose/0", verdict="diverged", divergence=DEFECT)
    assert "could not be compared" in _tried(only="prose/0", verdict="")
    assert "it broke" in _tried(outcome="failed")


def test_a_near_tie_is_no_fault_but_several_prompts_must_be_equal() -> None:
    assert _tried(only="prose/0", verdict="diverged", divergence=NEAR) == ""
    assert "for 0 prompts only" in _tried(verdict="diverged", divergence=NEAR)


def test_a_method_that_cannot_run_says_why() -> None:
    manifest = manifest_of(plan_of(SIMPLE))
    methods = tuple(
        msgspec.structs.replace(m, not_run="no --spec-type in its help")
        if m.condition == "ngram-simple"
        else m
        for m in manifest.methods
    )
    manifest = msgspec.structs.replace(manifest, methods=methods)
    lines = _all(manifest, stage="none", kind="measured")
    reasons = {r.condition: r.reason for r in not_run(manifest, lines) if r.stage == "ngram"}
    assert reasons["ngram-simple"] == "no --spec-type in its help"
    assert "no condition" in reasons["none"]


def test_a_finding_that_stops_reaches_as_far_as_its_scope() -> None:
    manifest = manifest_of(plan_of(SIMPLE))
    lines = _all(manifest, stage="none", kind="measured")
    simple = _first(manifest, condition="ngram-simple", stratum="prose")

    def locked(**scope: Any) -> bool:
        made = {"run": "test-run", "name": "crashed", "text": "x", "stops": True, **scope}
        return "crashed: x" in _lock(manifest, [*lines, FindingRecord(**made)], simple)

    assert locked()
    assert locked(runtime="fake")
    assert locked(condition="ngram-simple", stratum="prose", slots=1)
    assert not locked(stops=False)
    assert not locked(condition="suffix")
    assert not locked(stratum="repetitive")
    assert not locked(slots=4)
    assert not locked(runtime="other")


def test_a_sweep_needs_a_parent_that_gives_the_output_of_none() -> None:
    manifest = manifest_of(plan_of(SIMPLE, SWEEP))
    sweep = _first(manifest, stage="ngram-sweep", condition="sweep-size-n-3")
    lines = _all(manifest, stage="none", kind="measured")
    assert Ladder(manifest, lines).lock(sweep).waiting  # type: ignore[union-attr]
    good = _all(manifest, stage="ngram")
    assert _lock(manifest, [*lines, *good], sweep) == ""
    parent = _first(manifest, condition="ngram-simple", stratum="repetitive")
    bad = ran(parent, attempt=2, verdict="diverged", divergence=DEFECT)
    assert "did not pass" in _lock(manifest, [*lines, *good, *bad], sweep)


@pytest.mark.parametrize(
    ("drafted", "steps", "inside"),
    [(10, 10, True), (70, 10, True), (71, 10, False), (9, 10, False), (0, 0, True)],
)
def test_rows_outside_the_plans_range_reject(drafted: int, steps: int, inside: bool) -> None:
    manifest = manifest_of(plan_of(SIMPLE, rules={"rows_range": (2, 8)}))
    lines = _all(manifest, stage="none", kind="measured")
    first, second = [
        b for b in blocks(manifest) if (b.condition, b.stratum) == ("ngram-simple", "prose")
    ][:2]
    lines += ran(first, counts=Counts(drafted=drafted, steps=steps))
    reason = _lock(manifest, lines, second)
    assert reason == "" if inside else "rows per step" in reason
    free = manifest_of(plan_of(SIMPLE))
    assert _lock(free, lines, second) == ""


LOADED: dict[str, Any] = {"arrivals": Arrivals(slots=4), "sampler": {"temperature": 0.7}}


def _at_one_slot(**request: Any) -> dict[str, str]:
    """Reasons why the later rungs are locked on prose, after one slot went as said there."""
    manifest = manifest_of(plan_of(SIMPLE, **LOADED))
    lines = _all(manifest, stage="none", kind="measured") + _all(manifest, stage="ngram")
    if request:
        series = [
            b
            for b in blocks(manifest)
            if (b.condition, b.stage, b.stratum) == ("ngram-simple", "ngram", "prose")
        ]
        for block in series if request.pop("every", False) else series[:1]:
            lines += ran(block, attempt=2, **{"total_s": 0.5, **request})
    return {
        f"{stage}/{condition}": _lock(
            manifest, lines, _first(manifest, stage=stage, condition=condition, stratum="prose")
        )
        for stage in ("slots", "sampler")
        for condition in ("none", "ngram-simple")
    }


def test_what_survived_at_one_slot_goes_on() -> None:
    assert set(_at_one_slot().values()) == {""}


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        ({"error": "refused", "only": "prose/1"}, "refused"),
        ({"verdict": "diverged", "divergence": DEFECT, "only": "prose/1"}, "diverged"),
        ({"verdict": "", "only": "prose/1"}, "could not be compared"),
        ({"outcome": "failed"}, "it broke"),
        ({"total_s": 1.1, "every": True}, "slower than `none` in each of 3 rounds"),
    ],
)
def test_what_did_not_survive_at_one_slot_ends_there(request_: dict[str, Any], reason: str) -> None:
    found = _at_one_slot(**request_)
    for stage in ("slots", "sampler"):
        assert reason in found[f"{stage}/ngram-simple"]
        assert "no condition of this rung" in found[f"{stage}/none"]


def test_slower_in_some_rounds_is_for_the_gates_to_judge() -> None:
    assert set(_at_one_slot(total_s=1.1).values()) == {""}


def test_an_unfinished_rung_is_waited_for() -> None:
    manifest = manifest_of(plan_of(SIMPLE, **LOADED))
    lines = _all(manifest, stage="none", kind="measured")
    lock = Ladder(manifest, lines).lock(_first(manifest, stage="slots", condition="ngram-simple"))
    assert lock is not None
    assert lock.waiting


def test_a_rung_counts_its_blocks() -> None:
    manifest = manifest_of(plan_of(SIMPLE))
    lines = _all(manifest, stage="none", kind="measured")
    simple = _first(manifest, condition="ngram-simple", stratum="prose")
    found = {
        (r.condition, r.stratum, r.stage): (r.state, r.done, r.of)
        for r in rungs(manifest, [*lines, *ran(simple)])
    }
    assert found["ngram-simple", "prose", "ngram"] == ("to run", 1, 3)
    assert found["none", "prose", "none"] == ("done", 1, 1)


def test_a_condition_without_a_place_says_so() -> None:
    manifest = manifest_of(plan_of(SIMPLE, SWEEP, strata=("prose",)))
    found = {r.condition: r.reason for r in not_run(manifest, [])}
    assert len(found) == 6
    assert set(found.values()) == {"a sweep runs on repetitive strata, and the plan measures none"}
