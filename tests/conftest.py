"""Fixtures shared by all tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def model_path() -> Callable[[str], Path]:
    """The path of a catalogue model by name, fetched when absent; use it under ``model`` marks."""
    from slipstream.catalog import ensure

    return ensure
