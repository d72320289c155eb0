"""A whole run over made-up programs: what it records, where it stops, how it goes on."""

from __future__ import annotations

import dataclasses
import os
import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lab_world import (
    CONFIRMED,
    DRAFT,
    SIMPLE,
    SWEEP,
    FakeRuntime,
    World,
    manifest_of,
    plan_of,
    runtimes_of,
    text_of,
    tools_of,
)
from slipstream.errors import OptionError, RequestError
from slipstream.lab.client.asking import Asked
from slipstream.lab.contract.manifest import Manifest
from slipstream.lab.contract.plan import Arrivals, RuntimePlan
from slipstream.lab.contract.records import (
    BlockRecord,
    FindingRecord,
    Line,
    ObservedRecord,
    RequestRecord,
)
from slipstream.lab.evidence.store import RECORDS, measured, read_records
from slipstream.lab.observation.probe import Reading
from slipstream.lab.running import outputs
from slipstream.lab.running.outcome import Outcome
from slipstream.lab.running.progress import Silent
from slipstream.lab.running.run import run
from slipstream.lab.scheduling.schedule import blocks


def _run(
    folder: Path, manifest: Manifest, world: World | None = None, **tools: Any
) -> tuple[Outcome, list[Line]]:
    world = world or World()
    outcome = run(
        folder,
        manifest,
        runtimes_of(manifest, world),
        tools=tools_of(manifest, world, **tools),
    )
    return outcome, read_records(folder / RECORDS)


def _requests(lines: Sequence[Line], **wanted: Any) -> list[RequestRecord]:
    found = [x for x in lines if isinstance(x, RequestRecord)]
    return [x for x in found if all(getattr(x, k) == v for k, v in wanted.items())]


def _blocks(lines: Sequence[Line], **wanted: Any) -> list[BlockRecord]:
    found = [x for x in lines if isinstance(x, BlockRecord)]
    return [x for x in found if all(getattr(x, k) == v for k, v in wanted.items())]


def _findings(lines: Sequence[Line]) -> dict[str, FindingRecord]:
    return {x.name: x for x in lines if isinstance(x, FindingRecord)}


class Notes(Silent):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def note(self, text: str) -> None:
        self.told.append(text)


def _found(lines: Sequence[Line], name: str, stratum: str) -> FindingRecord:
    (found,) = [
        x for x in lines if isinstance(x, FindingRecord) and (x.name, x.stratum) == (name, stratum)
    ]
    return found


def test_a_run_records_every_block_of_its_manifest(tmp_path: Path) -> None:
    manifest = manifest_of(plan_of(SIMPLE, SWEEP, DRAFT, sampler={"temperature": 0.7}))
    world = World()
    outcome, lines = _run(tmp_path, manifest, world)
    assert outcome.ended == "complete"
    assert outcome.left == 0
    assert outcome.not_run == ()
    planned = [b.number for b in blocks(manifest) if b.kind != "paths"]  # nothing parted
    assert [x.block for x in _blocks(lines)] == planned
    assert {x.outcome for x in _blocks(lines)} == {"ok"}
    assert world.stopped == len(world.started) == len(planned)


def test_a_block_is_a_fresh_process_warm_up_and_one_pass(tmp_path: Path) -> None:
    manifest = manifest_of(plan_of(SIMPLE, rules={"warm_up": 2}))
    _, lines = _run(tmp_path, manifest)
    for block in (b for b in blocks(manifest) if b.kind != "paths"):
        found = _requests(lines, block=block.number)
        assert [x.prompt for x in found] == [*block.warm_up, *block.prompts]
        assert [x.index for x in found] == list(range(len(found)))
        assert [x.cold for x in found] == [True] + [False] * (len(found) - 1)
        assert all(x.warm_up for x in found[:2])
        kept = block.kind in ("measured", "rollback")
        assert all(x.warm_up is not kept for x in found[2:])


