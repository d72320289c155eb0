"""Slipstream runs GGUF language models with speculative decoding.

The public names; each module is imported when one of its names is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slipstream.api import Completion, Model, Piece
    from slipstream.errors import InputError, OperationError, SlipstreamError
    from slipstream.options import (
        EngineOptions,
        ModelOptions,
        SamplingOptions,
        SpeculationOptions,
    )

__all__ = [
    "Completion",
    "EngineOptions",
    "InputError",
    "Model",
    "ModelOptions",
    "OperationError",
    "Piece",
    "SamplingOptions",
    "SlipstreamError",
    "SpeculationOptions",
]

_ERRORS = ("InputError", "OperationError", "SlipstreamError")


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    owner = "errors" if name in _ERRORS else "options" if name.endswith("Options") else "api"
    return getattr(import_module(f"{__name__}.{owner}"), name)


def __dir__() -> list[str]:
    return __all__
