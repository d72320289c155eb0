"""Q4_K: 256 weights of four bits in eight groups of 32, each with a six-bit scale and minimum.

Block: d (f16), dmin (f16), 12 scale bytes, 128 bytes. Bytes 32i..32i+31 hold group 2i in their
low nibbles and group 2i + 1 in their high ones; the value of a weight of group g is
(d * scale[g]) * nibble - dmin * minimum[g].
"""

from __future__ import annotations

import numpy as np

from slipstream.quants.base import QuantType
from slipstream.quants.fields import (
    Bytes,
    Floats,
    half,
    half_values,
    nibble_halves,
    six_bit_scales,
)

SCALES = (half(0), half(2))


def dequantize(blocks: Bytes) -> Floats:
    scales, minimums = six_bit_scales(blocks[:, 4:16])
    quants = nibble_halves(blocks[:, 16:144].reshape(-1, 4, 32)).reshape(-1, 8, 32)
    scale = half_values(blocks, 0) * scales.astype(np.float32)  # [blocks, 8]
    minimum = half_values(blocks, 2) * minimums.astype(np.float32)  # [blocks, 8]
    values = scale[:, :, None] * quants.astype(np.float32) - minimum[:, :, None]
    return values.reshape(-1, 256)


TYPE = QuantType("q4_k", 12, 256, 144, dequantize)
