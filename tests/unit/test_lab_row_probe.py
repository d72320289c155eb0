"""Row probes: what ``none`` is asked once more where outputs parted, and what the answer makes."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lab_world import DRAFT, SIMPLE, SWEEP, World, manifest_of, plan_of, runtimes_of, tools_of
from slipstream.lab.contract.manifest import Manifest
from slipstream.lab.contract.plan import Arrivals, RuntimePlan
from slipstream.lab.contract.records import (
    BlockRecord,
    Divergence,
    FindingRecord,
    Line,
    RequestRecord,
)
from slipstream.lab.evidence.store import RECORDS, read_records
from slipstream.lab.judging.cells import Cell, Evidence
from slipstream.lab.judging.output_gate import output_gate
from slipstream.lab.running.analysis_state import progress_of
from slipstream.lab.running.expectation import expected
from slipstream.lab.running.outcome import Outcome
from slipstream.lab.running.run import run
from slipstream.lab.scheduling.conditions import Ladder
from slipstream.lab.scheduling.divergences import Causes, Place, open_places
from slipstream.lab.scheduling.schedule import blocks

SPLIT = ("ngram-simple", "prose/1")
AT, OTHER = 7, 9
"""Where a world's output leaves, and what it has from there on."""


def _run(
    folder: Path, manifest: Manifest, world: World, **tools: Any
) -> tuple[Outcome, list[Line]]:
    made = tools_of(manifest, world, **tools)
    outcome = run(folder, manifest, runtimes_of(manifest, world), tools=made)
    return outcome, read_records(folder / RECORDS)


def _probes(lines: Sequence[Line]) -> list[RequestRecord]:
    return [x for x in lines if isinstance(x, RequestRecord) and x.row_probe is not None]


def _diverged(lines: Sequence[Line], condition: str = "ngram-simple") -> list[RequestRecord]:
    found = (x for x in lines if isinstance(x, RequestRecord) and x.condition == condition)
    return [x for x in found if x.verdict == "diverged"]


def _parted(gap: float = 2.0, among: int | None = OTHER, condition: str = "ngram-simple") -> World:
    rows = {} if among is None else {"prose/1": among}
    return World(diverges={(condition, "prose/1"): AT}, gap=gap, among_rows=rows)


@pytest.fixture
def manifest() -> Manifest:
    return manifest_of(plan_of(SIMPLE, arrivals=Arrivals(slots=2)))


@pytest.mark.parametrize(
    ("among", "cause", "words"),
    [
        (OTHER, "numeric path", "none gives this token too"),
        (None, "defect", "none gives its own token again"),
        (5, "defect", "none gives neither token"),
    ],
)
def test_the_token_among_many_rows_tells_the_cause(
    tmp_path: Path, manifest: Manifest, among: int | None, cause: str, words: str
) -> None:
    _, lines = _run(tmp_path, manifest, _parted(among=among))
    evidence = Evidence(manifest, lines)
    found = _diverged(lines)
    assert {evidence.causes.cause(x) for x in found} == {cause}
    assert {x.divergence.cause for x in found if x.divergence} == {"defect"}  # as known then
    (probe,) = _probes(lines)
    assert evidence.causes.shown_by(found[0]) == (
        f"block {probe.block}: among the rows of a prompt {words}"
    )
    gate = output_gate(evidence, Cell("fake", "ngram-simple", "prose"))
    assert gate.passed is (cause == "numeric path")
    assert f"prose/1 at 7, gap 2: {cause} (block {probe.block}: " in gate.evidence


def test_only_what_a_probe_explains_goes_on_to_the_slots(
    tmp_path: Path, manifest: Manifest
) -> None:
    explained, lines = _run(tmp_path / "path", manifest, _parted())
    assert explained.not_run == ()
    assert _diverged([x for x in lines if getattr(x, "slots", 0) == 2])
    broken, _ = _run(tmp_path / "defect", manifest, _parted(among=None))
    reasons = {(r.stratum, r.stage, r.reason) for r in broken.not_run if r.condition != "none"}
    why = "it did not survive at one slot: prose/1 diverged at 7"
    assert reasons == {("prose", "slots", why)}


