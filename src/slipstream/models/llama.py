"""llama: Touvron et al. 2023 (arXiv:2302.13971); also SmolLM2, Mistral and Llama 3."""

from __future__ import annotations

from slipstream.gguf import GGUFFile
from slipstream.graph import GraphBuilder, RopeTable, Value
from slipstream.models.base import (
    Layer,
    ModelShape,
    attention_scale,
    embedding,
    output_head,
    positive_float,
    refuse_window,
)
from slipstream.models.rope import read_scaling, rope_base, rope_divisors, rope_table


def build(file: GGUFFile, graph: GraphBuilder, shape: ModelShape) -> None:
    refuse_window(file, shape)
    scaling, divisors = read_scaling(file, shape), rope_divisors(file, graph, shape)
    # the converter permuted q and k so that pairs are adjacent
    table = rope_table("norm", shape.rotary_width, rope_base(file), scaling, divisors)
    scale = positive_float(file, "attention.scale", attention_scale(shape.head_dim))
    x = graph.embed(embedding(graph, shape))
    for index in range(shape.layers):
        graph.output(f"layer_input.{index}", x)
        x = decoder_layer(Layer(graph, shape, index), x, table, scale)
    graph.output("logits", output_head(graph, shape, x))


def decoder_layer(layer: Layer, x: Value, table: RopeTable, scale: float) -> Value:
    graph = layer.graph
    x = graph.add(self_attention(layer, layer.norm(x, "attn_norm"), table, scale), x)
    return graph.add(layer.feed_forward(layer.norm(x, "ffn_norm"), "silu"), x)


def self_attention(layer: Layer, x: Value, table: RopeTable, scale: float) -> Value:
    graph, shape = layer.graph, layer.shape
    query, keys, values = layer.query_key_value(x)
    attended = graph.attention(
        graph.rope(query, shape.heads, shape.head_dim, table),
        graph.rope(keys, shape.kv_heads, shape.head_dim, table),
        values,
        layer=layer.index,
        heads=shape.heads,
        kv_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        scale=scale,
    )
    return layer.linear(attended, "attn_output", shape.width)
