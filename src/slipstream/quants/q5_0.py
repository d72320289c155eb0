"""Q5_0: 32 weights of five bits and one scale.

Block: scale d (f16), a word of 32 high bits, 16 bytes of low nibbles. Weight j takes the low
nibble of byte j, weight j + 16 the high one, and bit j of the word as its bit 4; its value is
d * (quant - 16).
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

SCALES = (half(0),)


def dequantize(blocks: Bytes) -> Floats:
    low = nibble_halves(blocks[:, 6:22]).reshape(-1, 32)
    quants = low | bits_of_word(blocks[:, 2:6]) << 4
    return half_values(blocks, 0) * (quants.astype(np.int8) - np.int8(16)).astype(np.float32)


TYPE = QuantType("q5_0", 6, 32, 22, dequantize)
