"""The bit laws op by op, and each native op against the reference backend.

Tolerances: a sum of n float32 products in any order is within n * 2^-24 * sum |products| of the
exact one (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1), on either side;
an element-wise formula is within a few units of 2^-24 of its operands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import get_args

import numpy as np
import pytest

from builders import TYPES_BY_NAME
from native_runs import Floats, OpGraphs, compile_graph, same_bits, vector_step

pytest.importorskip("slipstream._native")

from slipstream import _native
from slipstream.backends.base import Backend
from slipstream.backends.cpu import CpuBackend
from slipstream.backends.reference import ReferenceBackend
from slipstream.gguf import GGUFFile, open_gguf
from slipstream.graph import Graph, GraphBuilder, Op, RopeTable, Value
from slipstream.options import Precision
from slipstream.quants import QUANT_TYPES, quant_type

pytestmark = pytest.mark.native

TYPES = tuple(kind.name for kind in QUANT_TYPES.values())
ROWS = (*range(1, 18), 31, 32, 33)
WIDTH = 512
UNIT = 2.0**-24
HEADS, KV_HEADS, HEAD_DIM = 6, 2, 64
FREQUENCIES = tuple(10_000.0 ** (-i / 16) for i in range(16))

BLOCKS = {kind.name: kind.block_elements for kind in QUANT_TYPES.values()}
RAGGED = {
    **{f"{kind}_one_block": (kind, 17, BLOCKS[kind]) for kind in TYPES},
    **{f"{kind}_odd": (kind, 5, 37 if BLOCKS[kind] == 1 else 3 * BLOCKS[kind]) for kind in TYPES},
}
"""Widths of one block and of an odd number, no multiple of a vector; rows that fill no strip."""

MATRICES = {
    **{f"{kind}.weight": (kind, 100, WIDTH) for kind in TYPES},
    **{f"{name}.weight": shape for name, shape in RAGGED.items()},
    "norm.weight": ("f32", 1, WIDTH),
    "head_norm.weight": ("f32", 1, HEAD_DIM),
    "bias.weight": ("f32", 1, 100),
    "small.weight": ("q8_0", 3, 32),
}


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> OpGraphs:
    return OpGraphs(tmp_path_factory.mktemp("ops") / "ops.gguf", MATRICES)


@pytest.fixture(scope="module")
def file(graphs: OpGraphs) -> Iterator[GGUFFile]:
    with open_gguf(graphs.path) as opened:
        yield opened


Build = Callable[[GraphBuilder], Value]


def rms_norm(g: GraphBuilder) -> Value:
    return g.rms_norm(g.input("x", WIDTH), g.weight("norm.weight"), 1e-6)


def bare_norm(g: GraphBuilder) -> Value:
    return g.rms_norm(g.input("x", WIDTH), None, 1e-6)


def head_norm(g: GraphBuilder) -> Value:
    return g.rms_norm(g.input("x", WIDTH), g.weight("head_norm.weight"), 1e-6, HEAD_DIM)


def rope(kind: str) -> Build:
    def build(g: GraphBuilder) -> Value:
        table = RopeTable("neox" if kind == "neox" else "norm", 32, FREQUENCIES, 1.25)
        return g.rope(g.input("x", WIDTH), WIDTH // HEAD_DIM, HEAD_DIM, table)

    return build


def gated(activation: str) -> Build:
    def build(g: GraphBuilder) -> Value:
        gate, up = g.input("x", WIDTH), g.input("y", WIDTH)
        return g.gated(gate, up, "silu" if activation == "silu" else "gelu_tanh")

    return build


def attention(window: int | None) -> Build:
    def build(g: GraphBuilder) -> Value:
        query, key = g.input("q", HEADS * HEAD_DIM), g.input("k", KV_HEADS * HEAD_DIM)
        return g.attention(
            query,
            key,
            g.input("v", KV_HEADS * HEAD_DIM),
            layer=0,
            heads=HEADS,
            kv_heads=KV_HEADS,
            head_dim=HEAD_DIM,
            scale=0.125,
            window=window,
        )

    return build


def linear(kind: str, bias: bool = False) -> Build:
    def build(g: GraphBuilder) -> Value:
        added = g.weight("bias.weight") if bias else None
        return g.linear(g.input("x", WIDTH), g.weight(f"{kind}.weight"), added)

    return build


def ragged(name: str) -> Build:
    columns = RAGGED[name][2]
    return lambda g: g.linear(g.input(f"x{columns}", columns), g.weight(f"{name}.weight"))


OPS: dict[str, Build] = {
    "rms_norm": rms_norm,
    "bare_norm": bare_norm,
    "head_norm": head_norm,
    "rope_norm": rope("norm"),
    "rope_neox": rope("neox"),
    "gated_silu": gated("silu"),
    "gated_gelu": gated("gelu_tanh"),
    "attention": attention(None),
    "attention_window": attention(19),
    "add": lambda g: g.add(g.input("x", WIDTH), g.input("y", WIDTH)),
    "scale": lambda g: g.scale(g.input("x", WIDTH), 0.37),
    "softcap": lambda g: g.softcap(g.input("x", WIDTH), 3.0),
    "gather": lambda g: g.gather(g.input("x", WIDTH)),
    "small": lambda g: g.linear(g.input("s", 32), g.weight("small.weight")),
    "bias": linear("q8_0", bias=True),
    **{f"linear_{kind}": linear(kind) for kind in TYPES},
    **{f"ragged_{name}": ragged(name) for name in RAGGED},
}
WIDTHS = {
    "x": WIDTH,
    "y": WIDTH,
    "s": 32,
    "q": HEADS * HEAD_DIM,
    "k": KV_HEADS * HEAD_DIM,
    "v": KV_HEADS * HEAD_DIM,
    **{f"x{columns}": columns for columns in sorted({shape[2] for shape in RAGGED.values()})},
}


def inputs(rows: int) -> dict[str, Floats]:
    """Rows of very different size, one of zeros, one with an outlier."""
    rng = np.random.default_rng(3)
    made = {}
    for name, width in WIDTHS.items():
        x = rng.normal(0, 1, (rows, width)) * 4.0 ** rng.integers(-3, 3, (rows, 1))
        x[rows // 2] = 0
        x[rows // 3, width // 3] = 900
        made[name] = x.astype(np.float32)
    return made


CASES: list[tuple[str, Precision]] = [(name, "a8") for name in OPS]
CASES += [(name, "a16") for name in OPS if name.startswith("linear_") or name in ("small", "bias")]


def run(
    backend: Backend, file: GGUFFile, graph: Graph, vectors: dict[str, Floats], chunk: int
) -> Floats:
    """The op's output for a chain of rows, ``chunk`` rows a step."""
    program = compile_graph(backend, file, graph)
    sequence = program.memory.open()
    total = len(vectors["x"])
    parts = []
    for first in range(0, total, chunk):
        part = {name: x[first : first + chunk] for name, x in vectors.items()}
        parts.append(program.run(vector_step(part, sequence)).logits)
        program.memory.commit(sequence, range(len(part["x"])))
    return np.concatenate(parts)


