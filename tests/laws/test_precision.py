"""The a16 precision: two int8 planes of activations, against its NumPy twin and float32.

``native/kernels/planes.hh`` defines the rounding and derives its bound; the row and level laws of
a16 are those of test_ops.py, test_rows.py and test_speculation_models.py.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from builders import tiny_model
from native_runs import Floats, OpGraphs, chain_logits, compile_graph, same_bits, vector_step

pytest.importorskip("slipstream._native")

from slipstream import _native
from slipstream.backends._reference_ops import round_activations, round_activations_twice
from slipstream.backends.cpu import CpuBackend, native_types
from slipstream.backends.reference import ReferenceBackend
from slipstream.dispatch.fuse import fuse
from slipstream.dispatch.select import select
from slipstream.errors import BackendError
from slipstream.gguf import open_gguf
from slipstream.models import build_graph
from slipstream.options import Precision
from slipstream.quants import quant_type

pytestmark = pytest.mark.native

UNIT = 2.0**-24
FLOAT_TYPES = ("f32", "f16", "bf16")
BLOCK = {"q4_0": 32, "q4_1": 32, "q5_0": 32, "q5_1": 32, "q8_0": 32, "q4_k": 256, "q6_k": 256}
TOKENS = ((np.arange(60) * 29 + 3) % 200).astype(np.int32)


def hard_rows(columns: int) -> Floats:
    """Ordinary rows, an outlier, ties of either plane, very small and very large blocks."""
    rng = np.random.default_rng(columns)
    x = rng.normal(0, 1, (9, columns))
    x[1] *= 1e30
    x[2] *= 1e-28  # amax about 2^-92: the low plane of a block stays normal
    x[3] *= 2.0**-101 / np.abs(x[3]).max()  # below the smallest amax: zeros
    x[4] = rng.standard_t(3, columns)
    x[5, columns // 2] = 1e6
    x[6] = rng.integers(-254, 255, columns) / 2
    x[6, ::32] = 127  # scale 1: halves are ties of hi, and |lo| is largest there
    x[7] = (rng.integers(-127 * 254, 127 * 254 + 1, columns) + 0.5) / 254
    x[7, ::32] = 127
    x[8] = 0
    return x.astype(np.float32)


def plane_bound(x: Floats, block: int) -> Floats:
    """Largest |x - (hi + lo)| of each element: planes.hh."""
    largest = np.abs(x.astype(np.float64)).reshape(len(x), -1, block).max(axis=2, keepdims=True)
    low_scale = largest / 127 / 254
    bound = low_scale * (0.5 + 128 * UNIT) + 4 * UNIT * largest
    bound = np.where(largest < 2.0**-100, largest, bound)
    return np.repeat(bound, block, axis=2).reshape(x.shape)


@pytest.mark.parametrize("block", [32, 256])
def test_two_planes_are_within_half_a_low_step(block: int) -> None:
    x = hard_rows(1024)
    planes = round_activations_twice(x, block).astype(np.float64)
    assert same_bits(planes[::2].astype(np.float32), round_activations(x, block))
    error = np.abs(planes[::2] + planes[1::2] - x)
    assert (error <= plane_bound(x, block)).all()
    # the bound is nearly reached, so it cannot be replaced by a larger one unnoticed
    ratio = error[7] / plane_bound(x, block)[7]
    assert ratio.max() > 0.9
    assert np.abs(planes[::2] - x).max() > 100 * error[:1].max()


@pytest.mark.parametrize("columns", [256, 768])
@pytest.mark.parametrize("kind", BLOCK)
@pytest.mark.parametrize("isa", _native.isa_levels())
def test_the_product_is_within_its_bound_of_float64(
    isa: str, kind: str, columns: int, tmp_path: Path
) -> None:
    """|error| <= |W| @ (rounding of x) + the float sums of both planes; a8 is far outside of it."""
    graphs = OpGraphs(tmp_path / "one.gguf", {"w.weight": (kind, 40, columns)})
    x = hard_rows(columns)
    with open_gguf(graphs.path) as file:
        builder = graphs.builder()
        weight = builder.weight("w.weight")
        graph = graphs.finish(builder, builder.linear(builder.input("x", columns), weight))
        data = file.data(weight.name)
        rows = quant_type(weight.type_id, weight.name).dequantize_rows(data, 40, columns)
        found = {}
        for precision in ("a8", "a16"):
            program = compile_graph(CpuBackend(isa, 2, precision), file, graph)
            found[precision] = program.run(vector_step({"x": x}, program.memory.open())).logits
    size = np.abs(rows.astype(np.float64)).T
    exact = x.astype(np.float64) @ rows.T.astype(np.float64)
    largest = np.abs(x).max(axis=1, keepdims=True).astype(np.float64)
    sums = 2 * (columns + 4) * UNIT * ((np.abs(x) + largest / 127) @ size) + 1e-38
    bound = plane_bound(x, BLOCK[kind]) @ size + sums
    assert (np.abs(found["a16"] - exact) <= bound).all()
    ordinary = [0, 4]  # beside an outlier of 1e6 both are at the float sum's own error
    a8, a16 = (np.abs(found[p] - exact)[ordinary].mean() for p in ("a8", "a16"))
    assert a8 > 50 * a16


@pytest.mark.parametrize("kind", FLOAT_TYPES)
def test_float_weights_are_untouched(kind: str, tmp_path: Path) -> None:
    graphs = OpGraphs(tmp_path / "one.gguf", {"w.weight": (kind, 40, 96)})
    with open_gguf(graphs.path) as file:
        builder = graphs.builder()
        out = builder.linear(builder.input("x", 96), builder.weight("w.weight"))
        graph, results = graphs.finish(builder, out), []
        for precision in ("a8", "a16"):
            program = compile_graph(CpuBackend(threads=1, precision=precision), file, graph)
            step = vector_step({"x": hard_rows(96)}, program.memory.open())
            results.append(program.run(step).logits)
            paths = [path for path in program.observed() if path.startswith("matmul/")]
            assert paths
            assert not any("a16" in path for path in paths)
    assert same_bits(*results)


@pytest.mark.parametrize("isa", _native.isa_levels())
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_row_that_is_not_finite_stays_so_and_alone(
    isa: str, value: float, tmp_path: Path
) -> None:
    matrices = {"a.weight": ("q8_0", 16, 512), "b.weight": ("q4_k", 16, 512)}
    graphs = OpGraphs(tmp_path / "two.gguf", matrices)
    clean = hard_rows(512)[:3]
    x = clean.copy()
    x[1, 300] = value
    with open_gguf(graphs.path) as file:
        for name in matrices:
            builder = graphs.builder()
            out = builder.linear(builder.input("x", 512), builder.weight(name))
            graph = graphs.finish(builder, out)
            program = compile_graph(CpuBackend(isa, 1, "a16"), file, graph)
            sequence = program.memory.open()
            found = program.run(vector_step({"x": x}, sequence)).logits
            expected = program.run(vector_step({"x": clean}, sequence)).logits
            assert not np.isfinite(found[1]).any()
            assert same_bits(found[::2], expected[::2])


def spread(a: Floats, b: Floats) -> float:
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "gemma3"])
def test_a_model_at_a16_is_closer_to_float_activations(architecture: str, tmp_path: Path) -> None:
    types = {"ffn_down": "q6_k"} if architecture == "qwen2" else {}
    with open_gguf(tiny_model(tmp_path / "tiny.gguf", architecture, types=types)) as file:
        graph = fuse(build_graph(file))
        exact = chain_logits(compile_graph(ReferenceBackend(), file, graph), TOKENS)
        native: dict[Precision, Floats] = {}
        for precision in ("a8", "a16"):
            backend = CpuBackend(threads=2, precision=precision)
            native[precision] = chain_logits(compile_graph(backend, file, graph), TOKENS)
        twin = ReferenceBackend(integer_activations=True, precision="a16")
        expected = chain_logits(compile_graph(twin, file, graph), TOKENS)
    # float16 keys and values are rounded in all of them, so what is left is not 254 times less
    assert spread(native["a16"], exact) < spread(native["a8"], exact) / 8
    assert spread(native["a16"], expected) < 1e-3


def test_a_plan_of_another_precision_is_refused(tmp_path: Path) -> None:
    with open_gguf(tiny_model(tmp_path / "tiny.gguf", "llama")) as file:
        graph = fuse(build_graph(file))
        backend = CpuBackend(threads=1, precision="a16")
        with pytest.raises(BackendError, match="a16"):
            backend.load(file, graph, plan=select(graph, backend.isa, native_types()))


def test_the_builder_knows_its_precisions() -> None:
    with pytest.raises(ValueError, match="a8 or a16, not a32"):
        _native.ProgramBuilder("portable", "a32")
