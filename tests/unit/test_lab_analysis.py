"""From a manifest and its records to everything that a report shows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lab_records import PROMPTS, RUN, SUFFIX, Story, manifest, observed, rolled_back
from lab_world import DRAFT, SIMPLE, World
from report_runs import SUFFIX as SUFFIX_PLAN
from report_runs import TimedWorld, cut, executed, planned, with_prompts
from slipstream.lab.contract.manifest import Manifest, Pairing
from slipstream.lab.contract.plan import Arrivals, Rules, RuntimePlan
from slipstream.lab.contract.records import Counts, FindingRecord, Line
from slipstream.lab.reporting.analysis import analysed, verdicts_of
from slipstream.lab.reporting.analysis_data import Analysis, Cell
from slipstream.lab.reporting.analysis_outputs import no_outputs
from slipstream.lab.reporting.published import Claim
from slipstream.lab.running.kept_run import read_run
from slipstream.lab.running.outputs import load

CLAIM = Claim(
    method="suffix",
    value="9x",
    setting="elsewhere",
    source="https://example.com/claim",
    state="paper",
    date="2026",
)


def faster(turn: int, condition: str, _: str) -> float:
    """A gain of 25 %, with a little noise."""
    return (1.0 if condition == "none" else 0.8) * (1 + 0.004 * (turn % 3))


def of_story(lines: list[Line] | None = None, **changed: Any) -> Analysis:
    given = Story(seconds=faster).lines(6) if lines is None else lines
    return analysed(manifest(**changed), given)


def of_folder(folder: Path) -> Analysis:
    made, lines = read_run(folder)
    return analysed(made, lines, outputs=lambda name: load(folder, name))


def cell(made: Analysis, condition: str = "suffix", **wanted: Any) -> Cell:
    wanted = {"condition": condition, **wanted}
    return next(c for c in made.cells if all(getattr(c, k) == v for k, v in wanted.items()))


def test_the_figures_of_a_condition_stand_beside_those_of_none() -> None:
    made = of_story()
    own, none = cell(made), cell(made, "none")
    assert own.speed is not None
    assert own.speed.figure.median == pytest.approx(1.25)
    assert own.speed.figure.n == 6
    assert own.speed.low is not None
    assert own.speed.high is not None
    assert own.speed.low <= 1.25 <= own.speed.high
    assert none.speed is None
    assert own.total_s is not None
    assert none.total_s is not None
    assert (own.total_s.n, none.total_s.n) == (24, 24)
    assert own.total_s.median < none.total_s.median
    assert own.acceptance_rate == pytest.approx(0.1)
    assert own.rows_per_step == pytest.approx(7)
    assert own.memory_added_bytes == 0
    assert (own.equal, own.diverged) == (24, 0)
    assert own.outcomes == {"ok": 6}


def test_p95_needs_twenty_requests() -> None:
    assert cell(of_story()).total_p95_s is not None
    few = of_story(Story(seconds=faster).lines(4))
    assert cell(few).total_p95_s is None
    assert cell(few).ttft_p95_s is None


def test_acceptance_is_undefined_where_nothing_was_drafted() -> None:
    nothing = {"counts": Counts(drafted=0, accepted=0, steps=0, source="request")}
    made = of_story(Story(seconds=faster, changed=lambda *_: nothing).lines(6))
    own = cell(made)
    assert own.counts.drafted == 0
    assert own.acceptance_rate is None
    assert own.rows_per_step is None
    assert "never-fired" in [f.name for f in made.findings if f.condition == "suffix"]
    assert any("never fired" in line for line in made.workloads[0].answers)


def test_counts_that_are_not_told_are_not_zero() -> None:
    silent = {"counts": Counts()}
    made = of_story(Story(changed=lambda *_: silent).lines(6))
    assert cell(made).counts.drafted is None
    assert "does not tell" in made.workloads[0].answers[0]


def test_acceptance_by_position_keeps_its_denominator() -> None:
    counts = Counts(
        drafted=6,
        accepted=3,
        steps=3,
        accepted_at=(2, 1),
        reached_at=(3, 2),
        denominator="drafts that reached it",
        source="request",
    )
    given = Story(changed=lambda *_: {"counts": counts})
    own = cell(of_story(given.lines(5)))
    assert [(p.position, p.accepted, p.reached) for p in own.positions] == [
        (1, 40, 60),
        (2, 20, 40),
    ]
    assert own.positions[0].rate == pytest.approx(2 / 3)
    assert own.counts.denominator == "drafts that reached it"


def test_ratios_of_rate_and_length_are_of_unequal_outputs_alone() -> None:
    def other(_: int, condition: str, prompt: str) -> dict[str, Any]:
        diverges = condition == "suffix" and prompt == PROMPTS[0]
        return {"ids_sha256": "f" * 64, "output_tokens": 20} if diverges else {}

    assert cell(of_story()).length_ratio is None
    own = cell(of_story(Story(seconds=faster, changed=other).lines(6)))
    assert own.length_ratio is not None
    assert own.length_ratio.median == pytest.approx(2)
    assert own.length_ratio.n == 6
    assert own.diverged == 6


def test_an_unexecuted_plan_is_a_valid_state(tmp_path: Path) -> None:
    planned(tmp_path)
    made = of_folder(tmp_path)
    assert made.progress.state == "not executed"
    assert made.progress.ended == 0
    assert made.progress.left > 0
    assert made.progress.requests > made.progress.blocks
    assert made.cells == ()
    assert {v.word for v in made.verdicts} == {"not run"}
    assert all("the plan was not executed" in v.reasons for v in made.verdicts)
    assert {s.state for s in made.series} <= {"to run", "waiting"}


def test_what_is_known_not_to_run_says_why_in_an_unexecuted_plan(tmp_path: Path) -> None:
    unpaired = (Pairing(draft="small", tokenizer="the vocabularies differ"),)
    planned(tmp_path, SIMPLE, DRAFT, manifest={"pairings": unpaired})
    made = of_folder(tmp_path)
    reasons = {v.condition: v.reasons[0] for v in made.verdicts}
    assert reasons["ngram-simple"] == "the plan was not executed"
    assert "the vocabularies differ" in reasons["draft"]


def test_a_complete_run_says_so(tmp_path: Path) -> None:
    executed(tmp_path)
    made = of_folder(tmp_path)
    assert made.progress.state == "complete"
    assert made.progress.left == made.progress.aborted == 0
    assert made.progress.ended + made.progress.locked == made.progress.blocks
    assert len(made.moments) == made.progress.ended
    assert {s.state for s in made.series} == {"done"}


def test_an_interrupted_run_says_what_is_missing(tmp_path: Path) -> None:
    executed(tmp_path)
    cut(tmp_path, 40)
    made = of_folder(tmp_path)
    assert made.progress.state == "interrupted"
    assert 0 < made.progress.ended < made.progress.blocks
    assert made.progress.left > 0
    later = [v for v in made.verdicts if v.word == "not run"]
    assert any("interrupted before it" in reason for v in later for reason in v.reasons)


def test_requests_of_a_block_without_an_end_are_counted_and_used_for_nothing(
    tmp_path: Path,
) -> None:
    executed(tmp_path)
    whole = of_folder(tmp_path)
    cut(tmp_path, 3)  # the manifest, what the program told, and a request
    made = of_folder(tmp_path)
    assert made.progress.aborted == 1
    assert made.progress.ended == 0
    assert made.cells == ()
    assert whole.progress.aborted == 0


def test_a_spent_budget_is_named(tmp_path: Path) -> None:
    executed(tmp_path, rules={"budget_s": 1e-9})
    made = of_folder(tmp_path)
    assert made.progress.state == "interrupted"
    assert "budget" in made.progress.reason


def test_a_finding_that_ended_the_run_is_its_state() -> None:
    stop = FindingRecord(run=RUN, name="identity-changed", text="another binary", stops=True)
    made = of_story([*Story().lines(2), stop])
    assert made.progress.state == "stopped"
    assert made.progress.reason == "identity-changed: another binary"
    alone = of_story([stop])
    assert alone.progress.state == "stopped"
    local = msgspec.structs.replace(stop, condition="suffix", runtime="own")
    assert of_story([*Story().lines(2), local]).progress.state != "stopped"


def test_two_programs_are_never_pooled(tmp_path: Path) -> None:
    two = {name: RuntimePlan(kind="llama-server", binary=f"{name}.bin") for name in ("old", "new")}
    executed(tmp_path, SIMPLE, runtimes=two)
    made = of_folder(tmp_path)
    cells = [(c.runtime, c.condition, c.stratum) for c in made.cells]
    assert len(cells) == len(set(cells)) == 8
    for own in made.cells:
        requests = own.total_s.n if own.total_s else 0
        assert requests == own.requests
    assert {v.runtime for v in made.verdicts} == {"old", "new"}
    assert any(line.startswith("ngram-simple (old)") for line in made.workloads[0].answers)


def test_under_load_throughput_is_judged_by_itself(tmp_path: Path) -> None:
    executed(tmp_path, SIMPLE, arrivals=Arrivals(slots=2))
    made = of_folder(tmp_path)
    assert {c.slots for c in made.cells} == {1, 2}
    assert cell(made, "ngram-simple", slots=2).speed_of == "throughput"
    assert cell(made, "ngram-simple", slots=1).speed_of == "total time"
    assert cell(made, "ngram-simple", slots=2).step_efficiency is None


def test_the_plans_own_sampler_has_figures_of_its_own(tmp_path: Path) -> None:
    executed(tmp_path, SIMPLE, sampler={"temperature": 0.8})
    made = of_folder(tmp_path)
    stages = {c.stage for c in made.cells if c.condition == "ngram-simple"}
    assert stages == {"greedy", "sampler"}
    assert {s.stage for s in made.series} == {"none", "ngram", "sampler"}
    own = cell(made, "ngram-simple", stage="sampler")
    assert own.equal == own.diverged == 0


def test_a_divergence_shows_where_and_both_texts(tmp_path: Path) -> None:
    world = World(diverges={("ngram-simple", "prose/0"): 7}, gap=0.01)
    executed(tmp_path, SIMPLE, world=world)
    [found] = of_folder(tmp_path).divergences
    assert (found.prompt, found.at, found.cause) == ("prose/0", 7, "near-tie")
    assert found.gap == pytest.approx(0.01)
    assert found.repeats == 3
    assert found.none
    assert found.other.startswith("9 9")
    assert not found.withheld


def test_a_divergence_says_what_its_probe_showed(tmp_path: Path) -> None:
    rows = {"prose/0": 9}
    world = World(diverges={("ngram-simple", "prose/0"): 7}, gap=2.0, among_rows=rows)
    executed(tmp_path, SIMPLE, world=world)
    [found] = of_folder(tmp_path).divergences
    assert found.cause == "numeric path"
    assert re.fullmatch(
        r"block \d+: among the rows of a prompt none gives this token too", found.shown_by
    )


def test_imported_texts_stay_out_unless_asked_for(tmp_path: Path) -> None:
    world = World(diverges={("ngram-simple", "prose/0"): 7})
    made = executed(tmp_path, SIMPLE, world=world)
    lines = read_run(tmp_path)[1]
    private = with_prompts(made, {"shared": False})

    def told(given: Manifest) -> Any:
        return analysed(given, lines, outputs=lambda name: load(tmp_path, name)).divergences[0]

    assert told(private).withheld == "imported texts are not shared"
    assert (told(private).before, told(private).none, told(private).other) == ("", "", "")
    asked = msgspec.structs.replace(private.plan, share_texts=True)
    assert told(msgspec.structs.replace(private, plan=asked)).other.startswith("9 9")


def test_a_lost_output_is_no_failure_of_the_report(tmp_path: Path) -> None:
    world = World(diverges={("ngram-simple", "prose/0"): 7})
    executed(tmp_path, SIMPLE, world=world)
    for file in (tmp_path / "outputs").iterdir():
        file.write_bytes(b"{}")
    [found] = of_folder(tmp_path).divergences
    assert found.withheld == "another content"
    assert found.other == ""
    alone = analysed(*read_run(tmp_path), outputs=no_outputs).divergences
    assert alone[0].withheld == "no outputs at hand"


PATHS = ("fast/rows_1", "slow/rows_2", "other")


def test_predicted_paths_are_no_observation() -> None:
    plan = manifest()
    runtime = msgspec.structs.replace(plan.runtimes[0], predicted_paths=("fast/rows_1", "slow"))
    plan = msgspec.structs.replace(plan, runtimes=(runtime,))
    silent = observed("suffix", {})
    told = observed("suffix", {}, kernel_paths=PATHS, path_evidence=("a log",))
    story = Story().lines(2)

    def seen(*lines: Line) -> Any:
        made = analysed(plan, [*story, *lines])
        return next(s for s in made.seen if s.condition == "suffix")

    assert seen(silent).observed == ()
    assert seen(silent).unseen == ()
    assert seen(told).unpredicted == ("slow/rows_2",)
    assert seen(told).beside == ("other",)
    assert seen(told).unseen == ("slow",)
    assert seen(told).evidence == ("a log",)


def test_settings_that_processes_told_otherwise_are_all_shown() -> None:
    """What one concurrency had in effect is not what another had."""
    first = observed("suffix", {"n": 1, "only": [2], "same": 7}, layers_offloaded=3)
    second = observed("suffix", {"n": 4, "same": 7}, differs={"n": ("1", "4")}, layers_offloaded=3)
    made = of_story([*Story().lines(2), first, second, first])
    seen = next(s for s in made.seen if s.condition == "suffix")
    assert seen.effective == {"n": "1; 4", "only": [2], "same": 7}
    assert seen.layers_offloaded == 3
    assert seen.differs == {"n": ("1", "4")}
    fewer = observed("suffix", {"n": 4}, layers_offloaded=2)
    made = of_story([*Story().lines(2), first, fewer])
    seen = next(s for s in made.seen if s.condition == "suffix")
    assert (seen.layers_offloaded, seen.effective["layers offloaded"]) == (None, "3; 2")


def test_claims_are_passed_on_and_used_for_nothing() -> None:
    lines = Story(seconds=faster).lines(6)
    without, beside = analysed(manifest(), lines), analysed(manifest(), lines, claims=[CLAIM])
    assert beside.claims == (CLAIM,)
    assert msgspec.structs.replace(beside, claims=()) == without


def test_questions_come_from_the_manifest(tmp_path: Path) -> None:
    planned(tmp_path, strata=("repetitive",))
    assert of_folder(tmp_path).workloads[0].question == "Does it fire?"
    assert of_story().workloads[0].question.endswith("?")


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("repetitive", "drafted tokens accepted"),
        ("chat", "drafting takes 5.0% of the time"),
        ("reasoning", "check passed 6 of 6, 8 of 8 with none"),
        ("long_input", "first token after 0.18"),
        ("structured", "check passed 6 of 6"),
        ("prose", "speed-up 1.6"),
        ("imported", "6 of 6 outputs are those of none"),
    ],
)
def test_every_kind_of_workload_answers_its_own_question(
    tmp_path: Path, kind: str, said: str
) -> None:
    world = TimedWorld(seconds={"none": 1.0, "ngram-simple": 0.6}, noise=0.0)
    made = executed(tmp_path, SIMPLE, strata=("prose",), world=world)
    changed = with_prompts(made, {"kind": kind})
    told = analysed(changed, read_run(tmp_path)[1]).workloads[0]
    assert told.kind == kind
    assert said in told.answers[0]
    assert "Verdict: " in told.answers[0]


def test_paths_of_the_machine_are_cut() -> None:
    lines = [
        *Story().lines(2),
        observed("suffix", {"model_path": "/home/someone/models/target.gguf"}),
    ]
    plan = {"runtimes": {"own": RuntimePlan(kind="slipstream", binary="/strange/place/server")}}
    stop = FindingRecord(run=RUN, name="stalled", text="of /strange/place/server in /tmp/x/y.log")
    made = of_story([*lines, stop], plan=plan)
    raw = msgspec.json.encode(made).decode()
    assert not any(part in raw for part in ("someone", "/strange", "/tmp"))
    assert "…/target.gguf" in raw
    assert "of …/server in …/y.log" in raw


def test_the_analysis_is_the_same_of_the_same_lines(tmp_path: Path) -> None:
    executed(tmp_path, SIMPLE, SUFFIX_PLAN)
    assert of_folder(tmp_path) == of_folder(tmp_path)


def test_an_adopted_condition_has_its_gain_as_reason() -> None:
    lines = [*Story(seconds=faster).lines(8), *rolled_back()]
    told = verdicts_of(manifest(methods=(SUFFIX,)), lines)
    assert [v.word for v in told] == ["adopt"]
    assert "speed-up 1.25" in told[0].reasons[0]


def test_a_cpu_says_nothing_about_accelerators() -> None:
    assert any("Metal" in line for line in of_story().scope)
    plan = manifest()
    with_one = msgspec.structs.replace(plan.hardware, accelerator="Apple M4")
    made = analysed(msgspec.structs.replace(plan, hardware=with_one), [])
    assert not any("Metal" in line for line in made.scope)


def test_drift_names_the_blocks_in_their_order() -> None:
    def block(turn: int, condition: str) -> dict[str, Any]:
        bad = turn == 1 and condition == "suffix"
        return {"probe_s": 0.1 + turn, "outcome": "inconclusive" if bad else "ok"}

    made = of_story(Story(block=block).lines(3), rules=Rules())
    assert [m.block for m in made.moments] == list(range(6))
    assert sum(m.outcome == "inconclusive" for m in made.moments) == 1
    none = [m.total_s for m in made.moments if m.condition == "none"]
    assert none == [4.0, 4.0, 4.0]
    assert all(m.total_s is None for m in made.moments if m.condition == "suffix")
