"""The arithmetic of each op of the reference backend, on float32 arrays with one row per row."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from slipstream.graph import Activation, RopeTable
from slipstream.memory.base import PAGE_POSITIONS, KeyLayout
from slipstream.memory.kv_types import decode_rows, encode_rows
from slipstream.options import KvType

Floats = NDArray[np.float32]
SMALLEST_MAXIMUM = 2.0**-100
"""Blocks of activations below it are rounded to zeros."""


def rms_norm(x: Floats, weight: Floats | None, epsilon: float, group_width: int) -> Floats:
    """Root mean square norm of each group (Zhang and Sennrich 2019, arXiv:1910.07467)."""
    groups = x.reshape(len(x), -1, group_width)
    mean_square = np.mean(np.square(groups, dtype=np.float64), axis=-1, keepdims=True)
    normed = (groups / np.sqrt(mean_square + epsilon)).astype(np.float32)
    scaled: Floats = normed if weight is None else normed * weight
    return scaled.reshape(x.shape)


def gated(gate: Floats, up: Floats, activation: Activation) -> Floats:
    """activation(gate) * up; SiLU, or GELU by tanh (Hendrycks, Gimpel 2016, arXiv:1606.08415)."""
    if activation == "silu":
        with np.errstate(over="ignore"):
            decayed: Floats = np.exp(-gate)
        return gate / (1.0 + decayed) * up
    bent: Floats = np.tanh(math.sqrt(2.0 / math.pi) * (gate + 0.044715 * gate**3))
    return 0.5 * gate * (1.0 + bent) * up


def softcap(x: Floats, cap: float) -> Floats:
    out: Floats = np.float32(cap) * np.tanh(x / np.float32(cap))
    return out


def rope(x: Floats, heads: int, positions: NDArray[np.int32], table: RopeTable) -> Floats:
    """Rotate the leading ``rotary_width`` elements of each head; angles are float64."""
    out = x.reshape(len(x), heads, -1).copy()  # [rows, heads, head_dim]
    pairs = table.rotary_width // 2
    first = slice(0, pairs) if table.kind == "neox" else slice(0, 2 * pairs, 2)
    second = slice(pairs, 2 * pairs) if table.kind == "neox" else slice(1, 2 * pairs, 2)
    angles = positions[:, None, None] * np.asarray(table.frequencies, np.float64)
    cosine = (np.cos(angles) * table.magnitude).astype(np.float32)
    sine = (np.sin(angles) * table.magnitude).astype(np.float32)
    a, b = out[..., first].copy(), out[..., second].copy()
    out[..., first] = a * cosine - b * sine
    out[..., second] = a * sine + b * cosine
    return out.reshape(x.shape)


def round_activations(x: Floats, block: int) -> Floats:
    """Values of ``x`` after the native kernels' int8 quantisation of each ``block`` elements.

    scale = max |x| / 127, code = x * (127 / max |x|) rounded half to even; a block whose largest
    element is below 2^-100 becomes zeros, one with an infinity or NaN becomes NaN.
    """
    blocks = x.reshape(len(x), -1, block)
    largest = np.abs(blocks).max(axis=-1, keepdims=True)
    finite, tiny = np.isfinite(largest), largest < np.float32(SMALLEST_MAXIMUM)
    safe = np.where(finite & ~tiny, largest, np.float32(1))
    rounded = np.rint(blocks * (np.float32(127) / safe)) * (safe / np.float32(127))
    out: Floats = np.where(finite, np.where(tiny, np.float32(0), rounded), np.float32(np.nan))
    return out.reshape(x.shape)


def round_activations_twice(x: Floats, block: int) -> Floats:
    """``[2 * rows, elements]``: the hi and the lo plane of each row (native/kernels/planes.hh).

    hi is ``round_activations``; with t = x * (127 / max |x|) in float32 and code = rint(t), lo has
    the codes rint(254 * (t - code)) and 1/254 of the scale.
    """
    blocks = x.reshape(len(x), -1, block)
    largest = np.abs(blocks).max(axis=-1, keepdims=True)
    coded = np.isfinite(largest) & (largest >= np.float32(SMALLEST_MAXIMUM))
    safe = np.where(coded, largest, np.float32(1))
    exact = blocks * (np.float32(127) / safe)
    codes = np.rint((exact - np.rint(exact)) * np.float32(254))
    scale = safe / np.float32(127) / np.float32(254)
    out = np.empty((2 * len(x), x.shape[1]), np.float32)
    out[::2] = round_activations(x, block)
    out[1::2] = np.where(coded, codes * scale, np.float32(0)).reshape(x.shape)
    return out


def store_kv(
    x: Floats,
    pages: NDArray[np.uint16],
    kv_type: KvType,
    table: NDArray[np.int32],
    layout: KeyLayout,
) -> None:
    """Write each row's heads to its slot; ``pages`` is ``[pages, kv_heads, 64, row_halves]``."""
    heads = x.reshape(len(x), pages.shape[1], -1)
    page = table[layout.table, layout.slots // PAGE_POSITIONS]
    pages[page, :, layout.slots % PAGE_POSITIONS] = encode_rows(heads, kv_type)


def attention(
    query: Floats,
    keys: NDArray[np.uint16],
    values: NDArray[np.uint16],
    kv_type: KvType,
    table: NDArray[np.int32],
    layout: KeyLayout,
    scale: float,
    window: int | None,
) -> Floats:
    """Softmax attention of every row over its logical keys.

    Args:
        query: float32 ``[rows, heads, head_dim]``.
        keys, values: uint16 ``[pages, kv_heads, 64, row_halves]`` of one layer.
        table: int32 ``[sequences, pages]`` of the layer's group.
        window: a key is seen iff query position - key position < window.
    """
    out = np.empty_like(query)
    for sequence in np.unique(layout.table):
        rows = np.flatnonzero(layout.table == sequence)
        slots, seen = _visible_slots(layout, rows, window)
        pages, places = table[sequence, slots // PAGE_POSITIONS], slots % PAGE_POSITIONS
        key = decode_rows(keys[pages, :, places], kv_type)  # [slots, kv_heads, head_dim]
        value = decode_rows(values[pages, :, places], kv_type)
        out[rows] = _attend(query[rows], key, value, seen, scale)
    return out


def _visible_slots(
    layout: KeyLayout, rows: NDArray[np.intp], window: int | None
) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """The slots that a sequence's rows see, and bool ``[rows, slots]``: which row sees which."""
    end = 1 + max(int(layout.slots[rows].max()), int(layout.identity[rows].max()) - 1)
    seen = np.zeros((len(rows), end), np.bool_)
    for index, row in enumerate(rows):
        identity, tail = layout.identity[row], layout.tail_start[row]
        first = 0 if window is None else max(0, layout.positions[row] - window + 1)
        seen[index, first:identity] = True
        skipped = max(0, first - identity)
        seen[index, layout.tail[tail + skipped : tail + layout.tail_count[row]]] = True
    slots = np.flatnonzero(seen.any(axis=0))
    return slots, seen[:, slots]


def _attend(
    query: Floats, keys: Floats, values: Floats, seen: NDArray[np.bool_], scale: float
) -> Floats:
    rows, heads, head_dim = query.shape
    kv_heads = keys.shape[1]  # keys, values [slots, kv_heads, head_dim]
    grouped = query.reshape(rows, kv_heads, heads // kv_heads, head_dim).transpose(1, 2, 0, 3)
    scores = grouped @ keys.transpose(1, 2, 0)[:, None] * np.float32(scale)
    scores = np.where(seen, scores, -np.inf)  # [kv_heads, group, rows, slots]
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    mixed: Floats = weights @ values.transpose(1, 0, 2)[:, None]
    mixed /= weights.sum(axis=-1, keepdims=True)
    return mixed.transpose(2, 0, 1, 3).reshape(rows, heads, head_dim)
