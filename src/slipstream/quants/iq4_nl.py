"""IQ4_NL: 32 weights of four bits that index a table, and one scale.

Block: scale d (f16), 16 bytes. Weight j is the low nibble of byte j, weight j + 16 the high one;
its value is d * VALUES[nibble].
"""

from __future__ import annotations

import numpy as np

from slipstream.quants.base import QuantType
from slipstream.quants.fields import Bytes, Floats, half, half_values, nibble_halves

SCALES = (half(0),)

VALUES = np.array(
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32
)
"""The 16 levels of IQ4_NL and IQ4_XS: ``kvalues_iq4nl`` of the GGML format."""


def dequantize(blocks: Bytes) -> Floats:
    return half_values(blocks, 0) * VALUES[nibble_halves(blocks[:, 2:18]).reshape(-1, 32)]


TYPE = QuantType("iq4_nl", 20, 32, 18, dequantize)
