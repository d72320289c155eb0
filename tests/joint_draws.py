"""Draws of two tokens through a verifier, and the probabilities they must have.

The probabilities are computed here once more, by plain loops, so that a fault of the sampler chain
cannot hide in both.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from random import Random

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from fake_program import FakeProgram
from slipstream.drafters.base import ROOT, Distribution, Draft
from slipstream.options import SamplingOptions
from slipstream.sampling import SamplerState, default_primitives
from slipstream.verify.base import Verifier

VOCABULARY = 5
PROMPT = (0, 1, 1)
SPREAD = 1.2
PROGRAM = FakeProgram(VOCABULARY, spread=SPREAD)
PRIMITIVES = default_primitives()  # those of NumPy give the same tokens, 40 times slower
Pair = tuple[int, int]
Siblings = list[tuple[int, Distribution | None]]
Level = Callable[[list[int], SamplerState, Random], Siblings]
"""(tokens down to a node, the sampler at the root, randomness) -> candidates in draft order."""
Propose = Callable[[list[int], SamplerState, Random], Draft]


def _filtered(weights: list[float], options: SamplingOptions) -> list[int]:
    """Ids that top-k, top-p and min-p leave."""
    ids = sorted(range(len(weights)), key=lambda i: (-weights[i], i))
    if options.top_k:
        ids = ids[: options.top_k]
    whole, mass, prefix = sum(weights[i] for i in ids), 0.0, []
    for token in ids:
        prefix.append(token)
        mass += weights[token]
        if mass >= options.top_p * whole:
            break
    best = weights[ids[0]]
    return [token for token in prefix if weights[token] >= options.min_p * best]


def chain_probabilities(tokens: Sequence[int], options: SamplingOptions) -> list[float]:
    """Of the token after ``tokens``, under the whole sampler chain."""
    logits = [float(x) for x in PROGRAM.logits(tokens)]
    for token, bias in options.logit_bias.items():
        logits[token] += bias
    size = options.penalty_window
    recent = list(tokens) if size < 0 else list(tokens)[max(len(tokens) - size, 0) :]
    for token, count in Counter(recent).items():
        factor = options.repetition_penalty
        logits[token] *= 1 / factor if logits[token] > 0 else factor
        logits[token] -= count * options.frequency_penalty + options.presence_penalty
    left = _filtered([math.exp(x) for x in logits], options)
    weights = {token: math.exp(logits[token] / options.temperature) for token in left}
    return [weights.get(i, 0.0) / sum(weights.values()) for i in range(len(logits))]


def joint_probabilities(
    options: SamplingOptions, tokens: Sequence[int] = PROMPT
) -> dict[Pair, float]:
    """Of the two tokens after ``tokens``."""
    first = chain_probabilities(tokens, options)
    return {
        (a, b): share * second
        for a, share in enumerate(first)
        for b, second in enumerate(chain_probabilities([*tokens, a], options))
    }


def rows_of(tokens: Sequence[int], draft: Draft) -> NDArray[np.float32]:
    """Logits [1 + nodes, vocabulary] of a step."""
    histories = [list(tokens)]
    for token, parent in zip(draft.tokens, draft.parents, strict=True):
        histories.append([*histories[parent + 1], token])
    return np.stack([PROGRAM.logits(history) for history in histories])


def draw_pair(
    verifier: Verifier, propose: Propose, options: SamplingOptions, seed: int, random: Random
) -> Pair:
    """The first two tokens, from as many steps as it takes.

    Args:
        random: the drafter's own, carried on from pair to pair.
    """
    state, tokens = SamplerState(options, PROMPT, seed, PRIMITIVES), list(PROMPT)
    while len(tokens) < len(PROMPT) + 2:
        draft = propose(tokens, state, random)
        verdict = verifier.verify(draft, rows_of(tokens, draft), state, ())
        tokens += [drawn.token for drawn in verdict.sampled]
    return tokens[len(PROMPT)], tokens[len(PROMPT) + 1]


def p_value(expected: Mapping[Pair, float], draws: Sequence[Pair]) -> float:
    """Of a chi-square test; cells that expect fewer than 5 draws are pooled."""
    seen = Counter(draws)
    if any(not expected.get(pair, 0.0) > 0.0 for pair in seen):
        return 0.0
    cells = sorted((p * len(draws), seen[pair]) for pair, p in expected.items() if p > 0.0)
    pooled = [(0.0, 0)]
    for cell in cells:
        if pooled[-1][0] < 5.0:
            cell = (cell[0] + pooled[-1][0], cell[1] + pooled[-1][1])
            pooled.pop()
        pooled.append(cell)
    shares, counts = zip(*pooled, strict=True)
    return float(stats.chisquare(counts, shares).pvalue)


def trees(level: Level, depth: int = 2) -> Propose:
    """A drafter that proposes the level's candidates after every node down to ``depth``.

    A candidate that a sibling already has vanishes, as where two drafters propose the same.
    """

    def propose(tokens: list[int], state: SamplerState, random: Random) -> Draft:
        nodes: list[tuple[int, int, Distribution | None]] = []
        front = [(ROOT, tokens)]
        for _ in range(depth):
            grown = []
            for parent, history in front:
                siblings = level(history, state, random)
                for token, distribution in _first_of_each(siblings):
                    grown.append((len(nodes), [*history, token]))
                    nodes.append((token, parent, distribution))
            front = grown[:2]  # fewer rows; the others are leaves
        drawn, parents, distributions = zip(*nodes, strict=True) if nodes else ((), (), ())
        return Draft(drawn, parents, distributions=distributions)

    return propose


def _first_of_each(siblings: Siblings) -> Siblings:
    taken: dict[int, Distribution | None] = {}
    for token, distribution in siblings:
        taken.setdefault(token, distribution)
    return list(taken.items())


@cache
def _draft_distribution(tokens: tuple[int, ...], drafter: int) -> Distribution:
    """Somewhat like the target's; without one id, which differs from place to place."""
    own = PROGRAM.logits([*tokens, 100 + drafter]).astype(np.float64)
    weights = np.exp(0.5 * PROGRAM.logits(tokens) + own)
    ids = np.delete(np.arange(VOCABULARY), (sum(tokens) + drafter) % VOCABULARY)
    return Distribution(ids, weights[ids] / weights[ids].sum())


