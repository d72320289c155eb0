"""The wheel in a clean environment: it holds what it must and runs outside of the repository."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
BUILD_REQUIREMENTS = ("scikit_build_core", "nanobind", "cmake", "ninja")
BUILD_S, INSTALL_S, RUN_S = 1800, 600, 300

pytestmark = [pytest.mark.slow, pytest.mark.native]


def call(*words: str | Path, cwd: Path, timeout: float) -> subprocess.CompletedProcess[str]:
    """Run without the settings that would let it find this source tree."""
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
    # the build finds cmake and ninja beside the interpreter
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment["PATH"]])
    return subprocess.run(
        list(map(str, words)),
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    missing = [name for name in BUILD_REQUIREMENTS if find_spec(name) is None]
    if missing:
        pytest.skip(f"the build needs {', '.join(missing)}")
    folder = tmp_path_factory.mktemp("dist")
    flags = ["--no-deps", "--no-build-isolation", "--quiet", "--wheel-dir"]
    built = call(
        *(sys.executable, "-m", "pip", "wheel", *flags, folder, REPOSITORY),
        cwd=folder,
        timeout=BUILD_S,
    )
    assert built.returncode == 0, built.stderr[-4000:]
    [path] = folder.glob("slipstream-*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of an environment with the wheel and its dependencies."""
    environment = tmp_path_factory.mktemp("clean") / "venv"
    made = call(
        sys.executable, "-m", "venv", environment, cwd=environment.parent, timeout=INSTALL_S
    )
    assert made.returncode == 0, made.stderr
    programs = environment / "bin"
    got = call(
        *(programs / "python", "-m", "pip", "install", "--quiet", wheel),
        cwd=environment.parent,
        timeout=INSTALL_S,
    )
    if "No matching distribution found for" in got.stderr:
        pytest.skip("the dependencies cannot be fetched: no package index in reach")
    assert got.returncode == 0, got.stderr[-4000:]
    return programs


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    folders = {name.partition("/")[0] for name in names}
    assert {f for f in folders if not f.endswith(".dist-info")} == {"slipstream"}
    [native] = [
        name for name in names if name.startswith("slipstream/_native.") and "pyi" not in name
    ]
    assert native.endswith(".so")
    assert "slipstream/dispatch/policies/cpu.toml" in names
    assert not [name for name in names if "test" in name.lower()]
    assert any(name.endswith("LICENSE") for name in names)


def test_the_command_runs_outside_of_the_repository(
    installed: Path, tiny: Path, tmp_path: Path
) -> None:
    version = call(installed / "slipstream", "--version", cwd=tmp_path, timeout=RUN_S)
    assert version.stdout.startswith("slipstream 0."), version.stderr
    for command in ([installed / "slipstream"], [installed / "python", "-m", "slipstream"]):
        ran = call(
            *(*command, "run", tiny, "-p", "hello", "-n", "4", "--ignore-eos", "--json"),
            cwd=tmp_path,
            timeout=RUN_S,
        )
        assert ran.returncode == 0, ran.stderr
        assert len(json.loads(ran.stdout.splitlines()[-1])["ids"]) == 4


def test_the_library_runs_outside_of_the_repository(
    installed: Path, tiny: Path, tmp_path: Path
) -> None:
    code = (
        "import sys, slipstream; from slipstream import Model;"
        "assert 'site-packages' in slipstream.__file__, slipstream.__file__;"
        "print(len(Model(sys.argv[1]).complete('hello', max_tokens=4, ignore_eos=True).ids))"
    )
    ran = call(installed / "python", "-c", code, tiny, cwd=tmp_path, timeout=RUN_S)
    assert ran.stdout == "4\n", ran.stderr
