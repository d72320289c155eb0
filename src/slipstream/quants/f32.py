"""F32: IEEE 754 binary32, one weight a block."""

from __future__ import annotations

import numpy as np

from slipstream.quants.base import QuantType
from slipstream.quants.fields import Bytes, Floats, ScaleField

SCALES = (ScaleField(0, 4, 0x7F80_0000),)


def dequantize(blocks: Bytes) -> Floats:
    return np.array(blocks, order="C").view("<f4").astype(np.float32, copy=False)


TYPE = QuantType("f32", 0, 1, 4, dequantize)