def test_a_record_holds_what_was_asked_and_answered(tmp_path: Path) -> None:
    manifest = manifest_of(plan_of(SIMPLE))
    world = World(tells=False)
    _, lines = _run(tmp_path, manifest, world)
    record = measured(lines)[-1]
    simple = _requests(lines, condition="ngram-simple", warm_up=False)[0]
    assert record.run == "test-run"
    assert (simple.counts.drafted, simple.counts.accepted, simple.counts.steps) == (8, 2, 4)
    assert simple.counts.source == "counters"
    assert simple.total_s == 0.5
    assert simple.peak_rss_bytes == 1000
    assert simple.verdict == "equal"
    assert simple.judged == {"exact": True, "check": True}
    output = outputs.load(tmp_path, simple.output)
    assert len(output.ids) == simple.output_tokens == 20
    asked = [a for c, a in world.asked if c == "ngram-simple"][-1]
    assert asked.options() == {"temperature": 0.0, "max_tokens": 20, "seed": 1}
    block = _blocks(lines, condition="ngram-simple")[0]
    assert (block.counts.drafted, block.counts.steps) == (16, 8)
    assert block.metrics_before == "counters"
    assert block.baseline == block.block - 1
    assert (block.probe_s, block.drift, block.other_load) == (0.1, 0.0, 0.0)
    assert block.log.startswith(f"logs/{block.block:04d}-1-fake-ngram-simple")


def test_sampling_comes_in_two_stages(tmp_path: Path) -> None:
    manifest = manifest_of(plan_of(SIMPLE, sampler={"temperature": 0.7, "top_k": 40}))
    world = World()
    _, lines = _run(tmp_path, manifest, world)
    sampled = _requests(lines, stage="sampler", warm_up=False)
    assert sampled
    assert {x.verdict for x in sampled} == {""}
    assert {tuple(x.judged) for x in sampled} == {("check",)}
    wanted = {"temperature": 0.7, "top_k": 40, "max_tokens": 20, "seed": 1}
    assert wanted in [a.options() for _, a in world.asked]


def test_the_first_output_of_none_has_nothing_to_be_equal_to(tmp_path: Path) -> None:
    _, lines = _run(tmp_path, manifest_of(plan_of(SIMPLE)))
    none = _requests(lines, condition="none", stage="greedy", warm_up=False, prompt="prose/0")
    assert [x.verdict for x in none] == [""] + ["equal"] * (len(none) - 1)


def test_a_divergence_has_its_place_and_the_gap_of_the_baseline(tmp_path: Path) -> None:
    manifest = manifest_of(plan_of(SIMPLE))
    world = World(diverges={("ngram-simple", "prose/1"): 7}, gap=0.02)
    _, lines = _run(tmp_path, manifest, world)
    for record in _requests(lines, condition="ngram-simple", prompt="prose/1"):
        assert record.verdict == "diverged"
        assert record.divergence is not None
        assert record.divergence.at == 7
        assert record.divergence.gap == pytest.approx(0.02)
        assert record.divergence.cause == "near-tie"
        assert record.judged["exact"] is False
    timed = [a.logprobs for c, a in world.asked if c == "ngram-simple"]
    assert timed
    assert set(timed) == {None}


def test_a_trial_that_diverges_keeps_its_condition_from_running(tmp_path: Path) -> None:
    manifest = manifest_of(plan_of(SIMPLE, DRAFT))
    outcome, lines = _run(tmp_path, manifest, World(diverges={("draft", "prose/0"): 4}))
    assert {x.stage for x in _blocks(lines, condition="draft")} == {"trial"}
    reasons = {r.reason for r in outcome.not_run if r.condition == "draft"}
    assert reasons == {"its trial did not give the output of `none`: prose/0 diverged at 4"}
    assert outcome.ended == "complete"


def test_an_unconfirmed_pairing_starts_nothing(tmp_path: Path) -> None:
    pairing = msgspec.structs.replace(CONFIRMED, template="unknown")
    manifest = manifest_of(plan_of(DRAFT), pairing=pairing)
    world = World()
    outcome, _ = _run(tmp_path, manifest, world)
    assert {name for _, name in world.started} == {"none"}
    assert all("template: unknown" in r.reason for r in outcome.not_run if r.condition == "draft")


