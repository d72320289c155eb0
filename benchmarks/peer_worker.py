"""Drive a peer engine (libllama or ik_llama, through their Python packages) by JSON lines.

Runs inside the peer's own environment, so it imports nothing of Slipstream. Reads one request per
line on stdin, answers one JSON object per line on stdout. Requests:

    {"op": "rows", "rows": R, "depth": D, "repeats": K}   ms of K passes of R rows after D tokens
    {"op": "prefill", "tokens": [...]}                    ms of one prompt pass, last row's logits
    {"op": "decode", "tokens": [...], "count": N}         greedy ids and ms per one-row pass
    {"op": "logits", "tokens": [...], "path": P, "chunk": C}   float32 [n, vocabulary] to P (.npy)
    {"op": "tokenize", "text": T}
    {"op": "memory"}                                      peak resident bytes
    {"op": "identity"}
"""

from __future__ import annotations

import argparse
import ctypes
import json
import resource
import sys
import time
from typing import Any

import numpy as np


def _library(name: str) -> Any:
    if name == "llama":
        import llama_cpp

        return llama_cpp
    from ik_llama_cpp import _ctypes_api

    # Functions of the library that the package does not declare.
    remove = _ctypes_api._lib.llama_kv_cache_seq_rm
    remove.argtypes = [ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32, ctypes.c_int32]
    remove.restype = ctypes.c_bool
    information = _ctypes_api._lib.llama_print_system_info
    information.argtypes, information.restype = [], ctypes.c_char_p
    _ctypes_api.llama_kv_cache_seq_rm = remove
    _ctypes_api.llama_print_system_info = information
    return _ctypes_api


class Peer:
    """One model and one context; every pass goes through llama_decode."""

    def __init__(self, library: str, path: str, threads: int, context: int) -> None:
        self.lib = _library(library)
        begin = time.perf_counter()
        self.name = library
        self._silence()
        self.lib.llama_backend_init()
        self.model = self._load(path)
        parameters = self.lib.llama_context_default_params()
        parameters.n_ctx = context
        parameters.n_batch = parameters.n_ubatch = 512
        parameters.n_threads = parameters.n_threads_batch = threads
        if hasattr(self.lib, "llama_init_from_model"):
            self.context = self.lib.llama_init_from_model(self.model, parameters)
        else:
            self.context = self.lib.llama_new_context_with_model(self.model, parameters)
        self.vocabulary = self._vocabulary()
        self.batch = self.lib.llama_batch_init(512, 0, 1)
        self.length = 0
        self.open_s = time.perf_counter() - begin

    def _silence(self) -> None:
        if hasattr(self.lib, "llama_log_callback"):
            self._callback = self.lib.llama_log_callback(lambda *_: None)
            self.lib.llama_log_set(self._callback, ctypes.c_void_p(0))

    def _load(self, path: str) -> Any:
        parameters = self.lib.llama_model_default_params()
        parameters.n_gpu_layers = 0
        if hasattr(parameters, "repack_tensors"):
            parameters.repack_tensors = True
        for name in ("llama_model_load_from_file", "llama_load_model_from_file"):
            if hasattr(self.lib, name):
                return getattr(self.lib, name)(path.encode(), parameters)
        raise SystemExit("this package has no function to load a model")

    def _vocabulary(self) -> int:
        if hasattr(self.lib, "llama_vocab_n_tokens"):
            return int(self.lib.llama_vocab_n_tokens(self.lib.llama_model_get_vocab(self.model)))
        return int(self.lib.llama_n_vocab(self.model))

    def truncate(self, length: int) -> None:
        if hasattr(self.lib, "llama_get_memory"):
            memory = self.lib.llama_get_memory(self.context)
            self.lib.llama_memory_seq_rm(memory, 0, length, -1)
        else:
            self.lib.llama_kv_cache_seq_rm(self.context, 0, length, -1)
        self.length = length

    def run(self, tokens: list[int], *, all_logits: bool) -> None:
        self.batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            self.batch.token[i] = token
            self.batch.pos[i] = self.length + i
            self.batch.n_seq_id[i] = 1
            self.batch.seq_id[i][0] = 0
            self.batch.logits[i] = all_logits or i == len(tokens) - 1
        code = self.lib.llama_decode(self.context, self.batch)
        if code != 0:
            raise RuntimeError(f"llama_decode returned {code}")
        self.length += len(tokens)

    def fill(self, tokens: list[int]) -> None:
        for begin in range(0, len(tokens), 512):
            self.run(tokens[begin : begin + 512], all_logits=False)
        self.logits(-1)

    def logits(self, row: int) -> np.ndarray:
        pointer = self.lib.llama_get_logits_ith(self.context, row)
        return np.ctypeslib.as_array(
            ctypes.cast(pointer, ctypes.POINTER(ctypes.c_float)), (self.vocabulary,)
        )


