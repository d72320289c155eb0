"""The time gate's own error rates: on simulated noise, and on the A/A blocks that are kept."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from lab_records import Story, manifest, rolled_back
from slipstream.lab.contract.plan import Rules
from slipstream.lab.contract.records import RequestRecord
from slipstream.lab.evidence.noise import pairs_needed, pairs_to_plan, spread
from slipstream.lab.judging.aa import AABlocks, read_aa, resampled
from slipstream.lab.judging.cells import Cell, Evidence
from slipstream.lab.judging.time_gate import time_gate
from slipstream.lab.judging.verdict import Verdict, verdicts

TRIALS = 150
PLANTED = 0.03
KEPT = sorted((Path(__file__).resolve().parents[2] / "experiments" / "aa").glob("*.jsonl"))

Draws = np.random.Generator
Logs = NDArray[np.float64]
"""Logs of the times of blocks, in the order they ran: pair i has 2 i and 2 i + 1."""
Noise = Callable[[Draws, int], Logs]


def normal(draws: Draws, blocks: int) -> Logs:
    return draws.normal(0, 0.012, blocks)


def heavy(draws: Draws, blocks: int) -> Logs:
    """Now and then another program has the machine."""
    spells = (draws.random(blocks) < 0.1) * draws.exponential(0.2, blocks)
    return 0.008 * draws.standard_t(3, blocks) + spells


def drifting(draws: Draws, blocks: int) -> Logs:
    """The machine gets slower by 10 % over 60 blocks, and its noise hangs together."""
    steps = np.cumsum(draws.normal(0, 0.003, blocks))
    return 0.1 / 60 * np.arange(blocks) + steps + draws.normal(0, 0.008, blocks)


@cache
def kept(path: Path) -> AABlocks:
    return read_aa(path)


def from_file(path: Path) -> Noise:
    def noise(draws: Draws, blocks: int) -> Logs:
        pairs = resampled(kept(path).blocks, blocks // 2, draws)
        times = []
        for number, (a, b) in enumerate(pairs):
            turn = (a, b) if number % 2 == 0 else (b, a)
            times += [sum(block.total_s.values()) for block in turn]
        made: Logs = np.log(times)
        return made

    return noise


NOISES = {noise.__name__: noise for noise in (normal, heavy, drifting)} | {
    path.stem: from_file(path) for path in KEPT
}
every_noise = pytest.mark.parametrize("name", NOISES)


def story(logs: Sequence[float] | Logs, gain: float) -> Story:
    """Blocks A B B A that take ``exp(log)``; the condition is ``1 + gain`` times faster."""

    def seconds(turn: int, condition: str, _prompt: str) -> float:
        second = (condition == "suffix") == (turn % 2 == 0)
        base = math.exp(float(logs[2 * turn + second]))
        return base / (1 + gain) if condition == "suffix" else base

    return Story(seconds=seconds, prompts=("chat/0",))


def answers(noise: Noise, gain: float, pairs: int) -> list[bool | None]:
    given = manifest(rules=Rules(margin=PLANTED))
    draws = np.random.default_rng(pairs)
    cell = Cell("own", "suffix", "chat")
    return [
        time_gate(Evidence(given, story(noise(draws, 2 * pairs), gain).lines(pairs)), cell).passed
        for _ in range(TRIALS)
    ]


@cache
def asked_for(name: str) -> tuple[int, int]:
    """Pairs that the gate needs and that a plan should have, from many blocks of this noise."""
    draws = np.random.default_rng(7)
    series = [np.exp(NOISES[name](draws, 60)) for _ in range(10)]
    found = spread(series, "before")
    assert found is not None
    needed = pairs_needed(found.sigma, PLANTED, 0.95)
    planned = pairs_to_plan(found.sigma, PLANTED, 0.95)
    assert needed is not None
    assert planned is not None
    return needed, planned


@every_noise
def test_the_same_thing_is_adopted_in_five_percent_at_most(name: str) -> None:
    for pairs in (5, asked_for(name)[1]):
        found = answers(NOISES[name], 0.0, pairs)
        assert found.count(True) <= 0.05 * TRIALS


@every_noise
def test_a_planted_gain_is_found_with_the_pairs_asked_for(name: str) -> None:
    found = answers(NOISES[name], PLANTED, asked_for(name)[1])
    assert found.count(True) >= 0.8 * TRIALS


@every_noise
def test_with_half_of_the_pairs_the_answer_is_mostly_open(name: str) -> None:
    needed = asked_for(name)[0]
    found = answers(NOISES[name], PLANTED, max(needed // 2, 3))
    assert found.count(None) >= 0.9 * TRIALS
    assert found.count(False) <= 0.02 * TRIALS


def test_the_word_is_that_of_the_gate() -> None:
    """The same through all gates: nothing of A/A is adopted that the time gate did not pass."""
    draws = np.random.default_rng(1)
    given = manifest(rules=Rules(margin=PLANTED, drift_limit=1.0))
    words = {0.0: [], 0.2: []}  # type: dict[float, list[str]]
    for gain, found in words.items():
        for _ in range(30):
            logs = normal(draws, 40)
            lines = [*story(logs, gain).lines(20), *rolled_back()]
            found.append(verdicts(given, lines)[0].word)
    assert words[0.0].count("adopt") <= 3
    assert words[0.2].count("adopt") >= 27


kept_alone = pytest.mark.skipif(
    not KEPT, reason="experiments/aa has no recording yet; benchmarks/lab_aa.py makes one"
)


def words(path: Path, gain: float, pairs: int, trials: int) -> list[str]:
    """Words of whole verdicts, all gates included, over resampled blocks of a recording."""
    given = manifest(rules=Rules(margin=PLANTED))
    draws = np.random.default_rng(pairs + 1)
    noise = from_file(path)
    return [
        verdicts(given, [*story(noise(draws, 2 * pairs), gain).lines(pairs), *rolled_back()])[
            0
        ].word
        for _ in range(trials)
    ]


@kept_alone
def test_kept_recordings_are_long_enough() -> None:
    for path in KEPT:
        assert len(kept(path).blocks) >= 50, path.name


@kept_alone
def test_of_kept_recordings_hardly_one_is_adopted() -> None:
    for path in KEPT:
        for pairs in (5, max(asked_for(path.stem)[1], 20)):
            assert words(path, 0.0, pairs, 60).count("adopt") <= 0.05 * 60, (path.name, pairs)


def same_thing(path: Path, draws: Draws, pairs: int, prompts: int) -> Verdict:
    """The verdict on a condition that is ``none``, of whole resampled blocks and a way back."""
    sets = [resampled(kept(path).blocks, pairs, draws) for _ in range(prompts // 3)]
    names = [f"chat/{i}" for i in range(prompts)]

    def taken(turn: int, condition: str, prompt: str) -> float:
        group, own = divmod(names.index(prompt), 3)
        block = sets[group][turn][condition == "suffix"]
        return list(block.total_s.values())[own]

    def around(turn: int, condition: str) -> dict[str, float | None]:
        return {"probe_s": sets[0][turn][condition == "suffix"].probe_s}

    again = list(kept(path).blocks[draws.integers(len(kept(path).blocks))].total_s.values())
    back = [
        msgspec.structs.replace(x, total_s=again[names.index(x.prompt) % 3])
        if isinstance(x, RequestRecord)
        else x
        for x in rolled_back()
        if not isinstance(x, RequestRecord) or x.prompt in names
    ]
    story = Story(seconds=taken, prompts=names, block=around)
    return verdicts(manifest(rules=Rules()), [*story.lines(pairs), *back])[0]


def for_nothing(verdict: Verdict) -> bool:
    """A rejection for another reason than the true one, that the margin's gain is not there."""
    failed = [gate for gate in verdict.gates if gate.passed is False]
    true = [g for g in failed if g.name == "time" and "is excluded" in g.observed]
    return verdict.word == "reject" and failed != true


