"""The contract of a memory: what a step remembers of a sequence, and how it is rolled back.

A sequence holds ``length`` committed positions. A step adds rows to it in topological order; row i
of the sequence is written at logical slot ``length + i`` and has position ``length + depth``.
``commit`` keeps the rows of one path from the root and forgets the others: that is rollback.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

PAGE_POSITIONS = 64


@dataclass(frozen=True)
class KeyLayout:
    """Where each row of a step writes its key and which keys it reads, in logical order.

    Row r reads logical keys 0 .. identity[r]-1 at the slot of the same number, then its remaining
    ancestors (itself last) at slots tail[tail_start[r] : tail_start[r] + tail_count[r]]. So it
    reads identity[r] + tail_count[r] = positions[r] + 1 keys. A slot s of table row t is page
    ``tables[group][t, s // 64]``, place ``s % 64``.

    Attributes:
        positions: int32 [rows], the logical position of the row's own key.
        slots: int32 [rows], where the row writes.
        table: int32 [rows], the row of each page table that belongs to the row's sequence.
        identity, tail_start, tail_count: int32 [rows].
        tail: int32 [sum of tail_count].
        tables: per layer group, int32 [sequences in the step, pages]; -1 = freed or unused.
    """

    positions: NDArray[np.int32]
    slots: NDArray[np.int32]
    table: NDArray[np.int32]
    identity: NDArray[np.int32]
    tail_start: NDArray[np.int32]
    tail_count: NDArray[np.int32]
    tail: NDArray[np.int32]
    tables: tuple[NDArray[np.int32], ...]


class Memory(Protocol):
    """State of all sequences of one program; readable by a second program.

    Attributes:
        reclaim: called by ``layout`` while no page is free: closes a sequence that nobody runs, or
            returns False where there is none. None = there never is one.
    """

    reclaim: Callable[[], bool] | None

    def open(self) -> int:
        """A new empty sequence; returns its handle."""

    def close(self, sequence: int) -> None: ...

    def length(self, sequence: int) -> int:
        """Committed positions."""

    def earliest(self, sequence: int) -> int:
        """The smallest length that ``truncate`` accepts."""

    def layout(self, sequences: NDArray[np.int32], parents: NDArray[np.int32]) -> KeyLayout:
        """Plan a step and reserve its slots.

        Args:
            sequences: int32 [rows], the handle of each row; rows of a sequence are in topological
                order.
            parents: int32 [rows], the step row of the parent, -1 = follows the committed prefix.

        Raises:
            OutOfMemoryError: no page is free; nothing was changed.
        """

    def commit(self, sequence: int, path: Sequence[int]) -> None:
        """Keep the rows ``path`` (indices among the sequence's own rows of the last step)."""

    def truncate(self, sequence: int, length: int) -> None:
        """Forget positions >= length.

        Raises:
            OptionError: length is below ``earliest`` or above the committed length.
        """

    def fork(self, source: int, length: int | None = None) -> int:
        """A new sequence with the first ``length`` committed positions of another; None = all.

        Takes no memory: what both hold is shared until one of them writes there.

        Raises:
            OptionError: as ``truncate``.
        """

    def bytes(self) -> int:
        """Bytes of pages in use."""

    def pages_held(self, sequences: Iterable[int]) -> int:
        """Most pages that these sequences hold in a layer group, a shared one counted once."""
