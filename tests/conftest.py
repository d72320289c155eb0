"""Fixtures shared by all tests."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Set before NumPy is imported: BLAS threads that spin make a loaded machine many times slower.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# No limit of time for an example: a machine that stalls is no fault of the code. With $CI the
# examples are those of every other run of the same test.
settings.register_profile(
    "patient",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=bool(os.environ.get("CI")),
    print_blob=True,
)
settings.load_profile("patient")


@pytest.fixture(scope="session")
def model_path() -> Callable[[str], Path]:
    """The path of a catalogue model by name, fetched when absent; use it under ``model`` marks."""
    from slipstream.catalog import ensure

    return ensure