def test_a_crash_at_a_request_ends_its_condition_alone(tmp_path: Path) -> None:
    manifest = manifest_of(plan_of(SIMPLE, DRAFT), prompts=6)
    outcome, lines = _run(tmp_path, manifest, World(dies_after={"ngram-simple": 3}))
    failed = _blocks(lines, condition="ngram-simple")
    assert [(x.stratum, x.outcome) for x in failed] == [
        ("repetitive", "failed"),
        ("prose", "failed"),
    ]
    errors = [x for x in _requests(lines, condition="ngram-simple") if x.error]
    assert [x.index for x in errors] == [3, 4] * 2
    assert all(not x.output and x.total_s is None and x.verdict == "" for x in errors)
    for stratum in ("repetitive", "prose"):
        finding = _found(lines, "crashed", stratum)
        assert (finding.condition, finding.slots, finding.stops) == ("ngram-simple", 1, True)
        assert "2 requests were not sent" in finding.text
    assert _blocks(lines, condition="draft", stage="greedy")
    assert any("crashed" in r.reason for r in outcome.not_run)


def test_a_request_that_is_refused_is_no_crash(tmp_path: Path) -> None:
    manifest = manifest_of(plan_of(SIMPLE, strata=["prose"]))
    fails = {("ngram-simple", f"prose/{name}"): "HTTP 400: no" for name in ("warm", "0", "1")}
    outcome, lines = _run(tmp_path, manifest, World(fails=fails))
    assert "its warm-up in block" in _found(lines, "refused", "prose").text
    assert not [f for f in outcome.findings if f.name == "crashed"]


def test_a_start_that_takes_long_says_what_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slipstream.lab.running.progress.LONG_S", 0.01)
    manifest = manifest_of(plan_of(SIMPLE, strata=["prose"]))
    world, notes = World(), _Notes()
    start = world.start

    def slow(name: str, condition: str) -> None:
        limit = time.monotonic() + 5
        while not notes.told and time.monotonic() < limit:
            time.sleep(0.01)
        start(name, condition)

    monkeypatch.setattr(world, "start", slow)
    run(
        tmp_path,
        manifest,
        runtimes_of(manifest, world),
        tools=tools_of(manifest, world),
        progress=notes,
    )
    assert any("none: waiting for" in text and ", at most " in text for text in notes.told)


class _Notes(Silent):
    def __init__(self) -> None:
        self.told: list[str] = []

    def note(self, text: str) -> None:
        self.told.append(text)


def test_a_crash_on_one_stratum_leaves_the_others_alone(tmp_path: Path) -> None:
    manifest = manifest_of(plan_of(SIMPLE, arrivals=Arrivals(slots=2)))
    fails = {("ngram-simple", f"repetitive/{name}"): "broke" for name in ("warm", "0", "1")}
    outcome, lines = _run(tmp_path, manifest, World(fails=fails))
    assert _found(lines, "crashed", "repetitive").slots == 1
    assert {x.outcome for x in _blocks(lines, stratum="prose")} == {"ok"}
    assert _blocks(lines, stratum="prose", slots=2, condition="ngram-simple")
    assert not _blocks(lines, stratum="repetitive", slots=2, condition="ngram-simple")
    assert {r.stratum for r in outcome.not_run} == {"repetitive"}


def test_a_probe_of_logits_that_breaks_ends_nothing(tmp_path: Path) -> None:
    manifest = manifest_of(plan_of(SIMPLE, strata=["prose"]))
    world = World()

    async def send(endpoint: Any, asked: Any) -> Any:
        found = await world.send(endpoint, asked)
        return dataclasses.replace(found, error="no log-probabilities") if asked.logprobs else found

    outcome, lines = _run(tmp_path, manifest, world, send=send)
    assert _blocks(lines, stage="logits")[0].outcome == "failed"
    assert not _found(lines, "crashed", "prose").stops
    assert len(_blocks(lines, condition="ngram-simple")) == 3
    assert outcome.not_run == ()


def test_a_server_that_never_answers_is_stalled(tmp_path: Path) -> None:
    manifest = manifest_of(plan_of(SIMPLE))
    _, lines = _run(tmp_path, manifest, World(times_out={"ngram-simple"}))
    assert _findings(lines)["stalled"].condition == "ngram-simple"
    assert all(x.timed_out for x in _requests(lines, condition="ngram-simple"))