def graph_of(graphs: OpGraphs, name: str) -> Graph:
    builder = graphs.builder()
    return graphs.finish(builder, OPS[name](builder))


@pytest.mark.parametrize(("name", "precision"), CASES)
def test_bits_of_a_row(name: str, precision: Precision, graphs: OpGraphs, file: GGUFFile) -> None:
    vectors, graph = inputs(300), graph_of(graphs, name)
    expected = run(CpuBackend("portable", 1, precision), file, graph, vectors, 1)
    assert np.isfinite(expected).all()
    for isa in _native.isa_levels():
        for rows in ROWS:
            some = {key: x[:rows] for key, x in vectors.items()}
            assert same_bits(
                run(CpuBackend(isa, 1, precision), file, graph, some, rows), expected[:rows]
            )
        for threads, chunk in ((2, 300), (3, 64), (5, 7), (1, 64)):
            found = run(CpuBackend(isa, threads, precision), file, graph, vectors, chunk)
            assert same_bits(found, expected), (isa, threads, chunk)


def summed_sizes(x: Floats, precision: Precision) -> Floats:
    """A bound of |hi| + |lo| at a16, where an output is a sum over the planes of its row."""
    largest = np.abs(x).max(axis=1, keepdims=True) / np.float32(127)
    return x if precision == "a8" else np.abs(x) + largest


def linear_bound(
    file: GGUFFile, graphs: OpGraphs, kind: str, x: Floats, precision: Precision
) -> Floats:
    """Two roundings of each product (weight and activation are scaled) and its place in the sum.

    At a16 the sum of the planes rounds once more.
    """
    weight = graphs.weights[f"{kind}.weight"]
    rows = quant_type(weight.type_id, weight.name).dequantize_rows(
        file.data(weight.name), weight.rows, weight.columns
    )
    roundings = weight.columns + (3 if precision == "a8" else 4)
    return 2 * roundings * UNIT * (np.abs(x) @ np.abs(rows).T + 1)


