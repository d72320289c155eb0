"""Slipstream's completions behind JSON lines, so that it can be stopped while a peer runs.

Reads one request per line on stdin, answers one JSON object per line on stdout. A prompt is a line
of workloads/*.jsonl, conditions are names with options of ``Model.complete``. Requests:

    {"op": "ids", "prompt": P}                            the prompt's token ids
    {"op": "pairs", "prompt": P, "conditions": C, "rounds": N, "tokens": T}    samples in turns
    {"op": "one", "prompt": P, "options": O, "tokens": T}                      one cold sample
    {"op": "timed", "ids": [..], "tokens": T}    seconds of a plain output that ends by its length
    {"op": "identity"}
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import msgspec
from own_worker import package_version

from slipstream.api import Model
from slipstream.measure.balance import time_balance
from slipstream.measure.speculation import (
    PLAIN,
    Sample,
    prompt_ids,
    run_pairs,
    take_sample,
    warm_up,
)
from slipstream.measure.speculation_summary import acceptance, phases
from slipstream.measure.workload import WorkloadPrompt


def prompt_of(request: Mapping[str, Any]) -> WorkloadPrompt:
    """With the request's own number of tokens, if it names one."""
    prompt = msgspec.convert(request["prompt"], WorkloadPrompt)
    tokens = request.get("tokens", prompt.max_tokens)
    return msgspec.structs.replace(prompt, max_tokens=tokens)


def described(sample: Sample, plain: Sample | None) -> dict[str, Any]:
    """Plain values of a sample.

    Args:
        plain: of the same prompt and round; None for an output that has no twin.
    """
    times = phases([sample])
    balance = time_balance(sample.rounds, plain.rounds) if plain else None
    return {
        "condition": sample.condition,
        "round": sample.round,
        "decode_s": sample.decode_s,
        "emitted": sample.emitted,
        "drafted": sample.drafted,
        "accepted": sample.accepted,
        "passes": sample.target_passes,
        "degenerate": sample.degenerate,
        "identical": None if plain is None else sample.ids == plain.ids,
        "phases": asdict(times),
        "positions": [[p.reached, p.accepted] for p in acceptance(sample.rounds)],
        "balance": None if balance is None else balance.net_share,
    }


def ids(model: Model, request: dict[str, Any]) -> dict[str, Any]:
    return {"ids": prompt_ids(model, prompt_of(request))}


def pairs(model: Model, request: dict[str, Any]) -> dict[str, Any]:
    prompt = prompt_of(request)
    taken = list(
        run_pairs(
            model,
            [prompt],
            {name: _options(given) for name, given in request["conditions"].items()},
            rounds=int(request["rounds"]),
            max_tokens=None,
            reset=model.forget,
        )
    )
    plain = {s.round: s for s in taken if s.condition == PLAIN}
    return {"samples": [described(s, plain.get(s.round)) for s in taken]}


def one(model: Model, request: dict[str, Any]) -> dict[str, Any]:
    prompt = prompt_of(request)
    model.forget()
    options = {**_options(request["options"]), "max_tokens": prompt.max_tokens}
    return {"sample": described(take_sample(model, prompt, "one", 0, options), None)}


def timed(model: Model, request: dict[str, Any]) -> dict[str, Any]:
    """The whole call, and its first token on the engine's clock."""
    begin = time.perf_counter()
    done = model.complete(
        request["ids"], max_tokens=request["tokens"], ignore_eos=True, type=("none",)
    )
    elapsed = time.perf_counter() - begin
    return {
        "whole_s": elapsed,
        "first_s": done.statistics.ttft_s,
        "tokens": len(done.ids),
        "text": done.text,
    }


def _options(given: Mapping[str, Any]) -> dict[str, Any]:
    return {**given, "type": tuple(given["type"])}


def identity(model: Model, _: dict[str, Any]) -> dict[str, Any]:
    backend = model.loaded.backend
    return {
        "package": "slipstream",
        "version": package_version(),
        "isa": getattr(backend, "isa", "numpy"),
        "precision": backend.precision,
        "threads": getattr(backend, "threads", None),
    }


OPERATIONS = {f.__name__: f for f in (ids, pairs, one, timed, identity)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--context", type=int, default=4096)
    parser.add_argument("--backend", default="cpu")
    options = parser.parse_args()
    threads = {"threads": options.threads} if options.backend == "cpu" else {}
    shape = {"context": options.context, "prefix_cache": 0}  # every prompt is computed
    model = Model(options.model, backend=options.backend, **shape, **threads)
    print(json.dumps({"ready": True}), flush=True)
    warm = False
    for line in sys.stdin:
        request = json.loads(line)
        if "prompt" in request and not warm:
            warm_up(model, prompt_of(request))
            warm = True
        print(json.dumps(OPERATIONS[request["op"]](model, request)), flush=True)


if __name__ == "__main__":
    main()
