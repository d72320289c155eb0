"""The CPU backend: loading, accounting, refusals; its arithmetic is in tests/laws."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from builders import TinyModel, tiny_model, write_gguf
from native_runs import chain_logits, compile_graph, same_bits, step_rows

pytest.importorskip("slipstream._native")

from slipstream import _native
from slipstream.backends.base import Backend, Step
from slipstream.backends.cpu import CpuBackend, CpuProgram
from slipstream.backends.reference import ReferenceBackend
from slipstream.backends.self_check import self_check
from slipstream.dispatch.fuse import fuse
from slipstream.dispatch.kernels import is_planned
from slipstream.dispatch.select import select
from slipstream.dispatch.structure import matrices as op_matrices
from slipstream.errors import (
    BackendError,
    ModelFileError,
    OptionError,
    RequestError,
    UnsupportedError,
)
from slipstream.gguf import GGUFFile, open_gguf
from slipstream.graph import Embed, Graph
from slipstream.loading import load_model
from slipstream.memory.attention import AttentionMemory
from slipstream.models import build_graph
from slipstream.native_sampling import NativePrimitives
from slipstream.options import EngineOptions, ModelOptions

pytestmark = pytest.mark.native

TOKENS = ((np.arange(40) * 29 + 3) % 200).astype(np.int32)


@pytest.fixture(params=[True, False], ids=["tied", "untied"])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[GGUFFile]:
    path = tiny_model(tmp_path / "tiny.gguf", "qwen2", tied=request.param)
    with open_gguf(path) as opened:
        yield opened


@pytest.fixture
def graph(file: GGUFFile) -> Graph:
    return fuse(build_graph(file))


@pytest.fixture
def program(file: GGUFFile, graph: Graph) -> CpuProgram:
    compiled = compile_graph(CpuBackend(threads=2), file, graph)
    assert isinstance(compiled, CpuProgram)
    return compiled


def test_it_is_a_backend() -> None:
    backend: Backend = CpuBackend(threads=1)
    assert backend.name == "cpu"
    assert all(backend.row_invariant.values())


@pytest.mark.parametrize("arguments", [{"isa": "mmx"}, {"threads": 0}, {"threads": 100_000}])
def test_options_out_of_range(arguments: dict[str, Any]) -> None:
    with pytest.raises(OptionError) as raised:
        CpuBackend(**arguments)
    assert str(next(iter(arguments.values()))) in str(raised.value)


def test_the_environment_forces_a_level(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIPSTREAM_ISA", "portable")
    assert CpuBackend(threads=1).isa == "portable"
    monkeypatch.setenv("SLIPSTREAM_ISA", "avx1024")
    with pytest.raises(OptionError, match="avx1024"):
        CpuBackend(threads=1)
    assert CpuBackend("portable", 1).isa == "portable"


def test_self_check_passes_here_and_is_fast() -> None:
    strongest = _native.isa_levels()[-1]
    assert self_check(strongest, against="portable") is None
    seconds = []  # of this process: other programs may be busy
    for _ in range(5):
        began = time.process_time()
        self_check(strongest, against="portable")
        seconds.append(time.process_time() - began)
    assert min(seconds) < 0.05


@pytest.mark.parametrize("name", ["argmax", "log_sum_exp"])
def test_self_check_names_what_differs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = getattr(_native, name)
    monkeypatch.setattr(_native, name, lambda row, isa: real(row, isa) + (isa != "portable"))
    found = self_check(_native.isa_levels()[-1], against="portable")
    differs = len(_native.isa_levels()) > 1
    assert found == (f"{name} differs from portable's" if differs else None)


def test_self_check_sees_a_differing_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    real, q4_0, packed = _native.pack, 2, 0

    def pack(pool: Any, arena: Any, source: Any, fields: Any, isa: str) -> Any:
        nonlocal packed
        packed += 1
        if packed == 3:  # one level's third type
            rows, columns = source.rows, source.columns
            zeros = np.zeros(rows * columns // 32 * 18, np.uint8)
            source = _native.SourceRows(q4_0, zeros, rows, columns)
        return real(pool, arena, source, fields, isa)

    monkeypatch.setattr(_native, "pack", pack)
    assert self_check("portable") == "q4_0, rows 1 differs from portable's"


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> dict[str, str | None]:
    """avx512 seems to be there; what its check finds can be set."""
    result: dict[str, str | None] = {"avx512": None}
    monkeypatch.delenv("SLIPSTREAM_ISA", raising=False)
    monkeypatch.setattr(_native, "isa_levels", lambda: ["portable", "avx2", "avx512"])

    def check(isa: str, *, against: str) -> str | None:
        assert against == "portable"
        return result[isa]

    monkeypatch.setattr("slipstream.backends.self_check.self_check", check)
    return result


@pytest.mark.usefixtures("checked")
def test_a_level_that_passes_its_check_is_taken() -> None:
    backend = CpuBackend(threads=1)
    assert backend.isa == "avx512"
    expected = "avx512: bits equal portable's on this processor (checked at load)"
    assert backend.isa_reason == expected


def test_a_level_that_fails_its_check_is_passed_over(checked: dict[str, str | None]) -> None:
    checked["avx512"] = "q4_k, rows 3 differs from portable's"
    backend = CpuBackend(threads=1)
    assert backend.isa == "avx2"
    assert "avx512" in backend.isa_reason
    assert "q4_k, rows 3 differs" in backend.isa_reason
    assert CpuBackend("avx512", 1).isa == "avx512"


def test_the_plan_says_how_weights_are_stored(file: GGUFFile, graph: Graph) -> None:
    f32 = 0
    backend = CpuBackend(threads=1)
    native = backend.load(file, graph)
    expanded = backend.load(file, graph, plan=select(graph, backend.isa, {f32}))
    matrices = {weight for op in graph.ops for weight in op_matrices(op)}
    assert set(native.matrices) == set(expanded.matrices) == matrices
    assert {m.type_id for m in expanded.matrices.values()} == {f32}
    assert {w: m.type_id for w, m in native.matrices.items()} == {w: w.type_id for w in matrices}
    assert expanded.resident_bytes > 2 * native.resident_bytes
    assert len(expanded.notes) >= len(matrices)
    program = backend.compile(graph, expanded, AttentionMemory(graph, 64))
    chain_logits(program, TOKENS[:5], 3)
    observed = set(filter(is_planned, program.observed()))
    assert any(path.startswith("matmul/f32/") for path in observed)
    assert observed <= program.plan.paths()


def test_a_plan_without_kernels_is_refused(file: GGUFFile, graph: Graph) -> None:
    backend = CpuBackend(threads=1)
    with pytest.raises(UnsupportedError, match="native kernel"):
        backend.load(file, graph, plan=select(graph, backend.isa, ()))


def test_weights_are_counted(file: GGUFFile, graph: Graph) -> None:
    weights = CpuBackend(threads=1).load(file, graph)
    embedding = next(op.weight for op in graph.ops if isinstance(op, Embed))
    used = [info for info in file.tensors.values() if info.name != embedding.name]
    matrices = [info for info in used if info.shape[0] > 1 and len(info.shape) > 1]
    vectors = sum(info.nbytes for info in used if info not in matrices)
    tied = embedding in weights.matrices
    head = file.tensors["token_embd.weight"].nbytes if tied else 0
    exact = sum(info.nbytes for info in matrices) + head + vectors
    # strips are whole: up to 15 rows of padding for each matrix
    assert exact <= weights.step_bytes < exact * 1.1
    assert weights.step_bytes <= weights.resident_bytes <= weights.step_bytes + 4096
    assert list(weights.embeddings) == ([] if tied else [embedding])
    assert weights.notes == ()


def test_source_pages_are_given_back(
    file: GGUFFile, graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    released: list[str] = []
    monkeypatch.setattr(file, "release", released.append)
    progress: list[tuple[int, int]] = []
    CpuBackend(threads=1).load(file, graph, lambda done, total: progress.append((done, total)))
    matrices = {info.name for info in file.tensors.values() if info.name.endswith(".weight")}
    assert {name for name in matrices if "norm" not in name} == set(released)
    assert [done for done, _ in progress] == sorted(done for done, _ in progress)
    assert progress[-1][0] == progress[-1][1]


@pytest.mark.parametrize(
    ("name", "tied"),
    [
        ("blk.1.ffn_up.weight", True),
        ("token_embd.weight", True),
        ("token_embd.weight", False),
        ("output.weight", False),
    ],
)
def test_a_scale_that_is_not_finite(name: str, tied: bool, tmp_path: Path) -> None:
    model = TinyModel("llama", tensor_type="q8_0", tied=tied)
    tensors = model.tensors()
    tensor = tensors[name]
    data = bytearray(tensor.data)
    data[5 * 34 : 5 * 34 + 2] = b"\x00\x7e"  # NaN in the scale of block 5
    broken = tensors | {name: replace(tensor, data=bytes(data))}
    path = write_gguf(tmp_path / "broken.gguf", model.metadata(), broken)
    with open_gguf(path) as file, pytest.raises(ModelFileError, match="block 5") as raised:
        CpuBackend(threads=2).load(file, fuse(build_graph(file)))
    assert name in str(raised.value)


def test_a_type_without_kernels_is_expanded_and_said(
    file: GGUFFile, graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    f32 = 0
    monkeypatch.setattr(_native, "has_kernels", lambda type_id: type_id == f32)
    backend = CpuBackend(threads=1)
    weights = backend.load(file, graph)
    assert any("blk.0.ffn_up.weight" in note and "q8_0" in note for note in weights.notes)
    program = backend.compile(graph, weights, AttentionMemory(graph, 64))
    expected = compile_graph(ReferenceBackend(), file, graph)
    found = chain_logits(program, TOKENS)
    np.testing.assert_allclose(found, chain_logits(expected, TOKENS), atol=2e-3)


def test_logits_are_those_of_the_reference(program: CpuProgram, file: GGUFFile) -> None:
    twin = compile_graph(ReferenceBackend(integer_activations=True), file, build_graph(file))
    found, expected = chain_logits(program, TOKENS), chain_logits(twin, TOKENS)
    # a float16 key in another rounding, or an activation at the edge of two codes, moves a logit
    assert np.abs(found - expected).max() < 0.02 * np.abs(expected).max()
    assert np.corrcoef(found.ravel(), expected.ravel())[0, 1] > 0.9999


def test_weights_and_memory_of_others_are_refused(file: GGUFFile, graph: Graph) -> None:
    backend = CpuBackend(threads=1)
    memory = AttentionMemory(graph, 64)
    with pytest.raises(BackendError):
        backend.compile(graph, ReferenceBackend().load(file, graph), memory)
    other = Graph((), "llama", 1, 1, 1)
    with pytest.raises(BackendError, match="Attention"):
        backend.compile(graph, backend.load(file, graph), AttentionMemory(other, 64))
    with pytest.raises(BackendError, match="Embed"):
        backend.compile(graph, backend.load(file, other), memory)


@pytest.mark.parametrize("token", [-1, 10**6, -(2**31)])
def test_token_ids_out_of_range(program: CpuProgram, token: int) -> None:
    sequence = program.memory.open()
    with pytest.raises(RequestError, match=str(token)):
        program.run(step_rows(sequence, np.asarray([1, token], np.int32)))
    assert program.memory.bytes() == 0


def test_steps_that_do_not_fit(program: CpuProgram) -> None:
    sequence = program.memory.open()
    good = step_rows(sequence, TOKENS[:4])
    fields = {
        "tokens": good.tokens,
        "sequences": good.sequences,
        "parents": good.parents,
        "logit_rows": good.logit_rows,
    }
    wrong: list[tuple[type[Exception], dict[str, Any]]] = [
        (ValueError, {"tokens": None}),
        (ValueError, {"tokens": TOKENS[:3]}),
        (ValueError, {"logit_rows": np.asarray([2, 1], np.int32)}),
        (ValueError, {"logit_rows": np.asarray([4], np.int32)}),
        (ValueError, {"hidden": frozenset({"nothing"})}),
        (TypeError, {"tokens": TOKENS[:4].astype(np.int64)}),
        (TypeError, {"tokens": TOKENS[:8:2]}),
        (TypeError, {"logit_rows": np.zeros((1, 1), np.int32)}),
    ]
    for error, change in wrong:
        with pytest.raises(error):
            program.run(Step(**(fields | change)))
    assert same_bits(program.run(good).logits, program.run(good).logits)


def test_an_empty_step(program: CpuProgram) -> None:
    nothing = np.empty(0, np.int32)
    outputs = program.run(Step(nothing, nothing, nothing, nothing))
    assert outputs.logits.shape == (0, program.graph.vocabulary)


def test_the_observed_path(program: CpuProgram) -> None:
    assert program.observed() == {}
    chain_logits(program, TOKENS[:5])
    observed = program.observed()
    level = CpuBackend(threads=1).isa
    assert observed[f"matmul/q8_0/{level}/rows_2_8"] > 0
    assert {path.rpartition("/")[2] for path in observed} == {"rows_2_8"}
    chain_logits(program, TOKENS[:1])
    assert program.observed()[f"attention/{level}/rows_1"] == len(program.graph.attentions())


def test_the_workspace_only_grows_with_larger_steps(program: CpuProgram) -> None:
    chain_logits(program, TOKENS[:3])
    small = program.workspace_bytes
    chain_logits(program, TOKENS[:1])
    assert program.workspace_bytes == small > 0
    chain_logits(program, TOKENS)
    large = program.workspace_bytes
    chain_logits(program, TOKENS[:3])
    assert program.workspace_bytes == large > small


def test_two_threads_share_a_backend(file: GGUFFile, graph: Graph) -> None:
    backend = CpuBackend(threads=2)
    weights = backend.load(file, graph)
    expected = chain_logits(
        backend.compile(graph, weights, AttentionMemory(graph, 64)), TOKENS, chunk=1
    )
    found: list[bool] = []

    def work() -> None:
        own = backend.compile(graph, weights, AttentionMemory(graph, 64))
        found.extend(same_bits(chain_logits(own, TOKENS, 7), expected) for _ in range(5))

    workers = [threading.Thread(target=work) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert found == [True] * 15


def test_the_progress_of_a_step_does_not_hold_the_interpreter(program: CpuProgram) -> None:
    """Another Python thread runs while a step does."""
    ticks = 0
    stop = threading.Event()

    def tick() -> None:
        nonlocal ticks
        while not stop.is_set():
            ticks += 1

    ticker = threading.Thread(target=tick)
    ticker.start()
    for _ in range(3):
        chain_logits(program, np.resize(TOKENS, 300))
    stop.set()
    ticker.join()
    assert ticks > 0


def test_sampling_runs_at_the_level_of_the_backend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLIPSTREAM_ISA", "bogus")
    model = str(tiny_model(tmp_path / "tiny.gguf", "llama"))
    loaded = load_model(ModelOptions(model=model, isa="portable", threads=1), EngineOptions())
    assert isinstance(loaded.primitives, NativePrimitives)
    assert loaded.primitives.isa == "portable"
    assert loaded.primitives.argmax(np.asarray([0, 2, 1], np.float32)) == 1
    reference = load_model(ModelOptions(model=model, backend="reference"), EngineOptions())
    assert reference.primitives.name == "numpy"
