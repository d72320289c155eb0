"""The contract of a GGML tensor type: its block layout and its NumPy dequantiser (the oracle)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Dequantize = Callable[[NDArray[np.uint8]], NDArray[np.float32]]


@dataclass(frozen=True)
class QuantType:
    """One GGML tensor type.

    Attributes:
        name: the GGML name in lower case, such as ``q4_k``.
        ggml_id: the integer that a GGUF file stores.
        block_elements: weights in one block along the input dimension.
        block_bytes: bytes of one block.
        dequantize: uint8 ``[blocks, block_bytes]`` -> float32 ``[blocks, block_elements]``.
    """

    name: str
    ggml_id: int
    block_elements: int
    block_bytes: int
    dequantize: Dequantize

    def row_bytes(self, elements: int) -> int:
        """Bytes of a row of ``elements`` weights; ``elements`` is a multiple of the block."""
        return elements // self.block_elements * self.block_bytes

    def dequantize_rows(
        self, data: NDArray[np.uint8], rows: int, columns: int
    ) -> NDArray[np.float32]:
        """Flat bytes -> float32 ``[rows, columns]``."""
        blocks = data.reshape(-1, self.block_bytes)
        return self.dequantize(blocks).reshape(rows, columns)
