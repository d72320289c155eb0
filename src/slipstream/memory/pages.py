"""Pages of keys and values: their storage, who holds them and how many times."""

from __future__ import annotations

import mmap

import numpy as np
from numpy.typing import NDArray

from slipstream.errors import OutOfMemoryError
from slipstream.graph import Graph
from slipstream.memory.base import PAGE_POSITIONS
from slipstream.memory.kv_types import row_halves
from slipstream.options import KvType


class LayerGroup:
    """Attention layers with one window and one key/value shape; they share page tables.

    Attributes:
        layers: layer numbers of the graph, in order.
        window: positions a query sees, itself included; None = all.
        kv_heads, head_dim: shape of one position's keys.
        pages: pages in the pool.
        kv_type: how a head's key or value is kept (``slipstream.memory.kv_types``).
        keys, values: uint16 ``[layers, pages, kv_heads, 64, row_halves]``.
        references: int32 ``[pages]``, how many sequences hold each page.
    """

    def __init__(
        self,
        layers: tuple[int, ...],
        window: int | None,
        kv_heads: int,
        head_dim: int,
        pages: int,
        kv_type: KvType = "f16",
    ) -> None:
        self.layers = layers
        self.window = window
        self.kv_heads = kv_heads
        self.head_dim = head_dim
        self.pages = pages
        self.kv_type: KvType = kv_type
        shape = (len(layers), pages, kv_heads, PAGE_POSITIONS, row_halves(kv_type, head_dim))
        self.keys = _untouched(shape)
        self.values = _untouched(shape)
        self.references = np.zeros(pages, np.int32)
        self._dropped: list[int] = []
        self._untaken = 0  # the first page that nobody has held yet

    @property
    def free_pages(self) -> int:
        return len(self._dropped) + self.pages - self._untaken

    @property
    def page_bytes(self) -> int:
        """Bytes of one page: keys and values of 64 positions in every layer of the group."""
        row = row_halves(self.kv_type, self.head_dim)
        return 2 * 2 * len(self.layers) * self.kv_heads * PAGE_POSITIONS * row

    def take(self) -> int:
        """A free page, held once."""
        if self._dropped:
            page = self._dropped.pop()
        else:
            page, self._untaken = self._untaken, self._untaken + 1
        self.references[page] = 1
        return page

    def share(self, page: int) -> None:
        self.references[page] += 1

    def drop(self, page: int) -> None:
        self.references[page] -= 1
        if self.references[page] == 0:
            self._dropped.append(page)

    def duplicate(self, page: int) -> int:
        """A free page with the contents of ``page``."""
        copy = self.take()
        self.keys[:, copy] = self.keys[:, page]
        self.values[:, copy] = self.values[:, page]
        return copy

    def move(self, table: NDArray[np.int32], sources: NDArray[np.intp], first: int) -> None:
        """Copy slots ``sources`` to slots ``first``, ``first + 1``, ... of one sequence."""
        targets = np.arange(first, first + len(sources))
        from_page, from_place = table[sources // PAGE_POSITIONS], sources % PAGE_POSITIONS
        to_page, to_place = table[targets // PAGE_POSITIONS], targets % PAGE_POSITIONS
        for array in (self.keys, self.values):
            array[:, to_page, :, to_place] = array[:, from_page, :, from_place]


def _untouched(shape: tuple[int, ...]) -> NDArray[np.uint16]:
    """Zeros that take physical memory only where they are written.

    Huge pages are declined: every layer's first page would otherwise take 2 MiB.
    """
    size = 2 * int(np.prod(shape, dtype=np.int64))
    try:
        if hasattr(mmap, "MAP_PRIVATE"):
            area = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        else:
            area = mmap.mmap(-1, size)
    except (OSError, OverflowError, ValueError) as error:
        raise OutOfMemoryError(
            f"{size} bytes of address space for keys or values",
            str(error),
            "Lower the context length or the number of parallel sequences.",
        ) from error
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        area.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(area, np.uint16).reshape(shape)


def layer_groups(graph: Graph, pages: int, kv_type: KvType) -> tuple[LayerGroup, ...]:
    """The attention layers of a graph, by window and key/value shape."""
    layers: dict[tuple[int | None, int, int], list[int]] = {}
    for op in graph.attentions():
        layers.setdefault((op.window, op.kv_heads, op.head_dim), []).append(op.layer)
    return tuple(
        LayerGroup(tuple(members), window, kv_heads, head_dim, pages, kv_type)
        for (window, kv_heads, head_dim), members in layers.items()
    )
