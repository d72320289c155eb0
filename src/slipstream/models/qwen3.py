"""qwen3: Yang et al. 2025 (arXiv:2505.09388). RMS norm on each head of queries and keys."""

from __future__ import annotations

from slipstream.gguf import GGUFFile
from slipstream.graph import GraphBuilder, RopeTable, Value
from slipstream.models.base import (
    Layer,
    ModelShape,
    attention_scale,
    embedding,
    output_head,
    refuse_window,
)
from slipstream.models.rope import read_scaling, rope_base, rope_table


def build(file: GGUFFile, graph: GraphBuilder, shape: ModelShape) -> None:
    refuse_window(file, shape)
    scaling = read_scaling(file, shape)
    table = rope_table("neox", shape.rotary_width, rope_base(file), scaling)
    x = graph.embed(embedding(graph, shape))
    for index in range(shape.layers):
        graph.output(f"layer_input.{index}", x)
        x = decoder_layer(Layer(graph, shape, index), x, table)
    graph.output("logits", output_head(graph, shape, x))


def decoder_layer(layer: Layer, x: Value, table: RopeTable) -> Value:
    graph = layer.graph
    x = graph.add(self_attention(layer, layer.norm(x, "attn_norm"), table), x)
    return graph.add(layer.feed_forward(layer.norm(x, "ffn_norm"), "silu"), x)


def self_attention(layer: Layer, x: Value, table: RopeTable) -> Value:
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
        scale=attention_scale(shape.head_dim),
    )
    return layer.linear(attended, "attn_output", shape.width)
