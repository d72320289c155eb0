"""Engines with and without a prefix cache over the fake program, and prompts that begin alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engines import Output, drain, joined
from slipstream.engine.engine import Engine
from slipstream.engine.prefix_cache import PrefixCache
from slipstream.engine.sequence import Request
from slipstream.options import SamplingOptions

LENGTH = 20
CACHES: dict[str, tuple[int, int | None]] = {
    "on": (8, None),
    "one entry": (1, None),
    "one page": (1, 1),
    "running ones only": (0, None),
}
"""Entries and pages."""

BASE = [(7 * i * i + 3 * i) % 24 for i in range(140)]


def with_cache(engine: Engine, kind: str = "on") -> Engine:
    engine.prefixes = PrefixCache(engine.program.memory, *CACHES[kind])
    return engine


def ask(
    engine: Engine, prompts: Mapping[str, Sequence[Sequence[int]]], **sampling: Any
) -> list[Output]:
    """The prompts of some sessions, all at once."""
    options = SamplingOptions(**{"seed": 1, "max_tokens": LENGTH, **sampling})
    ids = [
        engine.submit(Request(prompt, options, session=session))
        for session, own in prompts.items()
        for prompt in own
    ]
    events = drain(engine)
    return [joined(events, identity) for identity in ids]
