"""Builds tests/native/matmul_check from the kernel sources and runs it.

The program holds the checks: a double oracle with derived tolerances, and the bits of every level
and AVX-512 is compiled through
SIMDe and AVX-VNNI through AVX2 instructions.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from random_blocks import random_blocks
from slipstream.quants import QUANT_TYPES, QuantType

pytestmark = pytest.mark.native

ROOT = Path(__file__).resolve().parents[2]
FLAGS = ["-std=c++20", "-ffp-contract=off", "-fno-math-errno", "-Wall", "-Wextra", "-Werror"]
INCLUDES = [f"-I{ROOT / 'native'}"]
AVX2 = ["-mavx2", "-mfma", "-mf16c"]
EMULATED = ["-DSLIPSTREAM_EMULATE_AVX512"]
EMULATED_VNNI = ["-DSLIPSTREAM_EMULATE_AVX_VNNI"]
SOURCES = [
    ("native/kernels/matmul_portable.cc", ["-O2", "-Wno-psabi"]),
    ("native/kernels/matmul_avx2.cc", ["-O3", *AVX2]),
    ("native/kernels/matmul_avx_vnni.cc", ["-O2", *AVX2, *EMULATED_VNNI]),
    ("native/kernels/matmul_avx512.cc", ["-O0", "-w", *AVX2, *EMULATED]),
    ("native/kernels/matmul.cc", ["-O2"]),
    ("tests/native/matmul_check.cc", ["-O2", *EMULATED, *EMULATED_VNNI]),
]
"""Each object and its flags. Emulated AVX-512 at any higher level takes minutes to compile."""


def _compiler() -> str:
    named = os.environ.get("CXX")
    found = named or next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)
    if found is None:
        pytest.skip("no C++ compiler")
    return found


def _compile(arguments: list[str]) -> None:
    command = [_compiler(), *FLAGS, *INCLUDES, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]


def _require_simde(directory: Path) -> None:
    probe = directory / "probe.cc"
    probe.write_text("#include <simde/x86/avx512.h>\nint main() {}\n")
    command = [_compiler(), "-fsyntax-only", "-w", str(probe)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("SIMDe (libsimde-dev) is not installed, so AVX-512 cannot be emulated")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The check program, built once per module."""
    if platform.machine().lower() not in {"x86_64", "amd64"}:
        pytest.skip("the levels above portable are for x86-64")
    directory = tmp_path_factory.mktemp("matmul_check")
    _require_simde(directory)
    objects = [str(directory / f"{Path(source).stem}.o") for source, _ in SOURCES]
    commands = [
        [*flags, "-c", str(ROOT / source), "-o", output]
        for (source, flags), output in zip(SOURCES, objects, strict=True)
    ]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(_compile, commands))
    binary = directory / "matmul_check"
    _compile([*objects, "-o", str(binary)])
    return binary


def test_every_level_and_row_count_gives_the_same_bits(program: Path) -> None:
    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert "levels: portable avx2 avx_vnni avx512\n" in done.stdout
    assert "failures: 0\n" in done.stdout


def test_planes_of_activations(program: Path) -> None:
    command = [str(program), "planes"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert "failures: 0\n" in done.stdout


@pytest.mark.parametrize("kind", QUANT_TYPES.values(), ids=lambda kind: kind.name)
def test_dequantised_values_are_those_of_the_oracle(program: Path, kind: QuantType) -> None:
    blocks = random_blocks(kind.name, 64, np.random.default_rng(3))
    columns = 64 * kind.block_elements
    command = [str(program), "dequantise", kind.name, str(columns)]
    done = subprocess.run(
        command, input=blocks.tobytes(), capture_output=True, timeout=300, check=True
    )
    expected = kind.dequantize_rows(blocks.reshape(-1), 1, columns).view(np.uint32)
    for level in np.frombuffer(done.stdout, np.uint32).reshape(4, 1, columns):
        np.testing.assert_array_equal(level, expected)


def test_real_avx_vnni_source_compiles() -> None:
    if platform.machine().lower() not in {"x86_64", "amd64"}:
        pytest.skip("AVX-VNNI code needs an x86 compiler")
    source = str(ROOT / "native/kernels/matmul_avx_vnni.cc")
    _compile(["-O1", *AVX2, "-mavxvnni", "-c", source, "-o", os.devnull])
