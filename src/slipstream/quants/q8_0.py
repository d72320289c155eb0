"""Q8_0: 32 weights of eight bits and one scale.

Block: scale d (f16), 32 signed bytes; the value of a weight is d * byte.
"""

from __future__ import annotations

import numpy as np

from slipstream.quants.base import QuantType
from slipstream.quants.fields import Bytes, Floats, half, half_values

SCALES = (half(0),)


def dequantize(blocks: Bytes) -> Floats:
    return half_values(blocks, 0) * blocks[:, 2:34].view(np.int8).astype(np.float32)


TYPE = QuantType("q8_0", 8, 32, 34, dequantize)