@kept_alone
@pytest.mark.parametrize("prompts", [3, 12])
@pytest.mark.parametrize("pairs", [2, 4, 5, 8, 12, 20])
def test_the_same_thing_is_rejected_for_nothing_in_five_percent_at_most(
    pairs: int, prompts: int
) -> None:
    """Whole verdicts: every gate has its part of the five percent; under five pairs none has."""
    for path in KEPT:
        draws = np.random.default_rng(pairs)
        made = [same_thing(path, draws, pairs, prompts) for _ in range(100)]
        assert sum(map(for_nothing, made)) <= 0.05 * len(made), (path.name, pairs)
        if prompts == 3:  # as they were recorded
            assert [v.word for v in made].count("reject") <= 0.05 * len(made), (path.name, pairs)
        if pairs < 5:
            assert {v.word for v in made} == {"inconclusive"}


@kept_alone
def test_a_gain_of_the_margin_is_hardly_ever_excluded() -> None:
    for path in KEPT:
        for pairs in (5, 8, 20, 40):
            assert answers(from_file(path), PLANTED, pairs).count(False) <= 0.05 * TRIALS


@kept_alone
def test_a_gain_planted_in_kept_recordings_passes_the_time_gate_with_the_pairs_asked_for() -> None:
    for path in KEPT:
        needed, planned = asked_for(path.stem)
        assert answers(from_file(path), PLANTED, planned).count(True) >= 0.8 * TRIALS, path.name
        few = answers(from_file(path), PLANTED, max(needed // 2, 3))
        assert few.count(None) >= 0.9 * TRIALS, path.name


@kept_alone
def test_the_default_drift_limit_repeats_few_blocks_of_a_quiet_machine() -> None:
    for path in KEPT:
        blocks = kept(path)
        known = [b for b in blocks.blocks if b.drift is not None]
        assert len(blocks.disturbed(Rules().drift_limit)) <= 0.2 * len(known), path.name
