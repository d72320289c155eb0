"""Prompts that come while others decode: running outputs keep their pace, and prompts get on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from controller_worlds import AVX2, DEAR_ROWS, STEP_S, VNNI, ratio
from engines import drain, fake_engine, greedy, joined
from fake_program import FakeProgram
from slipstream.backends.base import Outputs, Step
from slipstream.engine.pace import LEAST_ROWS, Pace
from slipstream.engine.scheduler import Scheduler
from slipstream.engine.sequence import Request
from slipstream.errors import OptionError
from slipstream.options import EngineOptions, SamplingOptions

PROMPT = [1, 2, 3, 4, 5]
LONG = [i % 20 for i in range(600)]
CURVES = {"avx2": AVX2, "vnni": VNNI, "dear rows": DEAR_ROWS}


class Timed(FakeProgram):
    """Passes take the time of a machine.

    Args:
        slow_passes: numbers of passes that take five times as long.

    Attributes:
        late: memory handle of the sequence with the long prompt.
        mixed: (decoding rows, prompt rows, seconds) of passes that hold both.
    """

    def __init__(self, curve: Mapping[int, float], slow_passes: frozenset[int] = frozenset()):
        super().__init__(order=3)
        self.curve = curve
        self.slow_passes = slow_passes
        self.late = 0
        self.mixed: list[tuple[int, int, float]] = []

    def run(self, step: Step) -> Outputs:
        made = super().run(step)
        rows = len(step.sequences)
        elapsed = STEP_S * ratio(self.curve, rows)
        elapsed *= 5.0 if len(self.steps) in self.slow_passes else 1.0
        prompt = 0
        if len(self.tokens.committed.get(self.late, LONG)) < len(LONG):
            prompt = step.sequences.tolist().count(self.late)
        if 0 < prompt < rows:
            self.mixed.append((rows - prompt, prompt, elapsed))
        return replace(made, elapsed_s=elapsed)


def serve(program: Timed, pace: float, *, decoding: int = 1) -> list[tuple[int, int, float]]:
    """Passes that held a long prompt beside so many running sequences."""
    engine = fake_engine(program=program, parallel=decoding + 1, context=2000, pace=pace)
    options = SamplingOptions(seed=1, max_tokens=250)
    first = [engine.submit(Request([i, *PROMPT], options)) for i in range(decoding)]
    events = [event for _ in range(4) for event in engine.step()]
    program.late = decoding + 1
    late = engine.submit(Request(LONG, SamplingOptions(seed=1, max_tokens=4)))
    events += drain(engine)
    for place, identity in enumerate(first):
        assert joined(events, identity).ids == greedy([place, *PROMPT], 250, Timed(AVX2))
    assert joined(events, late).ids == greedy(LONG, 4, Timed(AVX2))
    return program.mixed


@pytest.mark.parametrize("decoding", [1, 4])
@pytest.mark.parametrize("curve", ["avx2", "vnni"])
@pytest.mark.parametrize("pace", [2.0, 3.0])
def test_a_pass_with_prompts_takes_so_many_times_one_without(
    curve: str, decoding: int, pace: float
) -> None:
    mixed = serve(Timed(CURVES[curve]), pace, decoding=decoding)
    alone = STEP_S * ratio(CURVES[curve], decoding)
    assert sum(rows for _, rows, _ in mixed) == len(LONG)
    settled = mixed[5:-1]
    assert max(elapsed for _, _, elapsed in settled) <= 1.15 * pace * alone
    # what may be used is used: a prompt is not held back for nothing
    mean = sum(elapsed for _, _, elapsed in settled) / len(settled)
    assert mean >= 0.75 * pace * alone
    first = max(elapsed for _, _, elapsed in mixed[:5])
    assert first <= 1.5 * pace * alone


def test_where_a_row_is_dear_a_prompt_gets_on_by_a_few() -> None:
    mixed = serve(Timed(DEAR_ROWS), 3.0)
    assert {rows for _, rows, _ in mixed[1:-1]} == {LEAST_ROWS}


def test_without_a_limit_a_pass_holds_what_it_has_time_for() -> None:
    limited, free = (serve(Timed(VNNI), pace) for pace in (3.0, 0.0))
    assert len(free) < len(limited)
    assert max(rows for _, rows, _ in free) > max(rows for _, rows, _ in limited)


def test_one_interruption_does_not_stop_a_prompt() -> None:
    clean = serve(Timed(VNNI), 3.0)
    disturbed = serve(Timed(VNNI, frozenset({12, 20})), 3.0)
    assert len(disturbed) <= 1.5 * len(clean)


def test_prompts_alone_are_not_limited() -> None:
    scheduler = Scheduler(EngineOptions(prefill_chunk=64), 1)
    assert scheduler._pace.rows(0, 64) == 64


def test_the_first_pass_beside_a_prompt_shows_what_decoding_takes() -> None:
    pace = Pace(3.0)
    pace.observe(0, 16, 1.0)
    assert pace.rows(1, 50) == 0
    pace.observe(1, 0, 0.5)
    assert pace.rows(1, 50) == 8  # at first no more than twice the least
    pace.observe(1, 8, 1.0)
    assert pace.rows(1, 50) == 16  # a second, at a sixteenth each
    assert pace.rows(1, 6) == 6


def test_what_was_never_seen_is_not_overrated() -> None:
    pace = Pace(3.0)
    pace.observe(8, 0, 0.08)
    pace.observe(8, 8, 0.16)
    many = pace.rows(8, 1000)
    assert pace.rows(1, 1000) < many
    assert pace.rows(40, 1000) == many


@pytest.mark.parametrize("elapsed", [0.0, 1e9])
def test_odd_clocks_stop_nothing(elapsed: float) -> None:
    pace = Pace(3.0)
    for decode, prompt in ((0, 9), (1, 0), (1, 9), (0, 9), (1, 0)):
        pace.observe(decode, prompt, elapsed)
        assert 0 <= pace.rows(1, 20) <= 20
        assert pace.rows(0, 20) == 20
    assert pace.rows(1, 20) >= LEAST_ROWS


@pytest.mark.parametrize("pace", [-1.0, 1001.0, float("nan")])
def test_a_pace_out_of_range(pace: float) -> None:
    with pytest.raises(OptionError, match="pace"):
        EngineOptions(pace=pace)
