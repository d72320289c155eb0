"""What a drafter learns, kept apart by scope."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

Kept = TypeVar("Kept")


class Pools(Generic[Kept]):
    """One pool per scope; those in use stay, of the others the most recently used.

    Args:
        create: makes an empty pool.
        idle: most pools kept of scopes without an open sequence.
    """

    def __init__(self, create: Callable[[], Kept], idle: int = 16) -> None:
        self._create = create
        self._idle = idle
        self._pools: dict[str, Kept] = {}
        self._scopes: dict[int, str] = {}

    def open(self, sequence: int, scope: str) -> Kept:
        """The pool of a scope, for a sequence that starts."""
        self._scopes[sequence] = scope
        pool = self._pools.pop(scope, None)
        self._pools[scope] = self._create() if pool is None else pool
        self._evict()
        return self._pools[scope]

    def of(self, sequence: int) -> Kept:
        """The pool of an open sequence."""
        return self._pools[self._scopes[sequence]]

    def mates(self, sequence: int) -> list[int]:
        """Open sequences of the same scope, itself included."""
        scope = self._scopes[sequence]
        return [mate for mate, theirs in self._scopes.items() if theirs == scope]

    def fork(self, source: int, target: int) -> None:
        self._scopes[target] = self._scopes[source]

    def close(self, sequence: int) -> None:
        self._scopes.pop(sequence, None)
        self._evict()

    def all(self) -> Mapping[str, Kept]:
        """Scope -> pool, least recently opened first."""
        return self._pools

    def forget(self, scope: str | None) -> list[int]:
        """Drop a scope's pool, or all; returns the open sequences that must learn anew.

        Open sequences keep theirs, empty.
        """
        wanted = [scope] if scope is not None else list(self._pools)
        concerned = [name for name in wanted if name in self._pools]
        used = set(self._scopes.values())
        for name in concerned:
            if name in used:
                self._pools[name] = self._create()
            else:
                del self._pools[name]
        return [sequence for sequence, name in self._scopes.items() if name in concerned]

    def _evict(self) -> None:
        used = set(self._scopes.values())
        idle = [scope for scope in self._pools if scope not in used]
        for scope in idle[: max(len(idle) - self._idle, 0)]:
            del self._pools[scope]
