"""The sampling primitives of the native core."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

_native: Any = import_module("slipstream._native")
Row = NDArray[np.float32]


class NativePrimitives:
    """One row at a time, in C++; ``sampling.NumpyPrimitives`` is the slow twin.

    Args:
        isa: an instruction-set level of this processor; the results do not depend on it.
    """

    name = "native"

    def __init__(self, isa: str) -> None:
        self.isa = isa

    def argmax(self, row: Row) -> int:
        return int(_native.argmax(row, self.isa))

    def log_sum_exp(self, row: Row) -> float:
        return float(_native.log_sum_exp(row, self.isa))

    def sample(
        self,
        row: Row,
        temperature: float,
        top_k: int,
        top_p: float,
        min_p: float,
        seed: int,
        index: int,
    ) -> int:
        filters = (top_k, top_p, min_p)
        return int(_native.sample(row, temperature, *filters, seed, index, self.isa))
