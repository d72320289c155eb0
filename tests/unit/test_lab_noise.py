"""How many pairs a margin needs, and reading the A/A blocks that tell it beforehand."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec
import numpy as np
import pytest

from slipstream.errors import RequestError
from slipstream.lab.evidence.noise import (
    differences,
    pairs_needed,
    pairs_to_plan,
    power,
    scatter,
    spread,
    wins_needed,
)
from slipstream.lab.judging.aa import AABlock, Recording, read_aa, resampled


def test_differences_are_logs_of_neighbours() -> None:
    assert differences([1.0, 2.0, 1.0]) == [math.log(2), -math.log(2)]
    for bad in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="positive"):
            differences([1.0, bad])


def test_a_spread_is_the_standard_deviation_of_normal_noise() -> None:
    draws = np.random.default_rng(1)
    times = np.exp(draws.normal(0, 0.02, 20_000))
    found = spread([times], "here")
    assert found is not None
    assert found.sigma == pytest.approx(0.02 * math.sqrt(2), rel=0.03)


def test_a_few_wild_blocks_do_not_move_it() -> None:
    draws = np.random.default_rng(2)
    logs = draws.normal(0, 0.02, 400)
    calm = spread([np.exp(logs)], "")
    logs[::40] += 3.0
    wild = spread([np.exp(logs)], "")
    assert calm is not None
    assert wild is not None
    assert wild.sigma < 1.25 * calm.sigma


def test_workloads_are_not_compared_with_each_other() -> None:
    found = spread([[1.0, 1.01, 1.0], [9.0, 9.09, 9.0]], "two")
    assert found is not None
    assert found.sigma == pytest.approx(math.log(1.01))
    assert spread([[1.0, 1.01, 1.0, 1.01]], "three differences") is None


def test_wins_needed_are_those_of_the_exact_sign_test() -> None:
    assert [wins_needed(n, 0.95) for n in (4, 5, 6, 7, 8, 10, 20)] == [None, 5, 6, 7, 7, 9, 15]
    assert wins_needed(5, 0.99) is None
    assert wins_needed(7, 0.99) == 7


def test_power_is_that_of_simulated_pairs() -> None:
    draws = np.random.default_rng(3)
    sigma, margin, pairs = 0.04, 0.03, 20
    noise = draws.normal(math.log1p(margin), sigma, (40_000, pairs))
    wins = wins_needed(pairs, 0.95)
    assert wins is not None
    seen = float(np.mean((noise > 0).sum(axis=1) >= wins))
    assert power(sigma, margin, 0.95, pairs) == pytest.approx(seen, abs=0.01)


@pytest.mark.parametrize("sigma", [0.0, 0.01, 0.02, 0.04, 0.08])
@pytest.mark.parametrize("margin", [0.03, 0.05])
def test_pairs_needed_are_the_fewest_that_keep_the_power(sigma: float, margin: float) -> None:
    found = pairs_needed(sigma, margin, 0.95)
    assert found is not None
    assert found >= 5
    assert all(power(sigma, margin, 0.95, found + more) >= 0.8 for more in range(7))
    assert found == 5 or any(power(sigma, margin, 0.95, found - 1 + m) < 0.8 for m in range(7))
    planned = pairs_to_plan(sigma, margin, 0.95)
    assert planned is not None
    assert planned >= found


def test_what_cannot_be_had_is_none() -> None:
    assert pairs_needed(1.0, 0.001, 0.95) is None
    for margin, confidence in ((0.0, 0.95), (-0.1, 0.95), (0.05, 1.0), (0.05, 0.0)):
        assert pairs_needed(0.01, margin, confidence) is None
    assert pairs_needed(math.nan, 0.05, 0.95) is None


def test_more_confidence_needs_more_pairs() -> None:
    few, many = (pairs_needed(0.04, 0.05, c) for c in (0.9, 0.99))
    assert few is not None
    assert many is not None
    assert few < many


RECORDING = Recording(began="2026-11-30T12:00:00+00:00", facts={"model": "m"})


def block(number: int, seconds: float = 1.0) -> AABlock:
    return AABlock(block=number, began_s=number, total_s={"a": seconds, "b": 2.0}, tokens={})


def written(path: Path, *lines: object, end: bytes = b"\n") -> Path:
    path.write_bytes(b"\n".join(msgspec.json.encode(line) for line in lines) + end)
    return path


def test_a_recording_is_read_as_it_was_written(tmp_path: Path) -> None:
    blocks = [block(n, 1.0 + n / 100) for n in range(6)]
    kept = read_aa(written(tmp_path / "a.jsonl", RECORDING, *blocks))
    assert kept.recording == RECORDING
    assert list(kept.blocks) == blocks
    assert kept.times == pytest.approx([3.0 + n / 100 for n in range(6)])
    found = kept.spread()
    assert found is not None
    assert found.differences == 5


def test_a_torn_last_line_is_left_out(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", RECORDING, block(0), block(1), end=b"")
    assert [b.block for b in read_aa(path).blocks] == [0]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}\n",
        b"\xff\xfe\n",
        b"[" * 2000 + b"\n",
        msgspec.json.encode(block(0)) + b"\n",
        msgspec.json.encode(RECORDING) + b"\n" + msgspec.json.encode(RECORDING) + b"\n",
        msgspec.json.encode(RECORDING) + b"\n" + msgspec.json.encode(block(0, -1.0)) + b"\n",
        msgspec.json.encode(RECORDING)
        + b'\n{"is":"block","block":0,"began_s":0,"total_s":{},"tokens":{}}\n',
    ],
)
def test_a_damaged_recording_is_an_error_that_names_the_file(
    content: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_bytes(content)
    with pytest.raises(RequestError, match=r"bad\.jsonl"):
        read_aa(path)


def test_blocks_of_other_prompts_are_refused(tmp_path: Path) -> None:
    other = msgspec.structs.replace(block(1), total_s={"a": 1.0})
    with pytest.raises(RequestError, match="other prompts"):
        read_aa(written(tmp_path / "a.jsonl", RECORDING, block(0), other))
    with pytest.raises(RequestError, match="No such file"):
        read_aa(tmp_path / "none.jsonl")


def test_resampled_pairs_are_neighbours_in_turns() -> None:
    blocks = [block(n) for n in range(12)]
    made = resampled(blocks, 6, np.random.default_rng(0))
    assert len(made) == 6
    for (a, b), (d, c) in zip(made[::2], made[1::2], strict=True):
        assert [x.block - a.block for x in (a, b, c, d)] == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="four blocks"):
        resampled(blocks[:3], 1, np.random.default_rng(0))


def test_scatter_is_the_noise_of_pairs_whatever_their_gain() -> None:
    draws = np.random.default_rng(5)
    ratios = [np.exp(draws.normal(gain, 0.02, 400)).tolist() for gain in (0.0, 0.3)]
    found = scatter(ratios, "here")
    assert found is not None
    assert found.sigma == pytest.approx(0.02, rel=0.08)
    assert found.differences == 800


def test_scatter_of_few_pairs_is_not_too_small() -> None:
    draws = np.random.default_rng(6)
    made = [scatter([np.exp(draws.normal(0, 0.02, 8)).tolist()], "") for _ in range(400)]
    assert float(np.median([s.sigma for s in made if s is not None])) > 0.8 * 0.02
    assert scatter([[1.0, 1.1, 1.0, 1.1]], "four pairs") is None
    assert scatter([], "") is None


def test_a_plan_can_spare_a_pair() -> None:
    assert pairs_needed(0.005, 0.05, 0.95) == 5
    assert pairs_to_plan(0.005, 0.05, 0.95) == 8
    assert pairs_to_plan(1.0, 0.001, 0.95) is None
