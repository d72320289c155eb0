"""From rows and parents to slots: which keys each row of a step reads, in logical order."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from slipstream.memory.base import KeyLayout

Ints = NDArray[np.int32]

_NONE = np.zeros(0, np.int32)


@dataclass(frozen=True, slots=True)
class SequenceRows:
    """The rows of one sequence; the fields are those of ``KeyLayout``, ``parents`` are local."""

    parents: Ints
    positions: Ints
    slots: Ints
    identity: Ints
    tail_count: Ints
    tail: Ints


def split_rows(sequences: Ints) -> list[tuple[int, int, int]]:
    """The runs of equal handles as (handle, first row, end row).

    Raises:
        ValueError: the rows of a sequence are not contiguous.
    """
    count = len(sequences)
    if count == 0:
        return []
    if sequences.tobytes() == sequences[:1].tobytes() * count:
        return [(int(sequences[0]), 0, count)]
    edges = np.flatnonzero(sequences[1:] != sequences[:-1]) + 1
    bounds = [0, *edges.tolist(), count]
    spans = [(int(sequences[first]), first, end) for first, end in pairwise(bounds)]
    if len({handle for handle, _, _ in spans}) != len(spans):
        raise ValueError("the rows of a sequence are not contiguous")
    return spans


def local_parents(parents: Ints, first: int, end: int) -> Ints:
    """The parents of rows [first, end), counted from ``first``.

    Raises:
        ValueError: a parent belongs to another sequence.
    """
    own = parents[first:end]
    if first == 0:
        return own
    local = np.where(own == -1, np.int32(-1), own - np.int32(first))
    if np.any((local < 0) & (own != -1)):
        raise ValueError("a row's parent belongs to another sequence")
    return local


def plan_chain(length: int, parents: Ints) -> SequenceRows | None:
    """The rows of a chain that follows ``length`` committed positions, or None for a tree."""
    count = len(parents)
    if parents.tobytes() != np.arange(-1, count - 1, dtype=np.int32).tobytes():
        return None
    slots = np.arange(length, length + count, dtype=np.int32)
    return SequenceRows(parents, slots, slots, slots + 1, np.zeros(count, np.int32), _NONE)


def plan_tree(length: int, parents: Ints) -> SequenceRows:
    """The rows of any tree in topological order.

    Raises:
        ValueError: a parent does not come before its row in the same sequence.
    """
    paths: list[list[int]] = []
    identity: list[int] = []
    for row, parent in enumerate(parents.tolist()):
        if not -1 <= parent < row:
            raise ValueError(f"row {row} of a sequence has the parent {parent}")
        path = [row] if parent < 0 else [*paths[parent], row]
        in_place = 0 if parent < 0 else identity[parent]
        identity.append(in_place + (in_place == row == len(path) - 1))
        paths.append(path)
    tails = [path[start:] for path, start in zip(paths, identity, strict=True)]
    return SequenceRows(
        parents=parents,
        positions=np.asarray([length + len(path) - 1 for path in paths], np.int32),
        slots=np.arange(length, length + len(paths), dtype=np.int32),
        identity=length + np.asarray(identity, np.int32),
        tail_count=np.asarray([len(tail) for tail in tails], np.int32),
        tail=np.asarray([length + row for tail in tails for row in tail], np.int32),
    )


def join_rows(planned: list[SequenceRows], tables: tuple[Ints, ...]) -> KeyLayout:
    """One layout for the rows of all sequences, in order."""
    if len(planned) == 1:
        rows = planned[0]
        table = np.zeros(len(rows.parents), np.int32)
    else:
        rows = SequenceRows(
            *(
                np.concatenate([getattr(part, name) for part in planned] or [_NONE])
                for name in SequenceRows.__slots__
            )
        )
        sizes = [len(part.parents) for part in planned]
        table = np.repeat(np.arange(len(planned), dtype=np.int32), sizes)
    if len(rows.tail):
        starts = (np.cumsum(rows.tail_count) - rows.tail_count).astype(np.int32)
    else:
        starts = np.zeros(len(table), np.int32)
    return KeyLayout(
        positions=rows.positions,
        slots=rows.slots,
        table=table,
        identity=rows.identity,
        tail_start=starts,
        tail_count=rows.tail_count,
        tail=rows.tail,
        tables=tables,
    )


def first_moved(parents: NDArray[np.int32], path: NDArray[np.intp]) -> int:
    """How many leading rows of ``path`` already stand in their logical slots.

    Raises:
        ValueError: ``path`` does not lead from parent to child, starting at the root.
    """
    count = len(path)
    if count == 0:
        return 0
    if path.min() < 0 or path.max() >= len(parents):
        raise ValueError(f"the path leaves the {len(parents)} rows of the step")
    expected = np.concatenate(([-1], path[:-1]))
    if not np.array_equal(parents[path], expected):
        raise ValueError("the path does not lead from parent to child, starting at the root")
    moved = np.flatnonzero(path != np.arange(count))
    return int(moved[0]) if len(moved) else count
