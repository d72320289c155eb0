"""The reference backend: interprets a graph in NumPy, fused or not.

Slow and short, the twin that every other backend is compared with.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final, get_args

import numpy as np

from slipstream.backends import _reference_ops as arithmetic
from slipstream.backends._reference_weights import KEPT_BYTES, Floats, ReferenceWeights
from slipstream.backends.base import Outputs, Progress, Step, Weights
from slipstream.dispatch.structure import matrices, reads
from slipstream.errors import BackendError, RequestError
from slipstream.gguf import GGUFFile
from slipstream.graph import (
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
from slipstream.memory.base import Memory
from slipstream.models.base import weight_data
from slipstream.options import Precision
from slipstream.quants import quant_type

PIECE_BYTES: Final = 64 << 20
"""Largest piece of a weight that is dequantised at once."""


class ReferenceBackend:
    """NumPy.

    Args:
        integer_activations: round the inputs of quantised mat-muls to int8 per block of 32, or of
            256 for K-quants, as the native kernels do; otherwise they stay float32.
        precision: of integer activations: a8 rounds them to int8, a16 to two int8 planes whose
            products are added.
        kept_bytes: dequantised weights kept between steps.
    """

    name = "reference"
    row_invariant: Mapping[str, bool] = {
        kind.__name__: kind not in (Linear, LinearGroup, GatedLinear, Attention)
        for kind in get_args(Op)
    }

    def __init__(
        self,
        *,
        integer_activations: bool = False,
        precision: Precision = "a8",
        kept_bytes: int = KEPT_BYTES,
    ) -> None:
        self.precision: str = precision if integer_activations else "float32"
        self._kept_bytes = kept_bytes

    def load(
        self,
        file: GGUFFile,
        graph: Graph,
        progress: Progress | None = None,  # noqa: ARG002  (nothing is read before it is used)
    ) -> ReferenceWeights:
        return ReferenceWeights(file, _step_bytes(file, graph), self._kept_bytes)

    def compile(self, graph: Graph, weights: Weights, memory: Memory) -> ReferenceProgram:
        """Bind a graph to weights and a memory.

        Raises:
            BackendError: the weights are another backend's or the memory is not paged attention.
        """
        if not isinstance(weights, ReferenceWeights) or not isinstance(memory, AttentionMemory):
            raise BackendError(
                "weights that the reference backend loaded, and an attention memory",
                f"{type(weights).__name__} and {type(memory).__name__}",
                "Load the weights with the backend that compiles the graph.",
            )
        return ReferenceProgram(graph, weights, memory, self.precision)


def _step_bytes(file: GGUFFile, graph: Graph) -> int:
    distinct = {weight for op in graph.ops for weight in matrices(op)}
    return sum(weight_data(file, weight).nbytes for weight in distinct)


class ReferenceProgram:
    """A graph bound to weights and a memory; ``run`` goes through its ops in order."""

    def __init__(
        self,
        graph: Graph,
        weights: ReferenceWeights,
        memory: AttentionMemory,
        precision: str,
    ) -> None:
        self.graph = graph
        self.memory: Memory = memory
        self._attention_memory = memory
        self._weights = weights
        self._precision = precision
        self._calls: Counter[str] = Counter()
        self._last_reader = {
            value.index: at for at, op in enumerate(graph.ops) for value in reads(op)
        }

    def run(self, step: Step) -> Outputs:
        """Compute all rows; keys and values are written, nothing is committed.

        Raises:
            RequestError: a token id is outside the vocabulary.
            ValueError: the step asks for an output or lacks an input of the graph.
            OutOfMemoryError: no page is free.
        """
        started = time.perf_counter()
        unknown = step.hidden - set(self.graph.outputs())
        if unknown:
            raise ValueError(f"no output is named {sorted(unknown)[0]!r}")
        pass_ = _Pass(self._weights, self._attention_memory, step, self._precision)
        # what a hostile file makes of its numbers is judged where logits are sampled
        with np.errstate(over="ignore", invalid="ignore"):
            self._run_ops(pass_)
        logits = pass_.outputs.pop("logits")
        return Outputs(logits, pass_.outputs, time.perf_counter() - started)

    def _run_ops(self, pass_: _Pass) -> None:
        for at, op in enumerate(self.graph.ops):
            pass_.run(op)
            self._calls[f"numpy:{type(op).__name__}"] += 1
            for value in reads(op):
                if self._last_reader[value.index] == at:
                    pass_.values.pop(value.index, None)

    def observed(self) -> Mapping[str, int]:
        return dict(self._calls)


class _Pass:
    """The values of one step while its ops run."""

    def __init__(
        self,
        weights: ReferenceWeights,
        memory: AttentionMemory,
        step: Step,
        precision: str,
    ) -> None:
        self.values: dict[int, Floats] = {}
        self.outputs: dict[str, Floats] = {}
        self._weights = weights
        self._memory = memory
        self._step = step
        self._precision = precision
        self._layout = memory.layout(step.sequences, step.parents)

    def run(self, op: Op) -> None:
        run: Callable[[_Pass, Any], None] = _RUN[type(op)]
        run(self, op)

    def embed(self, op: Embed) -> None:
        tokens = self._step.tokens
        if tokens is None:
            raise ValueError("the graph starts from tokens and the step has none")
        if len(tokens) and not 0 <= tokens.min() <= tokens.max() < op.weight.rows:
            raise RequestError(
                f"token ids from 0 to {op.weight.rows - 1}",
                f"ids from {tokens.min()} to {tokens.max()}",
                "Tokenise the text with this model's own tokenizer.",
            )
        rows = self._weights.chosen_rows(op.weight, tokens)
        self.values[op.out.index] = rows * np.float32(op.scale)

    def input(self, op: Input) -> None:
        vectors = self._step.vectors.get(op.name)
        if vectors is None:
            raise ValueError(f"the step lacks the input {op.name!r}")
        self.values[op.out.index] = vectors

    def rms_norm(self, op: RmsNorm) -> None:
        weight = None if op.weight is None else self._weights.vector(op.weight)
        x = self._value(op.x)
        self.values[op.out.index] = arithmetic.rms_norm(x, weight, op.epsilon, op.group_width)

    def linear(self, op: Linear) -> None:
        out = self._product(self._value(op.x), op.weight)
        if op.bias is not None:
            out += self._weights.vector(op.bias)
        if op.residual is not None:
            out += self._value(op.residual)
        self.values[op.out.index] = out

    def linear_group(self, op: LinearGroup) -> None:
        for member in op.members:
            self.linear(member)

    def gated_linear(self, op: GatedLinear) -> None:
        x = self._value(op.x)
        gate, up = self._product(x, op.gate), self._product(x, op.up)
        self.values[op.out.index] = arithmetic.gated(gate, up, op.activation)

    def gated(self, op: Gated) -> None:
        gate, up = self._value(op.gate), self._value(op.up)
        self.values[op.out.index] = arithmetic.gated(gate, up, op.activation)

    def rope(self, op: Rope) -> None:
        x, positions = self._value(op.x), self._layout.positions
        self.values[op.out.index] = arithmetic.rope(x, op.heads, positions, op.table)

    def attention(self, op: Attention) -> None:
        number, index = self._memory.place(op.layer)
        group, table = self._memory.groups[number], self._layout.tables[number]
        keys, values = group.keys[index], group.values[index]
        kind, layout = group.kv_type, self._layout
        arithmetic.store_kv(self._value(op.key), keys, kind, table, layout)
        arithmetic.store_kv(self._value(op.value), values, kind, table, layout)
        query = self._value(op.query).reshape(-1, op.heads, op.head_dim)
        scale, window = op.scale, op.window
        out = arithmetic.attention(query, keys, values, kind, table, layout, scale, window)
        self.values[op.out.index] = out.reshape(len(out), -1)

    def add(self, op: Add) -> None:
        self.values[op.out.index] = self._value(op.a) + self._value(op.b)

    def scale(self, op: Scale) -> None:
        self.values[op.out.index] = self._value(op.x) * np.float32(op.factor)

    def softcap(self, op: Softcap) -> None:
        self.values[op.out.index] = arithmetic.softcap(self._value(op.x), op.cap)

    def gather(self, op: Gather) -> None:
        self.values[op.out.index] = self._value(op.x)[self._step.logit_rows]

    def output(self, op: Output) -> None:
        if op.name == "logits" or op.name in self._step.hidden:
            self.outputs[op.name] = self._value(op.x)

    def _value(self, value: Value) -> Floats:
        return self.values[value.index]

    def _product(self, x: Floats, weight: Weight) -> Floats:
        """x @ weight.T, float32 ``[rows, weight.rows]``."""
        kind = quant_type(weight.type_id, weight.name)
        if kind.block_elements > 1:
            if self._precision == "a16":
                planes = arithmetic.round_activations_twice(x, kind.block_elements)
                out = self._plain_product(planes, weight)
                return out[::2] + out[1::2]
            if self._precision == "a8":
                x = arithmetic.round_activations(x, kind.block_elements)
        return self._plain_product(x, weight)

    def _plain_product(self, x: Floats, weight: Weight) -> Floats:
        out = np.empty((len(x), weight.rows), np.float32)
        piece = max(1, PIECE_BYTES // (4 * weight.columns))
        for first in range(0, weight.rows, piece):
            count = min(piece, weight.rows - first)
            np.matmul(x, self._weights.rows(weight, first, count).T, out[:, first : first + count])
        return out


_RUN: Final[Mapping[type, Callable[[_Pass, Any], None]]] = {
    Embed: _Pass.embed,
    Input: _Pass.input,
    RmsNorm: _Pass.rms_norm,
    Linear: _Pass.linear,
    LinearGroup: _Pass.linear_group,
    GatedLinear: _Pass.gated_linear,
    Gated: _Pass.gated,
    Rope: _Pass.rope,
    Attention: _Pass.attention,
    Add: _Pass.add,
    Scale: _Pass.scale,
    Softcap: _Pass.softcap,
    Gather: _Pass.gather,
    Output: _Pass.output,
}
