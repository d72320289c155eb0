"""What the controller learns about seconds, from noisy and interrupted passes."""

from __future__ import annotations

import random

import pytest

from controller_worlds import AVX2, VNNI, ratio
from slipstream.engine.costs import DEAR_NODE, FEW, KNOTS, DraftTimes, PassTimes


def taught(curve: dict[int, float], rows: list[int], count: int, noise: float = 0.1) -> PassTimes:
    chance, times = random.Random(3), PassTimes()
    for i in range(count):
        row = rows[i % len(rows)]
        slow = 5.0 if i % 37 == 5 else 1.0
        elapsed = 0.04 * ratio(curve, row) * chance.gauss(1.0, noise) * slow
        times.observe(row, 0, elapsed, plain=row == 1)
    return times


@pytest.mark.parametrize("curve", [AVX2, VNNI])
def test_a_curve_is_learned_through_noise_and_interruptions(curve: dict[int, float]) -> None:
    times = taught(curve, [1, 2, 4, 1, 8, 16], 300)
    assert times.level == pytest.approx(0.04, rel=0.1)
    for rows in (2, 4, 8, 16):
        assert times.extra(rows) == pytest.approx(ratio(curve, rows) - 1.0, rel=0.2, abs=0.1)


def test_the_first_pass_may_be_the_interrupted_one() -> None:
    times = PassTimes()
    assert not times.known
    times.observe(1, 0, 0.2, plain=True)
    for _ in range(8):
        times.observe(1, 0, 0.04, plain=True)
    assert times.level == pytest.approx(0.04)


def test_an_interruption_is_forgotten() -> None:
    calm, shaken = (taught(AVX2, [1, 8], 100, 0.0) for _ in range(2))
    shaken.observe(8, 0, 5 * 0.04 * AVX2[8], plain=False)
    assert shaken.level == calm.level
    assert shaken.seconds(8) < 1.1 * calm.seconds(8)


def test_the_machine_may_become_slower() -> None:
    times = taught(AVX2, [1, 2, 4], 100)
    for _ in range(40):
        times.observe(1, 0, 0.12, plain=True)
    assert times.level == pytest.approx(0.12)


def test_a_few_cheap_rows_make_one_bold_about_more() -> None:
    before = PassTimes().extra(8)
    assert taught(VNNI, [1, 2, 4], 60, 0.0).extra(8) < 0.6 * before


def test_times_never_fall_with_rows_and_go_on_beyond_the_last_knot() -> None:
    times = taught({1: 1.0, 2: 3.0, 4: 1.1, 8: 5.0, 16: 2.0, 64: 9.0}, [1, 2, 4, 8, 16], 100)
    table = times.table(1, 99, 500)
    assert table == sorted(table)
    assert table == pytest.approx([times.seconds(rows, 500) for rows in range(1, 101)])
    assert times.seconds(200) > times.seconds(100) > times.seconds(KNOTS[-1])


def test_the_context_costs_too() -> None:
    chance, times = random.Random(5), PassTimes()
    for i in range(400):
        context = (i * 37) % 4096
        times.observe(1, context, (0.006 + 2e-6 * context) * chance.gauss(1.0, 0.03), plain=True)
    assert times.slope == pytest.approx(2e-6, rel=0.25)
    assert times.seconds(1, 4096) == pytest.approx(0.006 + 2e-6 * 4096, rel=0.1)


def test_a_pass_without_a_time_teaches_nothing() -> None:
    times = PassTimes()
    times.observe(4, 0, 0.0, plain=True)
    times.observe(4, 0, 0.1, plain=False)
    assert not times.known


def test_draft_models_are_dear_and_look_ups_are_not() -> None:
    assert DraftTimes("draft-simple").dear
    assert not DraftTimes("suffix").dear
    assert DraftTimes("suffix").seconds(48, 0.04) < 0.001
    assert DraftTimes("draft-simple").seconds(1, 0.04) > DEAR_NODE * 0.04


def test_a_drafter_is_timed_by_nodes_and_by_what_it_has_to_read() -> None:
    drafter = DraftTimes("draft-simple")
    assert drafter.catch_up(FEW, 0.04) == 0.0
    drafter.observe(2, 500, 1.0 + 0.032, 0.04)
    for i in range(60):
        nodes = 1 + i % 5
        slow = 6.0 if i % 20 == 7 else 1.0
        drafter.observe(nodes, 2, (0.003 + 0.01 * nodes) * slow, 0.04)
    assert drafter.seconds(4, 0.04) == pytest.approx(0.043, rel=0.15)
    assert drafter.catch_up(500, 0.04) == pytest.approx(1.0, rel=0.1)
    assert drafter.catch_up(100, 0.04) == pytest.approx(0.2, rel=0.1)


def test_an_interrupted_call_is_not_charged_in_full() -> None:
    drafter = DraftTimes("suffix")
    for _ in range(5):
        assert drafter.observe(8, 1, 1e-4, 0.04) == 1e-4
    assert drafter.observe(8, 1, 0.05, 0.04) < 1e-3
