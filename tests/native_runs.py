"""Running graphs on the native backend in tests: chains in chunks, trees, single ops."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from builders import TYPES_BY_NAME, Tensor, random_tensor, write_gguf
from slipstream.backends.base import Backend, Program, Step
from slipstream.gguf import GGUFFile
from slipstream.graph import Graph, GraphBuilder, Value, Weight
from slipstream.memory.attention import AttentionMemory
from slipstream.options import KvType

Floats = NDArray[np.float32]
Ints = NDArray[np.int32]


def compile_graph(
    backend: Backend,
    file: GGUFFile,
    graph: Graph,
    *,
    positions: int = 512,
    sequences: int = 2,
    kv_type: KvType = "f16",
) -> Program:
    """A program with a memory of its own."""
    memory = AttentionMemory(graph, positions, sequences, kv_type)
    return backend.compile(graph, backend.load(file, graph), memory)


def step_rows(
    sequence: int,
    tokens: Ints,
    parents: Sequence[int] | None = None,
    hidden: frozenset[str] = frozenset(),
) -> Step:
    """All rows of one sequence with all their logits; a chain unless parents are given."""
    rows = len(tokens)
    return Step(
        tokens=tokens,
        sequences=np.full(rows, sequence, np.int32),
        parents=np.asarray(range(-1, rows - 1) if parents is None else parents, np.int32),
        logit_rows=np.arange(rows, dtype=np.int32),
        hidden=hidden,
    )


def extend(program: Program, sequence: int, tokens: Ints, chunk: int | None = None) -> Floats:
    """Run and commit a chain; logits float32 ``[len(tokens), vocabulary]``."""
    parts = []
    for first in range(0, len(tokens), chunk or len(tokens)):
        part = tokens[first : first + (chunk or len(tokens))]
        parts.append(program.run(step_rows(sequence, part)).logits)
        program.memory.commit(sequence, range(len(part)))
    return np.concatenate(parts)


def chain_logits(program: Program, tokens: Ints, chunk: int | None = None) -> Floats:
    """``extend`` of a sequence of its own."""
    sequence = program.memory.open()
    logits = extend(program, sequence, tokens, chunk)
    program.memory.close(sequence)
    return logits


def same_bits(a: Floats, b: Floats) -> bool:
    return a.shape == b.shape and a.tobytes() == b.tobytes()


class OpGraphs:
    """Graphs of one op each, which read vectors and deliver ``logits`` (of all rows).

    Args:
        path: of the file to write, which holds ``matrices``, name -> (type, rows, columns).
    """

    def __init__(self, path: Path, matrices: dict[str, tuple[str, int, int]]) -> None:
        rng = np.random.default_rng(7)
        tensors: dict[str, Tensor] = {
            name: random_tensor(kind, rows, columns, rng, 0.1)
            for name, (kind, rows, columns) in matrices.items()
        }
        self.path = write_gguf(path, {"general.architecture": "llama"}, tensors)
        self.weights = {
            name: Weight(name, TYPES_BY_NAME[kind].ggml_id, rows, columns)
            for name, (kind, rows, columns) in matrices.items()
        }

    def builder(self) -> GraphBuilder:
        return GraphBuilder(self.weights)

    @staticmethod
    def finish(builder: GraphBuilder, out: Value) -> Graph:
        builder.output("logits", out)
        return Graph(tuple(builder.ops), "llama", out.width, out.width, 512)


def vector_step(vectors: dict[str, Floats], sequence: int, tokens: Ints | None = None) -> Step:
    """A chain of rows that start from vectors, float32 ``[rows, width]``."""
    rows = len(next(iter(vectors.values()))) if tokens is None else len(tokens)
    return Step(
        tokens=tokens,
        sequences=np.full(rows, sequence, np.int32),
        parents=np.arange(-1, rows - 1, dtype=np.int32),
        logit_rows=np.arange(rows, dtype=np.int32),
        vectors=vectors,
    )
