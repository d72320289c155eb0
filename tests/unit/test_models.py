"""From files to graphs: what is built, and what is refused and how."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from builders import TinyModel, f32_tensor, tiny_model, write_gguf
from gguf_writer import Tensor, Typed
from reference_runs import run_rows
from slipstream.errors import ModelFileError, UnsupportedError
from slipstream.gguf import GGUFFile, open_gguf
from slipstream.graph import Attention, Embed, Graph, Linear, RmsNorm, Rope
from slipstream.models import build_graph, supported_architectures
from slipstream.models.base import REFUSED_WHEN_SET, ModelShape, weight_data
from slipstream.models.gemma3 import LAYERS_OF_27B, query_scale

ARCHITECTURES = ("gemma3", "llama", "qwen2", "qwen3")
TOKENS = np.arange(3, 20, dtype=np.int32)


def build(tmp_path: Path, architecture: str = "llama", **options: Any) -> Graph:
    with open_gguf(tiny_model(tmp_path / "tiny.gguf", architecture, **options)) as file:
        return build_graph(file)


def build_changed(
    tmp_path: Path, change: Callable[[dict[str, Tensor]], None], architecture: str = "llama"
) -> Graph:
    """The graph of a tiny model after a change of its tensors."""
    model = TinyModel(architecture, tensor_type="f32")
    tensors = model.tensors()
    change(tensors)
    path = write_gguf(tmp_path / "changed.gguf", model.metadata(), tensors)
    with open_gguf(path) as file:
        return build_graph(file)


def linear(graph: Graph, name: str) -> Linear:
    return next(op for op in graph.ops if isinstance(op, Linear) and op.weight.name == name)


def test_architectures_are_the_modules() -> None:
    assert supported_architectures() == ARCHITECTURES


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_outputs_by_name(tmp_path: Path, architecture: str) -> None:
    graph = build(tmp_path, architecture)
    outputs = graph.outputs()
    layers = len(graph.attentions())
    assert set(outputs) == {"logits", "final_norm", *(f"layer_input.{i}" for i in range(layers))}
    assert outputs["logits"].row_set == "logits"
    assert outputs["logits"].width == graph.vocabulary
    hidden = [outputs["final_norm"], *(outputs[f"layer_input.{i}"] for i in range(layers))]
    assert {(value.width, value.row_set) for value in hidden} == {(graph.width, "all")}
    assert graph.architecture == architecture
    assert graph.context == 512


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_values_are_written_once_before_they_are_read(tmp_path: Path, architecture: str) -> None:
    from slipstream.dispatch.structure import reads, writes

    written: set[int] = set()
    for op in build(tmp_path, architecture).ops:
        assert {value.index for value in reads(op)} <= written
        made = {value.index for value in writes(op)}
        assert not made & written
        written |= made


def test_head_is_tied_without_output_weight(tmp_path: Path) -> None:
    assert linear(build(tmp_path), "token_embd.weight").out.row_set == "logits"
    graph = build(tmp_path, tied=False)
    assert linear(graph, "output.weight").out.row_set == "logits"
    assert not [op for op in graph.ops if isinstance(op, Linear) and "embd" in op.weight.name]


def test_qwen2_biases_and_optional_ones(tmp_path: Path) -> None:
    graph = build(tmp_path, "qwen2")
    for name in ("attn_q", "attn_k", "attn_v"):
        bias = linear(graph, f"blk.1.{name}.weight").bias
        assert bias is not None
        assert bias.name == f"blk.1.{name}.bias"
    assert linear(graph, "blk.1.attn_output.weight").bias is None
    assert linear(build(tmp_path, biases=("ffn_down",)), "blk.0.ffn_down.weight").bias is not None


def test_output_bias(tmp_path: Path) -> None:
    def add(tensors: dict[str, Tensor]) -> None:
        rows = tensors["token_embd.weight"].shape[1]
        tensors["output.bias"] = f32_tensor(np.ones(rows))

    assert linear(build_changed(tmp_path, add, "qwen2"), "token_embd.weight").bias is not None


@pytest.mark.parametrize(
    ("architecture", "kind", "norms"),
    [("llama", "norm", 2), ("qwen2", "neox", 2), ("qwen3", "neox", 4), ("gemma3", "neox", 6)],
)
def test_rope_kind_and_norms_per_layer(
    tmp_path: Path, architecture: str, kind: str, norms: int
) -> None:
    graph = build(tmp_path, architecture)
    assert {op.table.kind for op in graph.ops if isinstance(op, Rope)} == {kind}
    count = sum(isinstance(op, RmsNorm) for op in graph.ops)
    assert count == 1 + norms * len(graph.attentions())


def test_gemma3_windows_bases_and_embedding_scale(tmp_path: Path) -> None:
    graph = build(tmp_path, "gemma3", layers=7, window=9)
    assert [op.window for op in graph.attentions()] == [9, 9, 9, 9, 9, None, 9]
    bases = [op.table.frequencies[1] for op in graph.ops if isinstance(op, Rope)][::2]
    everywhere, nearby = 1e6 ** (-2 / 16), 1e4 ** (-2 / 16)
    assert bases == pytest.approx([nearby] * 5 + [everywhere, nearby])
    embed = next(op for op in graph.ops if isinstance(op, Embed))
    assert embed.scale == math.sqrt(graph.width)
    assert {op.scale for op in graph.attentions()} == {1 / math.sqrt(16)}


def test_gemma3_27b_scales_queries_by_width_over_heads() -> None:
    shape = ModelShape(5376, LAYERS_OF_27B, 32, 16, 128, 128, 21504, 1e-6, 131072)
    assert query_scale(shape) == pytest.approx(168**-0.5)


def test_fused_projections_equal_separate_ones(tmp_path: Path) -> None:
    model = TinyModel("llama", tensor_type="q8_0")
    separate = write_gguf(tmp_path / "separate.gguf", model.metadata(), model.tensors())
    tensors = model.tensors()
    for layer in range(model.layer_count):
        parts = [tensors.pop(f"blk.{layer}.attn_{name}.weight") for name in "qkv"]
        shape = (parts[0].shape[0], sum(part.shape[1] for part in parts))
        data = b"".join(part.data for part in parts)
        tensors[f"blk.{layer}.attn_qkv.weight"] = Tensor(parts[0].type_id, shape, data)
    fused = write_gguf(tmp_path / "fused.gguf", model.metadata(), tensors)
    with open_gguf(separate) as one, open_gguf(fused) as other:
        expected = run_rows(one, build_graph(one), TOKENS)
        assert np.array_equal(run_rows(other, build_graph(other), TOKENS), expected)


def test_weight_data_is_the_part_of_the_tensor(tmp_path: Path) -> None:
    from slipstream.graph import Weight

    values = np.arange(12, dtype=np.float32).reshape(4, 3)
    path = write_gguf(tmp_path / "one.gguf", {}, {"a": f32_tensor(values)})
    with open_gguf(path) as file:
        part = weight_data(file, Weight("a", 0, 2, 3, start=1)).view(np.float32)
        assert part.tolist() == [3, 4, 5, 6, 7, 8]


def test_unknown_architecture_is_refused_by_name(tmp_path: Path) -> None:
    extra = {"general.architecture": "mamba"}
    with pytest.raises(UnsupportedError) as caught:
        build(tmp_path, extra=extra)
    assert "mamba" in caught.value.found
    assert all(name in caught.value.expected for name in ARCHITECTURES)


@pytest.mark.parametrize("name", ["base", "rope", "__init__", "../base", ""])
def test_modules_that_are_no_architecture(tmp_path: Path, name: str) -> None:
    with pytest.raises(UnsupportedError):
        build(tmp_path, extra={"general.architecture": name})


@pytest.mark.parametrize("name", sorted(REFUSED_WHEN_SET))
def test_features_in_metadata_are_refused_by_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        build(tmp_path, extra={f"llama.{name}": 2})
    assert REFUSED_WHEN_SET[name] in caught.value.expected
    assert f"llama.{name}" in caught.value.found
    build(tmp_path, extra={f"llama.{name}": 0})


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"llama.attention.causal": False}, "causal"),
        ({"llama.attention.value_length": 8}, "value_length"),
        ({"llama.attention.sliding_window": 128}, "sliding_window"),
        ({"llama.rope.scaling.type": "longrope"}, "longrope"),
        ({"llama.rope.scaling.type": "yarn", "llama.rope.scaling.yarn_attn_factor": 2.0}, "attn"),
    ],
)
def test_unsupported_metadata(tmp_path: Path, extra: dict[str, Any], message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        build(tmp_path, extra=extra)


def test_window_as_wide_as_the_context_is_none(tmp_path: Path) -> None:
    build(tmp_path, extra={"llama.attention.sliding_window": 512})


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"llama.attention.head_count": 0}, "head_count"),
        ({"llama.attention.head_count_kv": 3}, "multiple"),
        ({"llama.attention.head_count_kv": [2, 2]}, "head_count_kv"),
        ({"llama.rope.dimension_count": 7}, "rotary"),
        ({"llama.rope.dimension_count": 32}, "rotary"),
        ({"llama.attention.layer_norm_rms_epsilon": 0.0}, "epsilon"),
        ({"llama.rope.freq_base": -1.0}, "freq_base"),
        ({"llama.rope.scaling.factor": -1.0}, "factor"),
        ({"llama.rope.scaling.factor": 1e-30}, "frequencies"),
        ({"llama.rope.freq_base": 1e-38}, "frequencies"),
        ({"llama.embedding_length": None}, "embedding_length"),
        ({"llama.embedding_length": 32}, "token_embd"),
        ({"llama.feed_forward_length": 64}, "ffn_gate"),
        ({"llama.block_count": 2**31 - 1}, "blk.2."),
        ({"llama.context_length": -1}, "context_length"),
        ({"general.architecture": None}, "general.architecture"),
    ],
)
def test_contradicting_metadata(tmp_path: Path, extra: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelFileError) as caught:
        build(tmp_path, extra=extra)
    assert message in str(caught.value)


@pytest.mark.parametrize("window", [-1, 2**31, 2**63 - 1])
def test_gemma3_window_out_of_range(tmp_path: Path, window: int) -> None:
    extra = {"gemma3.attention.sliding_window": Typed("i64", window)}
    with pytest.raises(UnsupportedError, match="window"):
        build(tmp_path, "gemma3", extra=extra)


def test_tensors_left_over_are_refused_by_name(tmp_path: Path) -> None:
    def add(tensors: dict[str, Tensor]) -> None:
        tensors |= {f"blk.0.attn_sinks.{i}": f32_tensor(np.ones(4)) for i in range(6)}

    with pytest.raises(UnsupportedError) as caught:
        build_changed(tmp_path, add)
    assert "blk.0.attn_sinks.0" in caught.value.found
    assert "2 more" in caught.value.found


def test_rope_divisors_belong_to_llama(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="rope_freqs"):
        build(tmp_path, "qwen2", rope_scaling="llama3")


def test_missing_tensor_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"blk\.1\.ffn_up\.weight"):
        build_changed(tmp_path, lambda tensors: tensors.pop("blk.1.ffn_up.weight") and None)


def test_expert_tensor_is_refused(tmp_path: Path) -> None:
    def stack(tensors: dict[str, Tensor]) -> None:
        tensors["blk.0.ffn_up.weight"] = f32_tensor(np.zeros((4, 128, 64)))

    with pytest.raises(UnsupportedError, match="dimensions"):
        build_changed(tmp_path, stack)


def test_tensor_type_is_refused_with_its_name(tmp_path: Path) -> None:
    def retype(tensors: dict[str, Tensor]) -> None:
        bytes_of_iq2_xxs = 66 * 128
        tensors["blk.0.ffn_up.weight"] = Tensor(16, (256, 128), bytes(bytes_of_iq2_xxs))

    with pytest.raises(UnsupportedError, match="iq2_xxs"):
        build_changed(tmp_path, retype)


@pytest.mark.parametrize("value", [0.0, -1.0, math.inf, math.nan])
def test_hostile_rope_divisors(tmp_path: Path, value: float) -> None:
    def spoil(tensors: dict[str, Tensor]) -> None:
        tensors["rope_freqs.weight"] = f32_tensor(np.array([1.0] * 7 + [value]))

    with pytest.raises(ModelFileError, match="rope_freqs"):
        build_changed(tmp_path, spoil)


def attention_of(file: GGUFFile) -> Attention:
    return build_graph(file).attentions()[0]


def test_attention_scale_key(tmp_path: Path) -> None:
    path = tiny_model(tmp_path / "a.gguf", "llama", extra={"llama.attention.scale": 0.5})
    with open_gguf(path) as file:
        assert attention_of(file).scale == 0.5