def test_one_error_is_a_record_and_the_block_goes_on(tmp_path: Path) -> None:
    manifest = manifest_of(plan_of(SIMPLE, sampler={"temperature": 1.0}))
    outcome, lines = _run(tmp_path, manifest, World(fails={("ngram-simple", "prose/0"): "500"}))
    found = _requests(lines, condition="ngram-simple", stratum="prose", warm_up=False)
    assert len(found) == 3 * 2
    assert {x.error for x in found} == {"", "500"}
    assert {x.outcome for x in _blocks(lines)} == {"ok"}
    locked = [r for r in outcome.not_run if r.stage == "sampler" and r.stratum == "prose"]
    assert any("500" in r.reason for r in locked)


@pytest.mark.parametrize(
    ("found", "name", "whole"),
    [
        ("router", "router", True),
        ("wrong-model", "wrong-model", True),
        ("identity-changed", "identity-changed", False),
        ("", "crashed", False),
    ],
)
def test_a_start_that_fails_is_named(tmp_path: Path, found: str, name: str, whole: bool) -> None:
    manifest = manifest_of(plan_of(SIMPLE))
    world = World(refuses={"ngram-simple": found})
    outcome, lines = _run(tmp_path, manifest, world)
    finding = _findings(lines)[name]
    assert finding.stops
    assert finding.condition == ("" if whole else "ngram-simple")
    assert outcome.ended == "complete"
    assert len(_blocks(lines, condition="ngram-simple")) == 1


def test_an_ignored_flag_ends_the_condition_before_a_request(tmp_path: Path) -> None:
    manifest = manifest_of(plan_of(SIMPLE))
    world = World(ignores={"ngram-simple": {"spec-type": ("ngram-simple", "none")}})
    _, lines = _run(tmp_path, manifest, world)
    assert "asked ngram-simple, in effect none" in _findings(lines)["flag-ignored"].text
    assert "ngram-simple" not in {condition for condition, _ in world.asked}
    assert world.stopped == len(world.started)


def test_counters_that_reset_are_named(tmp_path: Path) -> None:
    manifest = manifest_of(plan_of(SIMPLE))
    _, lines = _run(tmp_path, manifest, World(resets=True))
    block = _blocks(lines, condition="ngram-simple")[0]
    assert block.counts.drafted is None
    assert any(text.startswith("counters-reset: ") for text in block.log_findings)


def test_a_drifting_block_is_repeated_once_then_inconclusive(tmp_path: Path) -> None:
    manifest = manifest_of(plan_of(SIMPLE))
    taken = [0]

    def probe() -> Reading:
        taken[0] += 1
        return Reading(0.2 if taken[0] in (8, 9, 10) else 0.1, 0.0)

    outcome, lines = _run(tmp_path, manifest, probe=probe)
    assert outcome.ended == "complete"
    disturbed = [x for x in _blocks(lines) if x.outcome != "ok"]
    assert [x.outcome for x in disturbed] == ["repeated", "inconclusive"]
    assert disturbed[0].block == disturbed[1].block
    assert [x.attempt for x in disturbed] == [1, 2]
    assert "100.0% slower" in disturbed[0].reason


def test_a_short_disturbance_costs_one_attempt(tmp_path: Path) -> None:
    taken = [0]

    def probe() -> Reading:
        taken[0] += 1
        return Reading(0.2 if taken[0] == 8 else 0.1, 0.0)

    notes = Notes()
    manifest, world = manifest_of(plan_of(SIMPLE)), World()
    tools = tools_of(manifest, world, probe=probe)
    run(tmp_path, manifest, runtimes_of(manifest, world), tools=tools, progress=notes)
    lines = read_records(tmp_path / RECORDS)
    (disturbed,) = [x for x in _blocks(lines) if x.outcome != "ok"]
    again = [x for x in _blocks(lines) if x.block == disturbed.block]
    assert [x.outcome for x in again] == ["repeated", "ok"]
    kept = [x for x in measured(lines) if x.block == disturbed.block]
    assert {x.attempt for x in kept} == {2}
    assert [text for text in notes.told if "it runs once more" in text]


