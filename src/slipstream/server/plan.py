"""What the HTTP process says to the engine process when it starts it."""

from __future__ import annotations

import signal
from typing import Final

import msgspec

from slipstream.options import EngineOptions, ModelOptions, SpeculationOptions

IGNORED: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that end the HTTP process, which then ends the engine process in its own way."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What the engine process is to open.

    Attributes:
        queue: most requests that wait, beside those that run.
    """

    model: ModelOptions
    engine: EngineOptions
    speculation: SpeculationOptions
    queue: int
