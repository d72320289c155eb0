"""Block sizes of every GGML tensor type, so that files holding types we do not run can be listed.

Source: the type table of ``ggml.h`` and the block structs of ``ggml-common.h``. Missing ids (4, 5,
31-33, 36-38) were removed from the format.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class TypeLayout:
    """How a tensor type is stored.

    Attributes:
        name: the GGML name in lower case.
        block_elements: weights in one block along the input dimension.
        block_bytes: bytes of one block.
    """

    name: str
    block_elements: int
    block_bytes: int


OTHER_LAYOUTS: Mapping[int, TypeLayout] = MappingProxyType(
    {
        9: TypeLayout("q8_1", 32, 36),
        15: TypeLayout("q8_k", 256, 292),
        16: TypeLayout("iq2_xxs", 256, 66),
        17: TypeLayout("iq2_xs", 256, 74),
        18: TypeLayout("iq3_xxs", 256, 98),
        19: TypeLayout("iq1_s", 256, 50),
        21: TypeLayout("iq3_s", 256, 110),
        22: TypeLayout("iq2_s", 256, 82),
        24: TypeLayout("i8", 1, 1),
        25: TypeLayout("i16", 1, 2),
        26: TypeLayout("i32", 1, 4),
        27: TypeLayout("i64", 1, 8),
        28: TypeLayout("f64", 1, 8),
        29: TypeLayout("iq1_m", 256, 56),
        34: TypeLayout("tq1_0", 256, 54),
        35: TypeLayout("tq2_0", 256, 66),
        40: TypeLayout("nvfp4", 64, 36),
        41: TypeLayout("q1_0", 128, 18),
        42: TypeLayout("q2_0", 64, 18),
    }
)
