"""What an op reads, writes and multiplies by: the structure that rewrites and backends look at."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields

from slipstream.graph import (
    Attention,
    Embed,
    GatedLinear,
    Graph,
    Input,
    Linear,
    LinearGroup,
    Op,
    Output,
    Value,
    Weight,
)
from slipstream.quants import quant_type


def reads(op: Op) -> tuple[Value, ...]:
    """Values that an op reads, with repetition (``a + a`` reads ``a`` twice)."""
    if isinstance(op, LinearGroup):
        residuals = (member.residual for member in op.members)
        return (op.x, *(value for value in residuals if value is not None))
    named = ((field.name, getattr(op, field.name)) for field in fields(op))
    return tuple(value for name, value in named if name != "out" and isinstance(value, Value))


def writes(op: Op) -> tuple[Value, ...]:
    """Values that an op writes; an ``Output`` writes none."""
    if isinstance(op, LinearGroup):
        return tuple(member.out for member in op.members)
    out = getattr(op, "out", None)
    return () if out is None else (out,)


def matrices(op: Op) -> tuple[Weight, ...]:
    """Weights that an op multiplies its input by."""
    if isinstance(op, Linear):
        return (op.weight,)
    if isinstance(op, GatedLinear):
        return (op.gate, op.up)
    if isinstance(op, LinearGroup):
        return tuple(member.weight for member in op.members)
    return ()


def reader_counts(graph: Graph) -> Counter[int]:
    """Value index -> how many times it is read."""
    return Counter(value.index for op in graph.ops for value in reads(op))


def activation_planes(type_id: int, precision: str) -> int:
    """Int8 planes that one row is multiplied as: two of a16, none (so 1 row) of float weights."""
    return 2 if precision == "a16" and quant_type(type_id, "").block_elements > 1 else 1


def describe(op: Op) -> str:
    """A name for an op in a plan: its weight where it has one, else its layer or what it writes."""
    if isinstance(op, Linear | Embed):
        return op.weight.name
    if isinstance(op, Attention):
        return f"layer {op.layer}" + (f", window {op.window}" if op.window else "")
    if isinstance(op, Output | Input):
        return op.name
    return ", ".join(f"value {value.index} [{value.width}]" for value in writes(op))
