"""Reading the packed fields that several block layouts share.

Every function takes uint8 ``[blocks, block_bytes]`` or a slice of its columns. All multi-byte
fields are little-endian, as in every GGUF file Slipstream opens.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class ScaleField:
    """A floating-point field of a block whose NaN or infinity would poison every weight of it.

    Attributes:
        offset: bytes from the start of the block.
        width: bytes of the field: 1, 2 or 4.
        exponent: the exponent bits; a value with all of them set is NaN or infinite.
    """

    offset: int
    width: int
    exponent: int


def half(offset: int) -> ScaleField:
    """An IEEE 754 binary16 field at ``offset``."""
    return ScaleField(offset, 2, 0x7C00)


def half_values(blocks: Bytes, offset: int) -> Floats:
    """The binary16 field at ``offset`` of each block -> float32 ``[blocks, 1]``."""
    return blocks[:, offset : offset + 2].copy().view("<f2").astype(np.float32)


def nibble_halves(packed: Bytes) -> Bytes:
    """``[..., n]`` bytes -> ``[..., 2, n]``: all low nibbles, then all high nibbles."""
    return np.stack((packed & 15, packed >> 4), axis=-2)


def bit_pairs(packed: Bytes) -> Bytes:
    """``[..., n]`` bytes -> ``[..., 4, n]``: all bits 0-1, then bits 2-3, 4-5 and 6-7."""
    shifts = np.arange(0, 8, 2, dtype=np.uint8)
    return packed[..., None, :] >> shifts[:, None] & np.uint8(3)


def bits_of_word(packed: Bytes) -> Bytes:
    """A 32-bit field ``[blocks, 4]`` -> its bits ``[blocks, 32]``, lowest first."""
    return np.unpackbits(packed, axis=-1, bitorder="little")


def six_bit_scales(packed: Bytes) -> tuple[Bytes, Bytes]:
    """The 12 scale bytes of Q4_K and Q5_K -> eight scales and eight minimums of six bits.

    Bytes 0-3 hold scales 0-3 and bytes 4-7 minimums 0-3 in their low six bits; bytes 8-11 hold
    the low nibbles of scales 4-7 and, above them, of minimums 4-7, whose top two bits are the
    top bits of bytes 0-3 and 4-7.

    Returns:
        scales and minimums, each uint8 ``[blocks, 8]``.
    """
    first, second, third = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    scales = np.concatenate((first & 63, (third & 15) | (first >> 6 << 4)), axis=-1)
    minimums = np.concatenate((second & 63, (third >> 4) | (second >> 6 << 4)), axis=-1)
    return scales, minimums
