"""What every architecture reads and builds: sizes, refusals, projections, the output head."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from slipstream.errors import ModelFileError, UnsupportedError
from slipstream.gguf import GGUFFile
from slipstream.graph import Activation, GraphBuilder, Value, Weight
from slipstream.quants import quant_type

REFUSED_WHEN_SET: Final = {
    "expert_count": "a mixture of experts",
    "attn_logit_softcapping": "soft-capped attention scores",
    "logit_scale": "scaled logits",
    "embedding_scale": "a scaled embedding",
    "residual_scale": "scaled residuals",
    "attention.clamp_kqv": "clamped queries, keys and values",
    "attention.max_alibi_bias": "ALiBi position biases",
    "attention.temperature_scale": "position-dependent query scaling",
    "rope.dimension_count_swa": "another rotary width in window layers",
    "attention.key_length_swa": "another head width in window layers",
    "embedding_length_per_layer_input": "per-layer embeddings",
    "attention.shared_kv_layers": "layers that share keys and values",
    "nextn_predict_layers": "multi-token prediction layers",
    "vision.block_count": "multimodal input",
    "audio.block_count": "multimodal input",
    "pooling_type": "an embedding model",
}
"""Keys (after ``<architecture>.``) whose non-zero value asks for a computation that is not run."""


@dataclass(frozen=True)
class ModelShape:
    """Sizes of a decoder, from the metadata of its file.

    Attributes:
        width: residual stream width.
        layers: decoder layers.
        heads, kv_heads: query heads, key/value heads.
        head_dim: width of one head of queries, keys and values.
        rotary_width: leading elements of a head that rotate.
        feed_forward: inner width of the feed-forward network.
        epsilon: added to the mean square in RMS norms.
        context: positions the model was trained for.
    """

    width: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    rotary_width: int
    feed_forward: int
    epsilon: float
    context: int

    @property
    def attention_width(self) -> int:
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        return self.kv_heads * self.head_dim


def key(file: GGUFFile, name: str) -> str:
    """The full metadata key of an architecture's own value."""
    return f"{file.get_string('general.architecture')}.{name}"