def attention_bound(vectors: dict[str, Floats]) -> Floats:
    """exp turns the absolute error of a score into a relative one of its weight."""
    query, key, value = (np.abs(vectors[name]) for name in ("q", "k", "v"))
    rows = len(query)
    grouped = query.reshape(rows, KV_HEADS, -1, HEAD_DIM)
    sizes = np.einsum("rhgd,jhd->rhgj", grouped, key.reshape(rows, KV_HEADS, HEAD_DIM))
    seen = np.tril(np.ones((rows, rows), np.bool_))
    score = 0.125 * np.where(seen[:, None, None], sizes, 0).max(axis=(1, 2, 3))
    relative = 2 * (HEAD_DIM + 2) * UNIT * score + 2 * (rows + 8) * UNIT
    largest = np.maximum.accumulate(value.max(axis=1))
    return np.asarray((relative * largest)[:, None], np.float32)


def bound_of(
    name: str,
    file: GGUFFile,
    graphs: OpGraphs,
    vectors: dict[str, Floats],
    expected: Floats,
    precision: Precision,
) -> Floats:
    """The largest difference between two right results."""
    x, y = np.abs(vectors["x"]), np.abs(vectors["y"])
    if name == "bias":
        return linear_bound(file, graphs, "q8_0", vectors["x"], precision)
    if name.startswith("linear_"):
        kind = name.removeprefix("linear_")
        return linear_bound(file, graphs, kind, vectors["x"], precision)
    if name.startswith("ragged_"):
        matrix = name.removeprefix("ragged_")
        return linear_bound(file, graphs, matrix, vectors[f"x{RAGGED[matrix][2]}"], precision)
    if name.startswith("attention"):
        return attention_bound(vectors)
    if name.startswith("gated"):
        return 16 * UNIT * x * y
    if name.startswith("rope"):
        return 8 * UNIT * np.repeat(x.max(axis=1, keepdims=True), WIDTH, axis=1)
    if name == "small":
        return 64 * UNIT * np.abs(vectors["s"]).max(axis=1, keepdims=True) * 32
    norm = WIDTH if name.endswith("norm") else 8
    return norm * UNIT * np.abs(expected)


@pytest.mark.parametrize(("name", "precision"), CASES)
@pytest.mark.parametrize("isa", _native.isa_levels())
def test_an_op_equals_the_reference(
    name: str, precision: Precision, isa: str, graphs: OpGraphs, file: GGUFFile
) -> None:
    vectors, graph = inputs(90), graph_of(graphs, name)
    found = run(CpuBackend(isa, 2, precision), file, graph, vectors, 90)
    twin = ReferenceBackend(integer_activations=True, precision=precision)
    expected = run(twin, file, graph, vectors, 90)
    summed = {key: summed_sizes(x, precision) for key, x in vectors.items()}
    bound = bound_of(name, file, graphs, summed, expected, precision)
    assert (np.abs(found - expected) <= bound).all()


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("tied", [True, False])
def test_embedding_rows_are_the_oracle(
    kind: str, tied: bool, graphs: OpGraphs, file: GGUFFile
) -> None:
    """Tied, they come from the repacked matrix; otherwise from the file."""
    builder = graphs.builder()
    weight = builder.weight(f"{kind}.weight")
    embedded = builder.embed(weight, 1.5)
    out = builder.add(embedded, embedded)
    if tied:
        builder.output("head", builder.linear(embedded, weight))
    graph = graphs.finish(builder, out)
    tokens = np.asarray([0, 99, 15, 16, 17, 3], np.int32)
    rows = quant_type(weight.type_id, weight.name).dequantize_rows(
        file.data(weight.name), weight.rows, weight.columns
    )
    expected = rows[tokens] * np.float32(1.5)
    for isa in _native.isa_levels():
        program = compile_graph(CpuBackend(isa, 1), file, graph)
        found = program.run(vector_step({}, program.memory.open(), tokens)).logits
        assert same_bits(found, expected + expected)


COVERED_ELSEWHERE = {
    "Embed": "test_embedding_rows_are_the_oracle",
    "LinearGroup": "test_rows.py, made by fuse",
    "GatedLinear": "test_rows.py, made by fuse",
}


def test_every_row_invariant_kind_has_a_law(graphs: OpGraphs) -> None:
    here = {type(op).__name__ for name in OPS for op in graph_of(graphs, name).ops}
    assert here.isdisjoint(COVERED_ELSEWHERE)
    claimed = {name for name, holds in CpuBackend.row_invariant.items() if holds}
    assert claimed == here | set(COVERED_ELSEWHERE)
    assert claimed == {kind.__name__ for kind in get_args(Op)}


def test_every_type_has_native_kernels() -> None:
    assert [kind for kind in TYPES if not _native.has_kernels(TYPES_BY_NAME[kind].ggml_id)] == []
