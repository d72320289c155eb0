"""The native core refuses what does not fit with a Python exception; it never crashes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from builders import tiny_model
from native_runs import compile_graph

pytest.importorskip("slipstream._native")

from slipstream import _native
from slipstream.backends.cpu import CpuBackend, CpuProgram
from slipstream.dispatch.fuse import fuse
from slipstream.gguf import open_gguf
from slipstream.models import build_graph

pytestmark = pytest.mark.native


@pytest.fixture
def program(tmp_path: Path) -> Iterator[CpuProgram]:
    with open_gguf(tiny_model(tmp_path / "tiny.gguf", "llama")) as file:
        compiled = compile_graph(CpuBackend(threads=2), file, fuse(build_graph(file)))
        assert isinstance(compiled, CpuProgram)
        yield compiled


def arrays(**changes: Any) -> dict[str, NDArray[np.int32]]:
    """One row at position 0 as the native program takes it."""
    one = {
        "tokens": [1],
        "positions": [0],
        "slots": [0],
        "table": [0],
        "identity": [1],
        "tail_start": [0],
        "tail_count": [0],
        "tail": [],
        "logit_rows": [0],
    }
    return {name: np.asarray(value, np.int32) for name, value in (one | changes).items()}


@pytest.mark.parametrize(
    "changes",
    [
        {"tokens": [-1]},
        {"tokens": [10**6]},
        {"positions": [-1], "identity": [0]},
        {"positions": [1]},
        {"slots": [-1]},
        {"slots": [64 * 8]},
        {"slots": [64]},
        {"slots": [2**31 - 1]},
        {"table": [1]},
        {"table": [-1]},
        {"identity": [-1], "tail_count": [2], "tail": [0, 0]},
        {"positions": [200], "identity": [201]},
        {"identity": [0], "tail_count": [1]},
        {"identity": [0], "tail_count": [1], "tail": [-1]},
        {"identity": [0], "tail_count": [1], "tail": [100]},
        {"identity": [0], "tail_count": [1], "tail_start": [2**31 - 1], "tail": [0]},
        {"tail_start": [-1]},
        {"logit_rows": [1]},
        {"logit_rows": [-1]},
        {"slots": [0, 1]},
    ],
)
def test_native_arrays_that_do_not_fit(program: CpuProgram, changes: dict[str, Any]) -> None:
    table = np.full((1, 3), -1, np.int32)
    table[0, 0] = 0
    logits = np.empty((1, program.graph.vocabulary), np.float32)
    native = program._program

    def run(given: dict[str, NDArray[np.int32]]) -> None:
        outputs = dict.fromkeys(program.graph.outputs(), None) | {"logits": logits}
        native.run(**given, tables=[table], vectors=[], outputs=list(outputs.values()))

    run(arrays())
    with pytest.raises(ValueError, match=r"."):
        run(arrays(**changes))


def test_random_native_arrays_never_crash(program: CpuProgram) -> None:
    rng = np.random.default_rng(0)
    native = program._program
    interesting = np.asarray([-(2**31), -1, 0, 0, 1, 1, 2, 63, 64, 65, 200, 2**31 - 1], np.int32)
    refused = 0
    for _ in range(1000):
        rows = int(rng.integers(0, 4))
        per_row = {name: interesting[rng.integers(1, 8, rows)] for name in arrays()}
        per_row["table"] = rng.integers(0, 2, rows).astype(np.int32)
        per_row["identity"] = (per_row["positions"] + 1 - per_row["tail_count"]).astype(np.int32)
        name = list(per_row)[rng.integers(len(per_row))]
        per_row[name] = interesting[rng.integers(0, len(interesting), rows)]
        per_row["logit_rows"] = np.arange(rows, dtype=np.int32)
        table = rng.integers(-1, 10, (2, 3)).astype(np.int32)
        outputs: list[Any] = [
            np.empty((rows, value.width), np.float32) for value in program.graph.outputs().values()
        ]
        try:
            native.run(**per_row, tables=[table], vectors=[], outputs=outputs)
        except ValueError:
            refused += 1
    assert 0 < refused < 1000


def test_builder_refusals() -> None:
    builder = _native.ProgramBuilder("portable")
    a, b, c = builder.value(8, True), builder.value(8, True), builder.value(8, False)
    with pytest.raises(ValueError, match="before it is written"):
        builder.scale(b, a, 1.0)
    builder.input(a, "x")
    with pytest.raises(ValueError, match="written twice"):
        builder.input(a, "x")
    with pytest.raises(ValueError, match="row set"):
        builder.scale(c, a, 1.0)
    with pytest.raises(ValueError, match="not a value"):
        builder.scale(b, 77, 1.0)
    with pytest.raises(ValueError, match="width"):
        builder.rope(b, a, 3, 8, True, 8, [1.0] * 4, 1.0)
    with pytest.raises(ValueError, match="group"):
        builder.attention(b, a, a, a, 0, 0, 1, 1, 8, 1.0, 0)
    with pytest.raises(TypeError):
        builder.rms_norm(b, a, np.ones(8), 1e-6, 8)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="level"):
        _native.ProgramBuilder("none")
    pool = _native.Pool(1)
    _native.Program(pool, builder)
    with pytest.raises(ValueError, match="made already"):
        builder.value(8, True)


def test_source_rows_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="bytes"):
        _native.SourceRows(8, np.zeros(33, np.uint8), 1, 32)
    with pytest.raises(ValueError, match="whole blocks"):
        _native.SourceRows(8, np.zeros(34, np.uint8), 1, 33)
    with pytest.raises(ValueError, match="type 99"):
        _native.SourceRows(99, np.zeros(34, np.uint8), 1, 32)
    with pytest.raises(TypeError):
        _native.SourceRows(8, np.zeros(34, np.int8), 1, 32)  # type: ignore[arg-type]
    source = _native.SourceRows(8, np.zeros(34, np.uint8), 1, 32)
    arena = _native.Arena(1)
    pool = _native.Pool(1)
    for _ in range(arena.bytes // _native.matrix_bytes(8, 1, 32)):
        assert _native.pack(pool, arena, source, [], "portable") is not None
    with pytest.raises(MemoryError):
        _native.pack(pool, arena, source, [], "portable")
    with pytest.raises(ValueError, match="outside"):
        _native.finite_scales(_native.Pool(1), source, [(33, 2, 0x7C00)])


@pytest.mark.parametrize(
    "change",
    [
        {"temperature": 0.0},
        {"temperature": float("nan")},
        {"top_k": -1},
        {"top_p": 0.0},
        {"min_p": 1.5},
        {"row": np.empty(0, np.float32)},
        {"isa": "none"},
    ],
)
def test_sampling_arguments_out_of_range(change: dict[str, Any]) -> None:
    good = {
        "row": np.asarray([1, 3, 2], np.float32),
        "temperature": 1.0,
        "top_k": 1,
        "top_p": 1.0,
        "min_p": 0.0,
        "seed": 2**64 - 1,
        "index": 5,
        "isa": "portable",
    }
    assert _native.sample(**good) == 1
    with pytest.raises(ValueError, match=r"."):
        _native.sample(**(good | change))


def test_primitives_refuse_other_types() -> None:
    for call in (_native.argmax, _native.log_sum_exp):
        with pytest.raises(TypeError):
            call(np.zeros(3), "portable")  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            call(np.zeros(6, np.float32)[::2], "portable")


def test_probes_say_something_plausible() -> None:
    for streams in (1, 2, 16):
        assert _native.read_bandwidth(1 << 22, 1, 1, streams) > 1e7
    for mix in _native.multiply_mixes():
        assert _native.multiply_peak("portable", mix, 1) > 1e6
    with pytest.raises(ValueError, match="at least"):
        _native.read_bandwidth(10, 1)
    with pytest.raises(ValueError, match="streams"):
        _native.read_bandwidth(1 << 22, 1, 1, 3)
    with pytest.raises(ValueError, match="level"):
        _native.multiply_peak("none", "float32", 1)
    with pytest.raises(ValueError, match="mix"):
        _native.multiply_peak("portable", "none", 1)


FORKED = """
import os
from slipstream import _native
import numpy as np
pool = _native.Pool(3)
source = _native.SourceRows(8, np.zeros(34, np.uint8), 1, 32)
assert _native.finite_scales(pool, source, [])
child = os.fork()
if child == 0:
    try:
        _native.finite_scales(pool, source, [])
    except RuntimeError as error:
        os._exit(0 if "fork" in str(error) else 1)
    os._exit(2)
