"""The list of blocks: from the manifest alone, mirrored, each with its baseline."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest

from lab_world import DRAFT, SIMPLE, SWEEP, manifest_of, plan_of
from slipstream.lab.contract.manifest import Manifest
from slipstream.lab.contract.plan import Arrivals, ConditionPlan, RuntimePlan
from slipstream.lab.scheduling.block_prompts import trial_prompts, warm_ups
from slipstream.lab.scheduling.schedule import MIX, Block, blocks, studied

SUFFIX = ConditionPlan(name="suffix", stage="ngram", method="suffix")


def _series(found: tuple[Block, ...], stage: str, stratum: str, slots: int = 1) -> list[Block]:
    return [
        b
        for b in found
        if (b.stage, b.stratum, b.slots, b.kind) == (stage, stratum, slots, "measured")
    ]


def test_the_list_depends_on_the_manifest_alone() -> None:
    plan = plan_of(SIMPLE, SWEEP, DRAFT, arrivals=Arrivals(slots=4), sampler={"temperature": 0.7})
    manifest = manifest_of(plan)
    copied = msgspec.json.decode(manifest.canonical(), type=Manifest)
    assert blocks(manifest) == blocks(copied)
    assert [b.number for b in blocks(manifest)] == list(range(len(blocks(manifest))))


def test_blocks_lie_a_b_b_a() -> None:
    found = blocks(manifest_of(plan_of(SIMPLE, rules={"repeats": 5})))
    names = [b.condition for b in _series(found, "ngram", "prose")]
    a, b = "none", "ngram-simple"
    assert names == [a, b, b, a, a, b, b, a, a, b]
    numbers = [b.number for b in _series(found, "ngram", "prose")]
    assert numbers == list(range(numbers[0], numbers[0] + 10))


def test_a_linear_drift_adds_the_same_to_each() -> None:
    found = blocks(manifest_of(plan_of(SIMPLE, SUFFIX, rules={"repeats": 6})))
    places: dict[str, list[int]] = {}
    for place, block in enumerate(_series(found, "ngram", "prose")):
        places.setdefault(block.condition, []).append(place)
    assert len({sum(p) for p in places.values()}) == 1


def test_each_block_has_the_baseline_of_its_round() -> None:
    found = blocks(
        manifest_of(
            plan_of(SIMPLE, DRAFT, arrivals=Arrivals(slots=2), sampler={"temperature": 1.0})
        )
    )
    for block in found:
        if block.kind != "measured" or block.condition == "none":
            assert block.baseline is None
            continue
        assert block.baseline is not None
        other = found[block.baseline]
        assert other.condition == "none"
        assert other.repeat == block.repeat
        assert (other.stage, other.stratum, other.slots, other.sampling) == (
            block.stage,
            block.stratum,
            block.slots,
            block.sampling,
        )
        assert other.prompts == block.prompts


def test_a_sweep_runs_on_the_repetitive_stratum_only() -> None:
    found = [b for b in blocks(manifest_of(plan_of(SIMPLE, SWEEP))) if b.kind == "measured"]
    assert {b.stratum for b in found if b.stage == "ngram-sweep"} == {"repetitive"}
    assert {b.stratum for b in found if b.stage == "ngram"} == {"repetitive", "prose"}


def test_the_rungs_come_in_the_order_of_the_ladder() -> None:
    trained = ConditionPlan(name="eagle", stage="trained", method="draft-eagle3", draft="small")
    plan = plan_of(
        trained,
        DRAFT,
        SIMPLE,
        SWEEP,
        arrivals=Arrivals(slots=2),
        sampler={"temperature": 1.0},
        tenants=("a", "b"),
    )
    found = [b for b in blocks(manifest_of(plan)) if b.kind == "measured"]
    stages = [stage for stage, _ in itertools.groupby(b.stage for b in found)]
    assert stages == ["none", "ngram", "ngram-sweep", "draft-simple", "trained", "slots", "sampler"]
    kinds = [b.kind for b in blocks(manifest_of(plan))]
    assert kinds[-1] == "rollback"
    assert kinds.index("logits") == 2


def test_a_trial_comes_before_the_rung_of_a_draft_model() -> None:
    found = blocks(manifest_of(plan_of(SIMPLE, DRAFT)))
    trials = [b for b in found if b.kind == "trial"]
    assert [b.condition for b in trials] == ["draft"]
    measured = [b.number for b in found if b.condition == "draft" and b.kind == "measured"]
    assert trials[0].number == min(measured) - 3  # row probes and `none` of the first round between


def test_row_probes_follow_each_rung_whose_outputs_are_to_be_equal() -> None:
    plan = plan_of(SIMPLE, DRAFT, arrivals=Arrivals(slots=2), sampler={"temperature": 1.0})
    found = blocks(manifest_of(plan))
    probes = [b for b in found if b.kind == "paths"]
    assert [b.stage for b in probes] == ["ngram", "draft-simple", "draft-simple", "slots"]
    assert {(b.condition, b.slots, b.prompts, b.warm_up) for b in probes} == {("none", 1, (), ())}
    for probe in probes:
        before = found[probe.number - 1]
        assert (before.stage, before.kind in ("measured", "trial")) == (probe.stage, True)
    kinds = [b.kind for b in found if b.stage == "draft-simple"]
    assert kinds[:3] == ["trial", "paths", "measured"]


@pytest.mark.parametrize("given", [{"rules": {"comparison": "text"}}, {"kind": "openai"}])
def test_what_takes_no_ids_has_no_row_probe(given: dict[str, Any]) -> None:
    url = "http://127.0.0.1:1"
    runtimes = {"fake": RuntimePlan(kind="openai", url=url)} if "kind" in given else None
    plan = plan_of(SIMPLE, rules=given.get("rules"), runtimes=runtimes)
    assert not [b for b in blocks(manifest_of(plan)) if b.kind == "paths"]


def test_a_trial_has_several_prompts_of_several_strata() -> None:
    manifest = manifest_of(plan_of(strata=("repetitive", "prose"), rules={}))
    assert trial_prompts(manifest) == ("repetitive/0", "prose/0", "repetitive/1")


def test_only_none_is_repeated_where_there_is_nothing_to_compare() -> None:
    found = blocks(manifest_of(plan_of(rules={"repeats": 50})))
    assert sum(b.kind == "measured" for b in found) == 2 * 50
    assert not any(b.kind == "logits" for b in found)


def test_slots_are_those_asked_for_and_the_mix_is_one_block() -> None:
    plan = plan_of(SIMPLE, arrivals=Arrivals(slots=4))
    found = tuple(b for b in blocks(manifest_of(plan)) if b.kind == "measured")
    assert {b.stratum for b in found if b.stage == "slots"} == {"repetitive", "prose"}
    assert {b.slots for b in found if b.stage == "slots"} == {4}
    mixed = plan_of(SIMPLE, arrivals=Arrivals(slots=4, mix={"prose": 1.0, "repetitive": 1.0}))
    found = blocks(manifest_of(mixed))
    rung = [b for b in found if (b.stage, b.kind) == ("slots", "measured")]
    assert {b.stratum for b in rung} == {MIX}
    assert len({b.prompts for b in rung}) == 1
    assert len(rung[0].prompts) == 4


def test_the_sampler_runs_at_every_concurrency_of_a_verdict() -> None:
    plan = plan_of(SIMPLE, arrivals=Arrivals(slots=4), sampler={"temperature": 1.0})
    rung = [b for b in blocks(manifest_of(plan)) if b.stage == "sampler"]
    assert {b.slots for b in rung} == {1, 4}
    assert {b.record_stage for b in rung} == {"sampler"}


def test_a_cold_run_has_no_warm_up_and_one_request_at_a_time() -> None:
    manifest = manifest_of(plan_of(SIMPLE, arrivals=Arrivals(slots=4), cold=True))
    assert {b.slots for b in blocks(manifest)} == {1}
    assert all(not b.warm_up for b in blocks(manifest))


def test_warm_ups_are_of_the_stratum_first_and_never_measured() -> None:
    manifest = manifest_of(plan_of(rules={"warm_up": 3}))
    assert warm_ups(manifest, "prose") == ("prose/warm", "repetitive/warm", "prose/warm")
    for block in blocks(manifest):
        assert not set(block.warm_up) & set(block.prompts)


def test_builds_share_rounds_and_never_a_series() -> None:
    two = {name: RuntimePlan(kind="slipstream") for name in ("old", "new")}
    found = blocks(manifest_of(plan_of(SIMPLE, runtimes=two)))
    rung = _series(found, "ngram", "prose")
    first = [(b.runtime, b.condition) for b in rung[:4]]
    assert first == [
        ("old", "none"),
        ("old", "ngram-simple"),
        ("new", "none"),
        ("new", "ngram-simple"),
    ]
    assert [(b.runtime, b.condition) for b in rung[4:8]] == first[::-1]
    for block in rung:
        if block.baseline is not None:
            assert found[block.baseline].runtime == block.runtime


def test_the_same_program_is_its_own_rollback() -> None:
    two = {"own": RuntimePlan(kind="slipstream"), "far": RuntimePlan(kind="openai", url="http://x")}
    manifest = manifest_of(plan_of(SIMPLE, runtimes=two, rollback="same"))
    found = blocks(manifest)
    assert {b.runtime for b in found if b.condition == "ngram-simple"} == {"own", "far"}
    assert {b.runtime for b in found if b.kind == "rollback"} == {"own"}


def test_a_build_kept_for_the_rollback_does_not_draft() -> None:
    two = {name: RuntimePlan(kind="slipstream") for name in ("old", "new")}
    manifest = manifest_of(plan_of(SIMPLE, runtimes=two, rollback="old"))
    assert studied(manifest) == ("new",)
    found = blocks(manifest)
    assert {b.condition for b in found if b.runtime == "old"} == {"none"}
    assert {b.stage for b in found if b.runtime == "old"} == {"none"}
    assert [b.runtime for b in found if b.kind == "rollback"] == ["old", "old"]
    assert found[-1].kind == "rollback"


def test_tenants_are_probed_alone_and_after_one_another() -> None:
    found = blocks(manifest_of(plan_of(SIMPLE, tenants=("a", "b"))))
    probes = [b for b in found if b.kind == "isolation"]
    assert [b.repeat for b in probes] == [0, 1]
    assert {b.condition for b in probes} == {"ngram-simple"}
    assert probes[0].prompts == ("prose/0", "prose/1", "repetitive/0")


@pytest.mark.parametrize("tenants", [(), ("only",)])
def test_one_tenant_needs_no_probe(tenants: tuple[str, ...]) -> None:
    found = blocks(manifest_of(plan_of(SIMPLE, tenants=tenants)))
    assert not [b for b in found if b.kind == "isolation"]