def read_shape(file: GGUFFile) -> ModelShape:
    """The sizes in the metadata, checked against each other.

    Raises:
        ModelFileError: a key is missing, of another type, or out of range.
        UnsupportedError: the metadata asks for something that is not run.
    """
    refuse_unsupported(file)
    width, heads = _positive(file, "embedding_length"), _positive(file, "attention.head_count")
    kv_heads = _positive(file, "attention.head_count_kv", heads)
    head_dim = _positive(file, "attention.key_length", max(1, width // heads))
    shape = ModelShape(
        width=width,
        layers=_positive(file, "block_count"),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        rotary_width=_positive(file, "rope.dimension_count", head_dim),
        feed_forward=_positive(file, "feed_forward_length"),
        epsilon=positive_float(file, "attention.layer_norm_rms_epsilon"),
        context=_positive(file, "context_length"),
    )
    _check_shape(file, shape)
    return shape


def refuse_unsupported(file: GGUFFile) -> None:
    """Raise for metadata that changes the computation in a way that is not run."""
    for name, feature in REFUSED_WHEN_SET.items():
        value = file.metadata.get(key(file, name), 0)
        if not isinstance(value, bool | int | float) or value != 0:
            raise _unsupported(f"no {feature}", f"{key(file, name)} = {value!r:.80}")
    if not file.get_bool(key(file, "attention.causal"), True):
        raise _unsupported("a causal decoder", f"{key(file, 'attention.causal')} = False")


def refuse_window(file: GGUFFile, shape: ModelShape) -> None:
    """Raise for a sliding window below the context, in an architecture run without windows."""
    window = file.get_int(key(file, "attention.sliding_window"), 0)
    if window != 0 and window < shape.context:
        found = f"{key(file, 'attention.sliding_window')} = {window}, context {shape.context}"
        raise _unsupported("attention over the whole context", found)


def _check_shape(file: GGUFFile, shape: ModelShape) -> None:
    value_length = file.get_int(key(file, "attention.value_length"), shape.head_dim)
    if value_length != shape.head_dim:
        expected = f"values as wide as keys ({shape.head_dim})"
        raise _unsupported(expected, f"{key(file, 'attention.value_length')} = {value_length}")
    if shape.heads % shape.kv_heads:
        found = f"{shape.heads} over {shape.kv_heads}"
        raise _contradiction("query heads to be a multiple of key/value heads", found)
    if shape.rotary_width % 2 or shape.rotary_width > shape.head_dim:
        expected = f"an even rotary width of at most {shape.head_dim}"
        raise _contradiction(expected, f"{shape.rotary_width}")


def _positive(file: GGUFFile, name: str, default: int | None = None) -> int:
    full = key(file, name)
    value = file.get_int(full) if default is None else file.get_int(full, default)
    if not 0 < value < 2**31:
        raise _contradiction(f"metadata key {full!r} to be from 1 to 2147483647", f"{value}")
    return value


def positive_float(file: GGUFFile, name: str, default: float | None = None) -> float:
    """A metadata float that must be above zero.

    Raises:
        ModelFileError: the key is missing without a default, of another type or not positive.
    """
    full = key(file, name)
    value = file.get_float(full) if default is None else file.get_float(full, default)
    if value <= 0:
        raise _contradiction(f"metadata key {full!r} to be above 0", f"{value}")
    return value


def _contradiction(expected: str, found: str) -> ModelFileError:
    return ModelFileError(expected, found, "The file's metadata is wrong; convert it again.")


def _unsupported(expected: str, found: str) -> UnsupportedError:
    return UnsupportedError(expected, found, "Slipstream does not run this kind of model.")


@dataclass(frozen=True)
class Layer:
    """Names and shapes of one decoder layer's tensors, ``blk.<index>.*``."""

    graph: GraphBuilder
    shape: ModelShape
    index: int

    def norm(self, x: Value, name: str, group_width: int | None = None) -> Value:
        """RMS norm over the row, or over each group of ``group_width`` elements (a head)."""
        group_width = group_width or x.width
        full = f"blk.{self.index}.{name}.weight"
        weight = self.graph.weight(full, rows=1, columns=group_width)
        return self.graph.rms_norm(x, weight, self.shape.epsilon, group_width)

    def linear(self, x: Value, name: str, width: int) -> Value:
        """Projection to ``width``, with its bias when the file has one."""
        full = f"blk.{self.index}.{name}"
        weight = self.graph.weight(f"{full}.weight", rows=width, columns=x.width)
        return self.graph.linear(x, weight, self.graph.optional(f"{full}.bias", columns=width))

    def query_key_value(self, x: Value) -> tuple[Value, Value, Value]:
        """The three projections, from separate tensors or from row ranges of ``attn_qkv``."""
        shape = self.shape
        fused = f"blk.{self.index}.attn_qkv.weight"
        if not self.graph.has(fused):
            return (
                self.linear(x, "attn_q", shape.attention_width),
                self.linear(x, "attn_k", shape.kv_width),
                self.linear(x, "attn_v", shape.kv_width),
            )
        rows = shape.attention_width + 2 * shape.kv_width
        whole = self.graph.weight(fused, rows=rows, columns=x.width)
        first_key, first_value = shape.attention_width, shape.attention_width + shape.kv_width
        query = replace(whole, rows=shape.attention_width)
        keys = replace(whole, rows=shape.kv_width, start=first_key)
        values = replace(whole, rows=shape.kv_width, start=first_value)
        return self.graph.linear(x, query), self.graph.linear(x, keys), self.graph.linear(x, values)

    def feed_forward(self, x: Value, activation: Activation) -> Value:
        """down(activation(gate(x)) * up(x))."""
        gate = self.linear(x, "ffn_gate", self.shape.feed_forward)
        up = self.linear(x, "ffn_up", self.shape.feed_forward)
        return self.linear(self.graph.gated(gate, up, activation), "ffn_down", self.shape.width)


def embedding(graph: GraphBuilder, shape: ModelShape) -> Weight:
    """The token embedding, ``[vocabulary, width]``."""
    return graph.weight("token_embd.weight", columns=shape.width)


def output_head(graph: GraphBuilder, shape: ModelShape, hidden: Value) -> Value:
    """Final norm, then logits of the asked rows; without ``output.weight`` the head is tied."""
    weight = graph.weight("output_norm.weight", rows=1, columns=shape.width)
    normed = graph.rms_norm(hidden, weight, shape.epsilon)
    graph.output("final_norm", normed)
    tied = embedding(graph, shape)
    head = tied
    if graph.has("output.weight"):
        head = graph.weight("output.weight", rows=tied.rows, columns=tied.columns)
    bias = graph.optional("output.bias", columns=tied.rows)
    return graph.linear(graph.gather(normed), head, bias)


def attention_scale(head_dim: int) -> float:
    """1 / sqrt(head_dim) (Vaswani et al. 2017, section 3.2.1)."""
    return 1.0 / math.sqrt(head_dim)


def weight_data(file: GGUFFile, weight: Weight) -> NDArray[np.uint8]:
    """The bytes of a weight, uint8 ``[rows * bytes of a row]``, its part of the tensor only."""
    row_bytes = quant_type(weight.type_id, weight.name).row_bytes(weight.columns)
    data = file.data(weight.name)
    return data[weight.start * row_bytes : (weight.start + weight.rows) * row_bytes]
