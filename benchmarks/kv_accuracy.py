"""What keeping keys and values in q8_0 costs in accuracy, against f16.

    python benchmarks/kv_accuracy.py [MODEL ...] [--tokens N] [--threads N]

The texts of workloads/, each cut to N tokens, are computed
with both types. Per model: perplexity of the prompts' tokens with each, mean Kullback-Leibler
divergence of the next-token distributions (f16's from q8_0's), Pearson correlation of the logits
and the share of positions with the same best token. Ends with one JSON line.
"""

from __future__ import annotations

import argparse
import datetime
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from slipstream.backends.base import Step
from slipstream.loading import LoadedModel, load_model
from slipstream.measure.workload import STRATA
from slipstream.options import EngineOptions, KvType, ModelOptions

WORKLOADS = Path(__file__).resolve().parents[1] / "workloads"
MODELS = ["smollm2-135m", "qwen2.5-coder-0.5b"]
CHUNK = 64

Logits = NDArray[np.float32]


def prompts() -> Iterator[str]:
    """The user's texts of the first file of every stratum, in order."""
    for stratum in sorted(STRATA):
        path = WORKLOADS / f"{stratum}.jsonl"
        for line in path.read_text(encoding="utf-8").splitlines():
            messages = json.loads(line)["messages"]
            yield "\n".join(message["content"] for message in messages)


def logits_of(loaded: LoadedModel, ids: NDArray[np.int32]) -> Iterator[Logits]:
    """The logits of every position, chunk by chunk, float32 ``[rows, vocabulary]``."""
    memory = loaded.memory
    sequence = memory.open()
    for first in range(0, len(ids), CHUNK):
        part = ids[first : first + CHUNK]
        rows = np.arange(len(part), dtype=np.int32)
        sequences = np.full(len(part), sequence, np.int32)
        yield loaded.program.run(Step(part, sequences, rows - 1, rows)).logits
        memory.commit(sequence, range(len(part)))
    memory.close(sequence)


def log_softmax(logits: Logits) -> NDArray[np.float64]:
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    result: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return result


class Comparison:
    """Sums over positions."""

    def __init__(self) -> None:
        self.loss = np.zeros(2)  # of f16, of q8_0
        self.scored = self.positions = self.same_best = 0
        self.divergence = self.correlation = 0.0

    def add(self, kept: Logits, rounded: Logits, following: NDArray[np.int32]) -> None:
        """Logits of a chunk with both types; ``following`` may be one shorter than they are."""
        p, q = log_softmax(kept), log_softmax(rounded)
        rows = np.arange(len(following))
        self.loss -= [p[rows, following].sum(), q[rows, following].sum()]
        self.scored += len(following)
        self.positions += len(p)
        self.divergence += float((np.exp(p) * (p - q)).sum())
        self.same_best += int((kept.argmax(axis=-1) == rounded.argmax(axis=-1)).sum())
        self.correlation += sum(
            float(np.corrcoef(a, b)[0, 1]) for a, b in zip(kept, rounded, strict=True)
        )

    def summary(self) -> dict[str, float]:
        perplexity = np.exp(self.loss / self.scored)
        return {
            "positions": self.positions,
            "perplexity_f16": float(perplexity[0]),
            "perplexity_q8_0": float(perplexity[1]),
            "perplexity_ratio": float(perplexity[1] / perplexity[0]),
            "mean_kl_divergence": self.divergence / self.positions,
            "logits_correlation": self.correlation / self.positions,
            "same_best_token": self.same_best / self.positions,
        }


def compare(model: str, tokens: int, threads: int | None) -> dict[str, float]:
    def load(kv_type: KvType) -> LoadedModel:
        options = ModelOptions(model=model, context=tokens, threads=threads, kv_type=kv_type)
        return load_model(options, EngineOptions())

    kept, rounded = load("f16"), load("q8_0")
    comparison = Comparison()
    for text in prompts():
        ids = np.asarray(kept.tokenizer.encode(text)[:tokens], np.int32)
        pairs = zip(logits_of(kept, ids), logits_of(rounded, ids), strict=True)
        for number, (a, b) in enumerate(pairs):
            first = number * CHUNK + 1
            comparison.add(a, b, ids[first : first + CHUNK])
    return comparison.summary()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--tokens", type=int, default=1024, help="of each prompt [1024]")
    parser.add_argument("--threads", type=int)
    options = parser.parse_args()
    results = {}
    for model in options.models:
        results[model] = compare(model, options.tokens, options.threads)
        print(model, *(f"{key} {value:.6g}" for key, value in results[model].items()))
    date = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
    print(json.dumps({"date": date, "tokens": options.tokens, "models": results}))


if __name__ == "__main__":
    main()