def test_a_trial_is_probed_before_its_rung(tmp_path: Path) -> None:
    manifest = manifest_of(plan_of(DRAFT), prompts=1)
    world = World(diverges={("draft", "prose/0"): AT}, among_rows={"prose/0": OTHER})
    outcome, lines = _run(tmp_path / "path", manifest, world)
    kept = "its trial gave the output of `none` for 1 prompts only"
    assert {r.reason for r in outcome.not_run if r.condition == "draft"} == {kept}
    manifest = manifest_of(plan_of(DRAFT))
    outcome, lines = _run(tmp_path / "enough", manifest, world)
    assert outcome.not_run == ()
    assert [x.stage for x in _diverged(lines, "draft")] == ["trial", *["greedy"] * 3]
    assert len(_probes(lines)) == 1


def test_a_sweep_begins_where_its_parent_is_explained(tmp_path: Path) -> None:
    manifest = manifest_of(plan_of(SIMPLE, SWEEP))
    world = World(diverges={("ngram-simple", "repetitive/0"): AT}, gap=2.0)
    outcome, _ = _run(tmp_path / "defect", manifest, world)
    assert {r.stage for r in outcome.not_run} == {"ngram-sweep"}
    world.among_rows = {"repetitive/0": OTHER}
    outcome, _ = _run(tmp_path / "path", manifest, world)
    assert outcome.not_run == ()


def test_what_is_asked_is_one_token_after_the_output_of_none(
    tmp_path: Path, manifest: Manifest
) -> None:
    plan = msgspec.structs.replace(
        manifest.plan, sampling=msgspec.structs.replace(manifest.plan.sampling, stop=("x",))
    )
    prompts = [msgspec.structs.replace(p, constrained=True) for p in manifest.prompts]
    manifest = msgspec.structs.replace(manifest, plan=plan, prompts=tuple(prompts))
    world = _parted()
    _, lines = _run(tmp_path, manifest, world)
    ((condition, asked),) = [(c, a) for c, a in world.asked if a.after]
    assert condition == "none"
    assert asked.options() == {"temperature": 0.0, "max_tokens": 1, "seed": 1}
    assert (asked.constrained, len(asked.after)) == (False, AT)
    (probe,) = _probes(lines)
    assert probe.row_probe is not None
    assert (probe.row_probe.at, probe.row_probe.given) == (AT, OTHER)
    assert (probe.stage, probe.condition, probe.warm_up, probe.verdict) == (
        *("paths", "none", True),
        "",
    )


def test_each_place_is_asked_once(tmp_path: Path) -> None:
    other = msgspec.structs.replace(SIMPLE, name="other")
    manifest = manifest_of(plan_of(SIMPLE, other, DRAFT, arrivals=Arrivals(slots=2)))
    splits = {
        *(("ngram-simple", "prose/1"), ("other", "prose/1")),
        *(("draft", "prose/1"), ("draft", "repetitive/0")),
    }
    rows = {"prose/1": OTHER, "repetitive/0": OTHER}
    world = World(diverges=dict.fromkeys(splits, AT), among_rows=rows)
    _, lines = _run(tmp_path, manifest, world)
    asked = [(x.prompt, blocks(manifest)[x.block].stage) for x in _probes(lines)]
    assert asked == [("prose/1", "ngram"), ("repetitive/0", "draft-simple")]


@pytest.mark.parametrize(
    "world", [World(), _parted(gap=0.01)], ids=["nothing parted", "a near-tie"]
)
def test_with_nothing_to_ask_no_process_is_started(
    tmp_path: Path, manifest: Manifest, world: World
) -> None:
    outcome, lines = _run(tmp_path, manifest, world)
    assert not _probes(lines)
    found = [x for x in lines if isinstance(x, BlockRecord)]
    assert "paths" not in {x.stage for x in found}
    assert len(world.started) == len(found)
    progress = progress_of(manifest, lines)
    assert (progress.state, progress.blocks, progress.locked) == ("complete", len(found), 0)
    assert outcome.left == 0


def test_a_probe_is_a_block_of_the_reports_progress(tmp_path: Path, manifest: Manifest) -> None:
    _, lines = _run(tmp_path, manifest, _parted())
    found = [x for x in lines if isinstance(x, BlockRecord)]
    progress = progress_of(manifest, lines)
    assert (progress.blocks, progress.ended, progress.locked) == (len(found), len(found), 0)
    with_probes = blocks(manifest)
    without = [b for b in with_probes if b.kind != "paths"]
    told = [
        expected(manifest, given, read_bytes_per_s=1e9, cache_bytes={})
        for given in (with_probes, without)
    ]
    assert told[0] == told[1]


