"""Rows of verification steps: block by block, without warm-up, added up and never mixed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lab_records import RUN, Story, manifest, observed
from lab_world import (
    SIMPLE,
    FakeRuntime,
    World,
    manifest_of,
    plan_of,
    runtimes_of,
    tools_of,
)
from slipstream.lab.comparing.compare_rows import HISTOGRAM, MEAN, rows_of
from slipstream.lab.contract.manifest import MethodIdentity, Observation
from slipstream.lab.contract.plan import Plan, Rules
from slipstream.lab.contract.records import BlockRecord, Line, ObservedRecord, RequestRecord
from slipstream.lab.evidence.store import RECORDS, read_records
from slipstream.lab.judging.cells import Cell, Evidence
from slipstream.lab.judging.findings import findings
from slipstream.lab.judging.step_rows import StepRows, step_rows, unplaced
from slipstream.lab.observation.probe import Reading
from slipstream.lab.reporting.analysis import analysed
from slipstream.lab.reporting.report_document import Paragraph, Table
from slipstream.lab.reporting.report_service import rows_per_step
from slipstream.lab.running.run import run

HERE = Cell("own", "suffix", "chat")
PAGE = 'slipstream_verifying_passes_total{rows="%s"} %d\n'
HELP = "# TYPE slipstream_verifying_passes_total counter\n"


def told(block: int, after: dict[str, int], before: dict[str, int] | None = None) -> ObservedRecord:
    """What the process of a block tells after its pass; nothing was warmed up unless said."""
    warm_up = {} if before is None else before
    return observed("suffix", {}, block=block, attempt=1, rows_histogram=after, rows_before=warm_up)


def second_repeated(turn: int, condition: str) -> Mapping[str, Any]:
    return {"outcome": "repeated"} if (turn, condition) == (1, "suffix") else {}


def told_by(lines: list[Line], cell: Cell = HERE, **more: Any) -> StepRows | None:
    evidence = Evidence(manifest(**more), lines)
    return step_rows(evidence, evidence.blocks(cell))


def histogram(lines: list[Line], cell: Cell = HERE) -> Mapping[str, int]:
    made = told_by(lines, cell)
    assert made is not None
    return made.histogram


def test_blocks_add_up_also_where_they_tell_the_same() -> None:
    """Blocks 1 and 2 of two turns are those of ``suffix``."""
    same = {"2": 1, "10": 3}
    lines = [*Story().lines(2), told(1, same), told(2, same)]
    assert told_by(lines) == StepRows(histogram={"2": 2, "10": 6}, blocks=2, of=2)


def test_the_steps_of_warm_up_are_taken_away() -> None:
    lines = [*Story().lines(2), told(1, {"2": 5, "3": 1}, {"2": 4}), told(2, {"2": 7}, {"2": 7})]
    assert told_by(lines) == StepRows(histogram={"2": 1, "3": 1}, blocks=2, of=2)


def test_where_warm_up_is_not_known_it_is_said_to_be_in() -> None:
    whole = msgspec.structs.replace(told(1, {"2": 5}), rows_before=None)
    made = told_by([*Story().lines(2), whole])
    assert made == StepRows(histogram={"2": 5}, blocks=1, of=2, warm_up=True)


def test_the_processes_of_a_cold_block_add_up() -> None:
    lines = [*Story().lines(1), told(1, {"2": 5}), told(1, {"2": 5}), told(1, {"4": 1})]
    assert histogram(lines) == {"2": 10, "4": 1}


def test_a_process_whose_counts_went_back_tells_nothing_of_its_block() -> None:
    back = told(1, {"2": 3}, {"2": 4})
    lines = [*Story().lines(2), back, told(2, {"2": 1})]
    assert told_by(lines) == StepRows(histogram={"2": 1}, blocks=1, of=2)
    assert unplaced(Evidence(manifest(), [*Story().lines(2), back]), "own", "suffix") == ()


def test_other_workloads_concurrencies_and_stages_are_others() -> None:
    wide = Story(slots=2, first_block=4)
    other = Story(stage="sampler", first_block=8, block=lambda *_: {"stratum": "prose"})
    trial = Story(stage="trial", first_block=12)
    every = [line for story in (Story(), wide, other, trial) for line in story.lines(2)]
    rows = [told(number, {str(number): 1}) for number in (1, 2, 5, 6, 9, 10, 13, 14)]
    lines = [*every, *rows]
    assert histogram(lines) == {"1": 1, "2": 1}
    assert histogram(lines, Cell("own", "suffix", "chat", 2)) == {"5": 1, "6": 1}
    assert histogram(lines, Cell("own", "suffix", "prose", 1, "sampler")) == {"9": 1, "10": 1}


def test_attempts_that_do_not_count_add_nothing() -> None:
    """Block 2 was repeated; an attempt of block 1 was aborted and has no record."""
    story = Story(block=second_repeated)
    aborted = msgspec.structs.replace(told(1, {"9": 9}), attempt=2)
    lines = [*story.lines(2), told(1, {"2": 1}), aborted, told(2, {"3": 8})]
    assert told_by(lines) == StepRows(histogram={"2": 1}, blocks=1, of=1)


# Records of earlier versions, which name no block


def raw(**more: Any) -> list[Line]:
    """Blocks whose raw counters went from 4 steps of 2 rows to 5, and 3 of 6."""
    before, after = HELP + PAGE % ("2", 4), HELP + PAGE % ("2", 5) + PAGE % ("6", 3)
    fields = {"metrics_before": before, "metrics_after": after, **more}
    return Story(block=lambda *_: fields).lines(2)


def test_blocks_of_earlier_versions_are_read_from_their_raw_counters() -> None:
    old = observed("suffix", {}, rows_histogram={"2": 5, "6": 3})
    assert told_by([*raw(), old]) == StepRows(histogram={"2": 2, "6": 6}, blocks=2, of=2)
    assert unplaced(Evidence(manifest(), [*raw(), old]), "own", "suffix") == ()
    assert histogram(raw(metrics_before=HELP)) == {"2": 10, "6": 6}


@pytest.mark.parametrize("change", [{"metrics_before": ""}, {"metrics_after": "other 5\n"}])
def test_without_both_readings_a_block_tells_nothing(change: dict[str, str]) -> None:
    assert told_by(raw(**change)) is None


def test_raw_counters_of_several_processes_are_no_difference() -> None:
    cold = msgspec.structs.replace(manifest(), observation=Observation(cold=True))
    evidence = Evidence(cold, raw())
    assert step_rows(evidence, evidence.blocks(HERE)) is None


def test_what_names_no_block_is_not_added_up() -> None:
    some = [observed("suffix", {}, rows_histogram=rows) for rows in ({"10": 1, "2": 3}, {"2": 4})]
    lines = [*Story().lines(2), *some]
    assert told_by(lines) is None
    found = unplaced(Evidence(manifest(), lines), "own", "suffix")
    assert found == ({"2": 3, "10": 1}, {"2": 4})
    assert list(found[0]) == ["2", "10"]
    seen = next(s for s in analysed(manifest(), lines).seen if s.condition == "suffix")
    assert seen.unplaced_rows == found


def test_a_line_of_an_earlier_version_is_read() -> None:
    line = (
        b'{"is":"observed","run":"%s","runtime":"own","condition":"suffix","at":"",'
        b'"rows_histogram":{"2":5}}'
    )
    record = msgspec.json.decode(line % RUN.encode(), type=ObservedRecord)
    assert (record.block, record.rows_before) == (None, None)
    assert record == observed("suffix", {}, rows_histogram={"2": 5})


# What is judged by them


def left(
    lines: list[Line], rows_range: tuple[int, int] = (2, 8)
) -> list[tuple[str, str, int, str]]:
    found = findings(manifest(rules=Rules(rows_range=rows_range)), lines)
    return [(f.condition, f.stratum, f.slots, f.text) for f in found if f.name == "rows-left-range"]


def test_rows_are_judged_per_workload_and_concurrency() -> None:
    lines = [*Story().lines(2), *Story(slots=2, first_block=4).lines(2)]
    rows = [told(1, {"7": 9}), told(2, {"7": 9}), told(5, {"7": 9}), told(6, {"9": 1})]
    assert left([*lines, *rows]) == [("suffix", "chat", 2, "steps of 9 rows, asked for 2 to 8")]


def test_rows_of_warm_up_trials_and_repeated_blocks_are_not_judged() -> None:
    story = Story(block=second_repeated)
    trial = Story(stage="trial", first_block=4).lines(1)
    lines = [*story.lines(2), *trial, told(2, {"9": 1}), told(5, {"9": 1})]
    assert left([*lines, told(1, {"7": 3, "9": 2}, {"9": 2})]) == []
    assert len(left([*lines, told(1, {"7": 3, "9": 2}, {"9": 1})])) == 1


def test_short_steps_are_weighed_over_all_blocks() -> None:
    """One block in which most steps are short does not make the workload's so."""
    lines = [*Story().lines(2), told(1, {"2": 2, "7": 1}), told(2, {"7": 9})]
    assert left(lines, (5, 8)) == []
    assert left([*lines[:-1], told(2, {"7": 1})], (5, 8)) == [
        ("suffix", "chat", 1, "steps of 2 rows, asked for 5 to 8")
    ]


