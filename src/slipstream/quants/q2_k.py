"""Q2_K: 256 weights of two bits in sixteen groups of 16, each with a four-bit scale and minimum.

Block: 16 bytes (scale in the low nibble, minimum in the high one), 64 bytes of bit pairs, d (f16),
dmin (f16). Each half of 128 weights owns 32 bytes: its quarter q of 32 weights takes bits 2q and
2q + 1. The value of a weight of group g is (d * scale[g]) * quant - dmin * minimum[g].
"""

from __future__ import annotations

import numpy as np

from slipstream.quants.base import QuantType
from slipstream.quants.fields import Bytes, Floats, bit_pairs, half, half_values

SCALES = (half(80), half(82))


def dequantize(blocks: Bytes) -> Floats:
    quants = bit_pairs(blocks[:, 16:80].reshape(-1, 2, 32)).reshape(-1, 16, 16)
    scale = half_values(blocks, 80) * (blocks[:, 0:16] & 15).astype(np.float32)  # [blocks, 16]
    minimum = half_values(blocks, 82) * (blocks[:, 0:16] >> 4).astype(np.float32)
    values = scale[:, :, None] * quants.astype(np.float32) - minimum[:, :, None]
    return values.reshape(-1, 256)


TYPE = QuantType("q2_k", 10, 256, 84, dequantize)
