"""Sample-and-match: a draft token is accepted when the target's own sampler draws the same token.

Every emitted token is the target's, drawn with the noise of its index, so the output is that of
plain decoding at every temperature; greedy decoding is temperature 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from slipstream.drafters.base import ROOT, Draft
from slipstream.sampling import Sampled, SamplerState
from slipstream.verify.base import Verdict


class Matching:
    name = "matching"
    lossless = True
    seed_exact = True

    def verify(
        self, draft: Draft, logits: NDArray[np.float32], state: SamplerState, ends: Sequence[int]
    ) -> Verdict:
        """Follow the child that equals the sampled token; siblings are examined in draft order.

        An end id stops the walk before its children are looked at: it is the next token, never an
        accepted one, even where the draft foresaw it.
        """
        path: list[int] = []
        sampled: list[Sampled] = []
        children = draft.children()
        tested, node = 0, ROOT
        while True:
            drawn = state.sample(logits[node + 1])
            state.advance(drawn.token)
            sampled.append(drawn)
            nodes = [] if drawn.token in ends else children.get(node, [])
            tokens = [draft.tokens[child] for child in nodes]
            if drawn.token not in tokens:
                return Verdict(tuple(path), tuple(sampled), tested + len(tokens), bool(tokens))
            rank = tokens.index(drawn.token)
            tested += rank + 1
            node = nodes[rank]
            path.append(node)
