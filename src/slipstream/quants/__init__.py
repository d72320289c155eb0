"""GGML tensor types: one module each, with its block layout and NumPy dequantiser (the oracle)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from slipstream.errors import UnsupportedError
from slipstream.quants import (
    bf16,
    f16,
    f32,
    iq4_nl,
    iq4_xs,
    mxfp4,
    q2_k,
    q3_k,
    q4_0,
    q4_1,
    q4_k,
    q5_0,
    q5_1,
    q5_k,
    q6_k,
    q8_0,
)
from slipstream.quants.base import QuantType
from slipstream.quants.fields import ScaleField
from slipstream.quants.layouts import OTHER_LAYOUTS, TypeLayout

__all__ = [
    "OTHER_LAYOUTS",
    "QUANT_TYPES",
    "SCALE_FIELDS",
    "QuantType",
    "TypeLayout",
    "quant_type",
    "type_layout",
    "type_name",
]

_MODULES = (
    *(f32, f16, bf16),
    *(q4_0, q4_1, q5_0, q5_1, q8_0),
    *(q2_k, q3_k, q4_k, q5_k, q6_k),
    *(iq4_nl, iq4_xs, mxfp4),
)

QUANT_TYPES: Mapping[int, QuantType] = MappingProxyType(
    {module.TYPE.ggml_id: module.TYPE for module in _MODULES}
)
"""The types Slipstream runs, by GGML id."""

SCALE_FIELDS: Mapping[int, tuple[ScaleField, ...]] = MappingProxyType(
    {module.TYPE.ggml_id: module.SCALES for module in _MODULES}
)
"""The floating-point fields of a block of each of them."""


def quant_type(type_id: int, tensor_name: str) -> QuantType:
    """The type of a tensor that is about to be used.

    Raises:
        UnsupportedError: Slipstream does not run this type; names the tensor.
    """
    found = QUANT_TYPES.get(type_id)
    if found is None:
        raise _unsupported(type_id, tensor_name)
    return found


def type_layout(type_id: int, tensor_name: str) -> TypeLayout:
    """The block layout of any GGML type, run or not.

    Raises:
        UnsupportedError: the id is in no known table, so not even the tensor's size is known.
    """
    known = QUANT_TYPES.get(type_id)
    if known is not None:
        return TypeLayout(known.name, known.block_elements, known.block_bytes)
    if type_id not in OTHER_LAYOUTS:
        raise _unsupported(type_id, tensor_name)
    return OTHER_LAYOUTS[type_id]


def type_name(type_id: int) -> str:
    """The GGML name of a type in lower case, or ``unknown`` for an id in no known table."""
    known = QUANT_TYPES.get(type_id) or OTHER_LAYOUTS.get(type_id)
    return known.name if known is not None else "unknown"


def _unsupported(type_id: int, tensor_name: str) -> UnsupportedError:
    supported = ", ".join(kind.name for kind in QUANT_TYPES.values())
    return UnsupportedError(
        expected=f"tensor {tensor_name!r} to have one of the types {supported}",
        found=f"type {type_name(type_id)} (id {type_id})",
        remedy="Convert the model to one of the supported types.",
    )
