"""Write tests/golden/tiny_models.npz: libllama's logits on the models of tests/tiny_variants.py.

    python tests/golden/make_tiny_golden.py --peer PYTHON

PYTHON is an interpreter with llama-cpp-python; libllama runs in float32 (weights, keys and values).
Kept per model: the SHA-256 of its file and a sample of the logits.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

PEER = """
import json, sys
import llama_cpp, numpy
job = json.load(sys.stdin)
yarn = {f"yarn_{name}": -1.0 for name in ("ext_factor", "attn_factor", "beta_fast", "beta_slow")}
for model in job["models"]:
    llama = llama_cpp.Llama(
        model["path"], n_ctx=job["context"], n_threads=1, logits_all=True, flash_attn=False,
        type_k=0, type_v=0, verbose=False, **{**yarn, **model["options"]},
    )
    llama.eval(job["tokens"])
    logits = numpy.array(llama.scores[: len(job["tokens"])], numpy.float32)
    numpy.save(model["path"] + ".npy", logits)
    llama.close()
print(llama_cpp.__version__)
"""


def main() -> None:
    from tiny_variants import CONTEXT, VARIANTS, sampled, tokens

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", required=True, help="a Python with llama-cpp-python")
    peer = parser.parse_args().peer
    with tempfile.TemporaryDirectory() as folder:
        paths = [variant.write(Path(folder)) for variant in VARIANTS]
        models = [
            {"path": str(path), "options": dict(variant.peer)}
            for variant, path in zip(VARIANTS, paths, strict=True)
        ]
        job = {"models": models, "tokens": tokens().tolist(), "context": CONTEXT}
        done = subprocess.run(
            [peer, "-c", PEER], input=json.dumps(job), capture_output=True, text=True, check=True
        )
        arrays: dict[str, np.ndarray] = {"peer_version": np.asarray(done.stdout.split()[-1])}
        for variant, path in zip(VARIANTS, paths, strict=True):
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            arrays[f"{variant.name}:sha256"] = np.asarray(digest)
            arrays[f"{variant.name}:logits"] = sampled(np.load(f"{path}.npy"))
    np.savez_compressed(HERE / "tiny_models.npz", **arrays)
    print(f"{len(paths)} models, llama-cpp-python {arrays['peer_version']}")


if __name__ == "__main__":
    main()
