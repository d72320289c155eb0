"""Rewrites: when they apply, when they must not, and that they leave the bits alone."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from builders import tiny_model
from reference_runs import run_rows
from slipstream.dispatch.fuse import (
    REWRITES,
    Rewrite,
    add_into_linear,
    fuse,
    gate_with_up,
    group_linears,
)
from slipstream.dispatch.structure import reads, writes
from slipstream.gguf import open_gguf
from slipstream.graph import (
    Add,
    Gated,
    GatedLinear,
    Graph,
    GraphBuilder,
    Linear,
    LinearGroup,
    Value,
    Weight,
)
from slipstream.models import build_graph

ARCHITECTURES = ("gemma3", "llama", "qwen2", "qwen3")
WIDTH = 8


def matrix(name: str) -> Weight:
    return Weight(name, 0, WIDTH, WIDTH)


BIAS = Weight("bias", 0, 1, WIDTH)


def started() -> tuple[GraphBuilder, Value]:
    builder = GraphBuilder({})
    return builder, builder.input("x", WIDTH)


def finished(builder: GraphBuilder, out: Value) -> Graph:
    builder.output("logits", out)
    return Graph(tuple(builder.ops), "test", WIDTH, WIDTH, 16)


def kinds(graph: Graph) -> Counter[type]:
    return Counter(type(op) for op in graph.ops)


def check_order(graph: Graph) -> None:
    written: set[int] = set()
    for op in graph.ops:
        assert {value.index for value in reads(op)} <= written
        written |= {value.index for value in writes(op)}


@pytest.mark.parametrize("linear_first", [True, False])
def test_residual_goes_into_the_linear(linear_first: bool) -> None:
    builder, x = started()
    product = builder.linear(x, matrix("w"), BIAS)
    total = builder.add(product, x) if linear_first else builder.add(x, product)
    graph = add_into_linear(finished(builder, total))
    check_order(graph)
    linear = next(op for op in graph.ops if isinstance(op, Linear))
    assert (linear.residual, linear.out, linear.bias) == (x, total, BIAS)
    assert Add not in kinds(graph)


def test_a_product_with_another_reader_stays() -> None:
    builder, x = started()
    product = builder.linear(x, matrix("w"))
    builder.output("hidden", product)
    graph = finished(builder, builder.add(product, x))
    assert add_into_linear(graph) == graph


def test_twice_the_same_product_stays() -> None:
    builder, x = started()
    product = builder.linear(x, matrix("w"))
    graph = finished(builder, builder.add(product, product))
    assert add_into_linear(graph) == graph


def test_a_residual_written_after_the_linear_stays() -> None:
    builder, x = started()
    product = builder.linear(x, matrix("w"))
    later = builder.scale(x, 2.0)
    graph = finished(builder, builder.add(product, later))
    assert add_into_linear(graph) == graph


def test_of_two_linears_the_later_takes_the_other() -> None:
    builder, x = started()
    first = builder.linear(x, matrix("a"))
    second = builder.linear(x, matrix("b"))
    graph = add_into_linear(finished(builder, builder.add(second, first)))
    check_order(graph)
    fused = [op for op in graph.ops if isinstance(op, Linear) and op.residual is not None]
    assert [(op.weight.name, op.residual) for op in fused] == [("b", first)]


def test_one_linear_takes_one_residual() -> None:
    builder, x = started()
    total = builder.add(builder.linear(x, matrix("w")), x)
    graph = add_into_linear(finished(builder, builder.add(total, x)))
    check_order(graph)
    assert kinds(graph)[Add] == 1


def test_gate_and_up_become_one_op() -> None:
    builder, x = started()
    gate, up = builder.linear(x, matrix("g")), builder.linear(x, matrix("u"))
    out = builder.gated(gate, up, "silu")
    graph = gate_with_up(finished(builder, out))
    check_order(graph)
    assert kinds(graph)[Linear] == kinds(graph)[Gated] == 0
    assert GatedLinear(out, x, matrix("g"), matrix("u"), "silu") in graph.ops


def test_gates_that_stay_apart() -> None:
    builder, x = started()
    other = builder.scale(x, 2.0)
    biased = builder.gated(
        builder.linear(x, matrix("a"), BIAS), builder.linear(x, matrix("b")), "silu"
    )
    inputs = builder.gated(
        builder.linear(x, matrix("c")), builder.linear(other, matrix("d")), "silu"
    )
    gate = builder.linear(x, matrix("e"))
    same = builder.gated(gate, gate, "silu")
    total = builder.add(builder.add(biased, inputs), same)
    graph = finished(builder, total)
    assert gate_with_up(graph) == graph


def test_linears_of_one_input_become_a_group() -> None:
    builder, x = started()
    query = builder.linear(x, matrix("q"), BIAS)
    keys = builder.linear(x, matrix("k"))
    total = builder.add(query, keys)
    other = builder.linear(total, matrix("o"))
    graph = group_linears(finished(builder, other))
    check_order(graph)
    group = next(op for op in graph.ops if isinstance(op, LinearGroup))
    assert [(op.weight.name, op.bias) for op in group.members] == [("q", BIAS), ("k", None)]
    assert [op.weight.name for op in graph.ops if isinstance(op, Linear)] == ["o"]


def test_a_member_whose_residual_comes_later_stays_out() -> None:
    builder, x = started()
    first = builder.linear(x, matrix("a"))
    scaled = builder.scale(first, 2.0)
    total = builder.add(builder.linear(x, matrix("b")), scaled)
    graph = group_linears(add_into_linear(finished(builder, total)))
    check_order(graph)
    assert LinearGroup not in kinds(graph)


def test_no_rewrites_leave_the_graph() -> None:
    builder, x = started()
    graph = finished(builder, builder.add(builder.linear(x, matrix("w")), x))
    assert fuse(graph, rewrites=()) == graph
    assert fuse(graph) != graph


@pytest.mark.parametrize(
    ("architecture", "adds"), [("llama", 0), ("qwen2", 0), ("qwen3", 0), ("gemma3", 2)]
)
def test_models_fuse_completely(tmp_path: Path, architecture: str, adds: int) -> None:
    with open_gguf(tiny_model(tmp_path / "tiny.gguf", architecture)) as file:
        plain = build_graph(file)
    graph = fuse(plain)
    check_order(graph)
    layers = len(graph.attentions())
    counts = kinds(graph)
    assert counts[LinearGroup] == counts[GatedLinear] == layers
    assert counts[Gated] == 0
    assert counts[Add] == adds * layers  # gemma3 norms a product before it is added
    assert counts[Linear] == 2 * layers + 1
    assert graph.outputs() == plain.outputs()


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("rewrite", REWRITES, ids=lambda rewrite: rewrite.__name__)
def test_each_rewrite_keeps_the_bits(tmp_path: Path, architecture: str, rewrite: Rewrite) -> None:
    tokens = np.arange(5, 25, dtype=np.int32)
    with open_gguf(tiny_model(tmp_path / "tiny.gguf", architecture)) as file:
        plain = build_graph(file)
        expected = run_rows(file, plain, tokens, integer_activations=True)
        fused = fuse(plain, (rewrite,))
        assert np.array_equal(run_rows(file, fused, tokens, integer_activations=True), expected)
