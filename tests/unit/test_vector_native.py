"""Builds tests/native/vector_check from the kernel sources and runs its sections.

The program holds the checks: double oracles with derived tolerances, and the bits of every level
against the portable one. AVX-512 is compiled through SIMDe where its headers are installed, so that
its bits are checked on a CPU without it.
"""

import os
import platform
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
KERNELS = ROOT / "native" / "kernels"
CHECKS = ROOT / "tests" / "native"
FLAGS = ["-std=c++17", "-ffp-contract=off", "-fno-math-errno", "-Wall", "-Wextra", "-Werror"]
AVX2 = ["-mavx2", "-mfma", "-mf16c"]
AVX512 = ["-mavx512f", *AVX2]
EMULATED = ["-DSLIPSTREAM_EMULATE_AVX512", *AVX2, "-w"]
X86 = platform.machine().lower() in {"x86_64", "amd64"}
ARM = platform.machine().lower() in {"aarch64", "arm64"}

pytestmark = pytest.mark.native


def _compiler() -> str:
    named = os.environ.get("CXX")
    found = named or next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)
    if found is None:
        pytest.skip("no C++ compiler")
    return found


def _compile(arguments: list[str]) -> None:
    done = subprocess.run([_compiler(), *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]


def _has_simde(directory: Path) -> bool:
    probe = directory / "probe.cc"
    probe.write_text("#include <simde/x86/avx512.h>\nint main() {}\n")
    command = [_compiler(), "-fsyntax-only", "-w", str(probe)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _jobs(emulated: bool) -> Iterator[tuple[Path, list[str]]]:
    yield KERNELS / "vector_portable.cc", ["-O2"]
    yield KERNELS / "vector.cc", ["-O3"]
    if X86:
        yield KERNELS / "vector_avx512.cc", (["-O1", *EMULATED] if emulated else ["-O3", *AVX512])
        yield KERNELS / "vector_avx2.cc", ["-O3", *AVX2]
    if ARM:
        yield KERNELS / "vector_neon.cc", ["-O3"]
    for source in sorted(CHECKS.glob("vector_check*.cc")):
        yield source, ["-O1", *(EMULATED[:1] if emulated else [])]


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> bool:
    """Whether the AVX-512 level of the program runs through SIMDe."""
    return X86 and _has_simde(tmp_path_factory.mktemp("simde"))


@pytest.fixture(scope="module")
def program(emulated: bool, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The check program, built once per module."""
    directory = tmp_path_factory.mktemp("vector_check")
    jobs = list(_jobs(emulated))
    objects = [str(directory / f"{source.stem}.o") for source, _ in jobs]
    commands = [
        [*FLAGS, *flags, "-c", str(source), "-o", output]
        for (source, flags), output in zip(jobs, objects, strict=True)
    ]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(_compile, commands))
    binary = directory / "vector_check"
    _compile([*objects, "-o", str(binary)])
    return binary


def _run(program: Path, *sections: str) -> subprocess.CompletedProcess[str]:
    command = [str(program), *sections]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.parametrize("section", ["math", "elementwise", "attention", "sampling"])
def test_section(program: Path, section: str) -> None:
    done = _run(program, section)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
    assert f"{section}: 0 failures" in done.stdout


def test_unknown_section_fails(program: Path) -> None:
    assert _run(program, "nonsense").returncode == 2


def test_avx512_is_compared_by_emulation(program: Path, emulated: bool) -> None:
    if not emulated:
        pytest.skip("SIMDe headers (libsimde-dev) are not installed")
    assert "avx512" in _run(program).stdout.splitlines()[0].split()


@pytest.mark.skipif(not X86, reason="AVX-512 code needs an x86 compiler")
def test_real_avx512_source_compiles() -> None:
    _compile([*FLAGS, *AVX512, "-fsyntax-only", str(KERNELS / "vector_avx512.cc")])