def test_a_comparison_needs_the_rows_of_every_block() -> None:
    def made(*rows: ObservedRecord) -> tuple[str, float | None]:
        found = rows_of(Evidence(manifest(), [*Story().lines(2), *rows]), HERE)
        assert found is not None
        return found.source, found.mean

    assert made(told(1, {"2": 1}), told(2, {"4": 1})) == (HISTOGRAM, 3.0)
    assert made(told(1, {"2": 1})) == (MEAN, 7.0)


def test_rows_of_unknown_blocks_are_told_as_that() -> None:
    old = observed("suffix", {}, rows_histogram={"9": 1})
    ((_, stratum, slots, text),) = left([*Story().lines(2), old])
    assert (stratum, slots) == ("", 0)
    assert text.startswith("steps of 9 rows, asked for 2 to 8 (")
    assert text.endswith("(a process of an unknown block, warm-up included)")


# What a run records


def _ran(folder: Path, world: World, plan: Plan | None = None, **tools: Any) -> list[Line]:
    made = manifest_of(plan or plan_of(SIMPLE))
    run(folder, made, runtimes_of(made, world), tools=tools_of(made, world, **tools))
    return read_records(folder / RECORDS)


def _placed(lines: list[Line]) -> list[ObservedRecord]:
    return [x for x in lines if isinstance(x, ObservedRecord) and x.condition == "ngram-simple"]


