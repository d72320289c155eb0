"""How keys and values are kept: the types, the shape of a row and its NumPy codec.

A row is one head's key or value at one position, as uint16. ``f16`` keeps binary16 bits.
``q8_0`` keeps blocks of 32 elements, each a binary16 scale and 32 int8 codes: the block of GGML's
tensor type of that name, so ``head_dim`` must be a multiple of 32.
"""

from __future__ import annotations

from typing import Final, get_args

import numpy as np
from numpy.typing import NDArray

from slipstream.errors import UnsupportedError
from slipstream.graph import Graph
from slipstream.options import KvType

KV_TYPES: Final[tuple[KvType, ...]] = get_args(KvType)

Floats = NDArray[np.float32]
Rows = NDArray[np.uint16]

BLOCK_ELEMENTS: Final = 32
BLOCK_HALVES: Final = 1 + BLOCK_ELEMENTS // 2
SMALLEST_MAXIMUM: Final = 2.0**-100
"""A block whose largest magnitude is below it has zeros for codes."""


def row_halves(kv_type: KvType, head_dim: int) -> int:
    """uint16 per row.

    Raises:
        UnsupportedError: the type does not take rows of that length.
    """
    if kv_type == "f16":
        return head_dim
    if head_dim % BLOCK_ELEMENTS:
        raise UnsupportedError(
            f"heads of a multiple of {BLOCK_ELEMENTS} elements for keys and values in {kv_type}",
            f"heads of {head_dim}",
            "Keep keys and values in f16.",
        )
    return head_dim // BLOCK_ELEMENTS * BLOCK_HALVES


def require_kv_type(graph: Graph, kv_type: KvType) -> None:
    """Refuse a type that the graph's keys do not fit, before anything is loaded.

    Raises:
        UnsupportedError: the length of a head is no multiple of the type's block.
    """
    for op in graph.attentions():
        row_halves(kv_type, op.head_dim)


def encode_rows(x: Floats, kv_type: KvType) -> Rows:
    """float32 ``[..., head_dim]`` to uint16 ``[..., row_halves]``.

    The scale of a q8_0 block is max |x| / 127 rounded to binary16, a code is x * (127 / max |x|)
    rounded half to even; a block with an infinity or a NaN decodes to NaN.
    """
    with np.errstate(over="ignore"):
        if kv_type == "f16":
            return x.astype(np.float16).view(np.uint16)
        blocks = x.reshape(*x.shape[:-1], -1, BLOCK_ELEMENTS)
        largest = np.abs(blocks).max(axis=-1, keepdims=True)
        finite = np.isfinite(blocks).all(axis=-1, keepdims=True)
        scale = np.where(finite, largest / np.float32(127), np.float32(np.nan))
        coded = finite & (largest >= np.float32(SMALLEST_MAXIMUM))
        inverse = np.float32(127) / np.where(coded, largest, np.float32(1))
        codes = np.rint(np.where(coded, blocks, np.float32(0)) * inverse).astype(np.int8)
        halves = scale.astype(np.float16).view(np.uint16)
    joined: Rows = np.concatenate((halves, codes.view(np.uint16)), axis=-1)
    return joined.reshape(*x.shape[:-1], -1)


def decode_rows(rows: Rows, kv_type: KvType) -> Floats:
    """uint16 ``[..., row_halves]`` to float32 ``[..., head_dim]``; exact."""
    if kv_type == "f16":
        return rows.view(np.float16).astype(np.float32)
    blocks = rows.reshape(*rows.shape[:-1], -1, BLOCK_HALVES)
    scale = np.ascontiguousarray(blocks[..., :1]).view(np.float16).astype(np.float32)
    codes = np.ascontiguousarray(blocks[..., 1:]).view(np.int8).astype(np.float32)
    values: Floats = codes * scale
    return values.reshape(*rows.shape[:-1], -1)
