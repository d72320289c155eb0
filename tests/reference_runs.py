"""Running a graph on the reference backend in tests: rows, chains, trees and chunks."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from slipstream.backends.base import Step
from slipstream.backends.reference import ReferenceBackend, ReferenceProgram
from slipstream.gguf import GGUFFile
from slipstream.graph import Graph
from slipstream.memory.attention import AttentionMemory

Floats = NDArray[np.float32]


def program(
    file: GGUFFile, graph: Graph, *, positions: int = 512, sequences: int = 2, **options: bool
) -> ReferenceProgram:
    """A compiled program with a memory of its own; ``options`` are the backend's."""
    backend = ReferenceBackend(**options)
    memory = AttentionMemory(graph, positions, sequences)
    return backend.compile(graph, backend.load(file, graph), memory)


def step(
    sequence: int,
    tokens: NDArray[np.int32],
    parents: list[int] | None = None,
    hidden: frozenset[str] = frozenset(),
) -> Step:
    """All rows of one sequence, with all their logits; a chain unless parents are given."""
    rows = len(tokens)
    chain = np.arange(-1, rows - 1, dtype=np.int32)
    return Step(
        tokens=tokens,
        sequences=np.full(rows, sequence, np.int32),
        parents=chain if parents is None else np.asarray(parents, np.int32),
        logit_rows=np.arange(rows, dtype=np.int32),
        hidden=hidden,
    )


def run_rows(
    file: GGUFFile,
    graph: Graph,
    tokens: NDArray[np.int32],
    *,
    chunk: int | None = None,
    **options: bool,
) -> Floats:
    """Logits of a chain from an empty sequence, float32 ``[len(tokens), vocabulary]``."""
    compiled = program(file, graph, **options)
    sequence = compiled.memory.open()
    parts = []
    for first in range(0, len(tokens), chunk or len(tokens)):
        part = tokens[first : first + (chunk or len(tokens))]
        parts.append(compiled.run(step(sequence, part)).logits)
        compiled.memory.commit(sequence, range(len(part)))
    return np.concatenate(parts)
