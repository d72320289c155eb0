"""The test builders write what they say: tensors, keys, vocabularies, reproducibly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from builders import bpe_vocabulary, spm_vocabulary, tiny_model
from slipstream.gguf import GGUFFile, open_gguf
from slipstream.quants import quant_type, type_name

LAYER = "attn_norm attn_q attn_k attn_v attn_output ffn_norm ffn_gate ffn_up ffn_down"


def layer_tensors(file: GGUFFile) -> set[str]:
    names = (name.removeprefix("blk.0.") for name in file.tensors if name.startswith("blk.0."))
    return set(names)


@pytest.mark.parametrize(
    ("architecture", "more"),
    [
        ("llama", ()),
        ("qwen2", ("attn_q.bias", "attn_k.bias", "attn_v.bias")),
        ("qwen3", ("attn_q_norm.weight", "attn_k_norm.weight")),
        (
            "gemma3",
            (
                "attn_q_norm.weight",
                "attn_k_norm.weight",
                "post_attention_norm.weight",
                "post_ffw_norm.weight",
            ),
        ),
    ],
)
def test_tensors_of_each_architecture(
    tmp_path: Path, architecture: str, more: tuple[str, ...]
) -> None:
    with open_gguf(tiny_model(tmp_path / "m.gguf", architecture)) as file:
        assert layer_tensors(file) == {f"{name}.weight" for name in LAYER.split()} | set(more)
        assert "output.weight" not in file.tensors
        window = file.get_int(f"{architecture}.attention.sliding_window", None)
        assert window == (16 if architecture == "gemma3" else None)
        vocabulary = file.get_string_array("tokenizer.ggml.tokens")
        assert file.tensors["token_embd.weight"].shape == (64, len(vocabulary))


def test_the_same_seed_gives_the_same_file(tmp_path: Path) -> None:
    files = [
        tiny_model(tmp_path / f"{index}.gguf", "qwen3", seed=seed).read_bytes()
        for index, seed in enumerate((1, 1, 2))
    ]
    assert files[0] == files[1] != files[2]


def test_mixed_types_and_shapes(tmp_path: Path) -> None:
    path = tiny_model(
        tmp_path / "m.gguf",
        "llama",
        tensor_type="q4_k",
        types={"ffn_down": "q6_k", "output": "q8_0", "token_embd": "f16"},
        tied=False,
        layers=3,
        vocabulary=320,
        feed_forward=768,
        biases=("attn_output", "ffn_down"),
        version=2,
    )
    with open_gguf(path) as file:
        types = {name: type_name(info.type_id) for name, info in file.tensors.items()}
        assert types["blk.2.ffn_down.weight"] == "q6_k"
        assert types["blk.2.ffn_up.weight"] == "q4_k"
        assert (types["output.weight"], types["token_embd.weight"]) == ("q8_0", "f16")
        assert file.tensors["output.weight"].shape == (256, 320)
        assert file.tensors["blk.0.ffn_down.weight"].shape == (768, 256)
        assert file.tensors["blk.0.ffn_down.bias"].shape == (256,)
        assert file.version == 2


@pytest.mark.parametrize("scaling", ["linear", "yarn"])
def test_rope_scaling_keys(tmp_path: Path, scaling: str) -> None:
    with open_gguf(tiny_model(tmp_path / "m.gguf", "qwen2", rope_scaling=scaling)) as file:
        assert file.get_string("qwen2.rope.scaling.type") == scaling
        assert file.get_float("qwen2.rope.scaling.factor") == 4.0
        original = file.get_int("qwen2.rope.scaling.original_context_length", None)
        assert original == (128 if scaling == "yarn" else None)


def test_llama3_scaling_divides_low_frequencies_only(tmp_path: Path) -> None:
    path = tiny_model(tmp_path / "m.gguf", "llama", rope_scaling="llama3", head_dim=32)
    with open_gguf(path) as file:
        info = file.tensors["rope_freqs.weight"]
        kind = quant_type(info.type_id, info.name)
        factors = kind.dequantize_rows(file.data(info.name), 1, 16)[0]
    assert (factors[0], factors[-1]) == (1.0, 8.0)
    assert (np.diff(factors) >= 0).all()
    assert len(np.unique(factors)) > 2


def test_extra_metadata_replaces_and_removes(tmp_path: Path) -> None:
    extra: dict[str, Any] = {"llama.rope.dimension_count": None, "llama.rope.freq_base": 5e5}
    with open_gguf(tiny_model(tmp_path / "m.gguf", "llama", extra=extra)) as file:
        assert "llama.rope.dimension_count" not in file.metadata
        assert file.get_float("llama.rope.freq_base") == 5e5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"architecture": "mamba"}, "mamba"),
        ({"architecture": "llama", "rope_scaling": "dynamic"}, "dynamic"),
        ({"architecture": "llama", "tensor_type": "q4_k", "width": 64}, "multiple of 256"),
        ({"architecture": "llama", "vocabulary": 100}, "more than 100"),
    ],
)
def test_impossible_models_are_refused(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        tiny_model(tmp_path / "m.gguf", **options)


def test_bpe_merges_lead_to_tokens() -> None:
    vocabulary = bpe_vocabulary(300)
    tokens = vocabulary["tokenizer.ggml.tokens"]
    assert len(set(tokens)) == len(tokens) == 300
    for merge in vocabulary["tokenizer.ggml.merges"]:
        left, right = merge.split(" ")
        assert {left, right, left + right} <= set(tokens)


def test_spm_pieces_are_unique_and_scored() -> None:
    vocabulary = spm_vocabulary(400)
    tokens, scores = vocabulary["tokenizer.ggml.tokens"], vocabulary["tokenizer.ggml.scores"].value
    assert len(set(tokens)) == len(tokens) == len(scores) == 400
    assert {f"<0x{byte:02X}>" for byte in range(256)} <= set(tokens)
    assert scores[tokens.index("▁t")] > scores[tokens.index("t")]
