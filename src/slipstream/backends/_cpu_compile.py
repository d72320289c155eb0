"""From a graph to a native program: one builder call per op."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from slipstream import _native
from slipstream.backends._cpu_weights import CpuWeights
from slipstream.errors import BackendError
from slipstream.graph import (
    Activation,
    Add,
    Attention,
    Embed,
    Gated,
    GatedLinear,
    Gather,
    Graph,
    Input,
    Linear,
    LinearGroup,
    Op,
    Output,
    RmsNorm,
    Rope,
    Scale,
    Softcap,
    Value,
    Weight,
)
from slipstream.memory.attention import AttentionMemory
from slipstream.options import KvType

_ACTIVATIONS: Final[Mapping[Activation, _native.Activation]] = {
    "silu": _native.Activation.silu,
    "gelu_tanh": _native.Activation.gelu_tanh,
}


_KV_TYPES: Final[Mapping[KvType, _native.KvType]] = {
    "f16": _native.KvType.f16,
    "q8_0": _native.KvType.q8_0,
}


class Compiler:
    """Builds one program.

    Attributes:
        inputs: names of the vector inputs, in the order the native program takes them.
        outputs: values of the outputs, likewise.
    """

    def __init__(self, weights: CpuWeights, memory: AttentionMemory, isa: str) -> None:
        self._weights = weights
        self._memory = memory
        self._builder = _native.ProgramBuilder(isa, weights.plan.precision)
        self._numbers: dict[int, int] = {}
        self.inputs: list[str] = []
        self.outputs: dict[str, Value] = {}

    def compile(self, graph: Graph, pool: _native.Pool) -> _native.Program:
        """Raises:
        BackendError: the weights or the memory belong to another graph.
        """
        for group in self._memory.groups:
            self._builder.group(group.keys, group.values, _KV_TYPES[group.kv_type])
        for op in graph.ops:
            try:
                build: Callable[[Compiler, Any], None] = _BUILD[type(op)]
                build(self, op)
            except (KeyError, ValueError) as error:
                raise BackendError(
                    f"weights and a memory that fit the graph's {type(op).__name__}",
                    str(error),
                    "Load the weights and make the memory from the graph that is compiled.",
                ) from error
        return _native.Program(pool, self._builder)

    def embed(self, op: Embed) -> None:
        matrix = self._weights.matrices.get(op.weight)
        if matrix is not None:
            self._builder.embed_packed(self._new(op.out), matrix, op.scale)
        else:
            source = self._weights.embeddings[op.weight]
            self._builder.embed_source(self._new(op.out), source, op.scale)

    def input(self, op: Input) -> None:
        self._builder.input(self._new(op.out), op.name)
        self.inputs.append(op.name)

    def rms_norm(self, op: RmsNorm) -> None:
        weight = None if op.weight is None else self._weights.vectors[op.weight]
        x, out = self._number(op.x), self._new(op.out)
        self._builder.rms_norm(out, x, weight, op.epsilon, op.group_width)

    def linear(self, op: Linear) -> None:
        self._builder.linear_group(self._number(op.x), [self._member(op)])

    def linear_group(self, op: LinearGroup) -> None:
        members = [self._member(member) for member in op.members]
        self._builder.linear_group(self._number(op.x), members)

    def gated_linear(self, op: GatedLinear) -> None:
        gate, up = self._matrix(op.gate), self._matrix(op.up)
        x, out = self._number(op.x), self._new(op.out)
        self._builder.gated_linear(out, x, gate, up, _ACTIVATIONS[op.activation])

    def gated(self, op: Gated) -> None:
        gate, up = self._number(op.gate), self._number(op.up)
        self._builder.gated(self._new(op.out), gate, up, _ACTIVATIONS[op.activation])

    def rope(self, op: Rope) -> None:
        table, x, out = op.table, self._number(op.x), self._new(op.out)
        self._builder.rope(
            out,
            x,
            op.heads,
            op.head_dim,
            table.kind == "neox",
            table.rotary_width,
            table.frequencies,
            table.magnitude,
        )

    def attention(self, op: Attention) -> None:
        group, layer = self._memory.place(op.layer)
        query, key, value = (self._number(operand) for operand in (op.query, op.key, op.value))
        self._builder.attention(
            self._new(op.out),
            query,
            key,
            value,
            group,
            layer,
            op.heads,
            op.kv_heads,
            op.head_dim,
            op.scale,
            op.window or 0,
        )

    def add(self, op: Add) -> None:
        a, b = self._number(op.a), self._number(op.b)
        self._builder.add(self._new(op.out), a, b)

    def scale(self, op: Scale) -> None:
        self._builder.scale(self._new(op.out), self._number(op.x), op.factor)

    def softcap(self, op: Softcap) -> None:
        self._builder.softcap(self._new(op.out), self._number(op.x), op.cap)

    def gather(self, op: Gather) -> None:
        self._builder.gather(self._new(op.out), self._number(op.x))

    def output(self, op: Output) -> None:
        self._builder.output(op.name, self._number(op.x))
        self.outputs[op.name] = op.x

    def _new(self, value: Value) -> int:
        number = self._builder.value(value.width, value.row_set == "all")
        self._numbers[value.index] = number
        return number

    def _number(self, value: Value) -> int:
        return self._numbers[value.index]

    def _matrix(self, weight: Weight) -> _native.Matrix:
        return self._weights.matrices[weight]

    def _member(self, op: Linear) -> _native.Member:
        bias = None if op.bias is None else self._weights.vectors[op.bias]
        residual = None if op.residual is None else self._number(op.residual)
        return self._new(op.out), self._matrix(op.weight), bias, residual


_BUILD: Final[Mapping[type[Op], Callable[[Compiler, Any], None]]] = {
    Embed: Compiler.embed,
    Input: Compiler.input,
    RmsNorm: Compiler.rms_norm,
    Linear: Compiler.linear,
    LinearGroup: Compiler.linear_group,
    GatedLinear: Compiler.gated_linear,
    Gated: Compiler.gated,
    Rope: Compiler.rope,
    Attention: Compiler.attention,
    Add: Compiler.add,
    Scale: Compiler.scale,
    Softcap: Compiler.softcap,
    Gather: Compiler.gather,
    Output: Compiler.output,
}