def test_a_run_records_the_rows_of_every_block_though_they_are_alike(tmp_path: Path) -> None:
    lines = _ran(tmp_path, World(counts_rows=True))
    told = [x for x in _placed(lines) if x.block is not None]
    ended = [x for x in lines if isinstance(x, BlockRecord) and x.condition == "ngram-simple"]
    assert [(x.block, x.attempt) for x in told] == [(x.block, x.attempt) for x in ended]
    assert [x.rows_histogram for x in _placed(lines) if x.block is None] == [{}]
    for record in told:
        own = [x for x in lines if isinstance(x, RequestRecord) and x.block == record.block]
        before = sum(x.counts.steps or 0 for x in own if x.index == 0)
        assert record.rows_before == {"3": before}
        assert record.rows_histogram == {"3": sum(x.counts.steps or 0 for x in own)}


def test_steps_of_the_histogram_are_those_of_the_requests(tmp_path: Path) -> None:
    """A block that is repeated, and the one that replaces it, leave one block's steps."""
    readings = iter(range(1, 1000))
    lines = _ran(
        tmp_path,
        World(counts_rows=True),
        probe=lambda: Reading(0.2 if next(readings) == 8 else 0.1, 0.0),
    )
    outcomes = [(x.condition, x.outcome) for x in lines if isinstance(x, BlockRecord)]
    assert outcomes.count(("ngram-simple", "repeated")) == 1
    evidence = Evidence(manifest_of(plan_of(SIMPLE)), lines)
    cells = [c for c in evidence.cells if (c.condition, c.stage) == ("ngram-simple", "greedy")]
    assert cells
    for cell in cells:
        told = step_rows(evidence, evidence.blocks(cell))
        steps = sum(r.counts.steps or 0 for r in evidence.requests(cell))
        assert told is not None
        assert told.histogram == {"3": steps}
        assert (told.blocks, told.warm_up) == (told.of, False)


