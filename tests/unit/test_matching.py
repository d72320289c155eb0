"""Sample-and-match over chains and trees, row by row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from slipstream.drafters.base import Draft
from slipstream.options import SamplingOptions
from slipstream.sampling import NumpyPrimitives, SamplerState
from slipstream.verify.base import Verdict
from slipstream.verify.matching import Matching

VOCABULARY = 10


def verify(draft: Draft, rows: Sequence[int], ends: Sequence[int] = (), **options: Any) -> Verdict:
    """Greedy verification where row i has its maximum at ``rows[i]``."""
    logits = np.zeros((1 + len(draft), VOCABULARY), np.float32)
    logits[np.arange(len(rows)), rows] = 5.0
    state = SamplerState(SamplingOptions(**options), (), 0, NumpyPrimitives())
    verdict = Matching().verify(draft, logits, state, ends)
    assert state.index == len(verdict.sampled) == len(verdict.path) + 1
    return verdict


def tokens(verdict: Verdict) -> list[int]:
    return [sampled.token for sampled in verdict.sampled]


def test_it_is_lossless_and_seed_exact() -> None:
    assert (Matching.name, Matching.lossless, Matching.seed_exact) == ("matching", True, True)


def test_without_a_draft_it_samples_one_token() -> None:
    verdict = verify(Draft(), [4])
    assert (verdict.path, tokens(verdict), verdict.tested) == ((), [4], 0)
    assert verdict.next_token == 4


@pytest.mark.parametrize(
    ("rows", "path", "emitted", "tested"),
    [
        ([9, 0, 0, 0], (), [9], 1),
        ([1, 9, 0, 0], (0,), [1, 9], 2),
        ([1, 2, 9, 0], (0, 1), [1, 2, 9], 3),
        ([1, 2, 3, 9], (0, 1, 2), [1, 2, 3, 9], 3),
        ([2, 2, 3, 9], (), [2], 1),
    ],
)
def test_chains(rows: list[int], path: tuple[int, ...], emitted: list[int], tested: int) -> None:
    verdict = verify(Draft.chain([1, 2, 3], "test"), rows)
    assert (verdict.path, tokens(verdict), verdict.tested) == (path, emitted, tested)


#     root ── 1 (node 0) ── 3 (node 2) ── 5 (node 5)
#        │               └─ 4 (node 3)
#        └─── 2 (node 1) ── 3 (node 4)
TREE = Draft((1, 2, 3, 4, 3, 5), (-1, -1, 0, 0, 1, 2))


@pytest.mark.parametrize(
    ("rows", "path", "emitted", "tested"),
    [
        ({-1: 1, 0: 3, 2: 5, 5: 7}, (0, 2, 5), [1, 3, 5, 7], 3),
        ({-1: 1, 0: 4, 3: 8}, (0, 3), [1, 4, 8], 3),
        ({-1: 2, 1: 3, 4: 6}, (1, 4), [2, 3, 6], 3),
        ({-1: 2, 1: 4}, (1,), [2, 4], 3),
        ({-1: 6}, (), [6], 2),
        ({-1: 1, 0: 9}, (0,), [1, 9], 3),
    ],
)
def test_trees(
    rows: dict[int, int], path: tuple[int, ...], emitted: list[int], tested: int
) -> None:
    # rows off the path would all be accepted if they were looked at
    peaks = [rows.get(node, 3) for node in range(-1, len(TREE))]
    verdict = verify(TREE, peaks)
    assert (verdict.path, tokens(verdict), verdict.tested) == (path, emitted, tested)


@pytest.mark.parametrize(
    ("rows", "path", "emitted", "tested"),
    [([7, 0, 0], (), [7], 0), ([1, 7, 0], (0,), [1, 7], 1), ([1, 2, 7], (0, 1), [1, 2, 7], 2)],
)
def test_an_end_token_stops_the_walk(
    rows: list[int], path: tuple[int, ...], emitted: list[int], tested: int
) -> None:
    verdict = verify(Draft.chain([1, 2], "test"), rows, ends=(6, 7))
    assert (verdict.path, tokens(verdict), verdict.tested) == (path, emitted, tested)


def test_a_foreseen_end_token_is_the_next_token_not_an_accepted_one() -> None:
    verdict = verify(Draft.chain([1, 7, 2], "test"), [1, 7, 2, 3], ends=(7,))
    assert (verdict.path, tokens(verdict), verdict.tested) == ((0,), [1, 7], 1)


def test_penalties_move_along_the_accepted_path() -> None:
    draft = Draft.chain([1, 1, 1], "test")
    verdict = verify(draft, [1, 1, 1, 1], presence_penalty=9.0)
    assert tokens(verdict) == [1, 0]


def test_drafted_and_plain_sampling_draw_the_same_tokens() -> None:
    generator = np.random.default_rng(1)
    logits = generator.standard_normal((5, VOCABULARY)).astype(np.float32)
    options = SamplingOptions(temperature=1.0, frequency_penalty=0.5)
    plain = SamplerState(options, (), 3, NumpyPrimitives())
    expected = []
    for row in logits:
        expected.append(plain.sample(row).token)
        plain.advance(expected[-1])
    for right in range(5):
        state = SamplerState(options, (), 3, NumpyPrimitives())
        draft = Draft.chain([*expected[:right], *[(t + 1) % 10 for t in expected[right:4]]], "t")
        verdict = Matching().verify(draft, logits, state, ())
        assert tokens(verdict) == expected[: len(verdict.path) + 1]
        assert len(verdict.path) == min(right, 4)
