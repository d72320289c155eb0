"""Whole models on the x86 levels that the CPU lacks, emulated.

Builds a second native module whose AVX-512 level goes through SIMDe and whose AVX-VNNI level goes
through AVX2 instructions, and runs the laws of rows, ops and attention with it: they compare every
level that a module offers, bit by bit.
"""

from __future__ import annotations

import os
import platform
import shutil
import site
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("slipstream._native")

from slipstream import _native

pytestmark = [pytest.mark.native, pytest.mark.slow]

EMULATED = ("avx_vnni", "avx512")
"""Levels that CMake can build for a CPU with AVX2 alone, weakest first."""
LAWS = ("test_rows.py", "test_ops.py", "test_attention.py")
ROOT = Path(__file__).resolve().parents[2]
SEARCH = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])


def _program(name: str) -> str:
    found = shutil.which(name, path=SEARCH)
    if found is None:
        pytest.skip(f"{name} is needed to build the emulated module")
    return found


def _run(command: list[str], **environment: str) -> str:
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PATH": SEARCH, **environment},
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done.stdout


def _build(directory: Path, missing: list[str]) -> Path:
    """The module that emulates the levels of ``missing``, compiled into ``directory``."""
    emulated = [f"-DSLIPSTREAM_EMULATE_{isa.upper()}=ON" for isa in missing]
    options = [*emulated, f"-DPython_EXECUTABLE={sys.executable}"]
    _run([_program("cmake"), "-S", str(ROOT), "-B", str(directory), "-G", "Ninja", *options])
    _run([_program("cmake"), "--build", str(directory), "--parallel", "2"])
    (module,) = directory.glob("_native*.so")
    return module


def test_whole_models_have_the_same_bits(tmp_path: Path) -> None:
    if platform.machine().lower() not in {"x86_64", "amd64"}:
        pytest.skip("the emulated levels are for x86-64")
    missing = [isa for isa in EMULATED if isa not in _native.isa_levels()]
    if not missing:
        pytest.skip("this processor has the levels: the row laws run them as they are")
    if "avx512" in missing and not Path("/usr/include/simde/x86/avx512.h").is_file():
        pytest.skip("SIMDe (libsimde-dev) is not installed, so AVX-512 cannot be emulated")
    _program("ninja")
    package = tmp_path / "package" / "slipstream"
    ignored = shutil.ignore_patterns("_native*.so", "__pycache__")
    shutil.copytree(ROOT / "src" / "slipstream", package, ignore=ignored)
    shutil.copy(_build(tmp_path / "build", missing), package)
    # -S keeps an editable installation from putting its own module first.
    path = os.pathsep.join([str(package.parent), *site.getsitepackages()])
    python = [sys.executable, "-S"]
    levels = _run(
        [*python, "-c", "from slipstream import _native; print(*_native.isa_levels())"],
        PYTHONPATH=path,
    )
    assert levels.split() == ["portable", "avx2", *EMULATED]
    for law in LAWS:
        shown = _run(
            [*python, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"tests/laws/{law}"],
            PYTHONPATH=path,
            PYTEST_ADDOPTS="",
        )
        assert " passed" in shown
