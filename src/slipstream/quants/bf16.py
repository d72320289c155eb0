"""BF16: the upper half of a binary32, one weight a block."""

from __future__ import annotations

import numpy as np

from slipstream.quants.base import QuantType
from slipstream.quants.fields import Bytes, Floats, ScaleField

SCALES = (ScaleField(0, 2, 0x7F80),)


def dequantize(blocks: Bytes) -> Floats:
    upper = np.array(blocks, order="C").view("<u2").astype(np.uint32)
    return (upper << 16).view(np.float32)


TYPE = QuantType("bf16", 30, 1, 2, dequantize)
