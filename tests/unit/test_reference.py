"""The reference backend against plain loops, itself in other shapes, and its refusals."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from builders import TinyModel, tiny_model
from reference_runs import program, run_rows, step
from slipstream.backends import _reference_ops as arithmetic
from slipstream.backends.base import Backend, Step
from slipstream.backends.reference import ReferenceBackend
from slipstream.dispatch.fuse import fuse
from slipstream.errors import BackendError, RequestError
from slipstream.gguf import GGUFFile, open_gguf
from slipstream.graph import RopeTable
from slipstream.memory.attention import AttentionMemory
from slipstream.models import build_graph

Floats = NDArray[np.float32]
TOKENS = ((np.arange(150) * 29 + 3) % 200).astype(np.int32)
# float16 keys and values of magnitude about 1, and float32 sums in another order
TOLERANCE = 2e-3


@pytest.fixture(params=["llama", "gemma3"])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[GGUFFile]:
    with open_gguf(tiny_model(tmp_path / "tiny.gguf", request.param, tensor_type="f16")) as opened:
        yield opened


def close(a: Floats, b: Floats) -> bool:
    return bool(np.abs(a - b).max() < TOLERANCE)


@pytest.mark.parametrize("chunk", [1, 7, 64])
def test_chunks_agree(file: GGUFFile, chunk: int) -> None:
    graph = fuse(build_graph(file))
    assert close(run_rows(file, graph, TOKENS, chunk=chunk), run_rows(file, graph, TOKENS))


def test_a_path_in_a_tree_is_a_chain(file: GGUFFile) -> None:
    graph = build_graph(file)
    prefix = TOKENS[:70]
    compiled = program(file, graph)
    sequence = compiled.memory.open()
    compiled.run(step(sequence, prefix))
    compiled.memory.commit(sequence, range(len(prefix)))
    nodes, parents = np.array([7, 9, 7, 5, 6, 8], np.int32), [-1, 0, -1, 1, 2, 3]
    tree = compiled.run(step(sequence, nodes, parents)).logits
    for path in ([0, 1, 3, 5], [2, 4]):
        whole = np.concatenate([prefix, nodes[path]])
        assert close(tree[path], run_rows(file, graph, whole)[len(prefix) :])
    compiled.memory.commit(sequence, [2, 4])
    after = compiled.run(step(sequence, np.array([11], np.int32))).logits
    whole = np.concatenate([prefix, nodes[[2, 4]], [11]]).astype(np.int32)
    assert close(after, run_rows(file, graph, whole)[-1:])


def test_sequences_do_not_see_each_other(file: GGUFFile) -> None:
    graph = build_graph(file)
    compiled = program(file, graph)
    handles = [compiled.memory.open(), compiled.memory.open()]
    both = Step(
        tokens=np.concatenate([TOKENS[:20], TOKENS[40:50]]),
        sequences=np.repeat(np.asarray(handles, np.int32), [20, 10]),
        parents=np.concatenate([np.arange(-1, 19), [-1], np.arange(20, 29)]).astype(np.int32),
        logit_rows=np.array([19, 29], np.int32),
    )
    logits = compiled.run(both).logits
    assert close(logits[:1], run_rows(file, graph, TOKENS[:20])[-1:])
    assert close(logits[1:], run_rows(file, graph, TOKENS[40:50])[-1:])


def test_hidden_outputs(file: GGUFFile) -> None:
    graph = build_graph(file)
    compiled = program(file, graph)
    wanted = frozenset({"layer_input.0", "final_norm"})
    outputs = compiled.run(step(compiled.memory.open(), TOKENS[:5], hidden=wanted))
    assert set(outputs.hidden) == wanted
    embedding = file.data("token_embd.weight").view(np.float16).reshape(-1, graph.width)
    scale = math.sqrt(graph.width) if graph.architecture == "gemma3" else 1.0
    rows = embedding[TOKENS[:5]].astype(np.float32) * np.float32(scale)
    assert np.array_equal(outputs.hidden["layer_input.0"], rows)
    assert outputs.hidden["final_norm"].shape == (5, graph.width)
    logits = outputs.hidden["final_norm"] @ embedding.astype(np.float32).T
    assert close(logits, outputs.logits)
    assert outputs.elapsed_s > 0


def test_no_logits_asked(file: GGUFFile) -> None:
    graph = build_graph(file)
    compiled = program(file, graph)
    asked = step(compiled.memory.open(), TOKENS[:3])
    none = Step(asked.tokens, asked.sequences, asked.parents, np.zeros(0, np.int32))
    assert compiled.run(none).logits.shape == (0, graph.vocabulary)


def test_nothing_is_committed_by_running(file: GGUFFile) -> None:
    compiled = program(file, build_graph(file))
    sequence = compiled.memory.open()
    first = compiled.run(step(sequence, TOKENS[:9])).logits
    assert compiled.memory.length(sequence) == 0
    assert np.array_equal(compiled.run(step(sequence, TOKENS[:9])).logits, first)


def test_refusals(file: GGUFFile) -> None:
    graph = build_graph(file)
    compiled = program(file, graph)
    sequence = compiled.memory.open()
    for token in (-1, graph.vocabulary):
        with pytest.raises(RequestError, match="token ids"):
            compiled.run(step(sequence, np.array([1, token], np.int32)))
    with pytest.raises(ValueError, match="layer_input"):
        compiled.run(step(sequence, TOKENS[:1], hidden=frozenset({"layer_input.99"})))
    asked = step(sequence, TOKENS[:1])
    with pytest.raises(ValueError, match="tokens"):
        compiled.run(Step(None, asked.sequences, asked.parents, asked.logit_rows))


def test_foreign_weights_are_refused(file: GGUFFile) -> None:
    class Foreign:
        step_bytes = 0
        resident_bytes = 0

    graph = build_graph(file)
    with pytest.raises(BackendError, match="Foreign"):
        ReferenceBackend().compile(graph, Foreign(), AttentionMemory(graph, 64))


def test_contract() -> None:
    backend: Backend = ReferenceBackend()
    assert backend.name == "reference"
    assert backend.row_invariant["RmsNorm"]
    assert not backend.row_invariant["Linear"]
    assert not backend.row_invariant["Attention"]


def test_observed_counts_ops(file: GGUFFile) -> None:
    graph = build_graph(file)
    compiled = program(file, graph)
    assert compiled.observed() == {}
    sequence = compiled.memory.open()
    for _ in range(2):
        compiled.run(step(sequence, TOKENS[:2]))
    assert compiled.observed()["numpy:Attention"] == 2 * len(graph.attentions())


@pytest.mark.parametrize("kept_bytes", [0, 40_000, 1 << 30])
def test_kept_weights_change_nothing(file: GGUFFile, kept_bytes: int) -> None:
    graph = build_graph(file)
    backend = ReferenceBackend(kept_bytes=kept_bytes)
    weights = backend.load(file, graph)
    memory = AttentionMemory(graph, 64)
    compiled = backend.compile(graph, weights, memory)
    logits = compiled.run(step(memory.open(), TOKENS[:9])).logits
    assert weights.resident_bytes <= kept_bytes
    assert (weights.resident_bytes > 0) == (kept_bytes > 0)
    assert np.array_equal(logits, run_rows(file, graph, TOKENS[:9]))


def test_step_bytes_count_each_matrix_once(tmp_path: Path) -> None:
    model = TinyModel("llama", tensor_type="q8_0")
    tensors = model.tensors().items()
    matrices = sum(len(tensor.data) for name, tensor in tensors if len(tensor.shape) == 2)
    with open_gguf(tiny_model(tmp_path / "tiny.gguf", "llama")) as opened:
        graph = build_graph(opened)
        assert ReferenceBackend().load(opened, graph).step_bytes == matrices
        assert ReferenceBackend().load(opened, fuse(graph)).step_bytes == matrices


def test_pieces_of_a_large_head(file: GGUFFile, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = build_graph(file)
    whole = run_rows(file, graph, TOKENS[:9])
    monkeypatch.setattr("slipstream.backends.reference.PIECE_BYTES", 4 * graph.width * 100)
    assert close(run_rows(file, graph, TOKENS[:9]), whole)


@pytest.mark.parametrize(("kind", "block"), [("q8_0", 32), ("q4_1", 32), ("q4_k", 256)])
def test_integer_activations_are_rounded_activations(
    tmp_path: Path, kind: str, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    def spy(x: Floats, block: int) -> Floats:
        seen.append(block)
        return x

    monkeypatch.setattr(arithmetic, "round_activations", spy)
    with open_gguf(tiny_model(tmp_path / "tiny.gguf", "llama", tensor_type=kind)) as opened:
        graph = build_graph(opened)
        plain = run_rows(opened, graph, TOKENS[:4])
        assert seen == []
        assert np.array_equal(run_rows(opened, graph, TOKENS[:4], integer_activations=True), plain)
        assert set(seen) == {block}


def test_integer_activations_stay_close(tmp_path: Path) -> None:
    with open_gguf(tiny_model(tmp_path / "tiny.gguf", "llama")) as opened:
        graph = build_graph(opened)
        plain = run_rows(opened, graph, TOKENS[:20])
        rounded = run_rows(opened, graph, TOKENS[:20], integer_activations=True)
    assert not np.array_equal(plain, rounded)
    assert np.corrcoef(plain.ravel(), rounded.ravel())[0, 1] > 0.999


def test_rounding_of_activations() -> None:
    x = np.zeros((1, 64), np.float32)
    x[0, :6] = [127.0, 0.5, 1.5, 2.5, -0.5, 0.6]
    x[0, 32:34] = [-(2.0**-101), 2.0**-102]
    rounded = arithmetic.round_activations(x, 32)
    assert rounded[0, :6].tolist() == [127, 0, 2, 2, 0, 1]
    assert not rounded[0, 32:].any()
    assert np.abs(arithmetic.round_activations(-3 * x, 32)).max() == 381
    x[0, 40] = np.inf
    rounded = arithmetic.round_activations(x, 32)
    assert np.isnan(rounded[0, 32:]).all()
    assert np.isfinite(rounded[0, :32]).all()


def test_rounding_error_is_half_a_code() -> None:
    x = np.random.default_rng(5).normal(size=(7, 512)).astype(np.float32)
    for block in (32, 256):
        code = np.abs(x.reshape(7, -1, block)).max(axis=-1, keepdims=True) / 127
        error = (arithmetic.round_activations(x, block) - x).reshape(7, -1, block)
        assert (np.abs(error) <= 0.5001 * code).all()


def test_rms_norm_of_groups() -> None:
    x = np.array([[3.0, 4.0, 0.0, 0.0, 1.0, -1.0]], np.float32)
    weight = np.array([1.0, 2.0], np.float32)
    out = arithmetic.rms_norm(x, weight, 0.5, 2)
    root = math.sqrt(13.0)  # mean square of (3, 4) is 12.5
    expected = [3 / root, 8 / root, 0, 0, 1 / math.sqrt(1.5), -2 / math.sqrt(1.5)]
    assert out[0] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("value", [-100.0, -1.5, 0.0, 0.3, 100.0])
def test_activations(value: float) -> None:
    gate, up = np.full((1, 1), value, np.float32), np.full((1, 1), 2.0, np.float32)
    sigmoid = 0.0 if value == -100.0 else 1 / (1 + math.exp(-value))
    inner = math.sqrt(2 / math.pi) * (value + 0.044715 * value**3)
    silu = arithmetic.gated(gate, up, "silu").item()
    gelu = arithmetic.gated(gate, up, "gelu_tanh").item()
    assert silu == pytest.approx(2 * value * sigmoid, rel=1e-6, abs=1e-30)
    assert gelu == pytest.approx(value * (1 + math.tanh(inner)), rel=1e-5, abs=1e-6)


@pytest.mark.parametrize(("kind", "pair"), [("norm", (2, 3)), ("neox", (1, 3))])
def test_rope_rotates_pairs_and_leaves_the_rest(kind: Any, pair: tuple[int, int]) -> None:
    table = RopeTable(kind, 4, (1.0, 0.25), 2.0)
    x = np.zeros((1, 12), np.float32)
    first, second = pair
    x[0, 6 + first], x[0, 6 + second], x[0, 4] = 1.0, 0.5, 9.0
    out = arithmetic.rope(x, 2, np.array([3], np.int32), table)[0]
    cosine, sine = 2 * math.cos(0.75), 2 * math.sin(0.75)
    assert out[6 + first] == pytest.approx(cosine - 0.5 * sine, rel=1e-6)
    assert out[6 + second] == pytest.approx(sine + 0.5 * cosine, rel=1e-6)
    assert out[4] == 9.0
    assert np.count_nonzero(out) == 3


@pytest.mark.parametrize("window", [None, 5, 70])
def test_attention_equals_plain_loops(window: int | None) -> None:
    """Keys and values of a tree after 80 committed positions, one row and head at a time."""
    from slipstream.graph import Graph, GraphBuilder

    heads, kv_heads, width, committed = 4, 2, 8, 80
    builder = GraphBuilder({})
    query, key = builder.input("q", heads * width), builder.input("k", kv_heads * width)
    value = builder.input("v", kv_heads * width)
    out = builder.attention(
        query, key, value, layer=0, heads=heads, kv_heads=kv_heads, head_dim=width, scale=0.4,
        window=window,
    )  # fmt: skip
    builder.output("logits", builder.gather(out))
    graph = Graph(tuple(builder.ops), "test", heads * width, heads * width, 128)
    rng = np.random.default_rng(2)
    vectors = {
        name: rng.normal(size=(committed + 6, (heads if name == "q" else kv_heads) * width))
        .astype(np.float16)
        .astype(np.float32)
        for name in "qkv"
    }
    parents = [-1, 0, -1, 1, 2, 3]
    memory = AttentionMemory(graph, 128)
    backend = ReferenceBackend()
    compiled = backend.compile(graph, _no_weights(), memory)
    sequence = memory.open()
    compiled.run(_vector_step(sequence, vectors, 0, committed, None))
    memory.commit(sequence, range(committed))
    result = compiled.run(_vector_step(sequence, vectors, committed, committed + 6, parents)).logits
    for row in range(6):
        path = [committed + row]
        while parents[path[0] - committed] >= 0:
            path.insert(0, committed + parents[path[0] - committed])
        seen = [*range(committed), *path]
        seen = seen if window is None else seen[-window:]
        for head in range(heads):
            q = vectors["q"][committed + row].reshape(heads, width)[head]
            k = vectors["k"][seen].reshape(-1, kv_heads, width)[:, head // 2]
            v = vectors["v"][seen].reshape(-1, kv_heads, width)[:, head // 2]
            weights = np.exp(0.4 * (k @ q).astype(np.float64))
            expected = weights @ v / weights.sum()
            found = result[row].reshape(heads, width)[head]
            assert found == pytest.approx(expected, rel=1e-5, abs=1e-5)


def _no_weights() -> Any:
    from slipstream.backends._reference_weights import ReferenceWeights

    nothing: Any = None
    return ReferenceWeights(nothing, 0)


def _vector_step(
    sequence: int, vectors: dict[str, Floats], first: int, last: int, parents: list[int] | None
) -> Step:
    plain = step(sequence, np.zeros(last - first, np.int32), parents)
    part = {name: rows[first:last] for name, rows in vectors.items()}
    return Step(None, plain.sequences, plain.parents, plain.logit_rows, part)
