"""Q4_0: 32 weights of four bits and one scale.

Block: scale d (f16), 16 bytes. Weight j is the low nibble of byte j, weight j + 16 the high one;
its value is d * (nibble - 8).
"""

from __future__ import annotations

import numpy as np

from slipstream.quants.base import QuantType
from slipstream.quants.fields import Bytes, Floats, half, half_values, nibble_halves

SCALES = (half(0),)


def dequantize(blocks: Bytes) -> Floats:
    quants = nibble_halves(blocks[:, 2:18]).reshape(-1, 32)
    return half_values(blocks, 0) * (quants.astype(np.int8) - np.int8(8)).astype(np.float32)


TYPE = QuantType("q4_0", 2, 32, 18, dequantize)
