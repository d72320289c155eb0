"""Q5_K: 256 weights of five bits in eight groups of 32, each with a six-bit scale and minimum.

Block: d (f16), dmin (f16), 12 scale bytes, 32 bytes of high bits, 128 bytes of low nibbles. The
nibbles lie as in Q4_K; bit g of high byte j is bit 4 of weight j of group g. The value of a
weight of group g is (d * scale[g]) * quant - dmin * minimum[g].
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
GROUPS = np.arange(8, dtype=np.uint8)


def dequantize(blocks: Bytes) -> Floats:
    scales, minimums = six_bit_scales(blocks[:, 4:16])
    low = nibble_halves(blocks[:, 48:176].reshape(-1, 4, 32)).reshape(-1, 8, 32)
    high = blocks[:, None, 16:48] >> GROUPS[:, None] & 1  # [blocks, 8, 32]
    quants = (low | high << 4).astype(np.float32)
    scale = half_values(blocks, 0) * scales.astype(np.float32)  # [blocks, 8]
    minimum = half_values(blocks, 2) * minimums.astype(np.float32)  # [blocks, 8]
    return (scale[:, :, None] * quants - minimum[:, :, None]).reshape(-1, 256)


TYPE = QuantType("q5_k", 13, 256, 176, dequantize)
