"""Timing inside the native program: phases, products, probes."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("slipstream._native")

from builders import tiny_model
from slipstream import _native
from slipstream.errors import OptionError
from slipstream.loading import LoadedModel, load_model
from slipstream.measure.phases import OUTSIDE, op_costs
from slipstream.measure.probes import MachineProbe, multiply_mix, probe
from slipstream.measure.products import Case, product_costs, synthetic_weights
from slipstream.measure.rows import chain_step
from slipstream.options import EngineOptions, ModelOptions
from slipstream.quants import QUANT_TYPES

pytestmark = pytest.mark.native
NATIVE = [kind for kind in QUANT_TYPES.values() if _native.has_kernels(kind.ggml_id)]


def load(folder: Path, backend: str = "cpu") -> LoadedModel:
    path = tiny_model(folder / "tiny.gguf", "qwen2")
    threads = 2 if backend == "cpu" else None
    options = ModelOptions(model=str(path), backend=backend, threads=threads)
    return load_model(options, EngineOptions())


def test_phases_add_up_to_the_run(tmp_path: Path) -> None:
    program = load(tmp_path).program
    sequence = program.memory.open()
    step = chain_step(sequence, np.asarray([1, 2, 3], np.int32))
    plain = program.run(step).logits
    program.profile(True)  # type: ignore[attr-defined]
    begin = time.perf_counter()
    profiled = program.run(step).logits
    elapsed = time.perf_counter() - begin
    seconds = program.phase_seconds()  # type: ignore[attr-defined]
    phases = program.phases()  # type: ignore[attr-defined]
    assert len(seconds) == len(phases)
    assert min(seconds) >= 0
    assert 0 < sum(seconds) <= elapsed
    np.testing.assert_array_equal(plain, profiled)
    program.profile(False)  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="not profiled"):
        program.phase_seconds()  # type: ignore[attr-defined]


def test_phases_name_every_matrix_of_the_step(tmp_path: Path) -> None:
    loaded = load(tmp_path)
    costs = op_costs(loaded, [1, 3], depth=2, rounds=2)
    vectors = sum(vector.nbytes for vector in loaded.weights.vectors.values())  # type: ignore[attr-defined]
    assert sum(cost.weight_bytes for cost in costs) == loaded.weights.step_bytes - vectors
    assert {cost.kind for cost in costs} == {"product", "attention", "row", "outside"}
    layers = len(loaded.graph.attentions())
    assert [cost.phases for cost in costs if cost.kind == "attention"] == [layers]
    assert costs[-1].op == OUTSIDE
    assert all(set(cost.ms) == {1, 3} for cost in costs)
    assert all(cost.ms[1] > 0 for cost in costs if cost.kind == "product")


def test_the_reference_backend_has_no_phases(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="native backend"):
        op_costs(load(tmp_path, "reference"), [1], depth=2, rounds=1)


@pytest.mark.parametrize("kind", NATIVE, ids=lambda kind: kind.name)
def test_synthetic_weights_are_finite_and_not_all_alike(kind: object) -> None:
    assert kind in NATIVE
    type_id: int = kind.ggml_id  # type: ignore[attr-defined]
    data = synthetic_weights(type_id, 4, 256)
    values = QUANT_TYPES[type_id].dequantize_rows(data, 4, 256)
    assert np.isfinite(values).all()
    assert np.abs(values).max() < 1e6
    assert len(np.unique(values)) > 4
    np.testing.assert_array_equal(data, synthetic_weights(type_id, 4, 256))


@pytest.mark.parametrize("isa", _native.isa_levels())
def test_a_product_of_every_type_is_timed(isa: str) -> None:
    machine = MachineProbe(isa, 1e9, {1: 1e9}, dict.fromkeys(_native.multiply_mixes(), 1.0))
    pool = _native.Pool(2)
    for kind in NATIVE:
        case = Case(kind.ggml_id, 20, 256, isa)
        one, three = product_costs(case, [1, 3], pool, machine, budget_s=0.0)
        assert (one.type, one.rows, three.rows, one.isa) == (kind.name, 1, 3, isa)
        assert 0 < one.low_us <= one.us <= one.high_us
        assert not one.from_memory
        assert three.limit_us == pytest.approx(3 * 20 * 256 / 1e9 * 1e6)
        assert three.gmac_s == pytest.approx(3 * 20 * 256 / three.us / 1e3)


def test_a_fast_product_takes_its_weights_from_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slipstream.measure.products._WORKING_SET", 1 << 20)
    machine = MachineProbe("avx2", 1e-9, {1: 1e-9}, dict.fromkeys(_native.multiply_mixes(), 1.0))
    case = Case(8, 64, 256, _native.isa_levels()[-1])
    (cost,) = product_costs(case, [1], _native.Pool(1), machine, budget_s=0.0)
    assert cost.from_memory
    assert cost.limit_us == pytest.approx(case.weight_bytes * 1e6)


def test_inputs_that_are_no_whole_blocks() -> None:
    with pytest.raises(ValueError, match="multiple of 256"):
        synthetic_weights(12, 4, 128)


@pytest.mark.parametrize("isa", _native.isa_levels())
def test_probe_measures_every_mix(isa: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slipstream.measure.probes._READ_BYTES", 1 << 24)
    taken = probe(isa, 1)
    assert set(taken.peak_gmac_s) == set(_native.multiply_mixes())
    assert min(taken.peak_gmac_s.values()) > 1e-3
    assert taken.read_gb_s == max(taken.streams_gb_s.values()) > 0.01


def test_every_native_type_has_a_mix_that_is_measured() -> None:
    assert {multiply_mix(kind.ggml_id) for kind in NATIVE} <= set(_native.multiply_mixes())
