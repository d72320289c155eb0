"""The paged memory against a naive one that keeps a list per sequence."""

from __future__ import annotations

import tracemalloc
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from paged_memory import GRAPH, HEAD_DIM, WINDOW, read, step_arrays, write
from slipstream.errors import OptionError, OutOfMemoryError
from slipstream.memory.attention import AttentionMemory
from slipstream.memory.base import PAGE_POSITIONS, KeyLayout


@dataclass
class Naive:
    """What a sequence remembers, as a list of marks, and the rows of its last step."""

    committed: list[int] = field(default_factory=list)
    marks: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)

    def history(self, row: int) -> list[int]:
        own = [self.marks[row]]
        parent = self.parents[row]
        return [*(self.committed if parent < 0 else self.history(parent)), *own]


class MemoryMachine(RuleBasedStateMachine):
    """Random steps, commits, rollbacks and forks of several sequences."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = AttentionMemory(GRAPH, 512, 2)
        self.naive: dict[int, Naive] = {}
        self.mark = 0

    def pick(self, data: st.DataObject) -> int:
        return data.draw(st.sampled_from(sorted(self.naive)), label="sequence")

    @precondition(lambda self: len(self.naive) < 4)
    @rule()
    def open(self) -> None:
        self.naive[self.memory.open()] = Naive()

    @precondition(lambda self: self.naive)
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        handle = self.pick(data)
        self.memory.close(handle)
        del self.naive[handle]

    @precondition(lambda self: self.naive)
    @rule(data=st.data(), chain=st.booleans())
    def step(self, data: st.DataObject, chain: bool) -> None:
        handles = data.draw(
            st.lists(st.sampled_from(sorted(self.naive)), min_size=1, max_size=2, unique=True)
        )
        rows: list[tuple[int, list[int]]] = []
        for handle in handles:
            count = data.draw(st.integers(1, 150 if chain else 12), label="rows")
            parents = [
                row - 1 if chain else data.draw(st.integers(-1, row - 1)) for row in range(count)
            ]
            rows.append((handle, parents))
        before = self.memory.bytes()
        try:
            layout = self.memory.layout(*step_arrays(rows))
        except OutOfMemoryError:
            assert self.memory.bytes() == before
            return
        marks = []
        for handle, parents in rows:
            own = [self.next_mark() for _ in parents]
            self.naive[handle].marks, self.naive[handle].parents = own, parents
            marks += own
        write(self.memory, layout, marks)
        for number in range(len(self.memory.groups)):
            self.check_rows(layout, handles, number)

    def next_mark(self) -> int:
        self.mark = (self.mark + 1) % 30_000
        return 2 * self.mark

    def check_rows(self, layout: KeyLayout, handles: list[int], number: int) -> None:
        row = 0
        window = self.memory.groups[number].window or 10_000
        for handle in handles:
            for local in range(len(self.naive[handle].marks)):
                expected = self.naive[handle].history(local)
                assert layout.positions[row] == len(expected) - 1
                if local % 7 == 0 or local == len(self.naive[handle].marks) - 1:
                    assert read(self.memory, layout, row, number) == expected[-window:]
                row += 1

    @precondition(lambda self: any(naive.marks for naive in self.naive.values()))
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        handle = data.draw(st.sampled_from([h for h, n in self.naive.items() if n.marks]))
        naive = self.naive[handle]
        path: list[int] = []
        if data.draw(st.booleans(), label="deepest"):
            row = len(naive.marks) - 1
            while row >= 0:
                path.insert(0, row)
                row = naive.parents[row]
        else:
            children = [r for r, parent in enumerate(naive.parents) if parent < 0]
            while children and data.draw(st.integers(0, 4), label="stop") > 0:
                path.append(data.draw(st.sampled_from(children)))
                children = [r for r, parent in enumerate(naive.parents) if parent == path[-1]]
        self.memory.commit(handle, path)
        naive.committed += [naive.marks[row] for row in path]
        naive.marks, naive.parents = [], []

    @precondition(lambda self: self.naive)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        handle = self.pick(data)
        length = len(self.naive[handle].committed)
        earliest = self.memory.earliest(handle)
        if earliest > 0:
            with pytest.raises(OptionError):
                self.memory.truncate(handle, earliest - 1)
        kept = data.draw(st.integers(earliest, length), label="kept")
        self.memory.truncate(handle, kept)
        self.naive[handle] = Naive(self.naive[handle].committed[:kept])

    @precondition(lambda self: 0 < len(self.naive) < 4)
    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        handle = self.pick(data)
        before = self.memory.bytes()
        committed = self.naive[handle].committed
        earliest = self.memory.earliest(handle)
        kept = data.draw(st.integers(earliest, len(committed)) | st.none(), label="kept")
        copy = self.memory.fork(handle, kept)
        assert self.memory.bytes() <= before, "rows that were not committed may go"
        if earliest > 0:
            with pytest.raises(OptionError):
                self.memory.fork(handle, earliest - 1)
        self.naive[handle] = Naive(list(committed))
        self.naive[copy] = Naive(committed[:kept])

    @invariant()
    def lengths_agree(self) -> None:
        for handle, naive in self.naive.items():
            assert self.memory.length(handle) == len(naive.committed)
            assert self.memory.earliest(handle) <= len(naive.committed)

    def teardown(self) -> None:
        for handle in list(self.naive):
            self.memory.close(handle)
        assert self.memory.bytes() == 0


TestMemoryMachine = MemoryMachine.TestCase
TestMemoryMachine.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


def chain(memory: AttentionMemory, handle: int, count: int) -> KeyLayout:
    layout = memory.layout(*step_arrays([(handle, list(range(-1, count - 1)))]))
    memory.commit(handle, range(count))
    return layout


def test_layers_with_one_window_and_shape_share_a_group() -> None:
    memory = AttentionMemory(GRAPH, 64)
    assert [group.layers for group in memory.groups] == [(0, 3), (1,)]
    assert memory.place(3) == (0, 1)
    assert memory.groups[1].keys.shape == (1, 1, 2, PAGE_POSITIONS, HEAD_DIM)


def test_pages_are_shared_until_one_is_written() -> None:
    memory = AttentionMemory(GRAPH, 256, 2)
    handle = memory.open()
    chain(memory, handle, 130)
    before = memory.bytes()
    page_bytes = sum(group.page_bytes for group in memory.groups)
    assert before == 3 * page_bytes
    copy = memory.fork(handle)
    assert memory.bytes() == before
    assert memory.pages_held([handle, copy]) == memory.pages_held([copy]) == 3
    chain(memory, copy, 1)
    assert memory.bytes() == before + page_bytes
    chain(memory, handle, 1)
    assert memory.bytes() == before + page_bytes
    assert memory.pages_held([handle, copy]) == 4
    assert memory.pages_held([]) == 0


def test_a_fork_may_be_shorter_than_its_source() -> None:
    memory = AttentionMemory(GRAPH, 256, 2)
    handle = memory.open()
    chain(memory, handle, 130)
    before = memory.bytes()
    copy = memory.fork(handle, 70)
    assert (memory.length(copy), memory.length(handle)) == (70, 130)
    assert memory.pages_held([copy]) == 2
    memory.close(handle)
    assert memory.bytes() * 3 == before * 2
    with pytest.raises(OptionError):
        memory.fork(copy, 71)
    empty = memory.fork(copy, 0)
    memory.close(copy)
    assert (memory.bytes(), memory.length(empty)) == (0, 0)
    chain(memory, empty, 3)


def test_of_two_that_share_a_page_one_copies_it() -> None:
    memory = AttentionMemory(GRAPH, 64, 2)
    one = memory.open()
    chain(memory, one, 10)
    two = memory.fork(one)
    three = memory.fork(one)
    with pytest.raises(OutOfMemoryError):
        memory.layout(*step_arrays([(one, [-1]), (two, [-1]), (three, [-1])]))
    memory.close(three)
    layout = memory.layout(*step_arrays([(one, [-1]), (two, [-1])]))
    assert all(table[0, 0] != table[1, 0] for table in layout.tables)
    assert all(group.free_pages == 0 for group in memory.groups)


def test_pages_are_asked_back_before_a_step_fails() -> None:
    memory = AttentionMemory(GRAPH, 128, 2)
    idle = [memory.open() for _ in range(3)]
    for handle in idle:
        chain(memory, handle, 60)

    def give_up() -> bool:
        if not idle:
            return False
        memory.close(idle.pop())
        return True

    memory.reclaim = give_up
    handle = memory.open()
    chain(memory, handle, 64)
    assert len(idle) == 3
    chain(memory, handle, 65)
    assert len(idle) == 1
    chain(memory, handle, 127)
    assert (len(idle), memory.length(handle)) == (0, 256)
    with pytest.raises(OutOfMemoryError):
        chain(memory, handle, 1)


def test_window_pages_go_and_truncating_into_them_is_refused() -> None:
    memory = AttentionMemory(GRAPH, 512)
    handle = memory.open()
    chain(memory, handle, 300)
    windowed, full = memory.groups
    assert (windowed.pages - windowed.free_pages, full.pages - full.free_pages) == (3, 5)
    freed = 2
    earliest = memory.earliest(handle)
    assert earliest == freed * PAGE_POSITIONS + WINDOW - 1
    memory.truncate(handle, earliest)
    with pytest.raises(OptionError):
        memory.truncate(handle, earliest - 1)


def test_no_page_of_a_window_is_freed_before_the_commit() -> None:
    memory = AttentionMemory(GRAPH, 512)
    handle = memory.open()
    layout = memory.layout(*step_arrays([(handle, list(range(-1, 299)))]))
    assert (layout.tables[0][0, :5] >= 0).all()


@pytest.mark.parametrize("path", [[1], [0, 2], [0, 1, 3], [-1], [5], [0, 0]])
def test_a_path_that_is_none_is_refused(path: list[int]) -> None:
    memory = AttentionMemory(GRAPH, 64)
    handle = memory.open()
    memory.layout(*step_arrays([(handle, [-1, 0, -1, 2])]))
    with pytest.raises(ValueError, match="path"):
        memory.commit(handle, path)
    assert memory.length(handle) == 0


@pytest.mark.parametrize(
    ("sequences", "parents"),
    [
        ([0, 1, 0], [-1, -1, 0]),
        ([0, 0], [-1, 1]),
        ([0, 0], [0, -1]),
        ([0, 1], [-1, 0]),
        ([0, 0], [-2, 0]),
        ([7], [-1]),
    ],
)
def test_rows_in_another_order_are_refused(sequences: list[int], parents: list[int]) -> None:
    memory = AttentionMemory(GRAPH, 64, 2)
    memory.open(), memory.open()
    with pytest.raises(ValueError, match=r"row|sequence"):
        memory.layout(np.asarray(sequences, np.int32), np.asarray(parents, np.int32))
    assert memory.bytes() == 0


def test_sizes_must_be_positive() -> None:
    with pytest.raises(OptionError):
        AttentionMemory(GRAPH, 0)
    with pytest.raises(OptionError):
        AttentionMemory(GRAPH, 64, 0)


def test_an_absurd_context_is_out_of_memory_not_a_crash() -> None:
    with pytest.raises(OutOfMemoryError):
        AttentionMemory(GRAPH, 2**58)


def test_an_absurd_context_takes_memory_only_where_it_is_used() -> None:
    tracemalloc.start()
    try:
        memory = AttentionMemory(GRAPH, 2**24)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 * 2**20
    assert all(group.free_pages == 2**24 // 64 for group in memory.groups)