def test_other_programs_disturb_a_block(tmp_path: Path) -> None:
    outcome, lines = _run(
        tmp_path, manifest_of(plan_of(rules={"repeats": 1})), probe=lambda: Reading(0.1, 0.6)
    )
    assert outcome.ended == "complete"
    measured_blocks = _blocks(lines, stage="greedy")
    assert [x.outcome for x in measured_blocks] == ["repeated", "inconclusive"] * 2
    assert measured_blocks[0].other_load == 0.6


def test_the_probe_says_nothing_of_another_machine(tmp_path: Path) -> None:
    far = {"far": RuntimePlan(kind="openai", url="https://example.com/v1")}
    manifest = manifest_of(plan_of(SIMPLE, runtimes=far))
    _, lines = _run(tmp_path, manifest, probe=lambda: Reading(0.1, 0.9))
    assert {x.outcome for x in _blocks(lines)} == {"ok"}
    assert {(x.drift, x.probe_s, x.other_load) for x in _blocks(lines)} == {(None, None, None)}


def test_at_several_slots_requests_run_together(tmp_path: Path) -> None:
    manifest = manifest_of(plan_of(SIMPLE, arrivals=Arrivals(slots=3)), prompts=5)
    _, lines = _run(tmp_path, manifest)
    loaded = _requests(lines, slots=3, warm_up=False, condition="ngram-simple", stratum="prose")
    assert len(loaded) == 3 * 5
    assert {x.verdict for x in loaded} == {"equal"}
    assert {x.index for x in loaded} == {1, 2, 3, 4, 5}


def test_poisson_arrivals_come_in_time(tmp_path: Path) -> None:
    arrivals = Arrivals(kind="poisson", slots=3, rate_per_s=500.0)
    manifest = manifest_of(plan_of(SIMPLE, arrivals=arrivals, rules={"repeats": 1}))
    outcome, lines = _run(tmp_path, manifest)
    assert outcome.ended == "complete"
    assert len(_requests(lines, slots=3, warm_up=False)) == 2 * 2 * 2


def test_a_mix_is_one_block_of_several_strata(tmp_path: Path) -> None:
    arrivals = Arrivals(slots=2, mix={"prose": 1.0, "repetitive": 1.0})
    manifest = manifest_of(plan_of(SIMPLE, arrivals=arrivals))
    _, lines = _run(tmp_path, manifest)
    loaded = _blocks(lines, slots=2)
    assert {x.stratum for x in loaded} == {"mix"}
    assert {x.stratum for x in _requests(lines, slots=2)} == {"prose", "repetitive"}


def test_a_cold_run_starts_a_process_for_every_request(tmp_path: Path) -> None:
    manifest = manifest_of(plan_of(SIMPLE, cold=True))
    world = World()
    _, lines = _run(tmp_path, manifest, world)
    timed = _requests(lines, warm_up=False)
    assert all(x.cold for x in timed)
    block = _blocks(lines, condition="ngram-simple")[0]
    assert (block.counts.drafted, block.counts.steps) == (16, 8)
    starts = sum(condition == "ngram-simple" for _, condition in world.started)
    assert starts == len([x for x in timed if x.condition == "ngram-simple"])


def test_a_shared_pool_is_found_by_the_next_tenant(tmp_path: Path) -> None:
    manifest = manifest_of(plan_of(SIMPLE, tenants=("a", "b")))
    _, lines = _run(tmp_path / "shared", manifest, World(shares=True))
    finding = _findings(lines)["shared-pool"]
    assert (finding.condition, finding.stops) == ("ngram-simple", False)
    probes = _requests(lines, stage="isolation")
    assert {x.tenant for x in probes if x.prompt != "prose/warm"} <= {"a", "b", ""}
    assert sum(x.tenant == "b" for x in probes) == 2 * 3
    assert sum(x.tenant == "a" for x in probes) == 3
    _, lines = _run(tmp_path / "apart", manifest, World(shares=False))
    assert "shared-pool" not in _findings(lines)


def test_the_rollback_runs_last_with_digests_of_its_own(tmp_path: Path) -> None:
    manifest = manifest_of(plan_of(SIMPLE))
    _, lines = _run(tmp_path, manifest)
    assert _blocks(lines)[-1].stage == "rollback"
    again = _requests(lines, stage="rollback", warm_up=False)
    assert {x.verdict for x in again} == {"equal"}
    told = [x for x in lines if isinstance(x, ObservedRecord) and x.condition == "rollback"]
    assert [dict(x.effective) for x in told] == [{"sha256:runtime": "bb", "sha256:target": "aa"}]
    assert "identity-changed" not in _findings(lines)


