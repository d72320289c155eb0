"""The reference backend against libllama on tiny models of every architecture and RoPE variant.

Both compute in float32, except that keys and values are stored in float16 here (relative rounding
2^-12) and in float32 there. Logits have a standard deviation of 0.85 to 1.25, and the wrong variant
of anything moves some of them by more than 1.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from reference_runs import run_rows
from slipstream.dispatch.fuse import fuse
from slipstream.gguf import open_gguf
from slipstream.models import build_graph
from tiny_variants import VARIANTS, Variant, sampled, tokens

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "tiny_models.npz"
MOST_DIFFERENCE = 0.02


@pytest.fixture(scope="module")
def golden() -> Iterator[dict[str, NDArray[np.generic]]]:
    with np.load(GOLDEN) as archive:
        yield dict(archive)


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_logits_of_libllama(
    variant: Variant, tmp_path: Path, golden: dict[str, NDArray[np.generic]]
) -> None:
    path = variant.write(tmp_path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert digest == golden[f"{variant.name}:sha256"], (
        "the tiny model has changed: run tests/golden/make_tiny_golden.py"
    )
    with open_gguf(path) as file:
        logits = sampled(run_rows(file, fuse(build_graph(file)), tokens()))
    expected = golden[f"{variant.name}:logits"]
    assert np.abs(logits - expected).max() < MOST_DIFFERENCE
    assert np.corrcoef(logits.ravel(), expected.ravel())[0, 1] > 0.99999


def test_golden_variants_are_told_apart(golden: dict[str, NDArray[np.generic]]) -> None:
    plain = golden["llama-plain:logits"]
    for name in ("llama-linear", "llama-yarn", "llama-llama3", "llama-attention-factor"):
        assert np.abs(plain - golden[f"{name}:logits"]).max() > 10 * MOST_DIFFERENCE
    wide = golden["llama-yarn-wide:logits"]
    for name in ("attention-factor", "beta", "half", "off"):
        assert np.abs(wide - golden[f"llama-yarn-{name}:logits"]).max() > 10 * MOST_DIFFERENCE
    gemma = golden["gemma3-plain:logits"]
    for name in ("linear", "yarn", "no-window", "window-base", "pattern", "softcap"):
        assert np.abs(gemma - golden[f"gemma3-{name}:logits"]).max() > 10 * MOST_DIFFERENCE
