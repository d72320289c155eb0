"""The op vocabulary: one step of a model as a list of typed operations on per-row vectors.

A graph never mentions a row count. A ``Value`` is a float32 vector of ``width`` per row; its row
set is either every row of the step (``all``) or the rows whose logits were asked for (``logits``).
Models build graphs with ``GraphBuilder``; ``dispatch.fuse`` rewrites them; backends compile them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from slipstream.errors import ModelFileError

RowSet = Literal["all", "logits"]
Activation = Literal["silu", "gelu_tanh"]
RopeKind = Literal["norm", "neox"]


@dataclass(frozen=True, slots=True)
class Weight:
    """A tensor of the model file, by name: ``[rows, columns]`` = ``[out, in]``; vectors have 1 row.

    ``start`` is the first row of the tensor that is meant when the weight is a part of it (a fused
    q/k/v matrix); the bytes are those of ``models.base.weight_data``.
    """

    name: str
    type_id: int
    rows: int
    columns: int
    start: int = 0


@dataclass(frozen=True, slots=True)
class Value:
    """A float32 vector of ``width`` for each row of ``row_set``."""

    index: int
    width: int
    row_set: RowSet = "all"


@dataclass(frozen=True, slots=True)
class RopeTable:
    """Rotary embedding of one kind.

    Attributes:
        kind: ``norm`` rotates pairs (2i, 2i+1), ``neox`` pairs (i, i + rotary_width/2).
        rotary_width: leading elements of a head that rotate.
        frequencies: radians per position, one per pair (``rotary_width / 2`` of them).
        magnitude: factor on cosine and sine (YaRN's attention scaling; 1 otherwise).
    """

    kind: RopeKind
    rotary_width: int
    frequencies: tuple[float, ...]
    magnitude: float = 1.0


@dataclass(frozen=True, slots=True)
class Embed:
    """out = row ``token id`` of ``weight``, times ``scale``."""

    out: Value
    weight: Weight
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class Input:
    """out = the step's named input vectors."""

    out: Value
    name: str


@dataclass(frozen=True, slots=True)
class RmsNorm:
    """out = x / sqrt(mean(x^2) + epsilon) * weight, over each group of ``group_width`` elements."""

    out: Value
    x: Value
    weight: Weight | None
    epsilon: float
    group_width: int


@dataclass(frozen=True, slots=True)
class Linear:
    """out = weight @ x (+ bias) (+ residual)."""

    out: Value
    x: Value
    weight: Weight
    bias: Weight | None = None
    residual: Value | None = None


@dataclass(frozen=True, slots=True)
class LinearGroup:
    """Several linears of one input, sharing its quantisation (made by ``fuse`` only)."""

    x: Value
    members: tuple[Linear, ...]


@dataclass(frozen=True, slots=True)
class GatedLinear:
    """out = activation(gate @ x) * (up @ x) (made by ``fuse`` only)."""

    out: Value
    x: Value
    gate: Weight
    up: Weight
    activation: Activation


@dataclass(frozen=True, slots=True)
class Gated:
    """out = activation(gate) * up."""

    out: Value
    gate: Value
    up: Value
    activation: Activation


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotate each of ``heads`` heads of ``head_dim`` by the row's position."""

    out: Value
    x: Value
    heads: int
    head_dim: int
    table: RopeTable


@dataclass(frozen=True, slots=True)
class Attention:
    """Store key and value of the row, then attend over the row's logical keys.

    Query head h reads key/value head ``h // (heads / kv_heads)``. With a ``window``, a key is seen
    iff query position - key position < window.
    """

    out: Value
    query: Value
    key: Value
    value: Value
    layer: int
    heads: int
    kv_heads: int
    head_dim: int
    scale: float
    window: int | None = None


@dataclass(frozen=True, slots=True)
class Add:
    out: Value
    a: Value
    b: Value


@dataclass(frozen=True, slots=True)
class Scale:
    out: Value
    x: Value
    factor: float


@dataclass(frozen=True, slots=True)
class Softcap:
    """out = cap * tanh(x / cap)."""

    out: Value
    x: Value
    cap: float


@dataclass(frozen=True, slots=True)
class Gather:
    """out = the rows of x whose logits were asked for."""

    out: Value
    x: Value


@dataclass(frozen=True, slots=True)
class Output:
    """Deliver x under ``name`` when the step asks for it (``logits`` always is)."""

    name: str
    x: Value


Op = (
    Embed
    | Input
    | RmsNorm
    | Linear
    | LinearGroup
    | GatedLinear
    | Gated
    | Rope
    | Attention
    | Add
    | Scale
    | Softcap
    | Gather
    | Output
)


@dataclass(frozen=True)
class Graph:
    """One step of a model.

    Attributes:
        ops: in execution order; every value is written once, before it is read.
        architecture: GGUF architecture name.
        width: residual stream width.
        vocabulary: rows of the output head.
        context: training context of the file, in tokens.
    """

    ops: tuple[Op, ...]
    architecture: str
    width: int
    vocabulary: int
    context: int

    def outputs(self) -> dict[str, Value]:
        return {op.name: op.x for op in self.ops if isinstance(op, Output)}

    def attentions(self) -> tuple[Attention, ...]:
        return tuple(op for op in self.ops if isinstance(op, Attention))


@dataclass
class GraphBuilder:
    """Collects ops; each method appends one and returns its value.

    Args:
        weights: every tensor of the file by name.
    """

    weights: Mapping[str, Weight]
    ops: list[Op] = field(default_factory=list)
    _count: int = 0

    def has(self, name: str) -> bool:
        return name in self.weights

    def weight(self, name: str, *, rows: int | None = None, columns: int | None = None) -> Weight:
        """The named tensor, its shape checked.

        Raises:
            ModelFileError: the tensor is missing or has another shape.
        """
        found = self.weights.get(name)
        if found is None:
            raise ModelFileError(
                f"a tensor named {name!r}", "none", "Use a complete file of this architecture."
            )
        wanted = (rows or found.rows, columns or found.columns)
        if (found.rows, found.columns) != wanted:
            raise ModelFileError(
                f"tensor {name!r} of shape [{wanted[0]}, {wanted[1]}]",
                f"[{found.rows}, {found.columns}]",
                "The file's metadata and tensors disagree; convert it again.",
            )
        return found

    def optional(self, name: str, *, columns: int | None = None) -> Weight | None:
        return self.weight(name, rows=1, columns=columns) if self.has(name) else None

    def _value(self, width: int, row_set: RowSet = "all") -> Value:
        self._count += 1
        return Value(self._count - 1, width, row_set)

    def embed(self, weight: Weight, scale: float = 1.0) -> Value:
        out = self._value(weight.columns)
        self.ops.append(Embed(out, weight, scale))
        return out

    def input(self, name: str, width: int) -> Value:
        out = self._value(width)
        self.ops.append(Input(out, name))
        return out

    def rms_norm(
        self, x: Value, weight: Weight | None, epsilon: float, group_width: int | None = None
    ) -> Value:
        out = self._value(x.width, x.row_set)
        self.ops.append(RmsNorm(out, x, weight, epsilon, group_width or x.width))
        return out

    def linear(self, x: Value, weight: Weight, bias: Weight | None = None) -> Value:
        out = self._value(weight.rows, x.row_set)
        self.ops.append(Linear(out, x, weight, bias))
        return out

    def gated(self, gate: Value, up: Value, activation: Activation) -> Value:
        out = self._value(gate.width, gate.row_set)
        self.ops.append(Gated(out, gate, up, activation))
        return out

    def rope(self, x: Value, heads: int, head_dim: int, table: RopeTable) -> Value:
        out = self._value(x.width, x.row_set)
        self.ops.append(Rope(out, x, heads, head_dim, table))
        return out

    def attention(
        self,
        query: Value,
        key: Value,
        value: Value,
        *,
        layer: int,
        heads: int,
        kv_heads: int,
        head_dim: int,
        scale: float,
        window: int | None = None,
    ) -> Value:
        out = self._value(heads * head_dim)
        self.ops.append(
            Attention(out, query, key, value, layer, heads, kv_heads, head_dim, scale, window)
        )
        return out

    def add(self, a: Value, b: Value) -> Value:
        out = self._value(a.width, a.row_set)
        self.ops.append(Add(out, a, b))
        return out

    def scale(self, x: Value, factor: float) -> Value:
        out = self._value(x.width, x.row_set)
        self.ops.append(Scale(out, x, factor))
        return out

    def softcap(self, x: Value, cap: float) -> Value:
        out = self._value(x.width, x.row_set)
        self.ops.append(Softcap(out, x, cap))
        return out

    def gather(self, x: Value) -> Value:
        out = self._value(x.width, "logits")
        self.ops.append(Gather(out, x))
        return out

    def output(self, name: str, x: Value) -> None:
        self.ops.append(Output(name, x))
