"""Q6_K: 256 weights of six bits in sixteen groups of 16, each with a signed eight-bit scale.

Block: 128 bytes of low nibbles, 64 bytes of high bit pairs, 16 scales (int8), d (f16). Each half
of 128 weights owns 64 low bytes and 32 high bytes: its quarters 0-3 of 32 weights take the low
nibbles of low bytes 0-31 and 32-63, then their high nibbles, and bits 2q, 2q + 1 of the high
bytes. The value of a weight of group g is (d * scale[g]) * (quant - 32).
"""

from __future__ import annotations

import numpy as np

from slipstream.quants.base import QuantType
from slipstream.quants.fields import Bytes, Floats, half, half_values, nibble_halves

SCALES = (half(208),)
SHIFTS = np.array([0, 2, 4, 6], dtype=np.uint8)


def dequantize(blocks: Bytes) -> Floats:
    low = nibble_halves(blocks[:, 0:128].reshape(-1, 2, 64)).reshape(-1, 2, 4, 32)
    high = blocks[:, 128:192].reshape(-1, 2, 1, 32) >> SHIFTS[:, None] & 3  # [blocks, 2, 4, 32]
    quants = (low | high << 4).astype(np.int8) - np.int8(32)
    scales = blocks[:, 192:208].view(np.int8).astype(np.float32)
    scale = half_values(blocks, 208) * scales  # [blocks, 16]
    values = scale[:, :, None] * quants.reshape(-1, 16, 16).astype(np.float32)
    return values.reshape(-1, 256)


TYPE = QuantType("q6_k", 14, 256, 210, dequantize)
