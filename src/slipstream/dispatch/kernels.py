"""The CPU kernels that dispatch chooses among, named as the native program counts them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Protocol

from slipstream.dispatch.policy import Policy, Status
from slipstream.dispatch.structure import activation_planes
from slipstream.graph import (
    Add,
    Attention,
    Embed,
    Gated,
    Gather,
    Input,
    Linear,
    Op,
    Output,
    RmsNorm,
    Rope,
    Scale,
    Softcap,
    Weight,
)
from slipstream.options import KvType, Precision
from slipstream.quants import QUANT_TYPES, quant_type, type_name

F32: Final = 0


class Kernel(Protocol):
    """A way to run some ops.

    ``eligible`` gives the reason why an op cannot run (hard; empty when the kernel is for other
    ops), or None; ``preferred`` says whether the kernel is meant for a row count (soft).
    ``stored`` is the GGML id that the op's matrix has in memory, None for an op without one.
    """

    @property
    def name(self) -> str: ...

    @property
    def status(self) -> Status: ...

    def eligible(self, op: Op) -> str | None: ...

    def preferred(self, op: Op, rows: int) -> bool: ...

    def reason(self, op: Op, rows: int) -> str: ...

    def stored(self, op: Op) -> int | None: ...


Weighted = Linear | Embed
"""Ops whose kernel depends on the type of a matrix."""
FAMILIES: Final[Mapping[type, str]] = MappingProxyType({Linear: "matmul", Embed: "embed"})


@dataclass(frozen=True)
class NativeType:
    """Products with a matrix, or its rows, in the type that the file has.

    A matrix is repacked into strips of 16 output rows; rows beyond the pass size of the level
    (``PASS_ROWS``) are further passes over the same chunk of a strip. ``preferred`` does not
    depend on the row count: ``ManyRows`` comes before it where that is meant.
    At a16 a row of activations is two int8 planes, hence two rows of the same kernel.
    """

    kind: type[Weighted]
    isa: str
    status: Status
    type_id: int
    precision: Precision = "a8"

    @property
    def name(self) -> str:
        planes = "-a16" if self.kind is Linear and self._planes == 2 else ""
        return f"{FAMILIES[self.kind]}/{type_name(self.type_id)}{planes}/{self.isa}"

    @property
    def _planes(self) -> int:
        return activation_planes(self.type_id, self.precision)

    def eligible(self, op: Op) -> str | None:
        if not isinstance(op, self.kind) or op.weight.type_id != self.type_id:
            return ""
        return block_mismatch(op.weight)

    def preferred(self, op: Op, rows: int) -> bool:  # noqa: ARG002
        return True

    def reason(self, op: Op, rows: int) -> str:  # noqa: ARG002
        if isinstance(op, Embed):
            return "native type; row by row"
        return f"native type; {_activations(self.type_id, self.precision)}; " + _passes(
            self.isa, self.type_id, self._planes
        )

    def stored(self, op: Op) -> int | None:  # noqa: ARG002
        return self.type_id


@dataclass(frozen=True)
class ManyRows:
    """Products over the same strips for a prompt: all rows of a block share each chunk of K.

    A block is 64 rows, 32 at a16 (their two planes are 64 rows of the kernel). AVX2, AVX-VNNI and
    both NEON levels unpack a chunk once for the whole block, except for Q8_0, whose codes need no
    unpacking, IQ4_NL and IQ4_XS: these, and every type on portable and AVX-512, are unpacked in
    each pass from a chunk that stays in the cache (``native/kernels/rows.hh``).
    """

    isa: str
    status: Status
    type_id: int
    precision: Precision = "a8"

    @property
    def name(self) -> str:
        planes = "-a16" if activation_planes(self.type_id, self.precision) > 1 else ""
        return f"matmul_many/{type_name(self.type_id)}{planes}/{self.isa}"

    def eligible(self, op: Op) -> str | None:
        if not isinstance(op, Linear) or op.weight.type_id != self.type_id:
            return ""
        return block_mismatch(op.weight)

    def preferred(self, op: Op, rows: int) -> bool:  # noqa: ARG002
        return rows >= MANY_ROWS

    def reason(self, op: Op, rows: int) -> str:  # noqa: ARG002
        among = PASS_ROWS[self.isa][1]
        shared = f"passes of at most {among} rows share each chunk of a strip"
        return f"native type; {_activations(self.type_id, self.precision)}; {shared}"

    def stored(self, op: Op) -> int | None:  # noqa: ARG002
        return self.type_id


@dataclass(frozen=True)
class Expanded:
    """The same for a type without native kernels, expanded to float32 at load."""

    kind: type[Weighted]
    isa: str
    status: Status
    native_types: frozenset[int]

    @property
    def name(self) -> str:
        return f"{FAMILIES[self.kind]}/{type_name(F32)}/{self.isa}"

    def eligible(self, op: Op) -> str | None:
        if not isinstance(op, self.kind) or op.weight.type_id in self.native_types:
            return ""
        if F32 not in self.native_types or op.weight.type_id not in QUANT_TYPES:
            return f"type {type_name(op.weight.type_id)} has no native kernel"
        return block_mismatch(op.weight)

    def preferred(self, op: Op, rows: int) -> bool:  # noqa: ARG002
        return False

    def reason(self, op: Op, rows: int) -> str:  # noqa: ARG002
        found = type_name(op.weight.type_id) if isinstance(op, Weighted) else "this op"
        return f"no native kernel for {found}: expanded to f32 at load"

    def stored(self, op: Op) -> int | None:  # noqa: ARG002
        return F32


MANY_ROWS: Final = 17
"""First row count of the last row class, where several groups of 16 rows share a chunk."""
PASS_ROWS: Final[Mapping[str, tuple[int, int, int]]] = MappingProxyType(
    {
        "portable": (2, 2, 2),
        "avx2": (6, 4, 6),
        "avx_vnni": (6, 4, 6),
        "avx512": (8, 8, 8),
        "neon": (6, 6, 6),
        "neon_i8mm": (6, 6, 6),
    }
)
"""Most rows of a pass (native/isa/dot_*.hh): alone, among several, of a float type."""


def _activations(type_id: int, precision: Precision) -> str:
    if quant_type(type_id, "").block_elements == 1:
        return "float weights take float32 activations at any precision"
    if precision == "a8":
        return "a8: int8 activations"
    return "a16: activations are two int8 planes, so each row counts as two"


def _passes(isa: str, type_id: int, planes: int) -> str:
    alone, among, floats = PASS_ROWS[isa]
    if quant_type(type_id, "").block_elements == 1:
        alone = among = floats
    rows = "rows" if planes == 1 else "such rows"
    return (
        f"up to {alone} {rows} in one pass; more rows are passes of at most {among} "
        "over the same strip while it is in cache"
    )


ROW_LOCAL: Final[Mapping[type, str]] = MappingProxyType(
    {
        RmsNorm: "rms_norm",
        Rope: "rope",
        Gated: "gated",
        Add: "add",
        Scale: "scale",
        Softcap: "softcap",
        Attention: "attention",
    }
)
"""Ops with one kernel on every level; attention has one for each way to keep keys and values."""
COPIES: Final[Mapping[type, str]] = MappingProxyType(
    {Input: "input", Gather: "gather", Output: "output"}
)
"""Ops that only copy, outside the kernel tables."""


BOOKKEEPING: Final = frozenset({"prepare", "store_keys", "rope_table"})
"""Families that the native program counts beside the kernels: steps of a planned op."""


def attention_path(isa: str, kv_type: KvType) -> str:
    """The kernel path of attention to keys and values kept as ``kv_type``."""
    kept = "" if kv_type == "f16" else f"-{kv_type}"
    return f"{ROW_LOCAL[Attention]}{kept}/{isa}"


def is_planned(path: str) -> bool:
    """Whether dispatch chose a path that ``Program.observed`` names."""
    return path.partition("/")[0] not in BOOKKEEPING


@dataclass(frozen=True)
class OnlyKernel:
    """The one kernel of an op kind."""

    kind: type
    name: str
    status: Status

    def eligible(self, op: Op) -> str | None:
        return None if isinstance(op, self.kind) else ""

    def preferred(self, op: Op, rows: int) -> bool:  # noqa: ARG002
        return True

    def reason(self, op: Op, rows: int) -> str:  # noqa: ARG002
        if isinstance(op, Attention):
            return "logical keys in order, split every 256 positions"
        return "a copy" if type(op) in COPIES else "row by row"

    def stored(self, op: Op) -> int | None:  # noqa: ARG002
        return None


def block_mismatch(weight: Weight) -> str | None:
    """Why a weight's rows are not whole blocks, or None."""
    block = quant_type(weight.type_id, weight.name).block_elements
    if weight.columns % block:
        return f"rows of {weight.columns} are not a multiple of {block}"
    return None


def cpu_kernels(
    isa: str,
    native_types: Collection[int],
    policy: Policy,
    precision: Precision = "a8",
    kv_type: KvType = "f16",
) -> tuple[Kernel, ...]:
    """The kernels of one instruction-set level, in order of preference."""
    status, types = policy.levels[isa], frozenset(native_types)
    kinds: tuple[type[Weighted], ...] = (Linear, Embed)
    blocks = (type_id for type_id in sorted(types) if quant_type(type_id, "").block_elements > 1)
    rows = {kind: f"{name}/{isa}" for kind, name in ROW_LOCAL.items()}
    rows[Attention] = attention_path(isa, kv_type)
    return (
        *(ManyRows(isa, status, type_id, precision) for type_id in blocks),
        *(
            NativeType(kind, isa, status, type_id, precision)
            for kind in kinds
            for type_id in sorted(types)
        ),
        *(Expanded(kind, isa, status, types) for kind in kinds),
        *(OnlyKernel(kind, name, status) for kind, name in {**rows, **COPIES}.items()),
    )
