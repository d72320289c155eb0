"""Fixtures shared by all tests."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

# Set before NumPy is imported: BLAS threads that spin make a loaded machine many times slower.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


@pytest.fixture(scope="session")
def model_path() -> Callable[[str], Path]:
    """The path of a catalogue model by name, fetched when absent; use it under ``model`` marks."""
    from slipstream.catalog import ensure

    return ensure
