"""Against llama.cpp on the same file and text (golden files of tests/golden/make_logits_golden.py).

llama.cpp rounds attention outputs and GELU to float16 and sums in another order, so logits differ
by a little more than activation rounding; the bounds below are an order of magnitude above what a
correct model shows and several below what one wrong constant (RoPE base, scale, norm) causes.
The divergence is a lower bound: the files keep the 32 best tokens and one bucket for the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from slipstream.loading import load_model
from slipstream.measure.rows import chain_step
from slipstream.options import EngineOptions, ModelOptions

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
MODELS = ("smollm2-135m", "gemma-3-270m", "qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b")
FIRST, POSITIONS = 256, 256
CHUNK = 128

LEAST_CORRELATION = 0.997  # measured: 0.9987 (gemma-3-270m) to 0.9997
MOST_DIVERGENCE = 0.01  # nats, mean over the positions
MOST_PERPLEXITY_CHANGE = 0.005


def log_softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    """Of one row: all rows of a chunk at once would spend most of their time on new memory."""
    shifted = logits.astype(np.float64) - logits.max()
    result: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum())
    return result


class Measured:
    """What our model says on the golden tokens, reduced chunk by chunk."""

    def __init__(self, golden: dict[str, NDArray[np.float32]]) -> None:
        self.golden = golden
        self.likelihood: list[float] = []
        self.divergence: list[float] = []
        self.random: list[NDArray[np.float32]] = []

    def add(self, first: int, logits: NDArray[np.float32]) -> None:
        tokens = self.golden["tokens"]
        for i, row in enumerate(map(log_softmax, logits)):
            position = first + i
            if position + 1 < len(tokens):
                self.likelihood.append(-float(row[tokens[position + 1]]))
            if FIRST <= position < FIRST + POSITIONS:
                self.divergence.append(self._divergence(position - FIRST, row))
                self.random.append(logits[i][self.golden["random"]])

    def _divergence(self, index: int, row: NDArray[np.float64]) -> float:
        """KL(llama.cpp, ours) over its 32 best tokens and one bucket for all the others."""
        p = np.exp(self.golden["best_log_probability"][index].astype(np.float64))
        q = np.exp(row[self.golden["best"][index]])
        rest_p, rest_q = max(1.0 - p.sum(), 1e-12), max(1.0 - q.sum(), 1e-12)
        return float((p * np.log(p / q)).sum() + rest_p * np.log(rest_p / rest_q))


def measure(path: Path, golden: dict[str, NDArray[np.float32]]) -> Measured:
    tokens = golden["tokens"]
    loaded = load_model(ModelOptions(model=str(path), context=len(tokens)), EngineOptions())
    sequence = loaded.memory.open()
    measured = Measured(golden)
    for first in range(0, len(tokens), CHUNK):
        part = tokens[first : first + CHUNK].astype(np.int32)
        measured.add(first, loaded.program.run(chain_step(sequence, part)).logits)
        loaded.memory.commit(sequence, range(len(part)))
    return measured


@pytest.mark.native
@pytest.mark.model
@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_same_distribution_as_llama_cpp(model: str, model_path: Callable[[str], Path]) -> None:
    with np.load(GOLDEN / f"logits_{model}.npz") as archive:
        golden = {name: archive[name] for name in archive.files}
    assert len(golden["tokens"]) >= 2000
    measured = measure(model_path(model), golden)
    ours, theirs = np.mean(measured.likelihood), golden["negative_log_likelihood"].mean()
    change = float(np.exp(ours - theirs) - 1.0)
    correlation = np.corrcoef(np.concatenate(measured.random), golden["random_logits"].reshape(-1))[
        0, 1
    ]
    divergence = float(np.mean(measured.divergence))
    print(
        f"{model}: perplexity {np.exp(ours):.4f} ({100 * change:+.3f} %), "
        f"KL {divergence:.2e}, correlation {correlation:.6f}"
    )
    assert abs(change) <= MOST_PERPLEXITY_CHANGE
    assert correlation >= LEAST_CORRELATION
    assert divergence <= MOST_DIVERGENCE
