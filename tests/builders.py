"""Small random GGUF files for tests: the writer, random tensors and whole working models.

from builders import random_tensor, tiny_model, write_gguf
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gguf_writer import Layout, Tensor, Typed, f32_tensor, gguf_bytes, write_gguf, write_shards
from random_blocks import TYPES_BY_NAME, random_blocks, random_tensor
from vocabularies import bpe_vocabulary, spm_vocabulary

__all__ = [
    "TYPES_BY_NAME",
    "Layout",
    "Tensor",
    "TinyModel",
    "Typed",
    "bpe_vocabulary",
    "f32_tensor",
    "gguf_bytes",
    "random_blocks",
    "random_tensor",
    "spm_vocabulary",
    "tiny_model",
    "write_gguf",
    "write_shards",
]

ARCHITECTURES = ("llama", "qwen2", "qwen3", "gemma3")
ROPE_BASE = {"llama": 10_000.0, "qwen2": 1e6, "qwen3": 1e6, "gemma3": 1e6}
HEAD_NORMS = ("qwen3", "gemma3")


def tiny_model(path: Path, architecture: str, **options: Any) -> Path:
    """Write a random model that a whole engine can run; ``options`` are fields of ``TinyModel``."""
    model = TinyModel(architecture, **options)
    return write_gguf(path, model.metadata(), model.tensors(), version=model.version)


@dataclass(frozen=True)
class TinyModel:
    """A small random model of one architecture. ``None`` stands for the default described.

    Attributes:
        architecture: ``llama``, ``qwen2``, ``qwen3`` or ``gemma3``.
        seed: of all weights.
        tensor_type: type of the embedding and the matrices; vectors are F32.
        types: type by kind of tensor, such as ``{"ffn_down": "q6_k"}``, over ``tensor_type``.
        layers: 2; 6 for gemma3, whose last layer is then the first without a window.
        width: 64; 256 if a K-quant is used.
        heads, kv_heads: query heads and key-value heads.
        head_dim: ``width // heads``.
        feed_forward: ``2 * width``.
        vocabulary: tokens, filled up with unused ones; the bare vocabulary.
        tokenizer: ``bpe`` or ``spm``; ``spm`` for gemma3, else ``bpe``.
        pre: name of the BPE pre-tokeniser; ``smollm`` for llama, else ``qwen2``.
        context: context length.
        epsilon: of every RMS norm.
        rope_scaling: ``linear`` or ``yarn`` (both by 4), ``llama3`` (a ``rope_freqs`` tensor).
        window: sliding window; 16 for gemma3, not written for the others.
        tied: no ``output.weight``.
        biases: kinds of matrices with a bias; q, k and v for qwen2, else none.
        deviation: standard deviation of the weights.
        version: of the file format.
        extra: metadata added or replaced at the end; None removes a key.
    """

    architecture: str
    seed: int = 0
    tensor_type: str = "q8_0"
    types: Mapping[str, str] = field(default_factory=dict)
    layers: int | None = None
    width: int | None = None
    heads: int = 4
    kv_heads: int = 2
    head_dim: int | None = None
    feed_forward: int | None = None
    vocabulary: int | None = None
    tokenizer: str | None = None
    pre: str | None = None
    context: int = 512
    epsilon: float = 1e-5
    rope_scaling: str | None = None
    window: int | None = None
    tied: bool = True
    biases: tuple[str, ...] | None = None
    deviation: float = 0.08
    version: int = 3
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.architecture not in ARCHITECTURES:
            raise ValueError(f"{self.architecture} is none of {ARCHITECTURES}")
        if self.rope_scaling not in (None, "linear", "yarn", "llama3"):
            raise ValueError(f"unknown rope_scaling {self.rope_scaling}")

    @property
    def hidden(self) -> int:
        """The width in use."""
        used = {self.tensor_type, *self.types.values()}
        blocks = max(TYPES_BY_NAME[name].block_elements for name in used)
        return self.width or (256 if blocks == 256 else 64)

    @property
    def head_width(self) -> int:
        """The head dimension in use."""
        return self.head_dim or self.hidden // self.heads

    @property
    def layer_count(self) -> int:
        """The number of layers in use."""
        return self.layers or (6 if self.architecture == "gemma3" else 2)

    def metadata(self) -> dict[str, Any]:
        """All keys of the file."""
        keys = {f"{self.architecture}.{key}": value for key, value in self._shape_keys().items()}
        every = {
            "general.architecture": self.architecture,
            "general.type": "model",
            "general.name": f"tiny {self.architecture}",
            **keys,
            **self._tokenizer_keys(),
            **self.extra,
        }
        return {key: value for key, value in every.items() if value is not None}

    def tensors(self) -> dict[str, Tensor]:
        """All tensors of the file, the same for the same fields."""
        rng = np.random.default_rng(self.seed)
        embedding = (len(self._tokenizer_keys()["tokenizer.ggml.tokens"]), self.hidden)
        tensors = {"token_embd.weight": self._matrix("token_embd", embedding, rng)}
        tensors["output_norm.weight"] = self._norm(self.hidden, rng)
        if not self.tied:
            tensors["output.weight"] = self._matrix("output", embedding, rng)
        if self.rope_scaling == "llama3":
            tensors["rope_freqs.weight"] = f32_tensor(llama3_factors(self._base, self.head_width))
        for layer in range(self.layer_count):
            tensors |= {f"blk.{layer}.{name}": value for name, value in self._layer(rng).items()}
        return tensors

    @property
    def _base(self) -> float:
        return ROPE_BASE[self.architecture]

    def _shape_keys(self) -> dict[str, Any]:
        window = self.window or (16 if self.architecture == "gemma3" else None)
        return {
            "context_length": self.context,
            "embedding_length": self.hidden,
            "block_count": self.layer_count,
            "feed_forward_length": self.feed_forward or 2 * self.hidden,
            "attention.head_count": self.heads,
            "attention.head_count_kv": self.kv_heads,
            "attention.key_length": self.head_width,
            "attention.value_length": self.head_width,
            "attention.layer_norm_rms_epsilon": self.epsilon,
            "attention.sliding_window": window,
            "rope.freq_base": self._base,
            "rope.dimension_count": self.head_width,
            **self._rope_scaling_keys(),
        }

    def _rope_scaling_keys(self) -> dict[str, Any]:
        if self.rope_scaling not in ("linear", "yarn"):
            return {}
        original = self.context // 4 if self.rope_scaling == "yarn" else None
        return {
            "rope.scaling.type": self.rope_scaling,
            "rope.scaling.factor": 4.0,
            "rope.scaling.original_context_length": original,
        }

    def _tokenizer_keys(self) -> dict[str, Any]:
        kind = self.tokenizer or ("spm" if self.architecture == "gemma3" else "bpe")
        if kind == "spm":
            return spm_vocabulary(self.vocabulary)
        pre = self.pre or ("smollm" if self.architecture == "llama" else "qwen2")
        return bpe_vocabulary(self.vocabulary, pre)

    def _layer(self, rng: np.random.Generator) -> dict[str, Tensor]:
        tensors = {}
        for name, shape in self._matrices().items():
            tensors[f"{name}.weight"] = self._matrix(name, shape, rng)
            if name in self._biases():
                tensors[f"{name}.bias"] = f32_tensor(rng.normal(0, 0.1, shape[0]))
        for name, length in self._norms().items():
            tensors[f"{name}.weight"] = self._norm(length, rng)
        return tensors

    def _matrices(self) -> dict[str, tuple[int, int]]:
        """``(rows, columns)`` of each matrix of a layer."""
        width, feed_forward = self.hidden, self.feed_forward or 2 * self.hidden
        queries, keys = self.heads * self.head_width, self.kv_heads * self.head_width
        return {
            "attn_q": (queries, width),
            "attn_k": (keys, width),
            "attn_v": (keys, width),
            "attn_output": (width, queries),
            "ffn_gate": (feed_forward, width),
            "ffn_up": (feed_forward, width),
            "ffn_down": (width, feed_forward),
        }

    def _norms(self) -> dict[str, int]:
        """Length of each norm weight of a layer."""
        norms = {"attn_norm": self.hidden, "ffn_norm": self.hidden}
        if self.architecture in HEAD_NORMS:
            norms |= {"attn_q_norm": self.head_width, "attn_k_norm": self.head_width}
        if self.architecture == "gemma3":
            norms |= {"post_attention_norm": self.hidden, "post_ffw_norm": self.hidden}
        return norms

    def _biases(self) -> tuple[str, ...]:
        if self.biases is not None:
            return self.biases
        return ("attn_q", "attn_k", "attn_v") if self.architecture == "qwen2" else ()

    def _matrix(self, kind: str, shape: tuple[int, int], rng: np.random.Generator) -> Tensor:
        return random_tensor(self.types.get(kind, self.tensor_type), *shape, rng, self.deviation)

    def _norm(self, length: int, rng: np.random.Generator) -> Tensor:
        return f32_tensor(1 + rng.normal(0, 0.1, length))


def llama3_factors(base: float, head_dim: int) -> NDArray[np.float64]:
    """Frequency divisors of Llama 3.1 (factor 8, low 1, high 4) for an original context of 64."""
    factor, low, high, original = 8.0, 1.0, 4.0, 64.0
    frequencies = base ** (-np.arange(0, head_dim, 2) / head_dim)
    turns = original * frequencies / (2 * math.pi)
    blend = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return 1 / ((1 - blend) / factor + blend)
