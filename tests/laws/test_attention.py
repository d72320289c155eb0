"""The bit laws of attention over several KV splits, and its twin, for every type of kept keys.

Tolerance against the reference: both read the same kept keys and values. A score is off by at most
(head_dim + 2) 2^-24 sum |q k|, so a weight by twice that of itself, and both sums over n keys by
another n 2^-24 (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1). All of it
counts twice, as either side is off.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from native_runs import Floats, OpGraphs, compile_graph, same_bits

pytest.importorskip("slipstream._native")

from slipstream import _native
from slipstream.backends.base import Backend, Program, Step
from slipstream.backends.cpu import CpuBackend
from slipstream.backends.reference import ReferenceBackend
from slipstream.gguf import GGUFFile, open_gguf
from slipstream.graph import Graph
from slipstream.memory.kv_types import decode_rows, encode_rows
from slipstream.options import KvType

pytestmark = pytest.mark.native

UNIT = 2.0**-24
POSITIONS = 700  # three splits of 256
CHUNKS = {1: (64, 16), 2: (POSITIONS, 7), 3: (POSITIONS, 17), 5: (64, 33)}
"""Threads and the sizes of the chunks that they compute."""
SHAPES = ((3, 1, 64), (4, 1, 256), (14, 2, 64), (6, 2, 128), (8, 1, 32), (5, 1, 80), (2, 2, 100))
CASES = [
    pytest.param(heads, kv_heads, head_dim, kv_type, window, id=f"{heads}-{head_dim}-{kv_type}")
    for number, (heads, kv_heads, head_dim) in enumerate(SHAPES)
    for kv_type, window in (("f16", (None, 300)[number % 2]), ("q8_0", (300, None)[number % 2]))
    if kv_type == "f16" or head_dim % 32 == 0
]


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> OpGraphs:
    return OpGraphs(tmp_path_factory.mktemp("attention") / "op.gguf", {"w.weight": ("f32", 1, 32)})


@pytest.fixture(scope="module")
def file(graphs: OpGraphs) -> Iterator[GGUFFile]:
    with open_gguf(graphs.path) as opened:
        yield opened


class Case:
    """One attention op, and random queries, keys and values for it."""

    def __init__(
        self,
        graphs: OpGraphs,
        file: GGUFFile,
        heads: int,
        kv_heads: int,
        head_dim: int,
        kv_type: KvType,
        window: int | None,
    ) -> None:
        g = graphs.builder()
        widths = {"q": heads * head_dim, "k": kv_heads * head_dim, "v": kv_heads * head_dim}
        query, key, value = (g.input(name, width) for name, width in widths.items())
        shape = {"heads": heads, "kv_heads": kv_heads, "head_dim": head_dim}
        scale = head_dim**-0.5
        out = g.attention(query, key, value, layer=0, scale=scale, window=window, **shape)
        self.graph: Graph = OpGraphs.finish(g, out)
        self.file, self.kv_type, self.head_dim = file, kv_type, head_dim
        rng = np.random.default_rng(heads * head_dim)
        self.vectors = {
            name: rng.standard_normal((POSITIONS, width)).astype(np.float32)
            for name, width in widths.items()
        }

    def kept(self, name: str) -> Floats:
        """The queries, or the keys or values as the memory's type keeps them."""
        x = self.vectors[name]
        if name == "q":
            return x
        rows = x.reshape(POSITIONS, -1, self.head_dim)
        return decode_rows(encode_rows(rows, self.kv_type), self.kv_type).reshape(x.shape)

    def program(self, backend: Backend) -> Program:
        return compile_graph(
            backend, self.file, self.graph, positions=POSITIONS + 64, kv_type=self.kv_type
        )

    def step(self, sequence: int, rows: list[int], parents: list[int] | None = None) -> Step:
        count = len(rows)
        return Step(
            tokens=None,
            sequences=np.full(count, sequence, np.int32),
            parents=np.asarray(range(-1, count - 1) if parents is None else parents, np.int32),
            logit_rows=np.arange(count, dtype=np.int32),
            vectors={name: x[rows] for name, x in self.vectors.items()},
        )

    def chain(self, program: Program, chunks: list[int]) -> Floats:
        """The outputs of all positions, computed in chunks of these sizes."""
        sequence, first, parts = program.memory.open(), 0, []
        for size in chunks:
            rows = list(range(first, first + size))
            parts.append(program.run(self.step(sequence, rows)).logits)
            program.memory.commit(sequence, range(size))
            first += size
        program.memory.close(sequence)
        return np.concatenate(parts)


