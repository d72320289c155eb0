"""Random quantised tensors for tests."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gguf_writer import Tensor
from slipstream.quants import QUANT_TYPES, SCALE_FIELDS, QuantType

TYPES_BY_NAME = {kind.name: kind for kind in QUANT_TYPES.values()}

UNIT_DEVIATION = {
    "q4_0": 4.61,
    "q4_1": 4.61,
    "q5_0": 9.23,
    "q5_1": 9.23,
    "q8_0": 73.9,
    "q4_k": 258.0,
    "q5_k": 527.0,
    "q6_k": 341.0,
    "q2_k": 13.9,
    "q3_k": 43.3,
    "iq4_nl": 67.4,
    "iq4_xs": 1246.0,
    "mxfp4": 5.85,
}
"""Standard deviation of weights with scale 1 and uniform quants, centred as below."""

MINIMUM_RATIO = {"q4_1": -7.5, "q5_1": -15.5, "q4_k": 7.5, "q5_k": 15.5, "q2_k": 1.5}
"""Minimum divided by scale that centres the weights on zero; K-quants subtract theirs."""


def random_blocks(type_name: str, blocks: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Blocks of random bytes whose scales are any finite value: uint8 ``[blocks, block_bytes]``."""
    kind = TYPES_BY_NAME[type_name]
    data = rng.integers(0, 256, (blocks, kind.block_bytes), dtype=np.uint8)
    for field in SCALE_FIELDS[kind.ggml_id]:
        part = slice(field.offset, field.offset + field.width)
        values = data[:, part].copy().view(f"<u{field.width}")
        nonfinite = values & field.exponent == field.exponent
        values[nonfinite] &= (1 << 8 * field.width) - 1 - field.exponent
        data[:, part] = values.view(np.uint8)
    return data


def random_tensor(
    type_name: str, rows: int, columns: int, rng: np.random.Generator, deviation: float = 0.08
) -> Tensor:
    """A weight matrix of mean about 0 and about the given standard deviation.

    Raises:
        ValueError: ``columns`` is not a multiple of the type's block.
    """
    kind = TYPES_BY_NAME[type_name]
    if columns % kind.block_elements:
        raise ValueError(f"{columns} columns are no multiple of {kind.block_elements}: {type_name}")
    if kind.block_elements == 1:
        data = _float_weights(type_name, rng.normal(0, deviation, (rows, columns)))
    else:
        data = _quantised_weights(kind, rows * columns // kind.block_elements, rng, deviation)
    return Tensor(kind.ggml_id, (columns, rows), data.tobytes())


def _float_weights(type_name: str, values: NDArray[np.float64]) -> NDArray[np.generic]:
    if type_name == "bf16":
        return (values.astype("<f4").view("<u4") >> 16).astype("<u2")
    return values.astype("<f2" if type_name == "f16" else "<f4")


def _quantised_weights(
    kind: QuantType, blocks: int, rng: np.random.Generator, deviation: float
) -> NDArray[np.uint8]:
    data = random_blocks(kind.name, blocks, rng)
    scales = rng.uniform(0.5, 1.5, (blocks, 1)) * deviation / UNIT_DEVIATION[kind.name]
    if kind.name in MINIMUM_RATIO:
        _store(data, kind, 1, scales * MINIMUM_RATIO[kind.name])
    else:
        scales *= rng.choice([-1, 1], (blocks, 1))
    if kind.name == "q6_k":
        data[:, 192:208] = rng.integers(-32, 32, (blocks, 16), dtype=np.int8).view(np.uint8)
    _store(data, kind, 0, scales)
    return data


def _store(
    data: NDArray[np.uint8], kind: QuantType, index: int, values: NDArray[np.float64]
) -> None:
    field = SCALE_FIELDS[kind.ggml_id][index]
    if field.width == 1:  # E8M0: the nearest power of two; its table holds doubled numbers
        stored = np.rint(np.log2(np.abs(values)) + 128).astype(np.uint8)
    else:
        stored = values.astype("<f2").view(np.uint8)
    data[:, field.offset : field.offset + field.width] = stored
