"""What was asked for beside what is in effect."""

from __future__ import annotations

from typing import Any

import pytest

from slipstream.lab.contract.plan import RuntimePlan
from slipstream.lab.observation.log_scan import scan
from slipstream.lab.runtimes.observing import (
    differing,
    flag_settings,
    log_settings,
    metal_paths,
    props_settings,
    served_types,
)

DEVICE = [
    "ggml_metal_device_init: GPU family: MTLGPUFamilyApple9  (1009)",
    "ggml_metal_device_init: simdgroup matrix mul. = true",
    "ggml_metal_device_init: has tensor            = false",
]
PIPELINE = "x_compile_pipeline: loaded kernel_mul_mv_mma_q4_K_f32_nsg=8   0x1f | th_max = 1024"


@pytest.mark.parametrize(
    ("asked", "found", "differs"),
    [
        (0.05, "0.050000", False),
        (16, "16", False),
        (16, "15", True),
        ("ngram-mod,draft-simple", "draft-simple,ngram-mod", False),
        ("none", "ngram-mod", True),
        (True, "true", False),
    ],
)
def test_one_setting(asked: Any, found: Any, differs: bool) -> None:
    assert bool(differing({"x": asked}, {"x": found})) == differs


def test_a_context_may_be_rounded_up_and_not_down() -> None:
    assert differing({"context": 1000}, {"context": 1024}) == {}
    assert differing({"context": 1000}, {"context": 512}) == {"context": ("1000", "512")}


def test_what_is_not_told_does_not_differ() -> None:
    assert differing({"context": 1000}, {}) == {}


@pytest.mark.parametrize(
    ("slots", "types"),
    [
        (None, None),
        ([], None),
        ("x", None),
        ([{"speculative": True}], None),
        ([{"speculative": False}], "none"),
        ([{"params": {"speculative.types": "none,ngram-mod"}}], "ngram-mod"),
        ([{"params": {"speculative.types": "none"}}], "none"),
        ([{"params": []}], None),
    ],
)
def test_methods_that_slots_tell(slots: Any, types: str | None) -> None:
    assert served_types(slots) == types


def test_settings_of_props_and_log() -> None:
    assert props_settings({"default_generation_settings": [], "total_slots": -1}) == {}
    lines = [
        "I spec x: adding speculative implementation 'ngram-map-k'",
        "I spec x: - size_key=12, size_value=7, key_only=1, min_hits=2",
    ]
    assert log_settings(scan(lines)) == {
        "spec-type": "ngram-map-k", "ngram_map_k_size_n": "12", "ngram_map_k_size_m": "7",
        "ngram_map_k_min_hits": "2",
    }  # fmt: skip
    assert log_settings(scan([])) == {}


def test_settings_that_flags_ask_for() -> None:
    plan = RuntimePlan(kind="llama-server", binary="x", flags=("-ctk", "q8_0", "-b", "64", "-ctv"))
    assert flag_settings(plan) == {"cache_type_k": "q8_0", "n_batch": "64"}


def test_a_metal_path_needs_the_device_s_word_and_a_compiled_pipeline() -> None:
    assert metal_paths(scan([*DEVICE, PIPELINE]))[0] == ("kernel_mul_mv_mma_q4_K_f32",)
    assert metal_paths(scan([PIPELINE]))[0] == ("unknown",)
    assert metal_paths(scan(DEVICE))[0] == ("unknown",)
    for left_out in range(len(DEVICE)):
        spoken = [line for place, line in enumerate(DEVICE) if place != left_out]
        assert metal_paths(scan([*spoken, PIPELINE]))[0] == ("unknown",)
    other = PIPELINE.replace("mul_mv_mma", "rms_norm")
    assert metal_paths(scan([*DEVICE, other]))[0] == ("unknown",)
