"""Steps with another process busy on the machine's cores: how much slower, and does it collapse?

    python benchmarks/busy_neighbour.py smollm2-135m --rows 1,8 --neighbours 1

Segments of steps with and without neighbours take turns (A B B A). A neighbour is a process that
spins; it is stopped (SIGSTOP) while it is not wanted. `free` neighbours run wherever the system
puts them, `pinned` ones stay on the first processor that this process may use. With N threads on N
cores and one neighbour, fair scheduling leaves N / (N + 1) of the machine: (N + 1) / N times the
time, 1.5 with two threads; `cores` is the processor time per second that the steps got. Ends with
one JSON line.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from slipstream.loading import LoadedModel, load_model
from slipstream.machine import available_processors
from slipstream.measure.interleave import mirrored_order
from slipstream.measure.rows import chain_step
from slipstream.options import EngineOptions, ModelOptions

DEPTH = 64
BAR = 1.6
VARIANTS = ("free", "pinned")


class Neighbours:
    """Spinning processes, all stopped at first."""

    def __init__(self, count: int, *, pinned: bool) -> None:
        command = [sys.executable, "-c", "while True: pass"]
        self._processes = [subprocess.Popen(command) for _ in range(count)]
        for process in self._processes:
            if pinned:
                os.sched_setaffinity(process.pid, {min(available_processors())})
        self.signal(signal.SIGSTOP)

    def signal(self, number: signal.Signals) -> None:
        for process in self._processes:
            process.send_signal(number)

    def close(self) -> None:
        self.signal(signal.SIGKILL)
        for process in self._processes:
            process.wait()


@contextlib.contextmanager
def neighbours(count: int, *, pinned: bool) -> Iterator[Neighbours]:
    opened = Neighbours(count, pinned=pinned)
    try:
        yield opened
    finally:
        opened.close()


class Steps:
    """Times steps of some rows at a depth of 64 tokens; nothing is committed."""

    def __init__(self, loaded: LoadedModel) -> None:
        self._program = loaded.program
        self._sequence = self._program.memory.open()
        prompt = np.arange(300, 300 + DEPTH, dtype=np.int32)
        self._program.run(chain_step(self._sequence, prompt, all_logits=False))
        self._program.memory.commit(self._sequence, range(DEPTH))

    def milliseconds(self, rows: int, seconds: float) -> list[float]:
        """Of every step in a segment that long."""
        step = chain_step(self._sequence, np.arange(300, 300 + rows, dtype=np.int32))
        taken: list[float] = []
        end = time.perf_counter() + seconds
        while (begin := time.perf_counter()) < end:
            self._program.run(step)
            taken.append((time.perf_counter() - begin) * 1e3)
        return taken


def compare(
    steps: Steps, rows: int, busy: Neighbours, options: argparse.Namespace
) -> dict[str, Any]:
    """Mean and worst step with and without the neighbours; the ratio pairs segments of a round."""
    segments: dict[str, list[list[float]]] = {"alone": [], "busy": []}
    cores: dict[str, list[float]] = {"alone": [], "busy": []}
    steps.milliseconds(rows, 0.1)
    for _, name in mirrored_order(list(segments), options.rounds):
        busy.signal(signal.SIGCONT if name == "busy" else signal.SIGSTOP)
        time.sleep(0.02)
        begin, used = time.perf_counter(), time.process_time()
        segments[name].append(steps.milliseconds(rows, options.seconds))
        cores[name].append((time.process_time() - used) / (time.perf_counter() - begin))
    busy.signal(signal.SIGSTOP)
    means = {name: [statistics.fmean(s) for s in taken] for name, taken in segments.items()}
    ratios = [b / a for a, b in zip(means["alone"], means["busy"], strict=True)]
    found: dict[str, Any] = {"rows": rows, "ratio": statistics.median(ratios), "ratios": ratios}
    for name, taken in segments.items():
        every = sorted(ms for segment in taken for ms in segment)
        found[name] = {
            "mean_ms": statistics.fmean(every),
            "median_ms": statistics.median(every),
            "p99_ms": every[int(0.99 * len(every))],
            "worst_ms": every[-1],
            "cores": statistics.fmean(cores[name]),
            "steps": len(every),
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--rows", default="1,8")
    parser.add_argument("--neighbours", type=int, default=1)
    parser.add_argument("--variants", default=",".join(VARIANTS))
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=0.5, help="of one segment")
    parser.add_argument("--threads", type=int)
    options = parser.parse_args()
    model = ModelOptions(model=options.model, threads=options.threads, context=512)
    loaded = load_model(model, EngineOptions())
    steps = Steps(loaded)
    results = []
    for variant in options.variants.split(","):
        with neighbours(options.neighbours, pinned=variant == "pinned") as busy:
            for rows in map(int, options.rows.split(",")):
                found = {"variant": variant, **compare(steps, rows, busy, options)}
                results.append(found)
                alone, beside = found["alone"], found["busy"]
                print(
                    f"{variant:7s} rows {rows:2d}: {found['ratio']:.2f}x (bar {BAR}), mean "
                    f"{alone['mean_ms']:.2f} -> {beside['mean_ms']:.2f} ms on "
                    f"{alone['cores']:.2f} -> {beside['cores']:.2f} cores, p99 "
                    f"{alone['p99_ms']:.1f} -> {beside['p99_ms']:.1f} ms, worst "
                    f"{alone['worst_ms']:.1f} -> {beside['worst_ms']:.1f} ms"
                )
    record = {
        "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "model": options.model,
        "threads": getattr(loaded.backend, "threads", None),
        "processors": len(available_processors()),
        "neighbours": options.neighbours,
        "bar": BAR,
        "met": all(found["ratio"] <= BAR for found in results),
        "results": results,
    }
    print(json.dumps(record))


if __name__ == "__main__":
    main()
