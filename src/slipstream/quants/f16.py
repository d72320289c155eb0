"""F16: IEEE 754 binary16, one weight a block."""

from __future__ import annotations

from slipstream.quants.base import QuantType
from slipstream.quants.fields import Bytes, Floats, half, half_values

SCALES = (half(0),)


def dequantize(blocks: Bytes) -> Floats:
    return half_values(blocks, 0)


TYPE = QuantType("f16", 1, 1, 2, dequantize)
