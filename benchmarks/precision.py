"""What the a16 precision gives and costs, against a8: error of products, of models, time of rows.

    python benchmarks/precision.py smollm2-135m gemma-3-270m qwen2.5-coder-0.5b qwen2.5-coder-1.5b

Three parts, for each model (``--parts`` chooses):

- ``products``: relative error |y - W x| / |W x| of one tensor of each type against float64 on the
  dequantised weights, for activations drawn from a normal and from a Student t distribution with 3
  degrees of freedom.
- ``text``: perplexity of the first tokens of the golden text (tests/golden) at a8, at a16 and with
  float32 activations (the NumPy backend), and the mean divergence KL(float32, ours) in nats. The
  perplexity of llama.cpp on the same tokens stands beside it.
- ``cost``: a step of R rows at a16 divided by the same step at a8, paired over rounds in mirrored
  order. Both programs read the same repacked weights.

Ends with one JSON line.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slipstream.backends.base import Backend, Program
from slipstream.backends.cpu import CpuBackend, native_types
from slipstream.backends.reference import ReferenceBackend
from slipstream.catalog import locate
from slipstream.dispatch.fuse import fuse
from slipstream.dispatch.select import select
from slipstream.dispatch.structure import matrices
from slipstream.gguf import GGUFFile, open_gguf
from slipstream.graph import Graph, GraphBuilder, Weight
from slipstream.measure.interleave import by_condition, interleave
from slipstream.measure.rows import chain_step, fill
from slipstream.measure.statistics import paired_ratio
from slipstream.memory.attention import AttentionMemory
from slipstream.models import build_graph
from slipstream.models.base import weight_data
from slipstream.options import Precision
from slipstream.quants import quant_type, type_name

Floats = NDArray[np.float32]
PRECISIONS: tuple[Precision, ...] = ("a8", "a16")
GOLDEN = Path(__file__).resolve().parents[1] / "tests" / "golden"
ACTIVATION_ROWS, OUTPUT_ROWS = 16, 512
CHUNK = 128


def one_of_each_type(graph: Graph) -> list[Weight]:
    """The first matrix of each quantised type, its first rows only."""
    found: dict[int, Weight] = {}
    for op in graph.ops:
        for weight in matrices(op):
            if quant_type(weight.type_id, weight.name).block_elements > 1:
                found.setdefault(weight.type_id, weight)
    return [replace(w, rows=min(w.rows, OUTPUT_ROWS)) for w in found.values()]


def activations(columns: int) -> dict[str, Floats]:
    rng = np.random.default_rng(columns)
    shape = (ACTIVATION_ROWS, columns)
    return {
        "normal": rng.normal(size=shape).astype(np.float32),
        "student_t3": rng.standard_t(3, size=shape).astype(np.float32),
    }


def product(backend: Backend, file: GGUFFile, weight: Weight, x: Floats) -> Floats:
    builder = GraphBuilder({})
    builder.output("logits", builder.linear(builder.input("x", weight.columns), weight))
    graph = Graph(tuple(builder.ops), "product", weight.columns, weight.rows, ACTIVATION_ROWS)
    memory = AttentionMemory(graph, ACTIVATION_ROWS)
    program = backend.compile(graph, backend.load(file, graph), memory)
    step = chain_step(memory.open(), np.zeros(len(x), np.int32))
    return program.run(replace(step, tokens=None, vectors={"x": x})).logits


def products(file: GGUFFile, graph: Graph, threads: int) -> Iterator[dict[str, Any]]:
    for weight in one_of_each_type(graph):
        kind = quant_type(weight.type_id, weight.name)
        rows = kind.dequantize_rows(weight_data(file, weight), weight.rows, weight.columns)
        for name, x in activations(weight.columns).items():
            exact = x.astype(np.float64) @ rows.astype(np.float64).T
            errors: dict[str, float] = {}
            for precision in PRECISIONS:
                backend = CpuBackend(threads=threads, precision=precision)
                difference = product(backend, file, weight, x) - exact
                errors[precision] = float(np.linalg.norm(difference) / np.linalg.norm(exact))
            identity = {"type": type_name(weight.type_id), "tensor": weight.name}
            yield {**identity, "activations": name, **errors}


def log_softmax(logits: Floats) -> NDArray[np.float64]:
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    result: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return result


def programs(
    file: GGUFFile, graph: Graph, threads: int, positions: int
) -> tuple[CpuBackend, dict[str, Program]]:
    """A program of each precision over the same weights, each with a memory of its own."""
    backend = CpuBackend(threads=threads)
    weights = backend.load(file, graph)
    made: dict[str, Program] = {}
    for precision in PRECISIONS:
        plan = select(graph, backend.isa, native_types(), precision=precision)
        same = replace(weights, plan=plan)
        made[precision] = backend.compile(graph, same, AttentionMemory(graph, positions))
    return backend, made


def text(
    file: GGUFFile, graph: Graph, native: dict[str, Program], golden: dict[str, Any], count: int
) -> dict[str, Any]:
    """Perplexities and divergences over the first ``count`` tokens."""
    reference = ReferenceBackend()
    memory = AttentionMemory(graph, count)
    exact = reference.compile(graph, reference.load(file, graph), memory)
    running = {**native, "float32": exact}
    handles = {name: program.memory.open() for name, program in running.items()}
    tokens = golden["tokens"][:count].astype(np.int32)
    likelihood: dict[str, list[float]] = {name: [] for name in running}
    divergence: dict[str, list[float]] = {name: [] for name in native}
    for first in range(0, count, CHUNK):
        part = tokens[first : first + CHUNK]
        next_tokens = tokens[first + 1 : first + 1 + len(part)]
        said: dict[str, NDArray[np.float64]] = {}
        for name, program in running.items():
            said[name] = log_softmax(program.run(chain_step(handles[name], part)).logits)
            program.memory.commit(handles[name], range(len(part)))
            picked = said[name][np.arange(len(next_tokens)), next_tokens]
            likelihood[name] += (-picked).tolist()
        truth = said["float32"]
        for name in native:
            divergence[name] += (np.exp(truth) * (truth - said[name])).sum(axis=1).tolist()
    for name, program in native.items():
        program.memory.close(handles[name])
    theirs = golden["negative_log_likelihood"][: count - 1]
    return {
        "tokens": count,
        "perplexity": {
            **{name: float(np.exp(np.mean(values))) for name, values in likelihood.items()},
            "llama.cpp": float(np.exp(theirs.mean())),
        },
        "divergence": {name: float(np.mean(values)) for name, values in divergence.items()},
    }


def cost(
    native: dict[str, Program], rows: list[int], depth: int, rounds: int
) -> list[dict[str, Any]]:
    steps, sequences = {}, {}
    for precision, program in native.items():
        sequence = program.memory.open()
        fill(program, sequence, depth)
        for count in rows:
            tokens = (np.arange(count, dtype=np.int32) * 53) % 1000 + 300
            step = chain_step(sequence, tokens % program.graph.vocabulary)
            steps[f"{precision} {count}"] = lambda p=program, s=step: p.run(s)
        sequences[precision] = sequence
    timings = by_condition(interleave(steps, rounds, warm_up=2))
    for precision, program in native.items():
        program.memory.close(sequences[precision])
    measured = []
    for count in rows:
        elapsed = {p: [t.elapsed_s for t in timings[f"{p} {count}"]] for p in PRECISIONS}
        best = {f"{p}_best_ms": 1e3 * min(values) for p, values in elapsed.items()}
        ratio = paired_ratio(elapsed["a16"], elapsed["a8"])
        best_ratio = best["a16_best_ms"] / best["a8_best_ms"]
        measured.append({"rows": count, **best, "best_ratio": best_ratio, **asdict(ratio)})
    return measured


def measure(model: str, options: argparse.Namespace) -> dict[str, Any]:
    parts = options.parts.split(",")
    record: dict[str, Any] = {"model": model}
    with open_gguf(locate(model)) as file:
        graph = fuse(build_graph(file))
        if "products" in parts:
            record["products"] = list(products(file, graph, options.threads))
        if not {"text", "cost"} & set(parts):
            return record
        positions = max(options.tokens, options.depth + max(options.rows))
        backend, native = programs(file, graph, options.threads, positions)
        record["isa"] = backend.isa
        if "cost" in parts:
            record["cost"] = cost(native, options.rows, options.depth, options.rounds)
        if "text" in parts:
            with np.load(GOLDEN / f"logits_{model}.npz") as golden:
                record["text"] = text(file, graph, native, dict(golden), options.tokens)
    return record


def show(record: dict[str, Any]) -> None:
    print(f"{record['model']}")
    for line in record.get("products", []):
        name = f"{line['type']} {line['activations']}"
        print(f"  {name:22s} a8 {line['a8']:.2e}  a16 {line['a16']:.2e}")
    for line in record.get("cost", []):
        print(
            f"  R={line['rows']}: a8 {line['a8_best_ms']:.2f} ms, a16 {line['a16_best_ms']:.2f} ms"
            f" (best); a16/a8 {line['median']:.2f} [{line['low']:.2f}, {line['high']:.2f}]"
        )
    if "text" in record:
        said = record["text"]
        values = ", ".join(f"{name} {value:.4f}" for name, value in said["perplexity"].items())
        print(f"  perplexity of {said['tokens']} tokens: {values}")
        print("  KL to float32:", {n: f"{v:.2e}" for n, v in said["divergence"].items()})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--parts", default="products,text,cost")
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--rows", type=lambda text: [int(r) for r in text.split(",")])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--depth", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    options.rows = options.rows or [1, 2, 4, 8]
    records = []
    for model in options.models:
        records.append(measure(model, options))
        show(records[-1])
    head = {
        "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "machine": platform.processor() or platform.machine(),
        "load_average": os.getloadavg()[0],
        "threads": options.threads,
        "depth": options.depth,
        "rounds": options.rounds,
    }
    print(json.dumps({**head, "models": records}))


if __name__ == "__main__":
    main()
