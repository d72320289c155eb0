"""Write tests/golden/logits_<model>.npz: what llama.cpp computes on a fixed text.

    python tests/golden/make_logits_golden.py --peers ~/.cache/slipstream/peers [MODEL ...]

The text is the first four prompts of each stratum joined by blank lines, cut to 2,304 tokens. Kept
per file: token ids; the negative log-likelihood of each next token; for 256 positions the 32 best
tokens with their log-probabilities, and the raw logits of 128 fixed random ids (for a correlation).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from workers import start  # noqa: E402

from slipstream.catalog import cache_directory, locate  # noqa: E402
from slipstream.measure.workload import read_workloads  # noqa: E402

MODELS = ("smollm2-135m", "gemma-3-270m", "qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b")
TOKENS = 2304
FIRST, POSITIONS, BEST, RANDOM = 256, 256, 32, 128


def text() -> str:
    prompts = [p for group in read_workloads(ROOT / "workloads").values() for p in group[:4]]
    return "\n\n".join(message.content for p in prompts for message in p.messages)


def log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits.astype(np.float64) - logits.max()
    return shifted - np.log(np.exp(shifted).sum())


def summarise(tokens: list[int], logits: np.ndarray) -> dict[str, np.ndarray]:
    likelihood = [-log_softmax(logits[i])[tokens[i + 1]] for i in range(len(tokens) - 1)]
    ids = np.random.default_rng(0).choice(logits.shape[1], RANDOM, replace=False)
    best, values = [], []
    for i in range(FIRST, FIRST + POSITIONS):
        row = log_softmax(logits[i])
        top = np.argsort(-row, kind="stable")[:BEST]
        best.append(top)
        values.append(row[top])
    return {
        "tokens": np.asarray(tokens, np.int32),
        "negative_log_likelihood": np.asarray(likelihood, np.float32),
        "best": np.asarray(best, np.int32),
        "best_log_probability": np.asarray(values, np.float32),
        "random": ids.astype(np.int32),
        "random_logits": np.asarray(logits[FIRST : FIRST + POSITIONS][:, ids], np.float32),
    }


def make(model: str, peers: Path) -> None:
    path = str(locate(model))
    with (
        tempfile.TemporaryDirectory() as folder,
        start("llama", path, threads=2, context=TOKENS, peers=peers) as peer,
    ):
        version = str(peer.ask(op="identity")["version"])
        tokens = peer.ask(op="tokenize", text=text())["tokens"][:TOKENS]
        peer.ask(op="logits", tokens=tokens, path=f"{folder}/logits.npy", chunk=256)
        arrays = summarise(tokens, np.load(f"{folder}/logits.npy", mmap_mode="r"))
    target = Path(__file__).parent / f"logits_{model}.npz"
    np.savez_compressed(target, peer_version=np.asarray(version), **arrays)
    mean = float(arrays["negative_log_likelihood"].mean())
    print(f"{target.name}: {len(tokens)} tokens, perplexity {np.exp(mean):.4f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--peers", type=Path, default=cache_directory() / "peers")
    options = parser.parse_args()
    for model in options.models:
        make(model, options.peers)


if __name__ == "__main__":
    main()
