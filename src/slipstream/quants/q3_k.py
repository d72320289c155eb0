"""Q3_K: 256 weights of three bits in sixteen groups of 16, each with a six-bit scale.

Block: 32 bytes of high bits, 64 bytes of low bit pairs, 12 scale bytes, d (f16). The bit pairs lie
as in Q2_K; bit i of high byte j is bit 2 of weight j of the i-th 32 weights. Bytes 0-7 hold the low
nibbles of scales 0-7 and, above them, of scales 8-15; bits 2i and 2i + 1 of bytes 8-11 are the top
two bits of scales 4i..4i+3. The value of a weight of group g is
(d * (scale[g] - 32)) * (quant - 4).
"""

from __future__ import annotations

import numpy as np

from slipstream.quants.base import QuantType
from slipstream.quants.fields import Bytes, Floats, bit_pairs, half, half_values, nibble_halves

SCALES = (half(108),)
EIGHTHS = np.arange(8, dtype=np.uint8)


def dequantize(blocks: Bytes) -> Floats:
    low = bit_pairs(blocks[:, 32:96].reshape(-1, 2, 32)).reshape(-1, 8, 32)
    high = blocks[:, None, 0:32] >> EIGHTHS[:, None] & 1  # [blocks, 8, 32]
    quants = (low | high << 2).astype(np.int8) - np.int8(4)
    scale_low = nibble_halves(blocks[:, 96:104]).reshape(-1, 16)
    scale_high = bit_pairs(blocks[:, 104:108]).reshape(-1, 16)
    scales = (scale_low | scale_high << 4).astype(np.int8) - np.int8(32)
    scale = half_values(blocks, 108) * scales.astype(np.float32)  # [blocks, 16]
    values = scale[:, :, None] * quants.reshape(-1, 16, 16).astype(np.float32)
    return values.reshape(-1, 256)


TYPE = QuantType("q3_k", 11, 256, 110, dequantize)
