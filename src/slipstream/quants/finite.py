"""NaN and infinite scales: refused when a model is loaded, before they poison every logit."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from slipstream.errors import ModelFileError
from slipstream.quants import SCALE_FIELDS, QuantType
from slipstream.quants.fields import ScaleField

SLICE_BLOCKS = 1 << 16
"""Blocks looked at together: bounds the temporary arrays to 256 KiB."""


def check_finite_scales(tensor_name: str, kind: QuantType, data: NDArray[np.uint8]) -> None:
    """Refuse a tensor with a NaN or infinite scale (or weight, for the float types).

    Args:
        tensor_name: named in the error.
        kind: the type of the tensor.
        data: its bytes, uint8 ``[blocks * block_bytes]``.

    Raises:
        ModelFileError: names the tensor and the first such block.
    """
    block = find_nonfinite_scale(kind, data)
    if block is not None:
        raise ModelFileError(
            expected=f"finite scales in tensor {tensor_name!r}",
            found=f"a NaN or infinite scale in block {block} ({kind.name})",
            remedy="The file is damaged or was converted wrongly; fetch or convert it again.",
        )


def find_nonfinite_scale(kind: QuantType, data: NDArray[np.uint8]) -> int | None:
    """The index of the first block with a NaN or infinite scale, or None."""
    blocks = data.reshape(-1, kind.block_bytes)
    for start in range(0, len(blocks), SLICE_BLOCKS):
        part = blocks[start : start + SLICE_BLOCKS]
        bad = [_first_nonfinite(part, field) for field in SCALE_FIELDS[kind.ggml_id]]
        found = [block for block in bad if block is not None]
        if found:
            return start + min(found)
    return None


def _first_nonfinite(blocks: NDArray[np.uint8], field: ScaleField) -> int | None:
    """``blocks``: uint8 ``[blocks, block_bytes]``."""
    raw = blocks[:, field.offset : field.offset + field.width]
    values = np.ascontiguousarray(raw).view(f"<u{field.width}").ravel()
    nonfinite = values & field.exponent == field.exponent
    return int(nonfinite.argmax()) if nonfinite.any() else None
