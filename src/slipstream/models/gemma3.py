"""gemma3: Gemma Team 2025 (arXiv:2503.19786). Five window layers to one that sees everything.

Norm weights hold 1 + w already: the converter adds the 1.
"""

from __future__ import annotations

import math
from typing import Final

from slipstream.errors import UnsupportedError
from slipstream.gguf import GGUFFile
from slipstream.graph import GraphBuilder, RopeTable, Value
from slipstream.models.base import (
    Layer,
    ModelShape,
    attention_scale,
    embedding,
    key,
    output_head,
    positive_float,
)
from slipstream.models.rope import (
    Scaling,
    attention_factor,
    read_scaling,
    rope_base,
    rope_table,
)

WINDOW_PATTERN: Final = 6
WINDOW_BASE: Final = 10000.0
LAYERS_OF_27B: Final = 62


def build(file: GGUFFile, graph: GraphBuilder, shape: ModelShape) -> None:
    window, period = read_window(file)
    scaling = read_scaling(file, shape)
    everywhere = rope_table("neox", shape.rotary_width, rope_base(file), scaling)
    window_base = positive_float(file, "rope.freq_base_swa", WINDOW_BASE)
    unscaled = Scaling(magnitude=attention_factor(file))
    nearby = rope_table("neox", shape.rotary_width, window_base, unscaled)
    x = graph.embed(embedding(graph, shape), scale=math.sqrt(shape.width))
    for index in range(shape.layers):
        graph.output(f"layer_input.{index}", x)
        layer = Layer(graph, shape, index)
        sees_all = window is None or index % period == period - 1
        x = decoder_layer(
            layer, x, everywhere if sees_all else nearby, None if sees_all else window
        )
    logits = output_head(graph, shape, x)
    if file.get_float(key(file, "final_logit_softcapping"), 0.0):
        logits = graph.softcap(logits, positive_float(file, "final_logit_softcapping"))
    graph.output("logits", logits)


def read_window(file: GGUFFile) -> tuple[int | None, int]:
    """Window in positions (None = every layer sees everything), layers per pattern.

    Raises:
        UnsupportedError: the pattern is given in another form than a period.
    """
    window = file.get_int(key(file, "attention.sliding_window"), 0)
    period = file.metadata.get(key(file, "attention.sliding_window_pattern"), WINDOW_PATTERN)
    wrong_window = not 0 <= window < 2**31
    if not isinstance(period, int) or isinstance(period, bool) or period < 1 or wrong_window:
        raise UnsupportedError(
            expected="a window from 0 to 2147483647 positions and a pattern of at least 1 layer",
            found=f"window {window}, pattern {period!r:.80}",
            remedy="Use a conversion of the model with these as integers.",
        )
    return (window or None), period


def query_scale(shape: ModelShape) -> float:
    """1 / sqrt(head_dim), except for 27B, whose query_pre_attn_scalar is width / heads."""
    is_27b = shape.layers == LAYERS_OF_27B
    return attention_scale(shape.width // shape.heads if is_27b else shape.head_dim)


def decoder_layer(layer: Layer, x: Value, table: RopeTable, window: int | None) -> Value:
    graph = layer.graph
    attended = self_attention(layer, layer.norm(x, "attn_norm"), table, window)
    x = graph.add(layer.norm(attended, "post_attention_norm"), x)
    fed = layer.feed_forward(layer.norm(x, "ffn_norm"), "gelu_tanh")
    return graph.add(layer.norm(fed, "post_ffw_norm"), x)


def self_attention(layer: Layer, x: Value, table: RopeTable, window: int | None) -> Value:
    graph, shape = layer.graph, layer.shape
    query, keys, values = layer.query_key_value(x)
    query = layer.norm(query, "attn_q_norm", shape.head_dim)
    keys = layer.norm(keys, "attn_k_norm", shape.head_dim)
    attended = graph.attention(
        graph.rope(query, shape.heads, shape.head_dim, table),
        graph.rope(keys, shape.kv_heads, shape.head_dim, table),
        values,
        layer=layer.index,
        heads=shape.heads,
        kv_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        scale=query_scale(shape),
        window=window,
    )
    return layer.linear(attended, "attn_output", shape.width)
