"""The Arm levels, cross-compiled and run under user-mode emulation.

The same check programs as on x86: the mat-mul kernels on a grid and the vector kernels in sections,
every level against the portable one bit by bit. The whole core but its bindings is linked too, and
detects the levels of several processors. Where the tools are missing the tests are skipped, unless
``SLIPSTREAM_REQUIRE_ARM`` is set, as ``.ci/run`` does.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from random_blocks import random_blocks
from slipstream.quants import QUANT_TYPES, QuantType

pytestmark = pytest.mark.native

ROOT = Path(__file__).resolve().parents[2]
NATIVE = ROOT / "native"
CHECKS = ROOT / "tests" / "native"
COMPILER = "aarch64-linux-gnu-g++"
EMULATOR = "qemu-aarch64-static"
FLAGS = ["-ffp-contract=off", "-fno-math-errno", "-Wall", "-Wextra", "-Werror", f"-I{NATIVE}"]
NEON = ["-O2", "-fno-schedule-insns", "-march=armv8.2-a+dotprod"]
PORTABLE = ["-O2", "-fno-tree-vectorize", "-Wno-psabi"]
KERNELS = {
    "matmul_neon": NEON,
    "matmul_neon_i8mm": [*NEON[:-1], f"{NEON[-1]}+i8mm"],
    "matmul_portable": PORTABLE,
    "vector_portable": PORTABLE,
    "vector_neon": ["-O2"],
    "matmul": ["-O1"],
    "vector": ["-O1"],
}
"""Kernel sources, the slowest to compile first, and their flags."""
LEVELS = ("portable", "neon", "neon_i8mm")
SECTIONS = ("math", "elementwise", "attention", "sampling")


@pytest.fixture(scope="module")
def tools() -> None:
    """Skips, or fails where the tools are required, without a cross-compiler and an emulator."""
    missing = [tool for tool in (COMPILER, EMULATOR) if shutil.which(tool) is None]
    if not missing:
        return
    message = f"{' and '.join(missing)} not installed: the Arm levels were not run"
    if os.environ.get("SLIPSTREAM_REQUIRE_ARM"):
        pytest.fail(f"{message} (Debian: g++-aarch64-linux-gnu qemu-user-static)")
    pytest.skip(message)


def _compile(arguments: list[str]) -> None:
    done = subprocess.run([COMPILER, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]


def _sources() -> Iterator[tuple[Path, list[str]]]:
    for stem, flags in KERNELS.items():
        yield NATIVE / "kernels" / f"{stem}.cc", ["-std=c++17", *flags]
    for source in (*NATIVE.glob("*.cc"), NATIVE / "isa" / "levels.cc"):
        if source.name != "bindings.cc":
            yield source, ["-std=c++17", "-O1"]
    for source in CHECKS.glob("*.cc"):
        yield source, ["-std=c++20", "-O1"]


@pytest.fixture(scope="module")
def objects(tools: None, tmp_path_factory: pytest.TempPathFactory) -> Path:  # noqa: ARG001
    """A directory with an object file of every native and check source."""
    directory = tmp_path_factory.mktemp("arm")
    commands = [
        [*FLAGS, *flags, "-c", str(source), "-o", str(directory / f"{source.stem}.o")]
        for source, flags in _sources()
    ]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(_compile, commands))
    return directory


def _link(objects: Path, name: str, *stems: str) -> Path:
    files = [str(objects / f"{stem}.o") for stem in stems]
    binary = objects / name
    _compile(["-static", "-pthread", *files, "-o", str(binary)])
    return binary


@pytest.fixture(scope="module")
def matmul_check(objects: Path) -> Path:
    return _link(objects, "run_matmul", "matmul_check", *(k for k in KERNELS if "matmul" in k))


@pytest.fixture(scope="module")
def vector_check(objects: Path) -> Path:
    checks = [source.stem for source in CHECKS.glob("vector_check*.cc")]
    return _link(objects, "run_vector", *checks, *(k for k in KERNELS if "vector" in k))


@pytest.fixture(scope="module")
def core_check(objects: Path) -> Path:
    core = [source.stem for source in NATIVE.glob("*.cc") if source.name != "bindings.cc"]
    return _link(objects, "run_core", "core_check", "levels", *core, *KERNELS)


def _emulate(binary: Path, *arguments: str, cpu: str = "max") -> str:
    command = [EMULATOR, "-cpu", cpu, str(binary), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done.stdout


def test_every_level_and_row_count_gives_the_same_bits(matmul_check: Path) -> None:
    shown = _emulate(matmul_check, "short")
    assert f"levels: {' '.join(LEVELS)}\n" in shown
    assert "failures: 0\n" in shown


def test_planes_of_activations_give_the_same_bits(matmul_check: Path) -> None:
    assert "failures: 0\n" in _emulate(matmul_check, "planes")


@pytest.mark.parametrize("kind", QUANT_TYPES.values(), ids=lambda kind: kind.name)
def test_dequantised_values_are_those_of_the_oracle(matmul_check: Path, kind: QuantType) -> None:
    blocks = random_blocks(kind.name, 16, np.random.default_rng(5))
    columns = 16 * kind.block_elements
    command = [EMULATOR, "-cpu", "max", str(matmul_check), "dequantise", kind.name, str(columns)]
    done = subprocess.run(
        command, input=blocks.tobytes(), capture_output=True, timeout=300, check=True
    )
    expected = kind.dequantize_rows(blocks.reshape(-1), 1, columns).view(np.uint32)
    for level in np.frombuffer(done.stdout, np.uint32).reshape(len(LEVELS), 1, columns):
        np.testing.assert_array_equal(level, expected)


def test_vector_kernels_give_the_same_bits(vector_check: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        shown = "".join(pool.map(lambda section: _emulate(vector_check, section), SECTIONS))
    assert "levels: portable neon\n" in shown
    for section in SECTIONS:
        assert f"{section}: 0 failures" in shown


@pytest.mark.parametrize(
    ("cpu", "levels"), [("cortex-a72", 1), ("neoverse-n1", 2), ("max", 3)], ids=lambda value: value
)
def test_the_levels_of_a_processor_are_detected(core_check: Path, cpu: str, levels: int) -> None:
    shown = _emulate(core_check, cpu=cpu)
    assert shown == f"levels: {' '.join(LEVELS[:levels])}\n"
