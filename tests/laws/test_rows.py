"""Row invariance and instruction-set invariance (design.md section 3), whole tiny models by memcmp.

The bits of a row may depend on its own history only: not on how many rows a step has, on its
neighbours, on threads, on prompt chunks, on the instruction-set level, on fusion, on the tree that
a path lies in.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from builders import tiny_model
from native_runs import Floats, chain_logits, compile_graph, extend, same_bits, step_rows

pytest.importorskip("slipstream._native")

from slipstream import _native
from slipstream.backends.base import Program, Step
from slipstream.backends.cpu import CpuBackend
from slipstream.dispatch.fuse import fuse
from slipstream.gguf import GGUFFile, open_gguf
from slipstream.graph import Graph
from slipstream.models import build_graph
from slipstream.options import Precision

pytestmark = pytest.mark.native

TOKENS = ((np.arange(330) * 29 + 3) % 200).astype(np.int32)
ROWS = (*range(1, 18), 31, 32, 33)
PREFIX = 40

MODELS: dict[str, tuple[str, dict[str, object]]] = {
    "llama-q8_0": ("llama", {}),
    "llama-q4_1": ("llama", {"tensor_type": "q4_1", "types": {"attn_v": "q5_0"}}),
    "llama-llama3-q4_0": ("llama", {"tensor_type": "q4_0", "rope_scaling": "llama3"}),
    "qwen2-k-quants": (
        "qwen2",
        {"tensor_type": "q4_k", "types": {"ffn_down": "q6_k", "attn_v": "q5_k"}, "tied": False},
    ),
    "qwen2-low-bits": (
        "qwen2",
        {"tensor_type": "q2_k", "types": {"ffn_down": "q3_k", "attn_v": "q4_k"}, "tied": False},
    ),
    "llama-iq4": ("llama", {"tensor_type": "iq4_xs", "types": {"ffn_down": "iq4_nl"}}),
    "qwen3-mxfp4": ("qwen3", {"tensor_type": "mxfp4", "types": {"attn_v": "q8_0"}}),
    "qwen3-f16": ("qwen3", {"tensor_type": "f16", "types": {"ffn_up": "bf16"}, "head_dim": 32}),
    "gemma3-mixed": (
        "gemma3",
        {"tensor_type": "q5_1", "types": {"ffn_gate": "f32", "attn_q": "q8_0"}, "kv_heads": 1},
    ),
}


A16_MODELS = ("llama-q4_1", "qwen2-k-quants", "gemma3-mixed")


@dataclass(frozen=True)
class Case:
    """A model, and its logits computed one row at a time by one portable thread."""

    file: GGUFFile
    graph: Graph
    precision: Precision
    expected: Floats

    def program(self, isa: str | None = None, threads: int = 2) -> Program:
        return compile_graph(CpuBackend(isa, threads, self.precision), self.file, self.graph)


@pytest.fixture(
    scope="module",
    params=[*((name, "a8") for name in MODELS), *((name, "a16") for name in A16_MODELS)],
    ids=" ".join,
)
def case(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Case]:
    name, precision = request.param
    architecture, options = MODELS[name]
    path: Path = tmp_path_factory.mktemp("rows") / "tiny.gguf"
    with open_gguf(tiny_model(path, architecture, **options)) as file:
        graph = fuse(build_graph(file))
        slow = compile_graph(CpuBackend("portable", 1, precision), file, graph)
        yield Case(file, graph, precision, chain_logits(slow, TOKENS, chunk=1))


def test_the_logits_are_worth_comparing(case: Case) -> None:
    assert np.isfinite(case.expected).all()
    assert len({row.tobytes() for row in case.expected}) == len(TOKENS)


@pytest.mark.parametrize("isa", _native.isa_levels())
def test_a_row_does_not_depend_on_the_row_count(case: Case, isa: str) -> None:
    program = case.program(isa)
    sequence = program.memory.open()
    extend(program, sequence, TOKENS[:PREFIX])
    for rows in ROWS:
        logits = program.run(step_rows(sequence, TOKENS[PREFIX : PREFIX + rows])).logits
        assert same_bits(logits, case.expected[PREFIX : PREFIX + rows]), rows


@pytest.mark.parametrize("threads", [1, 2, 3, 5])
def test_a_row_does_not_depend_on_threads(case: Case, threads: int) -> None:
    program = case.program(threads=threads)
    assert same_bits(chain_logits(program, TOKENS, chunk=16), case.expected)
    assert same_bits(chain_logits(program, TOKENS[:9], chunk=1), case.expected[:9])


@pytest.mark.parametrize("chunk", [1, 7, 64, None])
@pytest.mark.parametrize("isa", _native.isa_levels())
def test_a_row_does_not_depend_on_chunks_or_level(case: Case, isa: str, chunk: int | None) -> None:
    assert same_bits(chain_logits(case.program(isa), TOKENS, chunk), case.expected)


def test_fused_and_unfused_agree(case: Case) -> None:
    plain = build_graph(case.file)
    made = {type(op).__name__ for op in case.graph.ops} - {type(op).__name__ for op in plain.ops}
    assert made == {"LinearGroup", "GatedLinear"}
    program = compile_graph(CpuBackend(threads=2, precision=case.precision), case.file, plain)
    assert same_bits(chain_logits(program, TOKENS, 64), case.expected)


def test_neighbours_do_not_matter(case: Case) -> None:
    program = case.program()
    handles = [program.memory.open() for _ in range(3)]
    starts, counts = (0, 70, 5), (50, 3, 17)
    for handle, start in zip(handles, starts, strict=True):
        if start:
            extend(program, handle, TOKENS[:start])
    rows = [
        (handle, TOKENS[start : start + count])
        for handle, start, count in zip(handles, starts, counts, strict=True)
    ]
    logits = program.run(joined(rows)).logits
    first = 0
    for start, count in zip(starts, counts, strict=True):
        assert same_bits(logits[first : first + count], case.expected[start : start + count])
        first += count


def joined(rows: list[tuple[int, np.ndarray[tuple[int], np.dtype[np.int32]]]]) -> Step:
    """One step of the chains of several sequences."""
    steps = [step_rows(handle, tokens) for handle, tokens in rows]
    firsts = np.cumsum([0, *(len(step.sequences) for step in steps[:-1])]).astype(np.int32)
    total = sum(len(step.sequences) for step in steps)
    return Step(
        tokens=np.concatenate([tokens for _, tokens in rows]),
        sequences=np.concatenate([step.sequences for step in steps]),
        parents=np.concatenate(
            [
                np.where(step.parents < 0, np.int32(-1), step.parents + first)
                for step, first in zip(steps, firsts, strict=True)
            ]
        ),
        logit_rows=np.arange(total, dtype=np.int32),
    )


def test_a_subset_of_logits_has_the_same_bits(case: Case) -> None:
    program = case.program()
    sequence = program.memory.open()
    step = step_rows(sequence, TOKENS)
    wanted = np.asarray([0, 5, 255, 256, 300, 329], np.int32)
    hidden = frozenset({"layer_input.1", "final_norm"})
    asked = Step(step.tokens, step.sequences, step.parents, wanted, hidden=hidden)
    outputs = program.run(asked)
    assert same_bits(outputs.logits, case.expected[wanted])
    whole = program.run(step_rows(sequence, TOKENS, hidden=hidden))
    for name in hidden:
        assert same_bits(outputs.hidden[name], whole.hidden[name])
    nothing = program.run(Step(step.tokens, step.sequences, step.parents, wanted[:0]))
    assert nothing.logits.shape == (0, case.graph.vocabulary)
    program.memory.commit(sequence, range(len(TOKENS)))


@pytest.mark.parametrize("prefix", [0, 62, 250, 256])
def test_a_path_of_a_tree_has_the_bits_of_the_chain(case: Case, prefix: int) -> None:
    """Prefixes stand before, at and after a page (64) and a split (256) boundary."""
    program = case.program()
    rng = np.random.default_rng(prefix)
    parents = [-1, *(int(rng.integers(-1, row)) for row in range(1, 24))]
    # a deep path that is not in place, so that it crosses the boundary in its tail
    parents += [22, 24, 25, 26, 27, 28, 29, 30]
    nodes = rng.integers(0, 200, len(parents)).astype(np.int32)
    sequence = program.memory.open()
    if prefix:
        extend(program, sequence, TOKENS[:prefix])
    tree = program.run(step_rows(sequence, nodes, parents)).logits
    for leaf in (*range(12), len(parents) - 1):
        path = path_to(parents, leaf)
        chain = chain_logits(program, np.concatenate([TOKENS[:prefix], nodes[path]]), 64)
        assert same_bits(tree[path], chain[prefix:]), leaf


def test_a_tree_wider_than_a_sub_batch_has_the_bits_of_its_chains(case: Case) -> None:
    """The core runs at most 256 rows together; later rows read keys of rows before that cut."""
    program = case.program()
    rng = np.random.default_rng(300)
    parents = [int(rng.integers(max(-1, row - 12), row)) for row in range(300)]
    nodes = rng.integers(0, 200, len(parents)).astype(np.int32)
    sequence = program.memory.open()
    extend(program, sequence, TOKENS[:PREFIX])
    tree = program.run(step_rows(sequence, nodes, parents)).logits
    for leaf in (100, 254, 255, 256, 257, 298, 299):
        path = path_to(parents, leaf)
        chain = chain_logits(program, np.concatenate([TOKENS[:PREFIX], nodes[path]]), 64)
        assert same_bits(tree[path], chain[PREFIX:]), leaf


def test_decoding_goes_on_from_a_committed_path(case: Case) -> None:
    program = case.program()
    sequence = program.memory.open()
    extend(program, sequence, TOKENS[:60])
    parents = [-1, -1, 1, 2, 0, 3, 5, 6, 4, 7]
    tokens = np.zeros(len(parents), np.int32)
    path = path_to(parents, 9)
    tokens[path] = TOKENS[60 : 60 + len(path)]
    program.run(step_rows(sequence, tokens, parents))
    program.memory.commit(sequence, path)
    end = 60 + len(path)
    logits = extend(program, sequence, TOKENS[end : end + 40], 8)
    assert same_bits(logits, case.expected[end : end + 40])


def path_to(parents: list[int], row: int) -> list[int]:
    path = [row]
    while parents[path[0]] >= 0:
        path.insert(0, parents[path[0]])
    return path


def test_a_rolled_back_and_a_forked_sequence_decode_alike(case: Case) -> None:
    program = case.program()
    sequence = program.memory.open()
    extend(program, sequence, TOKENS[:100])
    extend(program, sequence, TOKENS[200:220])
    program.memory.truncate(sequence, 100)
    copy = program.memory.fork(sequence)
    for handle in (sequence, copy):
        logits = extend(program, handle, TOKENS[100:150], 5)
        assert same_bits(logits, case.expected[100:150])
