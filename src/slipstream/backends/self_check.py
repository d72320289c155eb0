"""Whether an instruction-set level gives the portable level's bits on this processor.

One program per level holds an op of every kind that has kernels, another the products at a16; they
run a few row counts around the pass sizes, and all outputs are compared bit by bit. Levels equal
in bits is a law of the native core, so one level is the oracle of another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from slipstream import _native
from slipstream.backends._cpu_weights import CpuWeights
from slipstream.backends.base import Step
from slipstream.backends.cpu import CpuBackend, native_types
from slipstream.dispatch.select import Plan
from slipstream.dispatch.structure import matrices
from slipstream.graph import Graph, GraphBuilder, RopeTable, Value, Weight
from slipstream.memory.attention import AttentionMemory
from slipstream.options import KvType
from slipstream.quants import QUANT_TYPES, SCALE_FIELDS, type_name

Floats = NDArray[np.float32]
Blocks = dict[Weight, NDArray[np.uint8]]

COLUMNS: Final = 512  # two blocks of the largest type
OUTPUT_ROWS: Final = 32  # two strips
ROWS: Final = (1, 3, 8, 9)
PLANE_ROWS: Final = (9,)  # 18 to the kernels: a group of several passes, and one of a single pass
HEADS: Final = 4
HEAD_DIM: Final = 64
NORM: Final = "norm"
ATTENTION: Final = "attention"


def self_check(isa: str, *, against: str = "portable") -> str | None:
    """Compare all bits of two levels; returns what differs first, None when nothing does.

    Args:
        isa, against: levels of ``_native.isa_levels()``.

    Raises:
        OptionError: a level is not available here.
    """
    graph = _whole_graph()
    blocks = {weight: _blocks(weight.type_id) for op in graph.ops for weight in matrices(op)}
    pairs = zip(_results(isa, graph, blocks), _results(against, graph, blocks), strict=True)
    for (name, found), (_, expected) in pairs:
        if found != expected:
            return f"{name} differs from {against}'s"
    return None


def _products(g: GraphBuilder, x: Value) -> None:
    """A product with every weight type, delivered by itself."""
    for type_id in sorted(native_types()):
        name = type_name(type_id)
        g.output(name, g.linear(x, Weight(name, type_id, OUTPUT_ROWS, COLUMNS)))


def _product_graph() -> Graph:
    g = GraphBuilder({})
    x = g.input("x", COLUMNS)
    _products(g, x)
    g.output("logits", x)
    return Graph(tuple(g.ops), "self-check", COLUMNS, COLUMNS, sum(ROWS))


def _whole_graph() -> Graph:
    """Every weight type and every op with kernels, each delivered by itself."""
    g = GraphBuilder({})
    x, y = g.input("x", COLUMNS), g.input("y", COLUMNS)
    _products(g, x)
    g.output("rms_norm", g.rms_norm(x, Weight(NORM, 0, 1, COLUMNS), 1e-6))
    g.output("silu", g.gated(x, y, "silu"))
    g.output("gelu_tanh", g.gated(x, y, "gelu_tanh"))
    g.output("softcap", g.softcap(x, 3.0))
    heads, frequencies = COLUMNS // HEAD_DIM, tuple(10_000.0 ** (-i / 16) for i in range(16))
    g.output("rope norm", g.rope(x, heads, HEAD_DIM, RopeTable("norm", 32, frequencies)))
    g.output("rope neox", g.rope(x, heads, HEAD_DIM, RopeTable("neox", 32, frequencies)))
    query, key, value = (g.input(name, HEADS * HEAD_DIM) for name in ("query", "key", "value"))
    shape = {"heads": HEADS, "kv_heads": HEADS, "head_dim": HEAD_DIM}
    g.output(ATTENTION, g.attention(query, key, value, layer=0, scale=0.125, **shape))
    g.output("logits", g.add(x, y))
    return Graph(tuple(g.ops), "self-check", COLUMNS, COLUMNS, sum(ROWS))


def _results(isa: str, graph: Graph, blocks: Blocks) -> Iterator[tuple[str, bytes]]:
    """(what, bytes of the result) in a fixed order; keys of earlier steps are attended to."""
    weights = _weights(isa, blocks)
    every = frozenset(graph.outputs()) - {"logits"}
    yield from _steps(isa, graph, weights, ROWS, every)
    kept = _steps(isa, graph, weights, ROWS, frozenset({ATTENTION}), "q8_0")
    yield from ((f"{name}, keys in q8_0", found) for name, found in kept)
    weights.plan = Plan(isa, (), "a16")
    products = _product_graph()
    names = frozenset(products.outputs()) - {"logits"}
    planes = _steps(isa, products, weights, PLANE_ROWS, names)
    yield from ((f"{name} at a16", found) for name, found in planes)
    yield from _sampling(isa)


def _steps(
    isa: str,
    graph: Graph,
    weights: CpuWeights,
    counts: Sequence[int],
    names: frozenset[str],
    kv_type: KvType = "f16",
) -> Iterator[tuple[str, bytes]]:
    """What the steps of one sequence give, each committed before the next."""
    backend = CpuBackend(isa, threads=1)
    program = backend.compile(graph, weights, AttentionMemory(graph, sum(ROWS), 1, kv_type))
    sequence = program.memory.open()
    for rows in counts:
        outputs = program.run(_step(sequence, rows, names))
        program.memory.commit(sequence, range(rows))
        yield f"logits, rows {rows}", outputs.logits.tobytes()
        for name in sorted(outputs.hidden):
            yield f"{name}, rows {rows}", outputs.hidden[name].tobytes()


def _sampling(isa: str) -> Iterator[tuple[str, bytes]]:
    row = _floats(COLUMNS, 99)
    yield "argmax", bytes(_native.argmax(row, isa).to_bytes(4, "little"))
    yield "log_sum_exp", np.float64(_native.log_sum_exp(row, isa)).tobytes()
    for index in range(4):
        token = _native.sample(row, 0.7, 40, 0.9, 0.01, 5, index, isa)
        yield f"sample {index}", token.to_bytes(4, "little")


def _weights(isa: str, blocks: Blocks) -> CpuWeights:
    """Every matrix in its own type, so no plan is asked."""
    weights, pool = CpuWeights(Plan(isa, ())), _native.Pool(1)
    sizes = (_native.matrix_bytes(w.type_id, OUTPUT_ROWS, COLUMNS) for w in blocks)
    arena = _native.Arena(sum(sizes))
    for weight, data in blocks.items():
        source = _native.SourceRows(weight.type_id, data, OUTPUT_ROWS, COLUMNS)
        scales = SCALE_FIELDS[weight.type_id]
        fields = [(field.offset, field.width, field.exponent) for field in scales]
        matrix = _native.pack(pool, arena, source, fields, isa)
        assert matrix is not None, "the scales below are finite"
        weights.matrices[weight] = matrix
    weights.vectors[Weight(NORM, 0, 1, COLUMNS)] = _floats(COLUMNS, 7)
    return weights


def _blocks(type_id: int) -> NDArray[np.uint8]:
    """Blocks of any codes whose scales are small and finite."""
    kind = QUANT_TYPES[type_id]
    count = OUTPUT_ROWS * COLUMNS // kind.block_elements
    data = _hash(count * kind.block_bytes, type_id).astype(np.uint8).reshape(count, -1)
    for field in SCALE_FIELDS[type_id]:
        scales = _hash(count, field.offset + 1).astype("<u4") & 0x3FF
        if field.width == 1:  # E8M0, from 2^-8 on
            values = (scales & 7 | 120).astype(np.uint8)
        elif field.width == 4:
            values = (scales / 1024 - 0.5).astype("<f4").view(np.uint8)
        else:
            # exponents of float16 numbers from 2^-6 on, of bfloat16 from 2^-7 on
            start = 0x2400 if field.exponent == 0x7C00 else 0x3C00
            values = (scales & 0xFF | start).astype("<u2").view(np.uint8)
        data[:, field.offset : field.offset + field.width] = values.reshape(count, -1)
    return data.reshape(-1)


def _step(sequence: int, rows: int, hidden: frozenset[str]) -> Step:
    widths = {"x": COLUMNS, "y": COLUMNS}
    widths |= dict.fromkeys(("query", "key", "value"), HEADS * HEAD_DIM)
    vectors = {
        name: _floats(rows * width, rows + at).reshape(rows, width)
        for at, (name, width) in enumerate(widths.items())
    }
    parents = np.arange(-1, rows - 1, dtype=np.int32)
    sequences = np.full(rows, sequence, np.int32)
    every = np.arange(rows, dtype=np.int32)
    return Step(None, sequences, parents, every, vectors, hidden)


def _hash(count: int, seed: int) -> NDArray[np.uint64]:
    """24-bit numbers without a generator: Knuth's multiplicative hash of consecutive integers."""
    numbers = np.arange(count, dtype=np.uint64) + np.uint64(seed * 65_537 + 1)
    return (numbers * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(40)


def _floats(count: int, seed: int) -> Floats:
    """Numbers in [-4, 4)."""
    return ((_hash(count, seed) / 2.0**24 - 0.5) * 8).astype(np.float32)
