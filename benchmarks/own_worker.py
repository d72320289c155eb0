"""Slipstream behind the protocol of peer_worker.py: one JSON request per line on stdin."""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from slipstream.dispatch.structure import writes
from slipstream.loading import LoadedModel, load_model
from slipstream.measure.probes import MachineProbe, mix_weights, probe
from slipstream.measure.rows import chain_step
from slipstream.options import EngineOptions, ModelOptions

CHUNK = EngineOptions().prefill_chunk


class Own:
    """One loaded model and one sequence of it."""

    def __init__(self, options: ModelOptions) -> None:
        begin = time.perf_counter()
        self.loaded: LoadedModel = load_model(options, EngineOptions())
        self.program = self.loaded.program
        self.sequence = self.program.memory.open()
        self.open_s = time.perf_counter() - begin
        self.machine: MachineProbe | None = None

    @property
    def length(self) -> int:
        return self.program.memory.length(self.sequence)

    def truncate(self, length: int) -> None:
        """Back to ``length``; to 0 also where a sliding window no longer holds the beginning."""
        memory = self.program.memory
        if length == 0 and memory.earliest(self.sequence) > 0:
            memory.close(self.sequence)
            self.sequence = memory.open()
        else:
            memory.truncate(self.sequence, length)

    def run(self, tokens: list[int], *, all_logits: bool) -> np.ndarray:
        step = chain_step(self.sequence, np.asarray(tokens, np.int32), all_logits=all_logits)
        return self.program.run(step).logits

    def advance(self, tokens: list[int], *, all_logits: bool = False) -> np.ndarray:
        logits = self.run(tokens, all_logits=all_logits)
        self.program.memory.commit(self.sequence, range(len(tokens)))
        return logits

    def fill(self, tokens: list[int]) -> np.ndarray:
        logits = np.empty((0, 0))
        for begin in range(0, len(tokens), CHUNK):
            logits = self.advance(tokens[begin : begin + CHUNK])
        return logits[-1]


def rows(own: Own, request: dict[str, Any]) -> dict[str, Any]:
    depth, count = int(request["depth"]), int(request["rows"])
    if own.length != depth:
        own.truncate(0)
        own.fill([(37 * i) % 1000 + 300 for i in range(depth)])
    elapsed = []
    for k in range(int(request["repeats"])):
        tokens = [(53 * i + k) % 1000 + 300 for i in range(count)]
        begin = time.perf_counter()
        own.run(tokens, all_logits=True)[-1, 0].item()
        elapsed.append((time.perf_counter() - begin) * 1e3)
    return {"ms": elapsed}


def prefill(own: Own, request: dict[str, Any]) -> dict[str, Any]:
    own.truncate(0)
    begin = time.perf_counter()
    token = int(own.fill(request["tokens"]).argmax())
    now = time.perf_counter()
    return {"ms": (now - begin) * 1e3, "token": token, "ready_s": own.open_s + now - begin}


def decode(own: Own, request: dict[str, Any]) -> dict[str, Any]:
    own.truncate(0)
    ids = [int(own.fill(request["tokens"]).argmax())]
    begin = time.perf_counter()
    for _ in range(int(request["count"])):
        ids.append(int(own.advance(ids[-1:])[-1].argmax()))
    return {"ids": ids, "ms_per_token": (time.perf_counter() - begin) * 1e3 / request["count"]}


def logits(own: Own, request: dict[str, Any]) -> dict[str, Any]:
    own.truncate(0)
    tokens, chunk = request["tokens"], int(request.get("chunk", 64))
    shape = (len(tokens), own.program.graph.vocabulary)
    out = np.lib.format.open_memmap(request["path"], "w+", np.float32, shape)
    for begin in range(0, len(tokens), chunk):
        part = tokens[begin : begin + chunk]
        out[begin : begin + len(part)] = own.advance(part, all_logits=True)
    out.flush()
    return {"rows": len(tokens)}


def tokenize(own: Own, request: dict[str, Any]) -> dict[str, Any]:
    return {"tokens": own.loaded.tokenizer.encode(request["text"])}


def memory(own: Own, _: dict[str, Any]) -> dict[str, Any]:
    return {
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "step_bytes": own.loaded.weights.step_bytes,
        "kv_bytes": own.program.memory.bytes(),
    }


def limits(own: Own, request: dict[str, Any]) -> dict[str, Any]:
    """The machine's rates, the best of all calls so far, and what they allow a pass of R rows."""
    weights, backend = own.loaded.weights, own.loaded.backend
    taken = probe(backend.isa, backend.threads)
    own.machine = taken if own.machine is None else own.machine.better(taken)
    mixes = mix_weights(own.loaded.graph, weights.plan.stored_types())
    return {
        "read_gb_s": own.machine.read_gb_s,
        "peak_gmac_s": dict(own.machine.peak_gmac_s),
        "step_bytes": weights.step_bytes,
        "step_weights": mixes,
        "prompt_token_ms": prompt_token_ms(own),
        "limit_ms": {
            str(r): own.machine.limit_ms(r, weights.step_bytes, mixes) for r in request["rows"]
        },
    }


def prompt_token_ms(own: Own) -> float:
    """Milliseconds of the multiplications of one prompt token, which needs no logits."""
    assert own.machine is not None
    graph, stored = own.loaded.graph, own.loaded.weights.plan.stored_types()
    body = tuple(op for op in graph.ops if all(v.row_set == "all" for v in writes(op)))
    return own.machine.limit_ms(1, 0, mix_weights(replace(graph, ops=body), stored))


def package_version() -> str:
    try:
        return version("slipstream")
    except PackageNotFoundError:
        return "source tree"


def identity(own: Own, _: dict[str, Any]) -> dict[str, Any]:
    return {
        "package": "slipstream",
        "version": package_version(),
        "isa": getattr(own.loaded.backend, "isa", "numpy"),
        "precision": own.loaded.backend.precision,
        "threads": getattr(own.loaded.backend, "threads", None),
        "step_bytes": own.loaded.weights.step_bytes,
    }


OPERATIONS = {
    f.__name__: f for f in (rows, prefill, decode, logits, tokenize, memory, limits, identity)
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--context", type=int, default=4096)
    options = parser.parse_args()
    own = Own(ModelOptions(model=options.model, threads=options.threads, context=options.context))
    print(json.dumps({"ready": True, "open_s": own.open_s}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(OPERATIONS[request["op"]](own, request)), flush=True)


if __name__ == "__main__":
    main()
