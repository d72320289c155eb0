"""On CI nothing may be skipped because something is missing."""

from __future__ import annotations

import os
import platform
from importlib.util import find_spec
from pathlib import Path

import pytest


@pytest.mark.skipif("CI" not in os.environ, reason="a developer's machine may lack parts")
def test_ci_has_the_native_core_and_the_emulation() -> None:
    assert find_spec("slipstream._native") is not None
    if platform.machine() == "x86_64":
        assert Path("/usr/include/simde/x86/avx512.h").is_file()


@pytest.mark.skipif("CI" not in os.environ, reason="a developer's machine may lack parts")
@pytest.mark.parametrize("name", ["starlette", "uvicorn", "openai", "anthropic", "schemathesis"])
def test_ci_has_the_servers_libraries_and_clients(name: str) -> None:
    assert find_spec(name) is not None
