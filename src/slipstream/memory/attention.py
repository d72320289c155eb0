"""Paged keys and values of attention layers (the default memory)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

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
from slipstream.memory.pages import LayerGroup
from slipstream.options import KvType

KEPT_POSITIONS = PAGE_POSITIONS
"""Positions kept below a sliding window, so that a short ``truncate`` never needs a freed page."""


@dataclass
class _State:
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
    tables: list[NDArray[np.int32]]
    freed: list[int]
    parents: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))


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
        self.pages = sequences * _pages(positions)
        self.kv_type: KvType = kv_type
        self.groups = _layer_groups(graph, self.pages, kv_type)
        self._places = {
            layer: (number, index)
            for number, group in enumerate(self.groups)
            for index, layer in enumerate(group.layers)
        }
        self._states: dict[int, _State] = {}
        self._next = 0

    def place(self, layer: int) -> tuple[int, int]:
        """Group number and index in the group of an attention layer."""
        return self._places[layer]

    def open(self) -> int:
        return self._add(_State(0, 0, [_unused(8) for _ in self.groups], [0] * len(self.groups)))

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
        return join_rows(planned, tuple(self._tables(states)))

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
        earliest = self.earliest(sequence)
        if not earliest <= length <= state.length:
            raise OptionError(
                f"a length between {earliest} and {state.length}",
                str(length),
                "Keys below the sliding window are gone; compute the sequence again.",
            )
        self._shrink(state, length)

    def fork(self, source: int) -> int:
        """A new sequence with the same committed positions; full pages are shared.

        Raises:
            OutOfMemoryError: no page is free for the partial last one; nothing was changed.
        """
        state = self._state(source)
        self._shrink(state, state.length)
        full = state.length // PAGE_POSITIONS
        partial = state.pages - full
        self._require([partial] * len(self.groups))
        copy = _State(
            state.length, state.pages, [table.copy() for table in state.tables], list(state.freed)
        )
        for group, table in zip(self.groups, copy.tables, strict=True):
            for page in table[:full]:
                if page >= 0:
                    group.share(int(page))
            if partial:
                table[full] = group.duplicate(int(table[full]))
        return self._add(copy)

    def bytes(self) -> int:
        return sum((group.pages - group.free_pages) * group.page_bytes for group in self.groups)

    def _add(self, state: _State) -> int:
        handle = self._next
        self._next += 1
        self._states[handle] = state
        return handle

    def _state(self, sequence: int) -> _State:
        found = self._states.get(sequence)
        if found is None:
            raise ValueError(f"no open sequence has the handle {sequence}")
        return found

    def _reserve(self, states: list[_State], planned: list[SequenceRows]) -> None:
        """Give every sequence the pages its rows write, unshared."""
        wanted = [
            _pages(state.length + len(rows.parents))
            for state, rows in zip(states, planned, strict=True)
        ]
        grown = sum(
            max(0, pages - state.pages) for state, pages in zip(states, wanted, strict=True)
        )
        shared = [self._shared(number, states) for number in range(len(self.groups))]
        if grown or any(shared):
            self._require([grown + len(copies) for copies in shared])
        for number, sharing in enumerate(shared):
            for state in sharing:
                self._unshare(number, state)
        for state, pages in zip(states, wanted, strict=True):
            self._grow(state, pages)

    def _shared(self, number: int, states: list[_State]) -> list[_State]:
        """The sequences whose partial last page is held by another one too."""
        references = self.groups[number].references
        return [
            state
            for state in states
            if state.length % PAGE_POSITIONS
            and references[state.tables[number][state.length // PAGE_POSITIONS]] > 1
        ]

    def _unshare(self, number: int, state: _State) -> None:
        group = self.groups[number]
        index = state.length // PAGE_POSITIONS
        page = int(state.tables[number][index])
        if group.references[page] > 1:
            state.tables[number][index] = group.duplicate(page)
            group.drop(page)

    def _require(self, wanted: list[int]) -> None:
        for group, count in zip(self.groups, wanted, strict=True):
            if count > group.free_pages:
                raise OutOfMemoryError(
                    f"{count} free pages of {PAGE_POSITIONS} positions",
                    f"{group.free_pages} of {group.pages}",
                    "Close a sequence, or open the model with a longer context.",
                )

    def _grow(self, state: _State, pages: int) -> None:
        for number, group in enumerate(self.groups):
            table = state.tables[number]
            if pages > len(table):
                table = state.tables[number] = np.concatenate((table, _unused(pages)))
            for index in range(state.pages, pages):
                table[index] = group.take()
        state.pages = max(state.pages, pages)

    def _shrink(self, state: _State, length: int) -> None:
        """Set the length, drop pages beyond it and forget planned rows."""
        pages = _pages(length)
        if pages < state.pages:
            for group, table in zip(self.groups, state.tables, strict=True):
                for index in range(pages, state.pages):
                    if table[index] >= 0:
                        group.drop(int(table[index]))
                        table[index] = -1
            state.freed = [min(freed, pages) for freed in state.freed]
            state.pages = pages
        state.length = length
        state.parents = _NO_ROWS

    def _free_below_windows(self, state: _State) -> None:
        for number, group in enumerate(self.groups):
            if group.window is None:
                continue
            unseen = (state.length - group.window - KEPT_POSITIONS) // PAGE_POSITIONS
            for index in range(state.freed[number], unseen):
                group.drop(int(state.tables[number][index]))
                state.tables[number][index] = -1
            state.freed[number] = max(state.freed[number], unseen)

    def _tables(self, states: list[_State]) -> list[NDArray[np.int32]]:
        """Per group, int32 [sequences, pages]."""
        if len(states) == 1:
            return [table[None, : states[0].pages].copy() for table in states[0].tables]
        pages = max((state.pages for state in states), default=0)
        tables = []
        for number in range(len(self.groups)):
            joined = np.full((len(states), pages), -1, np.int32)
            for row, state in enumerate(states):
                joined[row, : state.pages] = state.tables[number][: state.pages]
            tables.append(joined)
        return tables


_NO_ROWS = np.empty(0, np.int32)


def _unused(count: int) -> NDArray[np.int32]:
    return np.full(count, -1, np.int32)


def _pages(positions: int) -> int:
    return -(-positions // PAGE_POSITIONS)


def _layer_groups(graph: Graph, pages: int, kv_type: KvType) -> tuple[LayerGroup, ...]:
    layers: dict[tuple[int | None, int, int], list[int]] = {}
    for op in graph.attentions():
        layers.setdefault((op.window, op.kv_heads, op.head_dim), []).append(op.layer)
    return tuple(
        LayerGroup(tuple(members), window, kv_heads, head_dim, pages, kv_type)
        for (window, kv_heads, head_dim), members in layers.items()
    )
