"""Questions that the engine process answers between two steps."""

from __future__ import annotations

from typing import Any

from slipstream.engine.engine import Engine
from slipstream.errors import OptionError
from slipstream.server.engine_room import EngineRoom
from slipstream.server.wire import Ask


def answer(room: EngineRoom, asked: Ask) -> dict[str, Any]:
    """
    Raises:
        OptionError: no such question.
        BackendError: a drafter failed to forget.
    """
    if asked.what == "observed":
        return dict(room.program.observed())
    if asked.what == "remembered":
        return remembered(room.engine, asked.session)
    if asked.what == "forget":
        room.engine.forget(asked.session)
        return {}
    known = "one of the questions remembered, forget, observed"
    raise OptionError(known, f"`{asked.what:.80}`", "Ask one of them.")


def remembered(engine: Engine, session: str | None) -> dict[str, Any]:
    """What drafters keep: method -> scope -> tokens and bytes; and tokens of kept prefixes."""
    drafters: dict[str, dict[str, dict[str, int]]] = {}
    for name, scope, pool in engine.drafting.remembered():
        if session is None or scope == f"session {session}":
            drafters.setdefault(name, {})[scope] = {"tokens": pool.tokens, "bytes": pool.bytes}
    found: dict[str, Any] = {"drafters": drafters}
    if engine.prefixes is not None:
        kept = engine.prefixes.sessions().items()
        found["prefixes"] = {name: size for name, size in kept if session in (None, name)}
    return found


def kept_prefixes(engine: Engine) -> int:
    """Entries of the engine's prefix cache."""
    return 0 if engine.prefixes is None else len(engine.prefixes)
