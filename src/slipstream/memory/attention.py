"""Paged keys and values of attention layers (the default memory)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from slipstream.errors import OptionError, OutOfMemoryError
from slipstream.graph import Graph
from slipstream.memory.base import PAGE_POSITIONS, KeyLayout
from slipstream.memory.layout import (
    SequenceRows,
    first_moved,
    join_rows,
    local_parents,
    plan_chain,
    plan_tree,
    split_rows,
)
from slipstream.memory.pages import layer_groups
from slipstream.memory.tables import (
    NO_ROWS,
    SequencePages,
    joined_tables,
    most_held,
    pages_of,
    unused,
)
from slipstream.options import KvType

KEPT_POSITIONS = PAGE_POSITIONS
"""Positions kept below a sliding window, so that a short ``truncate`` never needs a freed page."""


class AttentionMemory:
    """Keys and values in pages of 64 positions; see ``slipstream.memory.base.Memory``.

    Args:
        graph: its attention layers are grouped by window and key/value shape.
        positions: positions that one sequence may hold.
        sequences: sequences of that length that fit at the same time.
        kv_type: how keys and values are kept.

    Raises:
        OptionError: ``positions`` or ``sequences`` is not positive.
        UnsupportedError: the graph's heads do not fit ``kv_type``.
        OutOfMemoryError: the address space is not there.
    """

    def __init__(
        self, graph: Graph, positions: int, sequences: int = 1, kv_type: KvType = "f16"
    ) -> None:
        if positions < 1 or sequences < 1:
            raise OptionError(
                "at least 1 position and 1 sequence",
                f"{positions} positions, {sequences} sequences",
                "Raise the context length or the number of parallel sequences.",
            )
        self.pages = sequences * pages_of(positions)
        self.kv_type: KvType = kv_type
        self.groups = layer_groups(graph, self.pages, kv_type)
        self.reclaim: Callable[[], bool] | None = None
        self._places = {
            layer: (number, index)
            for number, group in enumerate(self.groups)
            for index, layer in enumerate(group.layers)
        }
        self._states: dict[int, SequencePages] = {}
        self._next = 0

    def place(self, layer: int) -> tuple[int, int]:
        """Group number and index in the group of an attention layer."""
        return self._places[layer]

    def open(self) -> int:
        return self._add(SequencePages.empty(len(self.groups)))

    def close(self, sequence: int) -> None:
        self._shrink(self._state(sequence), 0)
        del self._states[sequence]

    def length(self, sequence: int) -> int:
        return self._state(sequence).length

    def earliest(self, sequence: int) -> int:
        state = self._state(sequence)
        return max(
            (
                freed * PAGE_POSITIONS + group.window - 1
                for group, freed in zip(self.groups, state.freed, strict=True)
                if group.window is not None and freed > 0
            ),
            default=0,
        )

    def layout(self, sequences: NDArray[np.int32], parents: NDArray[np.int32]) -> KeyLayout:
        spans = split_rows(sequences)
        states = [self._state(handle) for handle, _, _ in spans]
        planned: list[SequenceRows] = []
        for state, (_, first, last) in zip(states, spans, strict=True):
            local = local_parents(parents, first, last)
            planned.append(plan_chain(state.length, local) or plan_tree(state.length, local))
        self._reserve(states, planned)
        for state, rows in zip(states, planned, strict=True):
            state.parents = rows.parents
        return join_rows(planned, joined_tables(states, len(self.groups)))

    def commit(self, sequence: int, path: Sequence[int]) -> None:
        """Keep the rows ``path`` (indices among the sequence's own rows of the last step).

        Raises:
            ValueError: ``path`` is not a path from the root of those rows.
        """
        state = self._state(sequence)
        kept = np.asarray(path, np.intp)
        count = len(kept)
        moved = first_moved(state.parents, kept)
        if moved < count:
            for group, table in zip(self.groups, state.tables, strict=True):
                group.move(table, state.length + kept[moved:], state.length + moved)
        self._shrink(state, state.length + count)
        self._free_below_windows(state)

    def truncate(self, sequence: int, length: int) -> None:
        state = self._state(sequence)
        self._check_length(sequence, length)
        self._shrink(state, length)

    def _check_length(self, sequence: int, length: int) -> None:
        state = self._state(sequence)
        earliest = self.earliest(sequence)
        if not earliest <= length <= state.length:
            raise OptionError(
                f"a length between {earliest} and {state.length}",
                str(length),
                "Keys below the sliding window are gone; compute the sequence again.",
            )

    def fork(self, source: int, length: int | None = None) -> int:
        """A new sequence with the first ``length`` committed positions of another; None = all.

        Takes no page: all are shared, and who first writes into a partial one copies it.

        Raises:
            OptionError: as ``truncate``.
        """
        state = self._state(source)
        length = state.length if length is None else length
        self._check_length(source, length)
        self._shrink(state, state.length)
        pages = pages_of(length)
        tables = [table[:pages].copy() for table in state.tables]
        for group, table in zip(self.groups, tables, strict=True):
            for page in table[table >= 0].tolist():
                group.share(page)
        return self._add(SequencePages(length, pages, tables, [min(n, pages) for n in state.freed]))

    def bytes(self) -> int:
        return sum((group.pages - group.free_pages) * group.page_bytes for group in self.groups)

    def pages_held(self, sequences: Iterable[int]) -> int:
        """Most pages that these sequences hold in a layer group, a shared one counted once."""
        return most_held(map(self._state, sequences), len(self.groups))

    def _add(self, state: SequencePages) -> int:
        handle = self._next
        self._next += 1
        self._states[handle] = state
        return handle

    def _state(self, sequence: int) -> SequencePages:
        found = self._states.get(sequence)
        if found is None:
            raise ValueError(f"no open sequence has the handle {sequence}")
        return found

    def _reserve(self, states: list[SequencePages], planned: list[SequenceRows]) -> None:
        """Give every sequence the pages its rows write, unshared."""
        wanted = [
            pages_of(state.length + len(rows.parents))
            for state, rows in zip(states, planned, strict=True)
        ]
        grown = sum(
            max(0, pages - state.pages) for state, pages in zip(states, wanted, strict=True)
        )
        shared = [self._shared(number, states) for number in range(len(self.groups))]
        if grown or any(shared):
            self._require(states, grown)
        for number, sharing in enumerate(shared):
            for state in sharing:
                self._unshare(number, state)
        for state, pages in zip(states, wanted, strict=True):
            self._grow(state, pages)

    def _shared(self, number: int, states: list[SequencePages]) -> list[SequencePages]:
        """The sequences whose partial last page is held by another one too."""
        references = self.groups[number].references
        return [
            state
            for state in states
            if state.length % PAGE_POSITIONS
            and references[state.tables[number][state.length // PAGE_POSITIONS]] > 1
        ]

    def _unshare(self, number: int, state: SequencePages) -> None:
        group = self.groups[number]
        index = state.length // PAGE_POSITIONS
        page = int(state.tables[number][index])
        if group.references[page] > 1:
            state.tables[number][index] = group.duplicate(page)
            group.drop(page)

    def _require(self, states: list[SequencePages], grown: int) -> None:
        """Have pages free for ``grown`` new ones and the copies of shared ones."""
        for number, group in enumerate(self.groups):
            # what is given up may leave fewer pages to copy
            while (count := grown + self._copies(number, states)) > group.free_pages:
                if self.reclaim is not None and self.reclaim():
                    continue
                raise OutOfMemoryError(
                    f"{count} free pages of {PAGE_POSITIONS} positions",
                    f"{group.free_pages} of {group.pages}",
                    "Close a sequence, or open the model with a longer context.",
                )

    def _copies(self, number: int, states: list[SequencePages]) -> int:
        """Copies of shared partial pages that sequences need to write all at once."""
        group = self.groups[number]
        sharing = Counter(
            int(state.tables[number][state.length // PAGE_POSITIONS])
            for state in self._shared(number, states)
        )
        # the last holder of a page writes into the page itself
        return sum(min(n, int(group.references[page]) - 1) for page, n in sharing.items())

    def _grow(self, state: SequencePages, pages: int) -> None:
        for number, group in enumerate(self.groups):
            table = state.tables[number]
            if pages > len(table):
                table = state.tables[number] = np.concatenate((table, unused(pages)))
            for index in range(state.pages, pages):
                table[index] = group.take()
        state.pages = max(state.pages, pages)

    def _shrink(self, state: SequencePages, length: int) -> None:
        """Set the length, drop pages beyond it and forget planned rows."""
        pages = pages_of(length)
        if pages < state.pages:
            for group, table in zip(self.groups, state.tables, strict=True):
                for index in range(pages, state.pages):
                    if table[index] >= 0:
                        group.drop(int(table[index]))
                        table[index] = -1
            state.freed = [min(freed, pages) for freed in state.freed]
            state.pages = pages
        state.length = length
        state.parents = NO_ROWS

    def _free_below_windows(self, state: SequencePages) -> None:
        for number, group in enumerate(self.groups):
            if group.window is None:
                continue
            unseen = (state.length - group.window - KEPT_POSITIONS) // PAGE_POSITIONS
            for index in range(state.freed[number], unseen):
                group.drop(int(state.tables[number][index]))
                state.tables[number][index] = -1
            state.freed[number] = max(state.freed[number], unseen)
