"""The types of kept keys and values: their codec against gguf-py, sizes, options, refusals."""

from __future__ import annotations

import argparse
from pathlib import Path

import gguf
import numpy as np
import pytest

from builders import tiny_model
from slipstream.cli.flags import add_flags, options
from slipstream.cli.inspect import memory_plan
from slipstream.errors import OptionError, UnsupportedError
from slipstream.gguf import open_gguf
from slipstream.graph import Graph, GraphBuilder
from slipstream.loading import load_model
from slipstream.memory.attention import AttentionMemory
from slipstream.memory.kv_types import KV_TYPES, decode_rows, encode_rows, row_halves
from slipstream.models import build_graph
from slipstream.options import EngineOptions, ModelOptions, from_mapping

HALF_STEP = 0.5 / 127 + 2.0**-11
"""Largest error of a q8_0 element as a share of its block's largest: code, then binary16 scale."""


def _x(*shape: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


def test_q8_0_rows_are_ggml_blocks() -> None:
    rows = encode_rows(_x(5, 3, 64), "q8_0")
    assert rows.shape == (5, 3, row_halves("q8_0", 64))
    assert rows.dtype == np.uint16
    raw = rows.view(np.uint8).reshape(15, -1)
    oracle = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType.Q8_0)
    np.testing.assert_array_equal(decode_rows(rows, "q8_0").reshape(15, 64), oracle)


def test_q8_0_error_is_half_a_step() -> None:
    x = _x(50, 96)
    blocks = x.reshape(50, 3, 32)
    found = decode_rows(encode_rows(x, "q8_0"), "q8_0").reshape(50, 3, 32)
    assert np.all(np.abs(found - blocks) <= np.abs(blocks).max(-1, keepdims=True) * HALF_STEP)


def test_f16_rows_round_to_nearest() -> None:
    x = _x(4, 80)
    np.testing.assert_array_equal(decode_rows(encode_rows(x, "f16"), "f16"), x.astype(np.float16))


def test_hostile_q8_0_blocks() -> None:
    x = np.zeros((4, 32), np.float32)
    x[0, 3], x[1, 4], x[2, 5] = np.nan, -np.inf, 2.0**-110
    found = decode_rows(encode_rows(x, "q8_0"), "q8_0")
    assert np.isnan(found[:2]).all()
    assert not found[2:].any()


def test_a_ragged_head_is_refused() -> None:
    assert row_halves("f16", 80) == 80
    with pytest.raises(UnsupportedError, match=r"multiple of 32.*heads of 80"):
        row_halves("q8_0", 80)


def test_q8_0_pages_take_17_32nds_of_f16() -> None:
    g = GraphBuilder({})
    query, key, value = (g.input(name, 128) for name in ("q", "k", "v"))
    shape = {"heads": 2, "kv_heads": 2, "head_dim": 64}
    g.output("logits", g.attention(query, key, value, layer=0, scale=1.0, **shape))
    graph = Graph(tuple(g.ops), "llama", 128, 128, 640)
    sizes = [AttentionMemory(graph, 640, 1, kv).groups[0].page_bytes for kv in KV_TYPES]
    assert sizes[1] * 32 == sizes[0] * 17


def test_an_unknown_type_is_an_error() -> None:
    with pytest.raises(OptionError, match="f16, q8_0"):
        from_mapping(ModelOptions, {"model": "m", "kv_type": "q4_0"})


def _chosen(*arguments: str) -> str:
    parser = argparse.ArgumentParser()
    add_flags(parser, ModelOptions)
    return options(ModelOptions, parser.parse_args(["model", *arguments])).kv_type


@pytest.mark.parametrize(
    ("arguments", "kv_type"),
    [
        ([], "f16"),
        (["--kv-type", "q8_0"], "q8_0"),
        (["-ctk", "q8_0", "-ctv", "q8_0"], "q8_0"),
        (["--cache-type-k", "f16", "--cache-type-v", "f16"], "f16"),
    ],
)
def test_flags(arguments: list[str], kv_type: str) -> None:
    assert _chosen(*arguments) == kv_type


@pytest.mark.parametrize(
    "arguments",
    [
        ["--kv-type", "q4_0"],
        ["-ctk", "q4_0", "-ctv", "q4_0"],
        ["-ctk", "q8_0"],
        ["-ctv", "q8_0"],
        ["-ctk", "q8_0", "-ctv", "f16"],
        ["--kv-type", "q8_0", "-ctk", "q8_0", "-ctv", "q8_0"],
    ],
)
def test_flags_that_are_refused(arguments: list[str]) -> None:
    with pytest.raises(OptionError):
        _chosen(*arguments)


def test_inspect_plans_memory_by_type(tmp_path: Path) -> None:
    path = tiny_model(tmp_path / "tiny.gguf", "llama", head_dim=64)
    with open_gguf(path) as file:
        graph = build_graph(file)
        plans = [memory_plan(graph, file, 64, kv_type) for kv_type in KV_TYPES]
    assert [plan["kv_type"] for plan in plans] == list(KV_TYPES)
    assert plans[1]["key_value_bytes"] * 32 == plans[0]["key_value_bytes"] * 17


def test_a_model_with_ragged_heads_is_refused_before_it_is_read(tmp_path: Path) -> None:
    pytest.importorskip("slipstream._native")
    path = tiny_model(tmp_path / "ragged.gguf", "llama", head_dim=48)
    with pytest.raises(UnsupportedError, match="multiple of 32"):
        load_model(ModelOptions(model=str(path), kv_type="q8_0"), EngineOptions())
