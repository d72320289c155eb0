"""Tiny random models, one for each architecture and variant of its mathematics.

The golden logits of tests/golden/tiny_models.npz are those of libllama on the same files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from builders import tiny_model

ROWS: Final = 96
CONTEXT: Final = 512
BIASED: Final = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")


@dataclass(frozen=True)
class Variant:
    """One model.

    Attributes:
        options: of ``TinyModel``.
        peer: context options for libllama, where it reads a parameter from there only.
    """

    name: str
    architecture: str
    options: Mapping[str, Any] = field(default_factory=dict)
    peer: Mapping[str, float] = field(default_factory=dict)

    def write(self, folder: Path) -> Path:
        options = {"tensor_type": "f32", "deviation": 0.15, "context": CONTEXT, **self.options}
        return tiny_model(folder / f"{self.name}.gguf", self.architecture, **options)


def _scaled(architecture: str, kind: str) -> Variant:
    return Variant(f"{architecture}-{kind}", architecture, {"rope_scaling": kind})


def _keyed(name: str, architecture: str, keys: Mapping[str, Any], **options: Any) -> Variant:
    extra = {f"{architecture}.{key}": value for key, value in keys.items()}
    return Variant(f"{architecture}-{name}", architecture, {**options, "extra": extra})


def _yarn(name: str, keys: Mapping[str, float], peer: Mapping[str, float]) -> Variant:
    scaling = {f"rope.scaling.{key}": value for key, value in keys.items()}
    variant = _keyed(f"yarn-{name}", "llama", scaling, rope_scaling="yarn", head_dim=64)
    return Variant(variant.name, variant.architecture, variant.options, peer)


VARIANTS: Final[tuple[Variant, ...]] = (
    *(Variant(f"{name}-plain", name) for name in ("llama", "qwen2", "qwen3", "gemma3")),
    *(_scaled(name, "linear") for name in ("llama", "qwen2", "qwen3", "gemma3")),
    *(_scaled(name, "yarn") for name in ("llama", "qwen2", "qwen3", "gemma3")),
    _scaled("llama", "llama3"),
    Variant("llama-untied-biases", "llama", {"tied": False, "biases": BIASED}),
    Variant("llama-f16", "llama", {"tensor_type": "f16"}),
    Variant("qwen3-wide-heads", "qwen3", {"head_dim": 32, "tied": False}),
    _keyed("default-base", "llama", {"rope.freq_base": None}),
    _keyed("factor-without-type", "llama", {"rope.scaling.factor": 4.0}),
    _keyed("older-linear", "llama", {"rope.scale_linear": 4.0}),
    _keyed("none", "llama", {"rope.scaling.type": "none", "rope.scaling.factor": 4.0}),
    _keyed("attention-factor", "llama", {"rope.scaling.attn_factor": 1.3}, rope_scaling="linear"),
    _yarn("wide", {}, {}),
    _yarn("attention-factor", {"attn_factor": 1.3}, {}),
    _yarn(
        "beta",
        {"yarn_beta_fast": 8.0, "yarn_beta_slow": 0.25},
        {"yarn_beta_fast": 8.0, "yarn_beta_slow": 0.25},
    ),
    _yarn("half", {"yarn_ext_factor": 0.5}, {"yarn_ext_factor": 0.5}),
    _yarn("off", {"yarn_ext_factor": 0.0}, {"yarn_ext_factor": 0.0}),
    _keyed("softcap", "gemma3", {"final_logit_softcapping": 1.5}),
    _keyed("no-window", "gemma3", {"attention.sliding_window": None}),
    _keyed("window-base", "gemma3", {"rope.freq_base_swa": 500.0}),
    _keyed("pattern", "gemma3", {"attention.sliding_window_pattern": 2}),
    _keyed("attention-factor", "gemma3", {"rope.scaling.attn_factor": 1.3}, rope_scaling="yarn"),
)


def tokens() -> NDArray[np.int32]:
    """int32 ``[ROWS]``, below every tiny vocabulary."""
    return ((np.arange(ROWS) * 37 + 11) % 211).astype(np.int32)


def sampled(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """The part of float32 ``[ROWS, vocabulary]`` that is kept: every 8th row, every 5th token."""
    return logits[7::8, ::5]
