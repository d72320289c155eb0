"""The contract of a backend: it compiles a graph to a program; one call runs a whole step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from slipstream.gguf import GGUFFile
from slipstream.graph import Graph
from slipstream.memory.base import Memory

Progress = Callable[[int, int], None]
"""Called with (weight bytes done, weight bytes in all)."""


@dataclass(frozen=True)
class Step:
    """The rows of one pass, over all sequences.

    Attributes:
        tokens: int32 [rows], or None when the graph starts from vectors.
        sequences: int32 [rows], memory handles; rows of a sequence are contiguous.
        parents: int32 [rows], step row of the parent; -1 = follows the committed prefix.
        logit_rows: int32 [m], rows whose logits are wanted, ascending.
        vectors: named float32 [rows, width] inputs.
        hidden: names of hidden outputs wanted.
    """

    tokens: NDArray[np.int32] | None
    sequences: NDArray[np.int32]
    parents: NDArray[np.int32]
    logit_rows: NDArray[np.int32]
    vectors: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)
    hidden: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Outputs:
    """What a step computed.

    Attributes:
        logits: float32 [m, vocabulary].
        hidden: name -> float32 [rows, width] (row set of the output's value).
        elapsed_s: wall seconds inside the backend.
    """

    logits: NDArray[np.float32]
    hidden: Mapping[str, NDArray[np.float32]]
    elapsed_s: float


class Weights(Protocol):
    """Loaded tensors, shared by programs."""

    step_bytes: int  # weight bytes that one decode step reads
    resident_bytes: int


class Program(Protocol):
    """A compiled graph bound to weights and a memory."""

    memory: Memory
    graph: Graph

    def run(self, step: Step) -> Outputs:
        """Compute all rows; keys and values are written, nothing is committed."""

    def observed(self) -> Mapping[str, int]:
        """Kernel path -> number of calls since the program was compiled."""


def varying_ops(row_invariant: Mapping[str, bool], graph: Graph) -> tuple[str, ...]:
    """Op kinds of a graph whose bits may depend on the rows of a step, sorted.

    A kind that the map lacks counts as one.
    """
    kinds = {type(op).__name__ for op in graph.ops}
    return tuple(sorted(kind for kind in kinds if not row_invariant.get(kind, False)))


class Backend(Protocol):
    name: str
    row_invariant: Mapping[str, bool]  # per op kind: does design.md's row law hold

    @property
    def precision(self) -> str:
        """Of the activations that quantised weights meet: a8, a16 or float32."""

    def load(self, file: GGUFFile, graph: Graph, progress: Progress | None = None) -> Weights: ...

    def compile(self, graph: Graph, weights: Weights, memory: Memory) -> Program: ...