def test_a_cold_run_records_every_process(tmp_path: Path) -> None:
    plan = plan_of(SIMPLE, cold=True)
    lines = _ran(tmp_path, World(counts_rows=True), plan)
    told = [x for x in _placed(lines) if x.block is not None]
    timed = [x for x in lines if isinstance(x, RequestRecord) and x.condition == "ngram-simple"]
    alone = sum(x.cold and not x.warm_up for x in timed)
    assert len([x for x in told if x.rows_before == {}]) == alone


class _Telling(FakeRuntime):
    """Tells rows whenever it is asked, and not in its counters."""

    def observed(self, method: MethodIdentity) -> ObservedRecord:
        return msgspec.structs.replace(super().observed(method), rows_histogram={"3": 9})


def test_rows_of_a_probe_and_a_start_are_no_block_s(tmp_path: Path) -> None:
    made, world = manifest_of(plan_of(SIMPLE)), World()
    runtimes = {name: _Telling(name, world, r) for name, r in made.plan.runtimes.items()}
    run(tmp_path, made, runtimes, tools=tools_of(made, world))
    lines = read_records(tmp_path / RECORDS)
    apart = [x.rows_histogram for x in _placed(lines) if x.block is None]
    told = [x for x in _placed(lines) if x.block is not None]
    assert apart == [{}]
    assert told
    assert all((x.rows_histogram, x.rows_before) == ({"3": 9}, None) for x in told)


def test_a_runtime_that_tells_no_rows_is_observed_once(tmp_path: Path) -> None:
    assert [x.block for x in _placed(_ran(tmp_path, World()))] == [None]


# What a report shows


def shown(lines: list[Line]) -> str:
    section = rows_per_step(analysed(manifest(), lines))
    assert section is not None
    return "\n".join(" | ".join(map(str, row)) for row in _rows(section.parts))


def _rows(parts: Iterable[Any]) -> Iterator[Iterable[Any]]:
    for part in parts:
        if isinstance(part, Table):
            yield from part.rows
        elif isinstance(part, Paragraph):
            yield [part.text]


def test_a_report_shows_each_workload_and_the_blocks_behind_it() -> None:
    wide = Story(slots=2, first_block=4)
    rows = [told(1, {"2": 5, "10": 1}, {"2": 4}), told(2, {"2": 1}), told(5, {"3": 7})]
    text = shown([*Story().lines(2), *wide.lines(2), *rows])
    assert "chat | suffix | 2 of 2 | left out | 2: 2, 10: 1" in text
    assert "suffix | 1 of 2 | left out | 3: 7" in text
    assert "do not add up" not in text
    kept = Story(block=second_repeated).lines(2)
    assert "suffix | 1 of 1 | left out | 2: 1, 10: 1" in shown([*kept, *rows[:2]])


def test_a_report_says_of_old_rows_what_they_are() -> None:
    old = [observed("suffix", {}, rows_histogram=rows) for rows in ({"10": 1, "2": 3}, {"2": 4})]
    text = shown([*Story().lines(2), *old])
    assert "suffix | 2: 3, 10: 1\nsuffix | 2: 4" in text
    assert "Of one process each since its start, warm-up included" in text