def _summary(lines: Sequence[Line]) -> set[tuple[Any, ...]]:
    """What of a run must be the same, however often it was killed."""
    ended = {(x.block, x.attempt): x for x in lines if isinstance(x, BlockRecord)}
    asked = [
        (x.block, x.stage, x.prompt, x.index, x.row_probe)
        for x in lines
        if isinstance(x, RequestRecord) and (x.block, x.attempt) in ended
    ]
    assert len(asked) == len(set(asked))
    return {*asked, *((x.block, x.outcome) for x in ended.values())}


def test_a_run_killed_at_any_line_asks_the_same(tmp_path: Path) -> None:
    manifest = manifest_of(
        plan_of(SIMPLE, DRAFT, strata=["prose"], rules={"repeats": 2}, arrivals=Arrivals(slots=2))
    )
    # A place of its own appears first in the trial, and one at two slots alone.
    splits = {("ngram-simple", "prose/1"): AT, ("draft", "prose/0"): AT}
    world = World(diverges=splits, among_rows={"prose/1": OTHER, "prose/0": OTHER})
    whole = tmp_path / "whole"
    _, lines = _run(whole, manifest, world)
    assert len(_probes(lines)) == 2
    raw = (whole / RECORDS).read_bytes().splitlines(keepends=True)
    near = {i + j for i, x in enumerate(lines) if x in _probes(lines) for j in range(-2, 4)}
    for cut in sorted(near | set(range(1, len(raw), 9))):
        folder = tmp_path / str(cut)
        shutil.copytree(whole, folder)
        torn = raw[cut][: len(raw[cut]) // 2]
        (folder / RECORDS).write_bytes(b"".join(raw[:cut]) + torn)
        outcome, again = _run(folder, manifest, world)
        assert outcome.ended == "complete"
        assert _summary(again) == _summary(lines), cut


def _record(block: int, condition: str = "ngram-simple", **where: Any) -> RequestRecord:
    found: dict[str, Any] = {"at": AT, "gap": 2.0, "cause": "defect"}
    found |= {"baseline": "outputs/a.json", "tokens": (3, 9), **where}
    return RequestRecord(
        run="test-run",
        block=block,
        index=1,
        runtime="fake",
        condition=condition,
        stratum="prose",
        prompt="prose/1",
        verdict="diverged",
        divergence=Divergence(**found),
    )


def test_a_later_divergence_is_no_question_of_an_earlier_block(manifest: Manifest) -> None:
    planned = blocks(manifest)
    first, second = (b for b in planned if b.kind == "paths")
    between, early = _record(first.number + 1), _record(first.number - 1, tokens=(3, 8))
    place = Place("fake", "prose/1", "outputs/a.json", AT, (3, 9))
    assert open_places(planned, [early, between], first) == (
        dataclasses.replace(place, tokens=(3, 8)),
    )
    assert open_places(planned, [early, between], second) == (place,)
    again = _record(first.number - 1)
    assert open_places(planned, [between, again], second) == ()


@pytest.mark.parametrize(
    "changed",
    [
        {"cause": "near-tie"},
        {"tokens": None},
        {"baseline": ""},
    ],
)
def test_what_cannot_or_need_not_be_asked(manifest: Manifest, changed: dict[str, Any]) -> None:
    probe = next(b for b in blocks(manifest) if b.kind == "paths")
    assert open_places(blocks(manifest), [_record(0)], probe)
    assert not open_places(blocks(manifest), [_record(0, **changed)], probe)
    assert not open_places(blocks(manifest), [_record(0, condition="none")], probe)
    sampled = msgspec.structs.replace(_record(0), stage="sampler")
    assert not open_places(blocks(manifest), [sampled], probe)
    foreign = msgspec.structs.replace(_record(0), runtime="another")
    assert not open_places(blocks(manifest), [foreign], probe)


def test_why_there_was_no_probe_is_said(manifest: Manifest) -> None:
    def told(given: Manifest, record: RequestRecord) -> str:
        return Causes(given, []).shown_by(record)

    assert told(manifest, _record(0)) == "no row probe has been answered"
    assert told(manifest, _record(0, cause="near-tie", gap=0.01)) == "a gap below 0.05"
    assert told(manifest, _record(0, tokens=None)) == "no row probe: one output ends there"
    old = _record(0, tokens=None, baseline="")
    assert told(manifest, old) == "no row probe: its tokens are not recorded"
    far = plan_of(SIMPLE, runtimes={"fake": RuntimePlan(kind="openai", url="http://a")})
    assert "is sent messages" in told(manifest_of(far), old)
    text = plan_of(SIMPLE, rules={"comparison": "text"})
    assert "texts are compared" in told(manifest_of(text), old)


def test_an_output_that_ends_is_told(tmp_path: Path, manifest: Manifest) -> None:
    world = World()

    async def send(endpoint: Any, asked: Any) -> Any:
        found = await world.send(endpoint, asked)
        ends = world.asked[-1][0] != "none" and asked.prompt.id == "prose/1"
        return dataclasses.replace(found, ids=found.ids[:AT]) if ends else found

    _, lines = _run(tmp_path, manifest, world, send=send)
    assert not _probes(lines)
    causes = Causes(manifest, lines)
    assert {causes.cause(x) for x in _diverged(lines)} == {"defect"}
    assert causes.shown_by(_diverged(lines)[0]) == "no row probe: one output ends there"


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"error": "500"}, "the row probe failed, 500"),
        (
            {"diagnostics": ("reused-prompt: 40 prompt tokens came from a cache",)},
            "the row probe tells nothing, reused-prompt: 40 prompt tokens came from a cache",
        ),
        ({"diagnostics": ("flag-ignored: temperature",)}, "tells nothing, flag-ignored"),
        ({"diagnostics": ("counts-disagree: a prompt of 3 tokens",)}, "tells nothing, counts-"),
        ({"ids": ()}, "none gives neither token"),
    ],
)
def test_a_probe_that_fails_explains_nothing_and_ends_nothing(
    tmp_path: Path, manifest: Manifest, changed: dict[str, Any], words: str
) -> None:
    world = _parted()

    async def send(endpoint: Any, asked: Any) -> Any:
        found = await world.send(endpoint, asked)
        return dataclasses.replace(found, **changed) if asked.after else found

    outcome, lines = _run(tmp_path, manifest, world, send=send)
    assert outcome.ended == "complete"
    assert not [x for x in lines if isinstance(x, FindingRecord) and x.stops]
    causes = Causes(manifest, lines)
    assert {causes.cause(x) for x in _diverged(lines)} == {"defect"}
    assert words in causes.shown_by(_diverged(lines)[0])


