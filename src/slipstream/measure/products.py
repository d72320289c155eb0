"""Time of one packed matrix product by type, shape, row count and level, on synthetic weights."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slipstream import _native
from slipstream.measure.probes import MachineProbe, multiply_mix
from slipstream.measure.statistics import median_interval
from slipstream.quants import QUANT_TYPES, SCALE_FIELDS

_WORKING_SET = 128 << 20  # bytes: copies of the matrix beyond any last-level cache's share
_MOST_COPIES = 256
_PATTERN_BLOCKS = 1 << 16  # repeated over the matrix: random bytes for all of it cost memory
_FEWEST_ROUNDS = 3
_OVERTIME = 4  # times the budget, to reach the fewest rounds
_CACHED_BELOW = 0.25  # of the read bandwidth: a slower product does not care where weights lie


@dataclass(frozen=True)
class Case:
    """What is timed: a matrix of a type, ``[outputs, inputs]``, on a level."""

    type_id: int
    outputs: int
    inputs: int
    isa: str

    @property
    def weight_bytes(self) -> int:
        return int(_native.matrix_bytes(self.type_id, self.outputs, self.inputs))


@dataclass(frozen=True)
class ProductCost:
    """One product of ``rows`` activation rows.

    Attributes:
        us: median microseconds on all threads, with the barrier; preparing the activations aside.
        low_us, high_us: 95 % bootstrap interval of the median.
        prepare_us: median microseconds of preparing the activations.
        gb_s: weight bytes per second.
        gmac_s: multiply-accumulates per second.
        limit_us: max(bytes / bandwidth, rows x weights / peak); without the bytes where the weights
            stayed in a cache.
        from_memory: whether the weights came from memory, copy after copy.
        rounds: timed rounds.
    """

    type: str
    outputs: int
    inputs: int
    isa: str
    rows: int
    us: float
    low_us: float
    high_us: float
    prepare_us: float
    gb_s: float
    gmac_s: float
    limit_us: float
    from_memory: bool
    rounds: int


def synthetic_weights(type_id: int, outputs: int, inputs: int) -> NDArray[np.uint8]:
    """Blocks of random codes with scales between 1 and 2: uint8 ``[bytes of the matrix]``.

    Raises:
        ValueError: ``inputs`` is not whole blocks of the type.
    """
    kind = QUANT_TYPES[type_id]
    if inputs % kind.block_elements:
        raise ValueError(f"{kind.name} needs a multiple of {kind.block_elements} inputs")
    blocks = outputs * inputs // kind.block_elements
    pattern = _random_blocks(type_id, min(blocks, _PATTERN_BLOCKS)).reshape(-1)
    data = np.empty(blocks * kind.block_bytes, np.uint8)
    for start in range(0, data.size, pattern.size):
        part = data[start : start + pattern.size]
        part[:] = pattern[: part.size]
    return data


def _random_blocks(type_id: int, blocks: int) -> NDArray[np.uint8]:
    """``[blocks, bytes of a block]``."""
    rng = np.random.default_rng(type_id)
    data = rng.integers(0, 256, (blocks, QUANT_TYPES[type_id].block_bytes), dtype=np.uint8)
    for field in SCALE_FIELDS[type_id]:
        part = slice(field.offset, field.offset + field.width)
        values = data[:, part].copy().view(f"<u{field.width}")
        everything = (1 << 8 * field.width) - 1
        # An exponent field with all bits set but the first is the exponent 0.
        values = values & (everything - field.exponent) | field.exponent & field.exponent >> 1
        data[:, part] = values.astype(f"<u{field.width}").view(np.uint8)
    return data


class _Products:
    """A program of ``copies`` products, each with a copy of the matrix of its own."""

    def __init__(
        self, case: Case, pool: _native.Pool, data: NDArray[np.uint8], copies: int
    ) -> None:
        self._case = case
        self.copies = copies
        source = _native.SourceRows(case.type_id, data, case.outputs, case.inputs)
        arena = _native.Arena(copies * case.weight_bytes)
        builder = _native.ProgramBuilder(case.isa)
        x = builder.value(case.inputs, True)
        builder.input(x, "x")
        for copy in range(copies):
            matrix = _native.pack(pool, arena, source, [], case.isa)
            assert matrix is not None
            out = builder.value(case.outputs, True)
            builder.linear_group(x, [(out, matrix, None, None)])
            builder.output(str(copy), out)
        self._program = _native.Program(pool, builder)
        self._kinds = [kind for kind, _, _ in self._program.phases()]
        self._program.profile(True)

    def seconds(self, rows: int) -> tuple[float, float]:
        """Of one product, and of preparing its activations."""
        self._run(rows)
        product = prepare = 0.0
        for kind, seconds in zip(self._kinds, self._program.phase_seconds(), strict=True):
            if kind == "product":
                product += seconds
            else:
                prepare += seconds
        return product / self.copies, prepare

    def _run(self, rows: int) -> None:
        zeros, order = np.zeros(rows, np.int32), np.arange(rows, dtype=np.int32)
        x = np.random.default_rng(rows).standard_normal((rows, self._case.inputs), np.float32)
        out = np.empty((rows, self._case.outputs), np.float32)
        self._program.run(
            None,
            order,
            order,
            zeros,
            order + 1,
            zeros,
            zeros,
            np.zeros(0, np.int32),
            [],
            np.zeros(0, np.int32),
            [x],
            [out] * self.copies,
        )


def product_costs(
    case: Case,
    rows: Sequence[int],
    pool: _native.Pool,
    machine: MachineProbe,
    *,
    budget_s: float,
) -> Iterator[ProductCost]:
    """Time the products of each row count in mirrored order for about ``budget_s`` seconds.

    Raises:
        ValueError: the inputs are not whole blocks of the type.
        MemoryError: the weights do not fit.
    """
    data = synthetic_weights(case.type_id, case.outputs, case.inputs)
    products = _Products(case, pool, data, 1)
    fastest = min(products.seconds(min(rows))[0] for _ in range(2))
    from_memory = case.weight_bytes / fastest > _CACHED_BELOW * machine.read_gb_s * 1e9
    if from_memory:
        copies = -(-_WORKING_SET // case.weight_bytes)
        products = (
            _Products(case, pool, data, min(copies, _MOST_COPIES)) if copies > 1 else products
        )
    samples = _samples(products, rows, budget_s)
    for r in rows:
        yield _cost(
            case,
            r,
            samples[r],
            machine,
            from_memory=from_memory or case.weight_bytes >= _WORKING_SET,
        )


def _samples(
    products: _Products, rows: Sequence[int], budget_s: float
) -> dict[int, list[tuple[float, float]]]:
    """Rounds in mirrored order for the budget; the fewest rounds may take some overtime."""
    samples: dict[int, list[tuple[float, float]]] = {r: [] for r in rows}
    products.seconds(max(rows))
    order, begin = list(rows), time.perf_counter()
    for number in itertools.count(1):
        for r in order:
            samples[r].append(products.seconds(r))
        order.reverse()
        allowed = budget_s * (_OVERTIME if number < _FEWEST_ROUNDS else 1)
        if time.perf_counter() - begin >= allowed:
            break
    return samples


def _cost(
    case: Case,
    rows: int,
    samples: Sequence[tuple[float, float]],
    machine: MachineProbe,
    *,
    from_memory: bool,
) -> ProductCost:
    seconds = [product for product, _ in samples]
    middle = statistics.median(seconds)
    low, high = median_interval(seconds)
    weights = case.outputs * case.inputs
    read = case.weight_bytes if from_memory else 0
    return ProductCost(
        type=QUANT_TYPES[case.type_id].name,
        outputs=case.outputs,
        inputs=case.inputs,
        isa=case.isa,
        rows=rows,
        us=middle * 1e6,
        low_us=low * 1e6,
        high_us=high * 1e6,
        prepare_us=statistics.median(prepare for _, prepare in samples) * 1e6,
        gb_s=case.weight_bytes / middle / 1e9,
        gmac_s=rows * weights / middle / 1e9,
        limit_us=machine.limit_ms(rows, read, {multiply_mix(case.type_id): weights}) * 1e3,
        from_memory=from_memory,
        rounds=len(samples),
    )
