"""MXFP4: 32 floats of four bits (E2M1) and one power of two (E8M0), an OCP microscaling format.

Block: scale e (one byte), 16 bytes. Weight j is the low nibble of byte j, weight j + 16 the high
one; its value is 2^(e - 127) times the E2M1 number, taken as 2^(e - 128) * DOUBLED[nibble].

E8M0 has no infinity, and 255 is NaN (OCP Microscaling Formats v1.0, section 5.4); GGML reads it as
a number. Here 252 and up are refused: from 253 on a weight can pass the range of binary32, and 252
is the fourth number of one bit pattern.
"""

from __future__ import annotations

import numpy as np

from slipstream.quants.base import QuantType
from slipstream.quants.fields import Bytes, Floats, ScaleField, nibble_halves

SCALES = (ScaleField(0, 1, 0xFC),)

DOUBLED = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.float32)
"""Twice the 16 numbers of E2M1: integers."""


def dequantize(blocks: Bytes) -> Floats:
    scale = np.ldexp(np.float32(1), blocks[:, 0:1].astype(np.int32) - 128)  # [blocks, 1]
    return scale * DOUBLED[nibble_halves(blocks[:, 1:17]).reshape(-1, 32)]


TYPE = QuantType("mxfp4", 39, 32, 17, dequantize)
