"""Q5_1: 32 weights of five bits, one scale and one minimum.

Block: scale d (f16), minimum m (f16), a word of 32 high bits, 16 bytes of low nibbles, laid out
as in Q5_0; the value of a weight is d * quant + m.
"""

from __future__ import annotations

import numpy as np

from slipstream.quants.base import QuantType
from slipstream.quants.fields import (
    Bytes,
    Floats,
    bits_of_word,
    half,
    half_values,
    nibble_halves,
)

SCALES = (half(0), half(2))


def dequantize(blocks: Bytes) -> Floats:
    low = nibble_halves(blocks[:, 8:24]).reshape(-1, 32)
    quants = low | bits_of_word(blocks[:, 4:8]) << 4
    return half_values(blocks, 0) * quants.astype(np.float32) + half_values(blocks, 2)


TYPE = QuantType("q5_1", 7, 32, 24, dequantize)
