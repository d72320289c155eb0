"""Arrival times and the mix of prompts."""

from __future__ import annotations

import hashlib
import itertools
import statistics
from pathlib import Path

import pytest

from lab_world import manifest_of, plan_of
from slipstream.errors import OptionError, RequestError
from slipstream.lab.contract.plan import Arrivals
from slipstream.lab.scheduling.arrivals import MOST_ARRIVALS, digest, mixed, recorded, times

POISSON = Arrivals(kind="poisson", slots=4, rate_per_s=2.0)


def test_a_closed_loop_has_no_times() -> None:
    assert times(Arrivals(slots=4), 10, 1) is None


def test_poisson_arrivals_are_those_of_the_seed() -> None:
    one = times(POISSON, 5000, 1)
    assert one is not None
    assert one == times(POISSON, 5000, 1)
    assert one != times(POISSON, 5000, 2)
    assert list(one) == sorted(one)
    gaps = [b - a for a, b in itertools.pairwise(one)]
    # An exponential distribution's mean and deviation are both 1 / rate.
    assert statistics.mean(gaps) == pytest.approx(0.5, rel=0.05)
    assert statistics.pstdev(gaps) == pytest.approx(0.5, rel=0.1)


def test_more_requests_begin_with_the_same_ones() -> None:
    few, many = times(POISSON, 5, 3), times(POISSON, 9, 3)
    assert few is not None
    assert many is not None
    assert many[:5] == few


@pytest.mark.parametrize("rate", [0.0, -1.0, float("inf"), float("nan")])
def test_a_rate_must_be_positive(rate: float) -> None:
    with pytest.raises(OptionError, match="rate_per_s"):
        times(Arrivals(kind="poisson", slots=2, rate_per_s=rate), 3, 1)


def _mix(shares: dict[str, float], prompts: int = 6) -> tuple[str, ...]:
    plan = plan_of(strata=("repetitive", "prose", "chat"), arrivals=Arrivals(slots=2, mix=shares))
    return mixed(manifest_of(plan, prompts=prompts))


def test_a_mix_has_its_shares_at_every_length() -> None:
    ids = _mix({"repetitive": 3.0, "prose": 1.0})
    assert len(ids) == len(set(ids))
    for length in range(1, len(ids) + 1):
        repetitive = sum(i.startswith("repetitive/") for i in ids[:length])
        assert abs(repetitive - 0.75 * length) <= 1
    assert sum(i.startswith("repetitive/") for i in ids) == 6
    assert not any(i.endswith("warm") or i.startswith("chat") for i in ids)


def test_a_share_of_nothing_is_left_out() -> None:
    assert {i.partition("/")[0] for i in _mix({"prose": 1.0, "chat": 0.0})} == {"prose"}


def test_no_mix_is_equal_shares() -> None:
    ids = _mix({}, prompts=2)
    strata = ("repetitive", "prose", "chat")
    assert sorted(ids) == sorted(f"{s}/{i}" for s in strata for i in (0, 1))
    assert {i.partition("/")[0] for i in ids[:3]} == set(strata)


@pytest.mark.parametrize("shares", [{"poetry": 1.0}, {"prose": 0.0}, {"prose": -1.0}])
def test_a_share_must_be_of_a_measured_stratum(shares: dict[str, float]) -> None:
    with pytest.raises(OptionError, match="mix"):
        _mix(shares)


def _recording(tmp_path: Path, *lines: str) -> Arrivals:
    file = tmp_path / "arrivals.jsonl"
    file.write_text("\n".join(lines) + "\n")
    return Arrivals(kind="recorded", slots=2, file=str(file))


def test_a_recorded_pattern_is_repeated(tmp_path: Path) -> None:
    lines = ('{"at_s": 0, "prompt": "prose/1"}', "", '{"at_s": 0.5, "prompt": "prose/0"}')
    arrivals = _recording(tmp_path, *lines)
    assert times(arrivals, 2, 1) == (0.0, 0.5)
    assert mixed(manifest_of(plan_of(arrivals=arrivals))) == ("prose/1", "prose/0")
    content = (tmp_path / "arrivals.jsonl").read_bytes()
    assert digest(arrivals) == hashlib.sha256(content).hexdigest()
    assert digest(POISSON) == ""


def test_a_recorded_prompt_must_be_measured(tmp_path: Path) -> None:
    arrivals = _recording(tmp_path, '{"at_s": 0, "prompt": "prose/warm"}')
    with pytest.raises(RequestError, match="line 1"):
        mixed(manifest_of(plan_of(arrivals=arrivals)))


@pytest.mark.parametrize(
    "line",
    [
        "nonsense",
        '{"at_s": -1, "prompt": "prose/0"}',
        '{"at_s": 1e400, "prompt": "prose/0"}',
        '{"at_s": 1, "prompt": "prose/0", "more": 1}',
        '{"at_s": "1", "prompt": "prose/0"}',
        '{"at_s": 0, "prompt": "prose/0"}\n{"at_s": 2, "prompt": "a"}\n{"at_s": 1, "prompt": "b"}',
    ],
)
def test_a_malformed_recording_is_named(tmp_path: Path, line: str) -> None:
    with pytest.raises(RequestError):
        recorded(_recording(tmp_path, line).file)


def test_a_recording_has_an_end(tmp_path: Path) -> None:
    lines = ['{"at_s": 0, "prompt": "p"}'] * (MOST_ARRIVALS + 1)
    with pytest.raises(RequestError, match="10000 lines"):
        recorded(_recording(tmp_path, *lines).file)
    with pytest.raises(RequestError, match="recorded arrival"):
        recorded(_recording(tmp_path, "").file)
    with pytest.raises(RequestError, match="a file"):
        recorded(str(tmp_path / "none"))