def test_a_file_that_changed_meanwhile_is_named(tmp_path: Path) -> None:
    manifest = manifest_of(plan_of(SIMPLE))
    _, lines = _run(tmp_path, manifest, digests=lambda _name: {"runtime": "bb", "target": "cc"})
    finding = _findings(lines)["identity-changed"]
    assert "aa before and has cc now" in finding.text


def test_the_time_budget_ends_a_run_that_can_go_on(tmp_path: Path) -> None:
    ticks = iter(range(10_000))
    manifest = manifest_of(plan_of(SIMPLE, rules={"budget_s": 5.5}))
    world = World()
    outcome = run(
        tmp_path,
        manifest,
        runtimes_of(manifest, world),
        tools=tools_of(manifest, world),
        clock=lambda: float(next(ticks)),
    )
    assert outcome.ended == "budget"
    assert outcome.blocks == 6
    assert outcome.left > 0
    assert outcome.elapsed_s == pytest.approx(6.0)


UNSEEN = FindingRecord(run="", name="path-unknown", text="no layout was seen", runtime="fake")


def test_a_boundary_ends_the_run(tmp_path: Path) -> None:
    manifest = manifest_of(plan_of(SIMPLE))
    outcome, lines = _run(
        tmp_path,
        manifest,
        boundary=lambda _plan, found: UNSEEN if len(found) > 8 else None,
    )
    assert (outcome.ended, outcome.reason) == ("stopped", "path-unknown: no layout was seen")
    assert _findings(lines)["path-unknown"].stops
    assert outcome.left == 0
    assert len(_blocks(lines)) < len(blocks(manifest))
    again, more = _run(tmp_path, manifest)
    assert again.ended == "stopped"
    assert more == lines


def _interrupt_in(world: World, after: int, act: Any) -> Any:
    async def send(endpoint: Any, asked: Any) -> Any:
        if len(world.asked) == after:
            act()
        return await world.send(endpoint, asked)

    return send


def _raise() -> None:
    raise KeyboardInterrupt


def _terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(0.05)


@pytest.mark.parametrize("act", [_raise, _terminate])
def test_an_interrupted_run_goes_on_where_it_was(tmp_path: Path, act: Any) -> None:
    manifest = manifest_of(plan_of(SIMPLE))
    world = World()
    before = signal.getsignal(signal.SIGTERM)
    outcome, lines = _run(tmp_path, manifest, world, send=_interrupt_in(world, 7, act))
    assert outcome.ended == "interrupted"
    assert signal.getsignal(signal.SIGTERM) is before
    assert world.stopped == len(world.started)
    aborted = max(x.block for x in _requests(lines))
    assert not _blocks(lines, block=aborted)
    again, more = _run(tmp_path, manifest)
    assert again.ended == "complete"
    assert more[: len(lines)] == lines
    assert [x.attempt for x in _blocks(more, block=aborted)] == [2]
    planned = [b for b in blocks(manifest) if b.kind != "paths"]
    assert len({x.block for x in _blocks(more)}) == len(_blocks(more)) == len(planned)


def test_a_run_in_another_thread_leaves_signals_alone(tmp_path: Path) -> None:
    manifest = manifest_of(plan_of(rules={"repeats": 1}))
    found: list[Outcome] = []
    thread = threading.Thread(target=lambda: found.append(_run(tmp_path, manifest)[0]))
    thread.start()
    thread.join(60)
    assert found[0].ended == "complete"


def test_a_finished_run_does_nothing_again(tmp_path: Path) -> None:
    manifest = manifest_of(plan_of(SIMPLE))
    _, lines = _run(tmp_path, manifest)
    world = World()
    outcome, again = _run(tmp_path, manifest, world)
    assert outcome.ended == "complete"
    assert again == lines
    assert not world.started


def _refused(folder: Path, plan: Any, match: str, error: type[Exception] = OptionError) -> None:
    manifest = manifest_of(plan)
    with pytest.raises(error, match=match):
        _run(folder, manifest)
    assert not (folder / RECORDS).exists()


