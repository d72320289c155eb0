"""IQ4_XS: 256 weights of four bits that index IQ4_NL's table, in eight groups with six-bit scales.

Block: d (f16), a word of high scale bits (u16), 4 bytes of low scale nibbles, 128 bytes. Scale g
takes nibble g of the 4 bytes (low nibble first) and bits 2g and 2g + 1 of the word; group g of 32
weights owns 16 bytes, laid out as in IQ4_NL. The value of a weight of group g is
(d * (scale[g] - 32)) * VALUES[nibble].
"""

from __future__ import annotations

import numpy as np

from slipstream.quants.base import QuantType
from slipstream.quants.fields import Bytes, Floats, bit_pairs, half, half_values, nibble_halves
from slipstream.quants.iq4_nl import VALUES

SCALES = (half(0),)


def dequantize(blocks: Bytes) -> Floats:
    scale_low = nibble_halves(blocks[:, 4:8, None]).reshape(-1, 8)
    scale_high = bit_pairs(blocks[:, 2:4, None]).reshape(-1, 8)
    scales = (scale_low | scale_high << 4).astype(np.int8) - np.int8(32)
    scale = half_values(blocks, 0) * scales.astype(np.float32)  # [blocks, 8]
    quants = nibble_halves(blocks[:, 8:136].reshape(-1, 8, 16)).reshape(-1, 8, 32)
    return (scale[:, :, None] * VALUES[quants]).reshape(-1, 256)


TYPE = QuantType("iq4_xs", 23, 256, 136, dequantize)