def test_a_probe_explains_where_no_logits_are_known(tmp_path: Path, manifest: Manifest) -> None:
    async def silent(world: World, endpoint: Any, asked: Any) -> Any:
        found = await world.send(endpoint, asked)
        return dataclasses.replace(found, tops=())

    for among, cause in ((OTHER, "numeric path"), (None, "unknown")):
        world = _parted(among=among)
        _, lines = _run(
            tmp_path / cause, manifest, world, send=lambda e, a, w=world: silent(w, e, a)
        )
        assert {Causes(manifest, lines).cause(x) for x in _diverged(lines)} == {cause}


def test_the_probe_of_an_aborted_attempt_tells_nothing(tmp_path: Path, manifest: Manifest) -> None:
    _, lines = _run(tmp_path, manifest, _parted())
    (probe,) = _probes(lines)
    without = [x for x in lines if not (isinstance(x, BlockRecord) and x.block == probe.block)]
    assert {Causes(manifest, without).cause(x) for x in _diverged(lines)} == {"defect"}


def test_records_of_before_the_probe_are_read() -> None:
    old = b'{"at":3,"gap":0.5,"cause":"defect"}'
    assert msgspec.json.decode(old, type=Divergence) == Divergence(at=3, gap=0.5, cause="defect")


def test_two_blocks_of_a_rung_are_locked_each_by_itself() -> None:
    manifest = manifest_of(plan_of(DRAFT))
    after_trial, after_rung = (b for b in blocks(manifest) if b.kind == "paths")
    trial = next(b for b in blocks(manifest) if b.kind == "trial")
    record = msgspec.structs.replace(_record(trial.number, "draft"), stage="trial")
    ended = BlockRecord(
        run="test-run",
        block=trial.number,
        runtime="fake",
        condition="draft",
        stratum="mix",
        stage="trial",
        began="",
        elapsed_s=1.0,
        outcome="ok",
    )
    ladder = Ladder(manifest, [record, ended])
    assert ladder.lock(after_trial) is None
    lock = ladder.lock(after_rung)
    assert lock is not None
    assert lock.reason == "no output parted where a row probe could tell why"