def rows(peer: Peer, request: dict[str, Any]) -> dict[str, Any]:
    depth, count = int(request["depth"]), int(request["rows"])
    if peer.length != depth:
        peer.truncate(0)
        peer.fill([(37 * i) % 1000 + 300 for i in range(depth)])
    elapsed = []
    for k in range(int(request["repeats"])):
        tokens = [(53 * i + k) % 1000 + 300 for i in range(count)]
        begin = time.perf_counter()
        peer.run(tokens, all_logits=True)
        peer.logits(-1)[0].item()
        elapsed.append((time.perf_counter() - begin) * 1e3)
        peer.truncate(depth)
    return {"ms": elapsed}


def prefill(peer: Peer, request: dict[str, Any]) -> dict[str, Any]:
    peer.truncate(0)
    begin = time.perf_counter()
    peer.fill(request["tokens"])
    token = int(peer.logits(-1).argmax())
    now = time.perf_counter()
    return {"ms": (now - begin) * 1e3, "token": token, "ready_s": peer.open_s + now - begin}


def decode(peer: Peer, request: dict[str, Any]) -> dict[str, Any]:
    peer.truncate(0)
    peer.fill(request["tokens"])
    ids, begin = [int(peer.logits(-1).argmax())], time.perf_counter()
    for _ in range(int(request["count"])):
        peer.run(ids[-1:], all_logits=True)
        ids.append(int(peer.logits(-1).argmax()))
    return {"ids": ids, "ms_per_token": (time.perf_counter() - begin) * 1e3 / request["count"]}


def logits(peer: Peer, request: dict[str, Any]) -> dict[str, Any]:
    peer.truncate(0)
    tokens, chunk = request["tokens"], int(request.get("chunk", 64))
    out = np.lib.format.open_memmap(
        request["path"], "w+", np.float32, (len(tokens), peer.vocabulary)
    )
    for begin in range(0, len(tokens), chunk):
        part = tokens[begin : begin + chunk]
        peer.run(part, all_logits=True)
        for i in range(len(part)):
            out[begin + i] = peer.logits(i)
    out.flush()
    return {"rows": len(tokens)}


def tokenize(peer: Peer, request: dict[str, Any]) -> dict[str, Any]:
    text = request["text"].encode()
    buffer = (ctypes.c_int32 * (len(text) + 16))()
    owner = (
        peer.lib.llama_model_get_vocab(peer.model)
        if hasattr(peer.lib, "llama_model_get_vocab")
        else peer.model
    )
    count = peer.lib.llama_tokenize(owner, text, len(text), buffer, len(buffer), True, False)
    return {"tokens": list(buffer[:count])}


def identity(peer: Peer, _: dict[str, Any]) -> dict[str, Any]:
    info = peer.lib.llama_print_system_info().decode(errors="replace")
    package = sys.modules[peer.lib.__name__.split(".")[0]]
    return {
        "package": package.__name__,
        "version": getattr(package, "__version__", "unknown"),
        "isa": [part.strip() for part in info.split("|") if "= 1" in part],
    }


def memory(_: Peer, __: dict[str, Any]) -> dict[str, Any]:
    return {"peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}


OPERATIONS = {f.__name__: f for f in (rows, prefill, decode, logits, tokenize, memory, identity)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("library", choices=("llama", "ik_llama"))
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--context", type=int, default=4096)
    options = parser.parse_args()
    peer = Peer(options.library, options.model, options.threads, options.context)
    print(json.dumps({"ready": True, "open_s": peer.open_s}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(OPERATIONS[request["op"]](peer, request)), flush=True)


if __name__ == "__main__":
    main()
