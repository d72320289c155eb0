"""Builds native test programs of the runtime: what a step allocates, what the pool promises."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NATIVE = ROOT / "native"
CHECKS = ROOT / "tests" / "native"
FLAGS = ["-std=c++17", "-O1", "-ffp-contract=off", "-fno-math-errno", "-pthread", f"-I{NATIVE}"]
WARNINGS = ["-Wall", "-Wextra", "-Werror"]

pytestmark = pytest.mark.native


def _compiler() -> str:
    named = os.environ.get("CXX")
    found = named or next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)
    if found is None:
        pytest.skip("no C++ compiler")
    return found


def _compile(arguments: Sequence[str]) -> None:
    command = [_compiler(), *FLAGS, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]


def _core_sources() -> list[Path]:
    """Everything that runs a program on the portable level; the check brings its own levels."""
    kernels = (NATIVE / "kernels").glob("*.cc")
    portable = [path for path in kernels if re.search(r"_(?!portable)", path.stem) is None]
    return [path for path in NATIVE.glob("*.cc") if path.name != "bindings.cc"] + portable


def _build(directory: Path, sources: Sequence[Path], *flags: str) -> Path:
    objects = [str(directory / f"{source.stem}.o") for source in sources]
    with ThreadPoolExecutor(2) as beside:
        pairs = zip(sources, objects, strict=True)
        list(beside.map(lambda p: _compile([*flags, "-c", str(p[0]), "-o", p[1]]), pairs))
    binary = directory / "check"
    _compile([*flags, *objects, "-o", str(binary)])
    return binary


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture(scope="module")
def step_allocations(tmp_path_factory: pytest.TempPathFactory) -> str:
    if platform.libc_ver()[0] != "glibc":
        pytest.skip("the check counts calls of glibc's allocator")
    sources = [*_core_sources(), CHECKS / "step_allocations.cc"]
    return str(_build(tmp_path_factory.mktemp("step"), sources, "-w"))


def test_a_step_allocates_nothing(step_allocations: str) -> None:
    done = _run(step_allocations)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(": 0 allocations") == 3


def test_the_count_sees_an_allocation(step_allocations: str) -> None:
    done = _run(step_allocations, "violate")
    assert done.returncode == 1
    assert done.stdout.count(": 1 allocations") == 3


POOL = (NATIVE / "pool.cc", CHECKS / "pool_check.cc")


@pytest.mark.parametrize("flags", [(), ("-DSLIPSTREAM_POOL_DELAY",)], ids=["plain", "late"])
def test_the_pool_keeps_its_promises(tmp_path: Path, flags: tuple[str, ...]) -> None:
    """``late``: the thread that ends a phase stops for a while before it says so."""
    done = _run(str(_build(tmp_path, POOL, *WARNINGS, *flags)))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "pool: 0 failures" in done.stdout


def test_the_pool_has_no_data_race(tmp_path: Path) -> None:
    probe = tmp_path / "probe.cc"
    probe.write_text("int main() {}\n")
    sanitize = "-fsanitize=thread"
    command = [_compiler(), sanitize, str(probe), "-o", str(tmp_path / "probe")]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("ThreadSanitizer is not installed")
    if _run(str(tmp_path / "probe")).returncode != 0:
        pytest.skip("ThreadSanitizer does not run on this system")
    done = _run(str(_build(tmp_path, POOL, sanitize, "-g")), "20")
    assert done.returncode == 0, done.stdout + done.stderr
