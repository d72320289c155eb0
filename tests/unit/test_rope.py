"""RoPE tables against the formulas of their papers."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from builders import llama3_factors, tiny_model
from gguf_writer import Typed
from slipstream.errors import ModelFileError
from slipstream.gguf import open_gguf
from slipstream.graph import Rope, RopeTable
from slipstream.models import build_graph
from slipstream.models.rope import Scaling, rope_table, yarn_magnitude


def table(tmp_path: Path, **options: Any) -> RopeTable:
    with open_gguf(tiny_model(tmp_path / "tiny.gguf", "llama", **options)) as file:
        return next(op.table for op in build_graph(file).ops if isinstance(op, Rope))


def yarn(**fields: Any) -> RopeTable:
    scaling = {"factor": 4.0, "extrapolation": 1.0, "original_context": 2048} | fields
    return rope_table("neox", 64, 10000.0, Scaling(**scaling))


PLAIN = 10000.0 ** (-np.arange(32) / 32)


def test_plain_frequencies() -> None:
    made = rope_table("norm", 4, 10000.0)
    assert made.frequencies == (1.0, 0.01)
    assert made.magnitude == 1.0


def test_linear_divides_every_frequency(tmp_path: Path) -> None:
    plain, scaled = table(tmp_path), table(tmp_path, rope_scaling="linear")
    assert np.multiply(scaled.frequencies, 4.0) == pytest.approx(plain.frequencies)
    assert scaled.magnitude == 1.0


def test_llama3_divides_by_the_file(tmp_path: Path) -> None:
    plain, scaled = table(tmp_path), table(tmp_path, rope_scaling="llama3")
    divisors = llama3_factors(10000.0, 16).astype(np.float32)
    assert divisors[0] == 1.0
    assert divisors[-1] == 8.0
    assert np.multiply(scaled.frequencies, divisors) == pytest.approx(plain.frequencies, rel=1e-12)


def test_yarn_keeps_fast_pairs_and_interpolates_slow_ones() -> None:
    # pairs that turn 32 times and once in 2,048 positions: 8.05 and 20.1 of 32
    made = np.asarray(yarn().frequencies)
    assert made[:9] == pytest.approx(PLAIN[:9])
    assert made[21:] == pytest.approx(PLAIN[21:] / 4)
    share = 1 - (14 - 8) / (21 - 8)
    assert made[14] == pytest.approx(PLAIN[14] * (share + (1 - share) / 4))


def test_yarn_ramp_follows_its_rotations() -> None:
    moved = np.asarray(yarn(beta_fast=8.0, beta_slow=0.25).frequencies)
    # 8 turns at pair 12.9, a quarter at 24.9
    assert moved[:13] == pytest.approx(PLAIN[:13])
    assert moved[25:] == pytest.approx(PLAIN[25:] / 4)


def test_yarn_extrapolation_scales_the_ramp() -> None:
    half = np.asarray(yarn(extrapolation=0.5).frequencies)
    assert half[0] == pytest.approx(0.5 * PLAIN[0] / 4 + 0.5 * PLAIN[0])
    assert np.asarray(yarn(extrapolation=0.0).frequencies) == pytest.approx(PLAIN / 4)


def test_yarn_magnitude() -> None:
    assert yarn_magnitude(4.0) == pytest.approx(0.1 * math.log(4.0) + 1.0)
    assert yarn_magnitude(1.0) == 1.0
    assert yarn_magnitude(0.5) == 1.0


@pytest.mark.parametrize(
    ("keys", "magnitude"),
    [
        ({}, yarn_magnitude(4.0)),
        ({"attn_factor": 1.5}, 1.5 * yarn_magnitude(4.0)),
        ({"yarn_ext_factor": 0.0}, 1.0),
    ],
)
def test_magnitude_from_the_file(tmp_path: Path, keys: dict[str, float], magnitude: float) -> None:
    extra = {f"llama.rope.scaling.{key}": value for key, value in keys.items()}
    made = table(tmp_path, rope_scaling="yarn", extra=extra)
    assert made.magnitude == pytest.approx(magnitude, rel=1e-6)


def test_original_context_defaults_to_the_context(tmp_path: Path) -> None:
    key = "llama.rope.scaling.original_context_length"
    given = table(tmp_path, rope_scaling="yarn", head_dim=64, extra={key: 512})
    assert table(tmp_path, rope_scaling="yarn", head_dim=64, extra={key: None}) == given
    assert table(tmp_path, rope_scaling="yarn", head_dim=64, extra={key: 32}) != given


@pytest.mark.parametrize(
    "extra",
    [
        {"llama.rope.scaling.factor": 4.0},
        {"llama.rope.scale_linear": 4.0},
        {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0},
    ],
)
def test_a_factor_without_a_type_is_linear(tmp_path: Path, extra: dict[str, Any]) -> None:
    assert table(tmp_path, extra=extra) == table(tmp_path, rope_scaling="linear")


def test_type_none_ignores_the_factor(tmp_path: Path) -> None:
    extra = {"llama.rope.scaling.type": "none", "llama.rope.scaling.factor": 4.0}
    assert table(tmp_path, extra=extra) == table(tmp_path)


def test_partial_rotation(tmp_path: Path) -> None:
    made = table(tmp_path, extra={"llama.rope.dimension_count": 8})
    assert made.rotary_width == 8
    assert made.frequencies == pytest.approx(10000.0 ** (-np.arange(4) / 4))


@pytest.mark.parametrize("beta", [1e-308, 1e308])
@pytest.mark.parametrize("name", ["yarn_beta_fast", "yarn_beta_slow"])
def test_yarn_ramp_of_absurd_rotations(tmp_path: Path, name: str, beta: float) -> None:
    extra = {f"llama.rope.scaling.{name}": Typed("f64", beta)}
    made = table(tmp_path, rope_scaling="yarn", head_dim=64, extra=extra)
    assert np.all((made.frequencies >= PLAIN / 4) & (made.frequencies <= PLAIN))


def test_absurd_frequencies_are_refused(tmp_path: Path) -> None:
    extra = {"llama.rope.scaling.yarn_ext_factor": Typed("f64", 1e308)}
    with pytest.raises(ModelFileError, match="radians per position"):
        table(tmp_path, rope_scaling="yarn", head_dim=64, extra=extra)