assert os.waitpid(child, 0)[1] == 0
assert _native.finite_scales(pool, source, [])
"""


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="this system has no fork")
def test_a_forked_process_gets_an_error_instead_of_waiting() -> None:
    subprocess.run([sys.executable, "-c", FORKED], check=True, timeout=300)


FORKED_MODEL = """
import os, sys, warnings
from slipstream import Model
from slipstream.errors import BackendError

warnings.simplefilter("ignore", DeprecationWarning)
model = Model(sys.argv[1], threads=2)
child = os.fork()
if child == 0:
    try:
        model.complete([1, 2], max_tokens=2)
    except BackendError as error:
        os._exit(0 if "fork" in str(error) else 2)
    os._exit(1)
assert os.waitpid(child, 0)[1] == 0
assert len(model.complete([1, 2], max_tokens=2, ignore_eos=True).ids) == 2
"""


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="this system has no fork")
def test_a_model_in_a_forked_process_says_what_to_do(tmp_path: Path) -> None:
    path = tiny_model(tmp_path / "tiny.gguf", "llama")
    command = [sys.executable, "-c", FORKED_MODEL, str(path)]
    subprocess.run(command, check=True, timeout=300)


def test_head_products_that_overflow_are_refused() -> None:
    builder = _native.ProgramBuilder("portable")
    wide = 65536
    x, out = builder.value(wide, True), builder.value(wide, True)
    builder.input(x, "x")
    with pytest.raises(ValueError, match="too large"):
        builder.rope(out, x, wide + 1, wide, True, 2, [1.0], 1.0)
