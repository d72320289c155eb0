"""The machine's probe, its drift, and who else works."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import psutil
import pytest

from slipstream.lab.contract.plan import RuntimePlan
from slipstream.lab.observation import probe
from slipstream.lab.observation.probe import Reading
from slipstream.lab.running.tools import is_here


def test_drift_is_the_larger_change_within_a_block_or_against_the_last() -> None:
    earlier = [1.0, 1.02, 0.98]
    assert probe.drift([Reading(1.0), Reading(1.2)], earlier) == pytest.approx(0.2)
    assert probe.drift([Reading(1.0), Reading(0.7)], earlier) == pytest.approx(-0.3)
    assert probe.drift([Reading(1.3), Reading(1.3)], earlier) == pytest.approx(0.3)
    assert probe.drift([Reading(0.7), Reading(0.7)], earlier) == pytest.approx(-0.3)
    assert probe.drift([Reading(1.0), Reading(1.0)], earlier) == pytest.approx(0.0)


def test_one_odd_probe_does_not_move_the_reference() -> None:
    assert probe.drift([Reading(1.0), Reading(1.0)], [1.0, 1.0, 5.0]) == pytest.approx(0.0)


def test_a_machine_that_changed_for_good_is_another_one_once() -> None:
    readings = [Reading(2.0), Reading(2.0)]
    seen = [probe.drift(readings, [1.0] * 9 + [2.0] * blocks) for blocks in range(5)]
    assert seen == pytest.approx([1.0, 1.0, 1.0, 0.0, 0.0])


def test_the_first_block_is_measured_against_itself() -> None:
    assert probe.drift([Reading(1.0), Reading(2.0)], []) == pytest.approx(1.0)
    assert probe.drift([Reading(1.0)], []) == pytest.approx(0.0)
    assert probe.drift([], [1.0, 1.0]) is None
    assert probe.drift([Reading(None)], [1.0, 1.0]) is None
    assert probe.drift([Reading(0.0), Reading(1.0)], [0.0]) == pytest.approx(0.0)


@pytest.mark.parametrize(
    ("change", "load", "limit", "found"),
    [
        (0.1, 0.0, 0.1, ""),
        (0.11, 0.0, 0.1, "11.0% slower around it than before (limit 10%)"),
        (-0.11, 0.0, 0.1, "11.0% faster"),
        (None, None, 0.1, ""),
        (0.0, 0.5, 0.1, "kept 50%"),
        (5.0, 0.0, 0.0, ""),
    ],
)
def test_what_disturbs_a_block(
    change: float | None, load: float | None, limit: float, found: str
) -> None:
    reason = probe.disturbed(change, load, limit)
    assert found in reason
    assert bool(reason) == bool(found)


class _Times(NamedTuple):
    user: float
    idle: float
    iowait: float
    steal: float
    guest: float


def test_load_is_what_was_not_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter([_Times(10, 10, 0, 0, 5), _Times(11, 12, 0.5, 0.5, 6)])
    monkeypatch.setattr(psutil, "cpu_times", lambda: next(readings))
    waited: list[float] = []
    assert probe.other_load(waited.append, lambda: 7.0) == pytest.approx(1.5 / 4)
    assert waited == [probe.WATCHED_S]


def test_what_this_process_does_itself_is_no_load_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Threads of a matrix product spin on while the lab sleeps: a probe after another saw 27 %."""
    readings = iter([_Times(10, 10, 0, 0, 0), _Times(11, 12, 0.5, 0.5, 0)])
    own = iter([3.0, 3.9])
    monkeypatch.setattr(psutil, "cpu_times", lambda: next(readings))
    assert probe.other_load(lambda _seconds: None, lambda: next(own)) == pytest.approx(0.6 / 4)


def test_a_clock_that_stands_still_tells_no_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "cpu_times", lambda: _Times(1, 1, 0, 0, 0))
    assert probe.other_load(lambda _seconds: None) is None


def test_an_interrupted_round_does_not_move_a_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = itertools.chain([9.0], itertools.repeat(1.0))
    now = itertools.count()
    readings: list[float] = []

    def clock() -> float:
        began = next(now) % 2 == 0
        readings.append((readings[-1] if readings else 0.0) + (0.0 if began else next(lengths)))
        return readings[-1]

    monkeypatch.setattr(probe, "fixed_work", lambda: lambda: None)
    monkeypatch.setattr(probe, "other_load", lambda _pause: 0.25)
    assert probe.machine_probe(clock)() == Reading(1.0, 0.25)


def test_the_fixed_work_runs() -> None:
    work = probe.fixed_work()
    assert float(work()) == probe.READ_BYTES // 4  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("url", "here"),
    [
        ("http://127.0.0.1:8080", True),
        ("localhost:8080", True),
        ("http://[::1]:80/v1", True),
        ("https://api.example.com/v1", False),
        ("http://192.168.0.7:80", False),
    ],
)
def test_only_a_server_on_this_machine_is_probed(url: str, here: bool) -> None:
    assert is_here(RuntimePlan(kind="openai", url=url)) is here
    assert is_here(RuntimePlan(kind="slipstream"))
