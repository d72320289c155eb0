"""A comparison of two made-up builds, run: clean, at each stop condition, and rejected."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from compare_world import (
    METAL,
    Pair,
    build_world,
    comparison_manifest,
    comparison_plan,
    identity,
    of,
)
from lab_world import World
from slipstream.errors import OptionError, RequestError
from slipstream.lab.comparing.compare import read_comparison
from slipstream.lab.comparing.compare_data import ComparisonResult
from slipstream.lab.comparing.compare_files import comparison_json
from slipstream.lab.comparing.compare_page import comparison_page, comparison_text
from slipstream.lab.comparing.compare_times import LESS, MORE, SAME
from slipstream.lab.contract.manifest import UNKNOWN
from slipstream.lab.contract.plan import Comparison, RuntimePlan
from slipstream.lab.contract.records import BlockRecord, FindingRecord, Line
from slipstream.lab.evidence.store import RECORDS
from slipstream.lab.observation.probe import Reading
from slipstream.lab.scheduling.schedule import blocks


def ended(made: ComparisonResult) -> tuple[str, str]:
    assert made.ended == "boundary"
    assert made.boundary is not None
    return made.boundary.name, made.boundary.text


def test_a_clean_comparison(tmp_path: Path) -> None:
    pair = Pair(b=build_world(seconds={"none": 1.0, "few-rows": 0.3, "many-rows": 0.5}))
    made = pair.compared(tmp_path)
    assert made.ended == "complete"
    assert made.boundary is None
    assert [s.state for s in made.series] == ["compared"] * 3
    few = of(made, "few-rows")
    assert few.role == "few rows"
    assert few.time is not None
    assert few.time.figure.median == pytest.approx(0.6)
    assert (few.time.statement, few.time.shorter, few.time.longer) == (LESS, 6, 0)
    assert few.rows is not None
    assert [(r.asked, r.mean, r.source) for r in few.rows] == [
        (8, 8.0, "a mean: drafted / steps + 1")
    ] * 2
    assert (few.outputs.equal, few.outputs.differ) == (2, 0)
    assert (few.rounds, few.planned, few.equal_to_none) == (6, 6, ("12 of 12", "12 of 12"))
    many = of(made, "many-rows")
    assert many.time is not None
    assert many.time.figure.median == pytest.approx(1.0)
    assert many.time.statement.startswith(SAME)
    (contrast,) = made.contrasts
    assert contrast.ratio.figure.median == pytest.approx(0.6)
    none = of(made, "none")
    assert none.role == "one row"
    assert none.planned == 7  # the first rung's and those beside the conditions


def test_slower_is_told_too(tmp_path: Path) -> None:
    pair = Pair(a=build_world(seconds={"none": 1.0, "few-rows": 0.3, "many-rows": 0.5}))
    made = of(pair.compared(tmp_path), "few-rows")
    assert made.time is not None
    assert made.time.figure.median == pytest.approx(5 / 3)
    assert made.time.statement == MORE


def test_builds_lie_beside_each_other(tmp_path: Path) -> None:
    _, lines = Pair().run(tmp_path)
    measured = [
        f"{x.runtime} {x.condition}"
        for x in lines
        if isinstance(x, BlockRecord) and x.stage == "greedy"
    ]
    assert measured[2:14] == [
        *("a none", "b none", "a few-rows", "b few-rows", "a many-rows", "b many-rows"),
        *("b many-rows", "a many-rows", "b few-rows", "a few-rows", "b none", "a none"),
    ]


def test_the_scope_says_what_a_cpu_run_is_worth(tmp_path: Path) -> None:
    assert any("says nothing about Metal" in line for line in Pair().compared(tmp_path).scope)


# Stop conditions


def test_files_that_change_end_the_run(tmp_path: Path) -> None:
    pair = Pair(changed=("files of `b` are not those of the manifest any more",), after=5)
    outcome, lines = pair.run(tmp_path)
    assert outcome.ended == "stopped"
    assert sum(isinstance(x, BlockRecord) for x in lines) == 5
    assert ended(read_comparison(tmp_path)) == ("identity-changed", pair.changed[0])


def test_an_unknown_digest_starts_nothing(tmp_path: Path) -> None:
    unknown = identity("b", binary_sha256=UNKNOWN)
    pair = Pair(manifest=comparison_manifest(runtimes=(identity("a"), unknown)))
    made = pair.compared(tmp_path)
    assert ended(made) == ("identity-changed", "the SHA-256 of `b` is unknown")
    assert pair.a.started == pair.b.started == []


def same_twice(*, named: bool) -> Pair:
    asked = Comparison(builds=("a", "b"), inside="few-rows", outside="many-rows", same_build=named)
    plan = comparison_plan(comparison=asked)
    both = (identity("a", binary_sha256="s" * 64), identity("b", binary_sha256="s" * 64))
    return Pair(manifest=comparison_manifest(plan, runtimes=both))


def test_one_build_twice_is_no_comparison(tmp_path: Path) -> None:
    name, text = ended(same_twice(named=False).compared(tmp_path))
    assert name == "identity-changed"
    assert "not two builds" in text


def test_one_build_twice_under_its_name(tmp_path: Path) -> None:
    made = same_twice(named=True).compared(tmp_path)
    assert made.ended == "complete"
    assert made.same_build
    assert any("A/A check" in line for line in made.scope)
    assert comparison_text(made).startswith("# A/A check of ")


def test_two_builds_are_no_check(tmp_path: Path) -> None:
    pair = same_twice(named=True)
    pair.manifest = msgspec.structs.replace(pair.manifest, runtimes=(identity("a"), identity("b")))
    assert "not one build" in ended(pair.compared(tmp_path))[1]


def test_libraries_belong_to_a_build(tmp_path: Path) -> None:
    """A thin binary is the same in two builds; the kernels are in what lies beside it."""
    pair = same_twice(named=False)
    a, b = pair.manifest.runtimes
    both = (
        msgspec.structs.replace(a, libraries={"libggml.so": "1"}),
        msgspec.structs.replace(b, libraries={"libggml.so": "2"}),
    )
    pair.manifest = msgspec.structs.replace(pair.manifest, runtimes=both)
    made = pair.compared(tmp_path)
    assert made.ended == "complete"
    assert made.identity[0].name == "libraries.libggml.so"


def on(backend: str, asked: str) -> Pair:
    device = {"backend": asked} if asked else {}
    runtimes = {
        name: RuntimePlan(kind="llama-server", binary=name, device=device) for name in ("a", "b")
    }
    plan = comparison_plan(runtimes=runtimes)
    both = (identity("a", backend=backend), identity("b", backend=backend))
    return Pair(manifest=comparison_manifest(plan, runtimes=both))


def test_another_device_starts_nothing(tmp_path: Path) -> None:
    pair = on("CPU", "Metal")
    assert ended(pair.compared(tmp_path)) == (
        "device-unknown",
        "`a` was asked for Metal, and has CPU",
    )
    assert pair.a.started == []


@pytest.mark.parametrize(
    ("told", "lacks"),
    [
        ({}, "gpu family, simdgroup matrix, tensor API"),
        ({"gpu family": "x", "simdgroup matrix": "true"}, "tensor API"),
        (METAL | {"gpu family": UNKNOWN}, "gpu family"),
    ],
)
def test_metal_must_tell_what_decides(told: dict[str, str], lacks: str, tmp_path: Path) -> None:
    pair = on("MTL0 (Apple M3 Ultra)", "Metal")
    pair.told = {"a": {"capability": METAL}, "b": {"capability": told}}
    name, text = ended(pair.compared(tmp_path))
    assert name == "device-unknown"
    assert text == f"`b` runs on Metal and does not tell {lacks}"


def test_metal_that_tells(tmp_path: Path) -> None:
    pair = on("MTL0 (Apple M3 Ultra)", "Metal")
    pair.told = {name: {"capability": METAL} for name in ("a", "b")}
    made = pair.compared(tmp_path)
    assert made.ended == "complete"
    assert not any("Metal" in line for line in made.scope)


def test_a_device_that_tells_nothing(tmp_path: Path) -> None:
    pair = Pair(told={"b": {"capability": {}}})
    name, text = ended(pair.compared(tmp_path))
    assert (name, text) == ("device-unknown", "`b` does not tell what its device can do")


def test_weights_of_unknown_types_start_nothing(tmp_path: Path) -> None:
    (target,) = comparison_manifest().artifacts
    bare = msgspec.structs.replace(target, weight_types=())
    pair = Pair(manifest=comparison_manifest(artifacts=(bare,)))
    assert ended(pair.compared(tmp_path))[0] == "layout-unknown"
    assert pair.a.started == []


class Mute(World):
    """Its requests and its counters tell nothing of drafting."""

    def start(self, name: str, condition: str) -> None:
        super().start(name, condition)
        self.counters[name] = type(self.counters[name])()

    def _count(self, name: str, counts: Any) -> None:
        pass


def test_rows_that_nobody_tells(tmp_path: Path) -> None:
    world = Mute(tells=False, drafted=build_world().drafted, steps=build_world().steps)
    name, text = ended(Pair(b=world).compared(tmp_path))
    assert name == "layout-unknown"
    assert text.startswith("`b`, few-rows, 1 slots: neither drafted tokens and steps")


def test_outputs_that_differ_end_the_run(tmp_path: Path) -> None:
    pair = Pair(b=build_world(diverges={("few-rows", "repetitive/1"): 4}))
    made = pair.compared(tmp_path)
    name, text = ended(made)
    assert name == "outputs-differ"
    assert text == ("A and B part under few-rows, 1 slots: repetitive/1 at token 4 (gap 1): defect")
    assert made.boundary is not None
    told = "few-rows (few rows), repetitive: outputs 1 equal, 1 part elsewhere"
    assert told in made.boundary.established
    assert any(line.startswith("many-rows") for line in made.boundary.open)
    assert of(made, "many-rows").time is None


def test_texts_part_at_a_character(tmp_path: Path) -> None:
    plan = comparison_plan(rules={"comparison": "text"})
    world = build_world(diverges={("few-rows", "repetitive/1"): 1})
    pair = Pair(b=world, manifest=comparison_manifest(plan))
    name, text = ended(pair.compared(tmp_path))
    assert name == "outputs-differ"
    assert re.search(r"repetitive/1 at character [1-9]\d* \(no logits\): unknown$", text)


def test_outputs_are_judged_when_the_logits_are_known(tmp_path: Path) -> None:
    """Before, nobody can tell a near-tie from a defect."""
    pair = Pair(b=build_world(diverges={("none", "repetitive/0"): 2}))
    _, lines = pair.run(tmp_path)
    stages = [x.stage for x in lines if isinstance(x, BlockRecord)]
    assert stages == ["greedy", "greedy", "logits"]


def test_a_near_tie_goes_on_and_is_left_out_of_the_time(tmp_path: Path) -> None:
    world = build_world(diverges={("few-rows", "repetitive/1"): 4})
    pair = Pair(a=build_world(gap=0.01), b=world)
    send = world.send

    async def slow_where_it_parts(endpoint: Any, asked: Any) -> Any:
        told = await send(endpoint, asked)
        return replace(told, total_s=9.0) if asked.prompt.id == "repetitive/1" else told

    world.send = slow_where_it_parts  # type: ignore[method-assign]
    made = pair.compared(tmp_path)
    assert made.ended == "complete"
    few = of(made, "few-rows")
    assert (few.outputs.equal, few.outputs.near_ties, few.outputs.differ) == (1, 1, 0)
    assert few.time is not None
    assert few.time.figure.n == 6
    assert few.time.figure.median == pytest.approx(1.0)


@pytest.mark.parametrize("who", ["a", "b"])
def test_an_abnormal_exit_ends_the_run(who: str, tmp_path: Path) -> None:
    pair = Pair()
    getattr(pair, who).dies_after = {"many-rows": 2}
    made = pair.compared(tmp_path)
    name, text = ended(made)
    assert name == "crashed"
    assert f", {who}, many-rows" in text


def test_a_program_that_does_not_start(tmp_path: Path) -> None:
    pair = Pair(b=build_world(refuses={"few-rows": "wrong-model"}))
    assert ended(pair.compared(tmp_path))[0] == "wrong-model"


def test_one_failed_request_is_enough(tmp_path: Path) -> None:
    pair = Pair(b=build_world(fails={("few-rows", "repetitive/0"): "HTTP 500"}))
    name, text = ended(pair.compared(tmp_path))
    assert name == "crashed"
    assert text.endswith("repetitive/0: HTTP 500")


def test_a_timeout_ends_the_run(tmp_path: Path) -> None:
    pair = Pair(b=build_world(times_out={"many-rows"}))
    assert ended(pair.compared(tmp_path))[0] == "stalled"


def test_settings_that_are_not_those_asked_for(tmp_path: Path) -> None:
    pair = Pair(b=build_world(ignores={"few-rows": {"n_max": ("7", "3")}}))
    name, text = ended(pair.compared(tmp_path))
    assert name == "flag-ignored"
    assert "asked 7, in effect 3" in text


def test_a_stop_holds_when_the_run_goes_on(tmp_path: Path) -> None:
    pair = Pair(b=build_world(times_out={"many-rows"}))
    first = pair.compared(tmp_path)
    pair.b.times_out.clear()
    outcome, _ = pair.run(tmp_path)
    assert outcome.ended == "stopped"
    assert read_comparison(tmp_path) == first


# Rejected, not relabelled


def test_rows_that_leave_their_range_reject_the_condition_for_both(tmp_path: Path) -> None:
    world = build_world()
    world.drafted["few-rows"] = 8  # 3 rows a step
    made = Pair(b=world).compared(tmp_path)
    few = of(made, "few-rows")
    assert made.ended == "complete"
    assert (few.state, few.time) == ("rejected", None)
    assert "3.00 rows per step" in few.reason
    assert few.rounds == 1
    assert made.contrasts == ()
    assert of(made, "many-rows").state == "compared"


def test_a_drafter_that_never_fires_is_rejected(tmp_path: Path) -> None:
    world = build_world()
    world.drafted["few-rows"] = world.steps["few-rows"] = 0
    few = of(Pair(a=world).compared(tmp_path), "few-rows")
    assert few.state == "rejected"
    assert few.reason.startswith("1.00 rows per step")
    assert few.rounds == 0  # A is known before B begins


def test_a_histogram_counts_before_a_mean(tmp_path: Path) -> None:
    """Of all blocks together; a build that does not tell its rows before a pass says so."""
    told = {"b": {"rows_histogram": {"1": 50, "8": 9, "3": 1}}}
    pair = Pair(a=build_world(counts_rows=True), told=told)
    few = of(pair.compared(tmp_path), "few-rows")
    assert few.rows is not None
    own, other = few.rows
    assert (own.source, own.mean) == ("a histogram of steps", 8.0)
    rounds = pair.manifest.plan.rules.repeats
    assert own.histogram == {"8": rounds * 2 * 4}  # two prompts of 4 steps, without warm-up
    assert other.source == "a histogram of steps, warm-up included"
    assert other.mean == pytest.approx(7.5)
    assert other.histogram == {"3": rounds, "8": 9 * rounds}


# With several slots


def test_slots_multiply_the_rows_of_a_pass(tmp_path: Path) -> None:
    pair = Pair(manifest=comparison_manifest(comparison_plan(slots=2)))
    made = pair.compared(tmp_path)
    assert made.ended == "complete"
    few = of(made, "few-rows", slots=2)
    assert few.rows is not None
    assert (few.rows[0].least, few.rows[0].most) == (8.0, 16.0)
    assert few.state == "compared"


def test_a_histogram_is_of_whole_passes(tmp_path: Path) -> None:
    pair = Pair(manifest=comparison_manifest(comparison_plan(slots=3)))
    pair.a, pair.b = build_world(counts_rows=True), build_world(counts_rows=True)
    few = of(pair.compared(tmp_path), "few-rows", slots=3)
    assert few.rows is not None
    assert (few.rows[0].least, few.rows[0].most) == (8.0, 8.0)


def test_builds_are_compared_whether_speculation_pays_or_not(tmp_path: Path) -> None:
    slow = {"none": 1.0, "few-rows": 2.0, "many-rows": 3.0}
    manifest = comparison_manifest(comparison_plan(slots=2, rules={"repeats": 1}))
    pair = Pair(build_world(seconds=slow), build_world(seconds=slow), manifest)
    made = pair.compared(tmp_path)
    assert made.ended == "complete"
    assert of(made, "few-rows", slots=2).state == "compared"


def test_a_pass_that_may_have_left_the_range(tmp_path: Path) -> None:
    pair = Pair(manifest=comparison_manifest(comparison_plan(slots=3)))
    name, text = ended(pair.compared(tmp_path))
    assert name == "layout-unknown"
    assert text.endswith("a pass of all slots had 8.00 to 24.00 rows, and the range ends at 16")


# What is said


def test_what_differs_is_told(tmp_path: Path) -> None:
    pair = Pair(told={"b": {"effective": {"context": 4096, "n_batch": 512}}})
    made = pair.compared(tmp_path)
    assert [c.name for c in made.identity[:2]] == ["binary_sha256", "help_sha256"]
    assert made.help.only_a == ("--old-flag",)
    assert made.help.only_b == ("--new-flag",)
    (default,) = made.help.defaults
    assert (default.name, default.a, default.b) == ("--spec-draft-p-min", "0.75", "0.00")
    (values,) = made.help.values
    assert (values.name, values.a) == ("--flash-attn", "on, off, auto")
    assert {(c.name, c.a, c.b, c.where) for c in made.settings} >= {
        ("n_batch", "", "512", "few-rows")
    }


def test_parameters_that_are_left_to_builds_with_other_defaults(tmp_path: Path) -> None:
    pair = Pair()
    methods = [
        msgspec.structs.replace(m, parameters={**m.parameters, "left.p_min": f"0.{i}"})
        for i, m in enumerate(pair.manifest.methods)
    ]
    pair.manifest = msgspec.structs.replace(pair.manifest, methods=tuple(methods))
    left = pair.compared(tmp_path).left
    assert [(c.name, c.a, c.b, c.where) for c in left] == [
        ("p_min", "0.0", "0.3", "none"),
        ("p_min", "0.1", "0.4", "few-rows"),
        ("p_min", "0.2", "0.5", "many-rows"),
    ]


def test_a_help_text_that_was_changed_is_not_compared(tmp_path: Path) -> None:
    Pair().run(tmp_path)
    assert read_comparison(tmp_path).help.unknown == ""
    (tmp_path / "help-b.txt").write_text("another")
    assert "no help text of B" in read_comparison(tmp_path).help.unknown


def test_paths_are_observed_or_unknown(tmp_path: Path) -> None:
    told = {"a": {"kernel_paths": ("kernel_mul_mv_mma_q4_K_f32",), "path_evidence": ("line",)}}
    made = Pair(told=told).compared(tmp_path)
    found = {(p.build, p.condition): p for p in made.paths}
    assert found["a", "few-rows"].observed == ("kernel_mul_mv_mma_q4_K_f32",)
    assert found["b", "few-rows"].observed == (UNKNOWN,)
    assert found["b", "few-rows"].predicted == ()


def test_outputs_that_a_build_does_not_repeat(tmp_path: Path) -> None:
    pair = Pair(a=build_world(gap=0.01), b=build_world(gap=0.01))
    send = pair.b.send

    async def flickering(endpoint: Any, asked: Any) -> Any:
        late = sum(c == "few-rows" for c, _ in pair.b.asked) > 4
        pair.b.diverges = {("few-rows", "repetitive/0"): 3} if late else {}
        return await send(endpoint, asked)

    pair.b.send = flickering  # type: ignore[method-assign]
    few = of(pair.compared(tmp_path), "few-rows")
    assert few.outputs.unrepeatable == ("b gave 2 outputs of repetitive/0",)


def test_nothing_ran_is_a_state(tmp_path: Path) -> None:
    manifest = comparison_manifest()
    (tmp_path / "manifest.json").write_bytes(manifest.canonical())
    made = read_comparison(tmp_path)
    assert made.ended == "unexecuted"
    assert {s.state for s in made.series} == {"unfinished"}
    assert "Nothing was run" in comparison_text(made)


def test_a_budget_leaves_it_unfinished(tmp_path: Path) -> None:
    plan = comparison_plan(rules={"budget_s": 1e-9})
    made = Pair(manifest=comparison_manifest(plan)).compared(tmp_path)
    assert made.ended == "unfinished"
    assert of(made, "few-rows").reason == "0 of 6 rounds"


def test_few_pairs_say_nothing(tmp_path: Path) -> None:
    plan = comparison_plan(rules={"repeats": 3})
    world = build_world(seconds={"none": 1.0, "few-rows": 0.3})
    few = of(Pair(b=world, manifest=comparison_manifest(plan)).compared(tmp_path), "few-rows")
    assert few.time is not None
    assert few.time.statement.startswith("not measurable: 3 pairs of")


def test_the_same_records_give_the_same_bytes(tmp_path: Path) -> None:
    made = Pair(b=build_world(times_out={"many-rows"})).compared(tmp_path)
    again = read_comparison(tmp_path)
    for write in (comparison_text, comparison_page, comparison_json):
        assert write(made) == write(again)
    assert "DIAGNOSTIC BOUNDARY: stalled" in comparison_text(made)
    assert "DIAGNOSTIC BOUNDARY: stalled" in comparison_page(made)


def test_what_programs_say_breaks_no_page(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script> | `x`\n# heading"
    pair = Pair(told={"a": {"effective": {evil: evil}}, "b": {"effective": {"x": 1}}})
    pair.b.fails = {("many-rows", "repetitive/1"): evil}
    made = pair.compared(tmp_path)
    page = comparison_page(made)
    assert "<script" not in page
    text = comparison_text(made)
    assert "<script" not in text
    assert not any(line.startswith("# heading") for line in text.splitlines())


def test_every_block_of_the_schedule_runs(tmp_path: Path) -> None:
    pair = Pair()
    outcome, lines = pair.run(tmp_path)
    assert outcome.ended == "complete"
    numbers = [x.block for x in lines if isinstance(x, BlockRecord)]
    assert numbers == list(range(len(blocks(pair.manifest))))
    assert not [x for x in lines if isinstance(x, FindingRecord)]


def stopped_by(lines: list[Line]) -> list[FindingRecord]:
    return [x for x in lines if isinstance(x, FindingRecord) and x.stops and not x.runtime]


def test_the_boundary_is_recorded_once(tmp_path: Path) -> None:
    pair = Pair(b=build_world(times_out={"many-rows"}))
    pair.run(tmp_path)
    _, lines = pair.run(tmp_path)
    assert len(stopped_by(lines)) == 1


def test_a_machine_that_never_rests_is_inconclusive(tmp_path: Path) -> None:
    pair = Pair(tools={"probe": lambda: Reading(0.1, 0.9)})
    made = pair.compared(tmp_path)
    few = of(made, "few-rows")
    assert (few.state, few.time, few.left_out) == ("inconclusive", None, 12)
    assert few.reason == "no round lay within the drift limit"
    assert few.rows is not None
    assert few.rows[0].mean == 8.0


@pytest.mark.parametrize(
    "changes",
    [
        {"comparison": Comparison(builds=("a", "z"), inside="few-rows", outside="many-rows")},
        {"comparison": Comparison(builds=("a", "b"), inside="few-rows", outside="gone")},
        {"comparison": Comparison(builds=("a", "b", "c"), inside="few-rows", outside="many-rows")},
    ],
)
def test_an_edited_manifest_is_named(changes: dict[str, Any], tmp_path: Path) -> None:
    made = comparison_manifest()
    plan = msgspec.structs.replace(made.plan, **changes)
    edited = msgspec.structs.replace(made, plan=plan)
    (tmp_path / "manifest.json").write_bytes(edited.canonical())
    with pytest.raises(OptionError, match="comparison"):
        read_comparison(tmp_path)


def test_a_manifest_that_lacks_a_build_is_named(tmp_path: Path) -> None:
    edited = comparison_manifest(runtimes=(identity("a"),))
    (tmp_path / "manifest.json").write_bytes(edited.canonical())
    with pytest.raises(OptionError, match="both builds"):
        read_comparison(tmp_path)


@pytest.mark.parametrize("damage", ["torn", "another record", "outputs gone"])
def test_damaged_records_are_an_error_or_a_shorter_run(damage: str, tmp_path: Path) -> None:
    Pair().run(tmp_path)
    records = tmp_path / RECORDS
    if damage == "torn":
        records.write_bytes(records.read_bytes()[:-40])
        assert read_comparison(tmp_path).ended in ("unfinished", "complete")
        return
    if damage == "another record":
        records.write_bytes(b'{"type": "request"}\n' + records.read_bytes())
    else:
        # of A alone: what lies in no file cannot be compared
        pair = Pair(b=build_world(diverges={("many-rows", "repetitive/1"): 2}))
        pair.run(tmp_path / "other")
        for file in (tmp_path / "other" / "outputs").iterdir():
            file.unlink()
    with pytest.raises(RequestError):
        read_comparison(tmp_path if damage == "another record" else tmp_path / "other")
