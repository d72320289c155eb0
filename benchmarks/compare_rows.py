"""Time of one pass of R rows, ours against native peers: interleaved, the others stopped.

    python benchmarks/compare_rows.py qwen2.5-coder-1.5b --peers ~/.cache/slipstream/peers

Prints a table, then one JSON line. A pass delivers the logits of all R rows. Each round asks every
engine for every R once, in mirrored order; figures are medians over the rounds. ``ratio`` divides
by the smaller of the own t(1) and the best peer's t(1), so a slow first row earns nothing.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import statistics
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from workers import PEERS, Worker, require, start

from slipstream.catalog import cache_directory, locate
from slipstream.measure.interleave import mirrored_order
from slipstream.measure.statistics import paired_ratio

Samples = dict[str, dict[int, list[float]]]


def collect(workers: dict[str, Worker], rows: list[int], depth: int, rounds: int) -> Samples:
    samples: Samples = {name: {r: [] for r in rows} for name in workers}
    for number, name in mirrored_order(list(workers), rounds + 1):
        for count in rows:
            answer = workers[name].ask(op="rows", rows=count, depth=depth, repeats=3)
            if number > 0:
                samples[name][count].append(statistics.median(answer["ms"]))
    return samples


def against_peers(samples: Samples) -> dict[str, list[dict[str, Any]]]:
    """Per peer and row count: how many times faster we are, paired by round, 95 % interval."""
    own = samples.get("slipstream", {})
    return {
        name: [
            {"rows": count, **asdict(paired_ratio(values, own[count]))}
            for count, values in by_rows.items()
        ]
        for name, by_rows in samples.items()
        if own and name != "slipstream"
    }


def summarise(samples: Samples, base: float) -> dict[str, list[dict[str, Any]]]:
    return {
        name: [
            {
                "rows": count,
                "ms": round(statistics.median(values), 3),
                "spread": round((max(values) - min(values)) / statistics.median(values), 3),
                "ratio": round(statistics.median(values) / base, 3),
            }
            for count, values in by_rows.items()
        ]
        for name, by_rows in samples.items()
    }


def show(table: dict[str, list[dict[str, Any]]]) -> None:
    for name, lines in table.items():
        print(f"{name:12s}" + "".join(f"{x['ms']:9.2f}({x['ratio']:.2f})" for x in lines))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--rows", default="1,2,3,4,6,8,12,16")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--depth", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--engines", default=",".join(("slipstream", *PEERS)))
    parser.add_argument("--peers", type=Path, default=cache_directory() / "peers")
    options = parser.parse_args()
    rows = [int(r) for r in options.rows.split(",")]
    path = str(locate(options.model))
    engines = options.engines.split(",")
    require(engines, options.peers)
    workers: dict[str, Worker] = {}
    with ExitStack() as stack:
        for name in engines:
            worker = start(name, path, threads=options.threads, context=2048, peers=options.peers)
            workers[name] = stack.enter_context(worker)
        identities = {name: worker.ask(op="identity") for name, worker in workers.items()}
        samples = collect(workers, rows, options.depth, options.rounds)
    base = min(statistics.median(by_rows[min(rows)]) for by_rows in samples.values())
    table = summarise(samples, base)
    show(table)
    ratios = against_peers(samples)
    for name, lines in ratios.items():
        shown = ", ".join(
            f"R={x['rows']} {x['median']:.2f} [{x['low']:.2f}, {x['high']:.2f}]" for x in lines
        )
        print(f"faster than {name}: {shown}")
    print(
        json.dumps(
            {
                "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
                "model": options.model,
                "machine": platform.processor() or platform.machine(),
                "threads": options.threads,
                "depth": options.depth,
                "rounds": options.rounds,
                "base_ms": base,
                "identity": identities,
                "engines": table,
                "faster_than": ratios,
            }
        )
    )


if __name__ == "__main__":
    main()
