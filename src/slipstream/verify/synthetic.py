"""Synthetic acceptance: benchmarks what a rate of acceptance would give. THE OUTPUT IS INVALID.

Draft tokens are accepted with the rates asked for, whatever the target thinks of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from slipstream.acceptance_rates import conditional
from slipstream.drafters.base import ROOT, Draft
from slipstream.noise import PRETENCE, in_stream, uniform
from slipstream.sampling import Sampled, SamplerState, check_finite
from slipstream.verify.base import Verdict


class Synthetic:
    """
    Args:
        rates: depth i -> the probability that a draft's first i + 1 tokens are accepted; deeper
            tokens are not.
    """

    name = "synthetic"
    lossless = False
    seed_exact = False

    def __init__(self, rates: Sequence[float]) -> None:
        self._chances = conditional(rates)

    def verify(
        self, draft: Draft, logits: NDArray[np.float32], state: SamplerState, ends: Sequence[int]
    ) -> Verdict:
        """Follow the first child by chance, else emit what the target draws and stop.

        An end id is never accepted, so that the output goes on as long as the benchmark wants.
        """
        path: list[int] = []
        sampled: list[Sampled] = []
        children = draft.children()
        tested, node = 0, ROOT
        while True:
            row, nodes = logits[node + 1], children.get(node, [])
            tested += len(nodes[:1])
            accepted = bool(nodes) and self._accepts(draft.tokens[nodes[0]], len(path), state, ends)
            if not accepted:
                sampled.append(state.sample(row))
                state.advance(sampled[-1].token)
                return Verdict(tuple(path), tuple(sampled), tested, bool(nodes))
            node = nodes[0]
            path.append(node)
            check_finite(row)
            sampled.append(state.described(row, draft.tokens[node]))
            state.advance(draft.tokens[node])

    def _accepts(self, token: int, depth: int, state: SamplerState, ends: Sequence[int]) -> bool:
        if token in ends or depth >= len(self._chances):
            return False
        return uniform(state.seed, in_stream(state.index, PRETENCE)) < self._chances[depth]
