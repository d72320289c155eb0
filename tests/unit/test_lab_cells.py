"""The records of a run, sorted into cells, blocks and pairs."""

from __future__ import annotations

import msgspec
import pytest

from lab_records import PROMPTS, Story, digest, manifest
from slipstream.lab.contract.records import BlockRecord, FindingRecord, Line, RequestRecord
from slipstream.lab.judging.block_times import block_ratios
from slipstream.lab.judging.cells import Cell, Evidence, reaches

CELL = Cell("own", "suffix", "chat")


def evidence(lines: list[Line], **more: object) -> Evidence:
    return Evidence(manifest(**more), lines)  # type: ignore[arg-type]


def pairs(found: Evidence, cell: Cell = CELL) -> list[tuple[int, int]]:
    return [(a.record.block, b.record.block) for a, b in found.pairs(cell)]


def test_blocks_are_paired_with_their_neighbours() -> None:
    assert pairs(evidence(Story().lines(3))) == [(0, 1), (3, 2), (4, 5)]


def test_a_block_that_failed_takes_its_pair_with_it() -> None:
    lines = Story(
        block=lambda turn, name: {"outcome": "failed"} if (turn, name) == (1, "none") else {}
    ).lines(3)
    assert pairs(evidence(lines)) == [(0, 1), (4, 5)]


def test_the_runs_own_pairing_comes_first() -> None:
    def block(turn: int, condition: str) -> dict[str, object]:
        return {"baseline": None if condition == "none" else (0 if turn == 1 else 3)}

    assert pairs(evidence(Story(block=block).lines(2))) == [(3, 1), (0, 2)]


def test_a_baseline_that_is_missing_leaves_its_block_alone() -> None:
    lines = Story(block=lambda _turn, name: {"baseline": None if name == "none" else 99}).lines(2)
    assert pairs(evidence(lines)) == []


def test_a_pair_is_of_one_machine() -> None:
    def probed(second: float) -> list[Line]:
        def block(turn: int, name: str) -> dict[str, object]:
            return {"probe_s": second if (turn, name) == (1, "suffix") else 1.0}

        return Story(block=block).lines(3)

    assert len(pairs(evidence(probed(1.1)))) == 3
    for seconds in (1.11, 0.9):
        found = evidence(probed(seconds))
        assert pairs(found) == [(0, 1), (4, 5)]
        assert found.unlike(CELL) == 1


def test_requests_without_their_blocks_record_do_not_count() -> None:
    lines = Story().lines(2)
    torn = [x for x in lines if not (isinstance(x, BlockRecord) and x.block == 3)]
    found = evidence(torn)
    assert pairs(found) == [(0, 1)]
    assert len(list(found.requests(CELL.none))) == len(PROMPTS)


def test_an_aborted_attempt_and_a_warm_up_are_passed_over() -> None:
    lines = Story().lines(1)
    first = next(x for x in lines if isinstance(x, RequestRecord))
    aborted = msgspec.structs.replace(first, attempt=7, total_s=99.0)
    warm_up = msgspec.structs.replace(first, index=50, warm_up=True, total_s=99.0)
    found = evidence([aborted, warm_up, *lines])
    assert max(r.total_s or 0 for r in found.requests(CELL.none)) == 1.0


def test_of_what_is_there_twice_the_last_counts() -> None:
    lines = Story().lines(1)
    first = next(x for x in lines if isinstance(x, RequestRecord))
    found = evidence([msgspec.structs.replace(first, total_s=99.0), *lines])
    assert [r.total_s for r in found.requests(CELL.none)] == [1.0] * len(PROMPTS)


def test_a_repeated_attempt_counts_for_nothing() -> None:
    lines = Story(block=lambda turn, _name: {"outcome": "repeated"} if turn == 0 else {}).lines(2)
    found = evidence(lines)
    assert [b.record.block for b in found.blocks(CELL)] == [2]
    assert {r.block for r in found.all_requests(CELL)} == {2}


def test_a_ratio_is_of_totals_over_equal_fit_outputs() -> None:
    def changed(_turn: int, condition: str, prompt: str) -> dict[str, object]:
        if prompt == PROMPTS[0] and condition == "suffix":
            return {"ids_sha256": digest("another"), "total_s": 0.001}
        if prompt == PROMPTS[1]:
            return {"diagnostics": ("degenerate: loop of 2 tokens",), "total_s": 0.001}
        return {}

    story = Story(
        seconds=lambda _turn, name, _prompt: 3.0 if name == "none" else 2.0, changed=changed
    )
    found = evidence(story.lines(2))
    assert block_ratios(found, CELL) == [pytest.approx(1.5)] * 2
    assert list(found.degenerate(CELL)) == [PROMPTS[1]]


def test_without_any_equal_output_there_is_no_ratio() -> None:
    story = Story(changed=lambda _turn, _name, _prompt: {"ids_sha256": ""})
    assert block_ratios(evidence(story.lines(2)), CELL) == []


def test_a_prompt_that_comes_twice_is_paired_with_its_like() -> None:
    story = Story(
        prompts=("chat/0", "chat/0"),
        seconds=lambda _turn, name, _prompt: 4.0 if name == "none" else 2.0,
    )
    assert block_ratios(evidence(story.lines(1)), CELL) == [2.0]


def test_under_load_throughputs_are_compared() -> None:
    story = Story(slots=4, seconds=lambda _turn, name, _prompt: 4.0 if name == "none" else 2.0)
    cell = Cell("own", "suffix", "chat", 4)
    assert block_ratios(evidence(story.lines(1), slots=4), cell) == [2.0]
    counted = Story(slots=4, changed=lambda _turn, _name, _prompt: {"output_tokens": None})
    assert block_ratios(evidence(counted.lines(1), slots=4), cell) == []


def test_a_finding_reaches_what_its_scope_holds() -> None:
    whole = FindingRecord(run="r", name="crashed", text="")
    assert reaches(whole, CELL)
    assert reaches(msgspec.structs.replace(whole, runtime="own", slots=1), CELL)
    for other in ({"runtime": "x"}, {"condition": "x"}, {"stratum": "x"}, {"slots": 4}):
        assert not reaches(msgspec.structs.replace(whole, **other), CELL)
