"""Weights of the reference backend, dequantised to float32 when they are used."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from slipstream.gguf import GGUFFile
from slipstream.graph import Weight
from slipstream.models.base import weight_data
from slipstream.quants import quant_type

Floats = NDArray[np.float32]

KEPT_BYTES: Final = 768 << 20
"""Dequantised weights kept between steps: all of a 135M model in float32."""


class ReferenceWeights:
    """Tensors of a file, dequantised when used.

    A step reads every weight once, in one order, so a cache that evicts the oldest would never
    hit; this one keeps the first that fit.
    """

    def __init__(self, file: GGUFFile, step_bytes: int, kept_bytes: int = KEPT_BYTES) -> None:
        self.file = file
        self.step_bytes = step_bytes
        self.resident_bytes = 0
        self._kept_bytes = kept_bytes
        self._kept: dict[tuple[str, int, int], Floats] = {}

    def vector(self, weight: Weight) -> Floats:
        """float32 ``[columns]``."""
        vector: Floats = self.rows(weight, 0, 1)[0]
        return vector

    def rows(self, weight: Weight, first: int, count: int) -> Floats:
        """float32 ``[count, columns]``."""
        key = (weight.name, weight.start + first, count)
        found = self._kept.get(key)
        if found is None:
            packed = self._packed(weight)[first : first + count]
            kind = quant_type(weight.type_id, weight.name)
            found = kind.dequantize_rows(packed, count, weight.columns)
            if self.resident_bytes + found.nbytes <= self._kept_bytes:
                self._kept[key] = found
                self.resident_bytes += found.nbytes
        return found

    def chosen_rows(self, weight: Weight, indices: NDArray[np.int32]) -> Floats:
        """float32 ``[len(indices), columns]``, never kept."""
        kind = quant_type(weight.type_id, weight.name)
        packed = self._packed(weight)[indices]
        return kind.dequantize_rows(packed, len(indices), weight.columns)

    def _packed(self, weight: Weight) -> NDArray[np.uint8]:
        return weight_data(self.file, weight).reshape(weight.rows, -1)
