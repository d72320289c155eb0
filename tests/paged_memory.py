"""A paged memory in which marks stand for keys, so that a test sees which ones a row reads."""

from __future__ import annotations

import random
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray

from slipstream.engine.sequence import SequenceState
from slipstream.graph import Attention, Graph, Value
from slipstream.memory.attention import AttentionMemory
from slipstream.memory.base import PAGE_POSITIONS, KeyLayout

WINDOW = 70
HEAD_DIM = 2


def attention(layer: int, window: int | None, kv_heads: int) -> Attention:
    width = kv_heads * HEAD_DIM
    values = [Value(index, width) for index in range(4)]
    return Attention(*values, layer, kv_heads, kv_heads, HEAD_DIM, 1.0, window)


GRAPH = Graph(
    ops=(attention(0, WINDOW, 1), attention(1, None, 2), attention(3, WINDOW, 1)),
    architecture="test",
    width=4,
    vocabulary=4,
    context=512,
)
NO_WINDOW = Graph(GRAPH.ops[1:2], "test", 4, 4, 512)


def step_arrays(
    rows: list[tuple[int, list[int]]],
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """(handle, local parents) of each sequence -> the arguments of ``layout``."""
    sequences: list[int] = []
    parents: list[int] = []
    for handle, local in rows:
        first = len(parents)
        sequences += [handle] * len(local)
        parents += [parent if parent < 0 else parent + first for parent in local]
    return np.asarray(sequences, np.int32), np.asarray(parents, np.int32)


def write(memory: AttentionMemory, layout: KeyLayout, marks: list[int]) -> None:
    """Store ``mark`` (and ``mark + 1`` for values) wherever the row keeps its key."""
    for row, mark in enumerate(marks):
        for group, table in zip(memory.groups, layout.tables, strict=True):
            slot = int(layout.slots[row])
            page = table[layout.table[row], slot // PAGE_POSITIONS]
            assert page >= 0
            assert group.references[page] == 1
            group.keys[:, page, :, slot % PAGE_POSITIONS] = mark
            group.values[:, page, :, slot % PAGE_POSITIONS] = mark + 1


def read(memory: AttentionMemory, layout: KeyLayout, row: int, number: int) -> list[int]:
    """The marks of the keys that a row reads, in logical order, its window applied."""
    group, table = memory.groups[number], layout.tables[number][layout.table[row]]
    tail_first = int(layout.tail_start[row])
    tail = layout.tail[tail_first : tail_first + int(layout.tail_count[row])].tolist()
    slots = [*range(int(layout.identity[row])), *tail]
    assert len(slots) == layout.positions[row] + 1
    if group.window is not None:
        slots = slots[-group.window :]
    marks = []
    for slot in slots:
        page = int(table[slot // PAGE_POSITIONS])
        assert page >= 0
        keys = group.keys[:, page, :, slot % PAGE_POSITIONS]
        values = group.values[:, page, :, slot % PAGE_POSITIONS]
        assert (keys == keys.flat[0]).all()
        assert (values == keys.flat[0] + 1).all()
        marks.append(int(keys.flat[0]))
    return marks


def text(seed: int, count: int) -> list[int]:
    return random.Random(seed).choices(range(200), k=count)


def marks_of(tokens: Sequence[int]) -> list[int]:
    """One per token, which depends on all tokens up to it, as a key does."""
    found, crc = [], 0
    for token in tokens:
        crc = zlib.crc32(bytes([token]), crc)
        found.append(2 * (crc % 30_000))
    return found


def compute(memory: AttentionMemory, handle: int, tokens: Sequence[int], count: int) -> None:
    """Add the keys of the next tokens, and check those that the first and the last row read."""
    start = memory.length(handle)
    marks = marks_of(tokens[: start + count])
    layout = memory.layout(*step_arrays([(handle, list(range(-1, count - 1)))]))
    write(memory, layout, marks[start:])
    for number, group in enumerate(memory.groups):
        window = group.window or len(marks)
        for row in {0, count - 1}:
            expected = marks[: start + row + 1][-window:]
            assert read(memory, layout, row, number) == expected
    memory.commit(handle, range(count))


@dataclass
class Runner:
    """What the cache reads of a ``SequenceState``."""

    session: str
    tokens: list[int]
    prompt_tokens: int
    handle: int = -1
    committed: int = 0
    shareable: bool = True

    @property
    def prompt_left(self) -> int:
        return max(self.prompt_tokens - self.committed, 0)


def states(runners: Sequence[Runner]) -> list[SequenceState]:
    return cast(list[SequenceState], runners)
