"""From the logits of a draft model to the tokens that may follow.

Guessed: the target's sampler at this place (its options, penalties, grammar and noise) is asked
what it would draw from the draft model's logits; so a good draft model foresees the draw above
temperature 0 too. Drawn (rejection sampling): a token of the sampler's distribution of the draft
logits, with noise of its own, later siblings without the earlier ones.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from slipstream.drafters.base import Distribution
from slipstream.drafters.draft_tree import Child
from slipstream.noise import philox
from slipstream.sampling import SamplerState

Row = NDArray[np.float32]

ABSENT: Final = np.float32(-1e30)
"""Logit of an id that the draft model lacks: finite, as samplers require, and of probability 0."""
STREAM: Final = 0x44524146
"""Fourth word of the noise counter: no other user of the seed has it."""


@dataclass(frozen=True)
class Rules:
    """
    Attributes:
        vocabulary: number of token ids of the target.
        branches: most children of a node.
        p_min: least probability of the likeliest token, else nothing follows.
        ends: end-of-generation ids; verification accepts none, so none is guessed.
    """

    vocabulary: int
    branches: int
    p_min: float
    ends: Collection[int]


def fitted(row: Row, vocabulary: int) -> Row:
    """The logits, one for each id of the target; ``ABSENT`` where the model has none."""
    if row.size == vocabulary:
        return row
    wide = np.full(vocabulary, ABSENT, np.float32)
    known = min(row.size, vocabulary)
    wide[:known] = row[:known]
    return wide


def guessed(row: Row, state: SamplerState, rules: Rules) -> list[Child]:
    """The token that the target's sampler would take, then what it would take without that one.

    The estimate is the softmax probability over all the draft model's ids at temperature 1.

    Args:
        row: float32 [ids that the draft model drafts].
        state: the sampler at this place; not advanced.
    """
    total = state.primitives.log_sum_exp(row)
    if math.exp(float(row.max()) - total) < rules.p_min:
        return []
    wide = fitted(row, rules.vocabulary)
    ranked: list[tuple[int, float]] = []
    while len(ranked) < rules.branches:
        if len(ranked) == 1 and wide is row:
            wide = row.copy()
        if ranked:
            wide[ranked[-1][0]] = ABSENT
        token = state.sample(wide).token
        if wide[token] <= ABSENT:
            break
        ranked.append((token, min(math.exp(float(wide[token]) - total), 1.0)))
    return _weighted(ranked, () if state.options.ignore_eos else rules.ends)


def _weighted(ranked: list[tuple[int, float]], ends: Collection[int]) -> list[Child]:
    """A child never weighs less than a later one: it is the likelier draw, its noise included."""
    children: list[Child] = []
    weight = 0.0
    for token, estimate in reversed(ranked):
        weight = max(weight, estimate)
        if token not in ends:
            children.append(Child(token, estimate, weight))
    return children[::-1]


def drawn(row: Row, state: SamplerState, rules: Rules, draws: int, stop: bool) -> list[Child]:
    """Tokens drawn one after the other without replacement, each with its distribution.

    The estimates are what is known before the draw: the probability that two draws agree, times
    that of all earlier siblings being rejected if the target's distribution were the same.

    Args:
        draws: random numbers of this sequence used so far; one is used per child.
        stop: whether ``p_min`` applies.
    """
    if stop and rules.p_min > 0.0:
        total = state.primitives.log_sum_exp(row)
        if math.exp(float(row.max()) - total) < rules.p_min:
            return []
    spread = state.distribution(fitted(row, rules.vocabulary))
    ids = np.flatnonzero(spread)
    shares = spread[ids]
    agreement = float(np.square(shares).sum())
    ends = () if state.options.ignore_eos else rules.ends
    children: list[Child] = []
    for rank in range(min(rules.branches, ids.size)):
        place = _place(shares, state.seed, draws + rank)
        token = int(ids[place])
        estimate = agreement * (1.0 - agreement) ** rank
        distribution = Distribution(ids, shares)
        children.append(Child(token, estimate, None, token in ends, distribution))
        ids, shares = np.delete(ids, place), np.delete(shares, place)
        left = float(shares.sum())
        if left <= 0.0:
            break
        shares = shares / left
    return children


def _place(shares: NDArray[np.float64], seed: int, draw: int) -> int:
    """The index drawn with probabilities ``shares``, by inversion."""
    counter = np.array([draw & 0xFFFFFFFF], np.uint64)
    key = (seed & 0xFFFFFFFF, seed >> 32)
    words = philox((counter, draw >> 32, 0, STREAM), key)
    uniform = (float(words[0][0]) + (float(words[1][0]) + 0.5) * 2.0**-32) * 2.0**-32
    cumulative = np.cumsum(shares)
    place = int(np.searchsorted(cumulative, uniform * cumulative[-1], side="right"))
    return min(place, shares.size - 1)
