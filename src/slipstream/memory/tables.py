"""The page tables of one sequence, and those of a step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from slipstream.memory.base import PAGE_POSITIONS

Table = NDArray[np.int32]

NO_ROWS: Table = np.empty(0, np.int32)


@dataclass
class SequencePages:
    """One sequence.

    Attributes:
        length: committed positions.
        pages: pages in each table, freed ones included.
        tables: per group, int32 [>= pages]; -1 = freed or unused.
        freed: per group, how many leading pages were freed.
        parents: int32 [rows], local parents of the rows planned but not committed.
    """

    length: int
    pages: int
    tables: list[Table]
    freed: list[int]
    parents: Table = field(default_factory=lambda: NO_ROWS)

    @staticmethod
    def empty(groups: int) -> SequencePages:
        return SequencePages(0, 0, [unused(8) for _ in range(groups)], [0] * groups)


def unused(count: int) -> Table:
    return np.full(count, -1, np.int32)


def pages_of(positions: int) -> int:
    """Pages that hold so many positions."""
    return -(-positions // PAGE_POSITIONS)


def joined_tables(states: Sequence[SequencePages], groups: int) -> tuple[Table, ...]:
    """Per group, int32 [sequences, pages]."""
    if len(states) == 1:
        return tuple(table[None, : states[0].pages].copy() for table in states[0].tables)
    pages = max((state.pages for state in states), default=0)
    tables = []
    for number in range(groups):
        joined = np.full((len(states), pages), -1, np.int32)
        for row, state in enumerate(states):
            joined[row, : state.pages] = state.tables[number][: state.pages]
        tables.append(joined)
    return tuple(tables)


def most_held(states: Iterable[SequencePages], groups: int) -> int:
    """Most pages that sequences hold in a group, a shared one counted once."""
    held: list[set[int]] = [set() for _ in range(groups)]
    for state in states:
        for pages, table in zip(held, state.tables, strict=True):
            pages.update(table[table >= 0].tolist())
    return max(map(len, held), default=0)
