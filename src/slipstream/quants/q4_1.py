"""Q4_1: 32 weights of four bits, one scale and one minimum.

Block: scale d (f16), minimum m (f16), 16 bytes. Weight j is the low nibble of byte j, weight
j + 16 the high one; its value is d * nibble + m.
"""

from __future__ import annotations

import numpy as np

from slipstream.quants.base import QuantType
from slipstream.quants.fields import Bytes, Floats, half, half_values, nibble_halves

SCALES = (half(0), half(2))


def dequantize(blocks: Bytes) -> Floats:
    quants = nibble_halves(blocks[:, 4:20]).reshape(-1, 32)
    return half_values(blocks, 0) * quants.astype(np.float32) + half_values(blocks, 2)


TYPE = QuantType("q4_1", 3, 32, 20, dequantize)