def _chunks(size: int) -> list[int]:
    return [size] * (POSITIONS // size) + [POSITIONS % size] * (POSITIONS % size > 0)


@pytest.fixture
def case(request: pytest.FixtureRequest, graphs: OpGraphs, file: GGUFFile) -> Case:
    return Case(graphs, file, *request.param)


def _cases() -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        "case", [pytest.param(param.values, id=param.id) for param in CASES], indirect=True
    )


@_cases()
def test_chunks_and_threads_do_not_change_bits(case: Case) -> None:
    expected = case.chain(case.program(CpuBackend(threads=1)), _chunks(1))
    for threads, sizes in CHUNKS.items():
        program = case.program(CpuBackend(threads=threads))
        for size in sizes:
            assert same_bits(case.chain(program, _chunks(size)), expected), (threads, size)


@_cases()
def test_few_rows_at_depth_have_the_bits_of_one(case: Case) -> None:
    depth = POSITIONS - 33
    program = case.program(CpuBackend(threads=2))
    expected = case.chain(case.program(CpuBackend(threads=1)), [depth, *[1] * 33])[depth:]
    for rows in (*range(1, 18), 31, 32, 33):
        found = case.chain(program, [depth, rows, 33 - rows] if rows < 33 else [depth, rows])
        assert same_bits(found[depth:], expected), rows


@_cases()
def test_a_path_in_a_tree_has_the_bits_of_the_chain(case: Case) -> None:
    depth, parents = 520, [-1, 0, 0, 1, 2, 2, 4, -1, 7, 5, 9, 10]
    for threads in (1, 3):
        program = case.program(CpuBackend(threads=threads))
        sequence = program.memory.open()
        program.run(case.step(sequence, list(range(depth))))
        program.memory.commit(sequence, range(depth))
        tree = program.run(case.step(sequence, list(range(depth, depth + 12)), parents)).logits
        for node in range(12):
            path = [node]
            while parents[path[0]] >= 0:
                path.insert(0, parents[path[0]])
            chain = program.run(case.step(sequence, [depth + row for row in path])).logits
            assert same_bits(tree[node], chain[-1]), node


@_cases()
def test_levels_agree(case: Case) -> None:
    levels = _native.isa_levels()
    found = [case.chain(case.program(CpuBackend(isa, 2)), [690, 10]) for isa in levels]
    for isa, outputs in zip(levels, found, strict=True):
        assert same_bits(outputs, found[0]), isa


def tolerance(case: Case) -> Floats:
    """Of every output, ``[POSITIONS, heads x head_dim]``; from the products of each query and key.

    Loose by the window: keys that it hides count too.
    """
    query, key, value = (np.abs(case.kept(name)) for name in ("q", "k", "v"))
    kv_heads = key.shape[1] // case.head_dim
    queries = query.reshape(POSITIONS, kv_heads, -1, case.head_dim).transpose(1, 2, 0, 3)
    keys = key.reshape(POSITIONS, kv_heads, 1, case.head_dim).transpose(1, 2, 3, 0)
    score = case.head_dim**-0.5 * np.tril(queries @ keys).max(axis=-1)
    seen = np.arange(1, POSITIONS + 1)
    relative = 4 * ((case.head_dim + 2) * score + seen) * UNIT
    largest = np.maximum.accumulate(value.max(axis=1))
    of_heads = (relative * largest).reshape(-1, POSITIONS).T
    return np.repeat(of_heads, case.head_dim, axis=1)


@_cases()
def test_the_twin(case: Case) -> None:
    native, twin = case.program(CpuBackend(threads=2)), case.program(ReferenceBackend())
    found, expected = case.chain(native, [600, 100]), case.chain(twin, [600, 100])
    for program in (native, twin):
        assert program.memory.bytes() == 0
    kept = [program.memory.groups[0].keys for program in (native, twin)]  # type: ignore[attr-defined]
    np.testing.assert_array_equal(kept[0], kept[1])
    assert (np.abs(found - expected) <= tolerance(case)).all()
