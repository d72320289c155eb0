"""The contract of a drafter: it proposes tokens; it never decides what is emitted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

ROOT = -1


@dataclass(frozen=True)
class Draft:
    """Proposed tokens as a tree in topological order; a chain is the common case.

    Attributes:
        tokens: node -> token id.
        parents: node -> parent node, ``ROOT`` = child of the newest sampled token. A parent comes
            before its children; siblings have different tokens and stand in draft order.
        distributions: float32 [nodes, vocabulary] the drafter drew each node from, or None when
            every candidate is deterministic (a point mass).
        method: the drafter's name.
    """

    tokens: tuple[int, ...] = ()
    parents: tuple[int, ...] = ()
    distributions: NDArray[np.float32] | None = None
    method: str = "none"

    @staticmethod
    def chain(tokens: Sequence[int], method: str) -> Draft:
        return Draft(tuple(tokens), tuple(range(-1, len(tokens) - 1)), None, method)

    def cut(self, nodes: int) -> Draft:
        """The first ``nodes`` nodes: a prefix in topological order is itself a tree."""
        kept = None if self.distributions is None else self.distributions[:nodes]
        return Draft(self.tokens[:nodes], self.parents[:nodes], kept, self.method)

    def __len__(self) -> int:
        return len(self.tokens)


@dataclass(frozen=True)
class DraftRequest:
    """One sequence that wants a draft.

    Attributes:
        sequence: engine sequence id.
        tokens: every token in the sequence so far, the newest sampled one (not yet in memory) last.
        n_max: most nodes the controller will verify.
        seed, index: noise of the next emitted token (design.md section 4, SamplerState).
    """

    sequence: int
    tokens: Sequence[int]
    n_max: int
    seed: int = 0
    index: int = 0


@dataclass(frozen=True)
class TargetPass:
    """What a target pass computed, for every row of every sequence, prefill included.

    Attributes:
        sequence: engine sequence id.
        tokens, positions: int32 [rows].
        parents: int32 [rows], index of the parent among these rows, -1 = committed prefix.
        hidden: requested hidden outputs, name -> float32 [rows, width].
    """

    sequence: int
    tokens: NDArray[np.int32]
    positions: NDArray[np.int32]
    parents: NDArray[np.int32]
    hidden: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """What verification said of the last draft of a sequence.

    Attributes:
        drafted: nodes verified (after the controller's cut); 0 when there was no draft.
        proposed: nodes the drafter proposed.
        accepted: length of the accepted path.
        tokens: accepted tokens and the next token, in order.
        method: name of the drafter whose draft it was.
    """

    drafted: int
    proposed: int
    accepted: int
    tokens: tuple[int, ...]
    method: str


@dataclass(frozen=True)
class DrafterNeeds:
    """What a drafter asks of the engine.

    Attributes:
        hidden: names of hidden outputs of the target.
        target_memory, target_embedding: whether it reads those.
    """

    hidden: frozenset[str] = frozenset()
    target_memory: bool = False
    target_embedding: bool = False


class Drafter(Protocol):
    name: str
    needs: DrafterNeeds

    def open(self, sequence: int, tokens: Sequence[int]) -> None:
        """A sequence starts; ``tokens`` is the whole prompt, of which a prefix may be reused."""

    def process(self, passes: Sequence[TargetPass]) -> None:
        """Called after every target pass."""

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """One draft (possibly empty) per request; ``n_min`` style rules are the drafter's own."""

    def observe(self, sequence: int, outcome: Outcome) -> None:
        """The verdict on this step; also called when nothing was drafted."""

    def fork(self, source: int, target: int) -> None: ...

    def close(self, sequence: int) -> None: ...