def q_of(tokens: Sequence[int], drafter: int = 0) -> Distribution:
    """What a drafter draws from after ``tokens``."""
    return _draft_distribution(tuple(tokens), drafter)


def draw(distribution: Distribution, random: Random) -> int:
    weights = distribution.probabilities.tolist()
    return int(random.choices(distribution.ids.tolist(), weights)[0])


@cache
def q_without(tokens: tuple[int, ...], taken: frozenset[int]) -> Distribution:
    """What the first drafter draws from, renormalised over the other ids."""
    whole = q_of(tokens)
    left = ~np.isin(whole.ids, list(taken))
    weights = whole.probabilities[left]
    return Distribution(whole.ids[left], weights / weights.sum())


def probability(distribution: Distribution, token: int) -> float:
    return float(distribution.probabilities[distribution.ids == token].sum())


def random_points(count: int) -> Level:
    """Point masses at random."""
    return lambda _tokens, _state, random: [
        (token, None) for token in random.sample(range(VOCABULARY), count)
    ]


def stubborn_points(tokens: list[int], state: SamplerState, random: Random) -> Siblings:
    """Always the same two."""
    del tokens, state, random
    return [(3, None), (0, None)]


def one_drawn(tokens: list[int], state: SamplerState, random: Random) -> Siblings:
    del state
    return [(draw(q_of(tokens), random), q_of(tokens))]


def drawn_siblings(tokens: list[int], state: SamplerState, random: Random) -> Siblings:
    """Three without replacement, the first two stated as whole, the third as conditional."""
    del state
    whole, siblings = q_of(tokens), Siblings()
    for number in range(3):
        left = q_without(tuple(tokens), frozenset(token for token, _ in siblings))
        siblings.append((draw(left, random), whole if number < 2 else left))
    return siblings


def merged(tokens: list[int], state: SamplerState, random: Random) -> Siblings:
    """A point mass, a draw of one drafter, a point mass, a draw of another drafter."""
    del state
    first, second = q_of(tokens), q_of(tokens, 1)
    return [
        (random.randrange(VOCABULARY), None),
        (draw(first, random), first),
        (sum(tokens) % VOCABULARY, None),
        (draw(second, random), second),
    ]


def knowing(tokens: list[int], state: SamplerState, random: Random) -> Siblings:
    """Foresees plain decoding's next token; where it is an odd one, another drafter is asked."""
    sampler = state.fork()
    for token in tokens[len(PROMPT) + state.index :]:
        sampler.advance(token)
    foreseen = sampler.sample(PROGRAM.logits(tokens)).token
    if foreseen % 2:
        return one_drawn(tokens, state, random)
    return [((foreseen + 1) % VOCABULARY, None), (foreseen, None)]


DRAFTERS: dict[str, Propose] = {
    "point masses, chain": trees(random_points(1)),
    "drawn, chain": trees(one_drawn),
    "point masses, tree": trees(random_points(3)),
    "the same point masses, tree": trees(stubborn_points),
    "drawn siblings, tree": trees(drawn_siblings),
    "point masses and two drafters' draws, tree": trees(merged),
    "knows plain decoding, tree": trees(knowing),
}
OPTIONS: dict[str, SamplingOptions] = {
    "temperature 1": SamplingOptions(temperature=1.0),
    "temperature 0.6": SamplingOptions(temperature=0.6),
    "temperature 1.8": SamplingOptions(temperature=1.8),
    "top-k": SamplingOptions(temperature=1.0, top_k=3),
    "top-p": SamplingOptions(temperature=1.0, top_p=0.8),
    "min-p": SamplingOptions(temperature=1.0, min_p=0.2),
    "penalties": SamplingOptions(
        temperature=1.0,
        repetition_penalty=1.4,
        frequency_penalty=0.4,
        presence_penalty=0.3,
        penalty_window=3,
    ),
    "bias": SamplingOptions(temperature=1.0, logit_bias={2: 1.5, 0: -1.0}),
    "all": SamplingOptions(
        temperature=1.3,
        top_k=4,
        top_p=0.95,
        min_p=0.05,
        repetition_penalty=1.2,
        presence_penalty=0.3,
        logit_bias={2: 0.7},
    ),
}
