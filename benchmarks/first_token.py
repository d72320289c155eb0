"""Model open to first token of a 16-token prompt, in process, and peak memory: ours and llama.cpp.

    python benchmarks/first_token.py qwen2.5-coder-1.5b --peers ~/.cache/slipstream/peers

Every sample is a new process with the file in the page cache; the engines take turns (A B B A) and
only one runs at a time. The clock starts when the library is imported and the model is not yet
open. Ends with one JSON line.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
from pathlib import Path
from typing import Any

from workers import require, start

from slipstream.catalog import cache_directory, locate
from slipstream.measure.interleave import mirrored_order

PROMPT = [(53 * i) % 1000 + 300 for i in range(16)]


def sample(name: str, path: str, threads: int, context: int, peers: Path) -> dict[str, Any]:
    with start(name, path, threads=threads, context=context, peers=peers) as worker:
        first = worker.ask(op="prefill", tokens=PROMPT)
        memory = worker.ask(op="memory")
    return {"first_token_s": first["ready_s"], **memory}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--peers", type=Path, default=cache_directory() / "peers")
    options = parser.parse_args()
    path = str(locate(options.model))
    require(["llama"], options.peers)
    Path(path).read_bytes()  # warm page cache
    samples: dict[str, list[dict[str, Any]]] = {"slipstream": [], "llama": []}
    for number, name in mirrored_order(list(samples), options.rounds + 1):
        taken = sample(name, path, options.threads, options.context, options.peers)
        if number > 0:
            samples[name].append(taken)
    medians = {
        name: {key: statistics.median(s[key] for s in taken) for key in taken[0]}
        for name, taken in samples.items()
    }
    for name, values in medians.items():
        first, peak = values["first_token_s"], values["peak_rss_bytes"]
        print(f"{name:12s} first token {first:.3f} s, peak memory {peak / 1e6:,.0f} MB")
    print(
        json.dumps(
            {
                "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
                "model": options.model,
                "threads": options.threads,
                "context": options.context,
                "rounds": options.rounds,
                "medians": medians,
                "ratio": medians["slipstream"]["first_token_s"] / medians["llama"]["first_token_s"],
                "samples": samples,
            }
        )
    )


if __name__ == "__main__":
    main()
