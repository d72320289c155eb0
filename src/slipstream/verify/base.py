"""The contract of a verifier: it walks a draft and says which tokens are emitted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from slipstream.drafters.base import Draft
from slipstream.sampling import Sampled, SamplerState


@dataclass(frozen=True)
class Verdict:
    """Outcome of one verification step of one sequence.

    Attributes:
        path: accepted draft nodes from the root.
        sampled: one entry per token to emit: the accepted tokens, then the next token.
        tested: children examined on the walk (a chain: min(accepted + 1, drafted)).
        examined_leaf: whether the last node of the path (or the root) had children that were
            examined, none of which was accepted.
    """

    path: tuple[int, ...]
    sampled: tuple[Sampled, ...]
    tested: int
    examined_leaf: bool = False

    @property
    def next_token(self) -> int:
        return self.sampled[-1].token


class Verifier(Protocol):
    name: str
    lossless: bool
    seed_exact: bool

    def verify(
        self, draft: Draft, logits: NDArray[np.float32], state: SamplerState, ends: Sequence[int]
    ) -> Verdict:
        """Walk the draft, sampling a row only when it is reached.

        Args:
            draft: may be empty.
            logits: float32 [1 + nodes, vocabulary]; row 0 follows the newest committed token, row
                1 + i follows node i.
            state: advanced along the accepted path and the next token.
            ends: end-of-generation ids; the walk stops at one.
        """
