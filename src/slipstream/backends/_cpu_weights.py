"""Loading for the CPU backend: matrices repacked, vectors in float32, source pages given back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import zip_longest

import numpy as np
from numpy.typing import NDArray

from slipstream import _native
from slipstream.dispatch.select import Plan
from slipstream.dispatch.structure import matrices
from slipstream.errors import OutOfMemoryError
from slipstream.gguf import GGUFFile
from slipstream.graph import Embed, GatedLinear, Graph, Linear, LinearGroup, Op, RmsNorm, Weight
from slipstream.machine import HugePages, huge_pages
from slipstream.models.base import weight_data
from slipstream.quants import SCALE_FIELDS, quant_type
from slipstream.quants.finite import check_finite_scales

Progress = Callable[[int, int], None]
"""Called with (bytes done, bytes in all)."""


@dataclass
class CpuWeights:
    """Tensors of a file in the layouts that the plan's kernels read.

    Attributes:
        plan: the kernels that the weights were loaded for.
        matrices: repacked matrices.
        embeddings: token embeddings that stay mapped, because no linear reads them.
        vectors: norm weights and biases.
        notes: why a tensor is not stored as the file has it.
        step_bytes: weight bytes that one decode step reads.
        resident_bytes: bytes of memory that the weights hold, mapped embeddings aside.
        arena: the memory of all ``matrices``.
    """

    plan: Plan
    matrices: dict[Weight, _native.Matrix] = field(default_factory=dict)
    embeddings: dict[Weight, _native.SourceRows] = field(default_factory=dict)
    vectors: dict[Weight, NDArray[np.float32]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    step_bytes: int = 0
    resident_bytes: int = 0
    arena: _native.Arena | None = None

    def huge_pages(self) -> HugePages:
        """How much of the repacked weights lies on huge pages now, and why not all of it."""
        if self.arena is None:
            return HugePages(0, 0, "nothing was repacked")
        return huge_pages(self.arena.address, self.arena.bytes)


class Loader:
    """Loads the weights of one graph.

    Args:
        plan: says which type each matrix has in memory.
        progress: called after every tensor.
    """

    def __init__(
        self,
        file: GGUFFile,
        graph: Graph,
        pool: _native.Pool,
        plan: Plan,
        progress: Progress | None = None,
    ) -> None:
        self._file = file
        self._graph = graph
        self._pool = pool
        self._isa = plan.isa
        self._stored = plan.stored_types()
        self._progress = progress
        self._weights = CpuWeights(plan, notes=plan.notes())
        self._packed_bytes = {
            weight: _native.matrix_bytes(self._stored[weight], weight.rows, weight.columns)
            for weight in _distinct(weight for op in graph.ops for weight in matrices(op))
        }

    def load(self) -> CpuWeights:
        """Repack everything.

        Raises:
            ModelFileError: a scale is NaN or infinite.
            UnsupportedError: a type that is not run.
            OutOfMemoryError: the weights do not fit.
        """
        weights, total = self._weights, sum(self._packed_bytes.values())
        try:
            arena = _native.Arena(total)
        except MemoryError as error:
            raise OutOfMemoryError(
                f"{total} bytes for the model's weights",
                "not enough memory",
                "Close other programs or choose a smaller model.",
            ) from error
        order = _packing_order(self._graph)
        for group, following in zip_longest(order, order[1:], fillvalue=()):
            for weight in following:
                self._file.prefetch(weight.name)
            self._pack(arena, group)
            for weight in group:
                self._file.release(weight.name)
            self._report(total)
        for weight in _distinct(weight for op in self._graph.ops for weight in _vectors(op)):
            weights.vectors[weight] = self._vector(weight)
        for op in self._graph.ops:
            if isinstance(op, Embed) and op.weight not in weights.matrices:
                weights.embeddings[op.weight] = self._embedding(op.weight)
        vector_bytes = sum(vector.nbytes for vector in weights.vectors.values())
        weights.step_bytes = total + vector_bytes
        weights.resident_bytes = arena.bytes + vector_bytes
        weights.arena = arena
        return weights

    def _pack(self, arena: _native.Arena, group: tuple[Weight, ...]) -> None:
        sources = [self._source(weight) for weight in group]
        scales = [self._scale_fields(weight) for weight in group]
        packed: tuple[_native.Matrix | None, ...]
        if len(group) == 2:
            packed = _native.pack_pair(
                self._pool, arena, sources[0], scales[0], sources[1], scales[1], self._isa
            )
        else:
            packed = (_native.pack(self._pool, arena, sources[0], scales[0], self._isa),)
        for weight, matrix in zip(group, packed, strict=True):
            if matrix is None:
                self._refuse_scales(weight)
            else:
                self._weights.matrices[weight] = matrix

    def _source(self, weight: Weight) -> _native.SourceRows:
        data, kind = weight_data(self._file, weight), quant_type(weight.type_id, weight.name)
        mapped = self._stored[weight] == weight.type_id
        if not mapped:
            check_finite_scales(weight.name, kind, data)
            expanded = kind.dequantize_rows(data, weight.rows, weight.columns)
            data = np.ascontiguousarray(expanded).view(np.uint8).reshape(-1)
        return _native.SourceRows(self._stored[weight], data, weight.rows, weight.columns, mapped)

    def _embedding(self, weight: Weight) -> _native.SourceRows:
        source = self._source(weight)
        if not _native.finite_scales(self._pool, source, self._scale_fields(weight)):
            self._refuse_scales(weight)
        self._file.release(weight.name)
        return source

    def _vector(self, weight: Weight) -> NDArray[np.float32]:
        data, kind = weight_data(self._file, weight), quant_type(weight.type_id, weight.name)
        check_finite_scales(weight.name, kind, data)
        return np.ascontiguousarray(kind.dequantize_rows(data, 1, weight.columns)[0])

    def _refuse_scales(self, weight: Weight) -> None:
        kind = quant_type(weight.type_id, weight.name)
        check_finite_scales(weight.name, kind, weight_data(self._file, weight))

    def _scale_fields(self, weight: Weight) -> list[tuple[int, int, int]]:
        fields = SCALE_FIELDS[self._stored[weight]]
        return [(scale.offset, scale.width, scale.exponent) for scale in fields]

    def _report(self, total: int) -> None:
        if self._progress is not None:
            done = sum(self._packed_bytes[weight] for weight in self._weights.matrices)
            self._progress(done, total)


def _distinct(weights: Iterator[Weight]) -> list[Weight]:
    return list(dict.fromkeys(weights))


def _packing_order(graph: Graph) -> list[tuple[Weight, ...]]:
    """Matrices in the order a step reads them; a gate goes with its up unless either is shared."""
    uses: dict[Weight, int] = {}
    for op in graph.ops:
        for weight in matrices(op):
            uses[weight] = uses.get(weight, 0) + 1
    order: dict[tuple[Weight, ...], None] = {}
    for op in graph.ops:
        if isinstance(op, GatedLinear) and uses[op.gate] == uses[op.up] == 1:
            order[(op.gate, op.up)] = None
        else:
            order.update(dict.fromkeys((weight,) for weight in matrices(op)))
    return list(order)


def _vectors(op: Op) -> Iterator[Weight]:
    """Norm weights and biases of an op."""
    linears = op.members if isinstance(op, LinearGroup) else (op,)
    for linear in linears:
        if isinstance(linear, Linear) and linear.bias is not None:
            yield linear.bias
    if isinstance(op, RmsNorm) and op.weight is not None:
        yield op.weight