def test_what_cannot_run_is_refused_first(tmp_path: Path) -> None:
    poisson = Arrivals(kind="poisson", slots=1, rate_per_s=1.0)
    _refused(tmp_path, plan_of(arrivals=poisson), "slots")
    _refused(tmp_path, plan_of(rules={"warm_up": 0}), "warm-up")
    _refused(tmp_path, plan_of(strata=()), "a measured prompt")
    far = {"far": RuntimePlan(kind="openai", url="http://127.0.0.1:1")}
    _refused(tmp_path, plan_of(runtimes=far, cold=True), "started anew")
    manifest = manifest_of(plan_of())
    with pytest.raises(OptionError, match="no `fake`"):
        run(tmp_path, manifest, {}, tools=tools_of(manifest, World()))


def test_changed_arrivals_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "arrivals.jsonl"
    file.write_text('{"at_s": 0, "prompt": "prose/0"}\n')
    manifest = manifest_of(plan_of(arrivals=Arrivals(kind="recorded", slots=2, file=str(file))))
    observation = msgspec.structs.replace(manifest.observation, arrivals_sha256="00")
    with pytest.raises(RequestError, match="a changed file"):
        _run(tmp_path, msgspec.structs.replace(manifest, observation=observation))


def test_a_changed_prompt_is_refused(tmp_path: Path) -> None:
    manifest = manifest_of(plan_of())
    texts = {p.id: text_of(p.id) for p in manifest.prompts}
    texts["prose/0"] = msgspec.structs.replace(texts["prose/0"], sha256="00")
    with pytest.raises(RequestError, match="prose/0"):
        _run(tmp_path, manifest, prompts=texts)


def test_records_of_another_run_are_refused(tmp_path: Path) -> None:
    _run(tmp_path, manifest_of(plan_of(rules={"repeats": 1})))
    other = msgspec.structs.replace(manifest_of(plan_of()), run="other")
    with pytest.raises(RequestError, match="test-run"):
        _run(tmp_path, other)


def test_a_probe_that_fails_costs_only_the_path(tmp_path: Path) -> None:
    manifest = manifest_of(plan_of(SIMPLE))

    class Unprobed(FakeRuntime):
        def probe(self, *given: Any, **named: Any) -> ObservedRecord:
            del given, named
            raise OptionError("a debug log", "none", "Build it with one.")

    world = World()
    outcome = run(
        tmp_path, manifest, {"fake": Unprobed("fake", world)}, tools=tools_of(manifest, world)
    )
    assert outcome.ended == "complete"
    first = _blocks(read_records(tmp_path / RECORDS))[0]
    assert first.log_findings[0].startswith("path-unknown: ")


def test_energy_is_that_between_sending_and_answer(tmp_path: Path) -> None:
    manifest = manifest_of(plan_of(SIMPLE, arrivals=Arrivals(slots=2)))
    world = World()
    spent = [0.0]

    def energy() -> float:
        return spent[0]

    async def send(endpoint: Any, asked: Any) -> Any:
        spent[0] += 2.0
        return await world.send(endpoint, asked)

    def judged(*_given: Any) -> dict[str, bool | None]:
        spent[0] += 100.0
        return {}

    _, lines = _run(tmp_path, manifest, world, send=send, energy=energy, judge=judged)
    assert {x.energy_j for x in _requests(lines, slots=1, warm_up=False)} == {2.0}
    assert {x.energy_j for x in _requests(lines, slots=2, warm_up=False)} == {None}
    assert all(x.energy_j is not None and x.energy_j >= 4.0 for x in _blocks(lines, slots=2))


def test_a_constrained_prompt_passes_its_schema() -> None:
    class Constrained:
        schema = {"type": "object"}  # noqa: RUF012

    made: Any = Constrained()
    asked = Asked(prompt=made, max_tokens=5, seed=2, timeout_s=1.0, constrained=True)
    assert asked.options()["json_schema"] == '{"type": "object"}'
    free = Asked(prompt=made, max_tokens=5, seed=2, timeout_s=1.0, stop=("x",))
    assert "json_schema" not in free.options()
    assert free.options()["stop"] == ("x",)
