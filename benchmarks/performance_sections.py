"""What one sitting of performance.py measures; every section returns its samples by engine."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workers import PEERS, Worker, start

from slipstream.measure.interleave import mirrored_order

ENGINES = ("slipstream", *PEERS)
ROWS = (1, 2, 4, 8, 16)
ROWS_DEPTH = 64
DECODE_DEPTH = 4096
PREFILL = {512: 2, 2048: 3}  # prompt tokens -> a round of it for so many rounds of rows
CONTEXT = DECODE_DEPTH + 128
OPEN_CONTEXT = 2048
OPEN_TOKENS = 16

Samples = dict[str, dict[str, list[float]]]
Workers = Mapping[str, Worker]


@dataclass(frozen=True)
class Sitting:
    """What all sections of a run share.

    Attributes:
        rounds: interleaved rounds of the sections ``rows`` and ``decode``; the slower ones take
            fewer.
    """

    peers: Path
    threads: int
    rounds: int


def prompt(count: int, seed: int = 0) -> list[int]:
    """Arbitrary token ids that every vocabulary here has."""
    return [(53 * i + 7 * seed) % 1000 + 300 for i in range(count)]


@contextmanager
def engines(path: Path, sitting: Sitting) -> Iterator[Workers]:
    """All engines with the model loaded, each stopped until it is asked."""
    with ExitStack() as stack:
        yield {
            name: stack.enter_context(
                start(
                    name, str(path), threads=sitting.threads, context=CONTEXT, peers=sitting.peers
                )
            )
            for name in ENGINES
        }


def in_turns(
    workers: Workers, rounds: int, keys: list[str], ask: Callable[[Worker, str, int], float]
) -> Samples:
    """Every key of every engine once per round, in mirrored order; the first round is not kept."""
    samples: Samples = {name: {key: [] for key in keys} for name in workers}
    for number, name in mirrored_order(list(workers), rounds + 1):
        for key in keys:
            value = ask(workers[name], key, number)
            if number > 0:
                samples[name][key].append(value)
        print(".", end="", file=sys.stderr, flush=True)
    return samples


def _pass_ms(worker: Worker, rows: int, depth: int) -> float:
    answer = worker.ask(op="rows", rows=rows, depth=depth, repeats=3)
    return float(statistics.median(answer["ms"]))


def measure_rows(workers: Workers, sitting: Sitting) -> dict[str, Any]:
    """Milliseconds of a pass of R rows that delivers the logits of all of them."""
    workers["slipstream"].ask(op="limits", rows=ROWS)
    samples = in_turns(
        workers,
        sitting.rounds,
        [str(r) for r in ROWS],
        lambda worker, key, _: _pass_ms(worker, int(key), ROWS_DEPTH),
    )
    limits = workers["slipstream"].ask(op="limits", rows=ROWS)
    return {"unit": "ms", "depth": ROWS_DEPTH, "samples": samples, "limits": limits}


def measure_decode(workers: Workers, sitting: Sitting) -> dict[str, Any]:
    """Milliseconds of a one-row pass at a long context."""
    key = str(DECODE_DEPTH)
    samples = in_turns(
        workers, sitting.rounds, [key], lambda worker, key, _: _pass_ms(worker, 1, int(key))
    )
    return {"unit": "ms", "samples": samples}


def measure_prefill(workers: Workers, sitting: Sitting) -> dict[str, Any]:
    """Milliseconds from an empty context to the logits of the prompt's last token."""
    samples: Samples = {name: {} for name in workers}
    for count, share in PREFILL.items():
        rounds = max(1, round(sitting.rounds / share))
        taken = in_turns(
            workers,
            rounds,
            [str(count)],
            lambda worker, key, number: float(
                worker.ask(op="prefill", tokens=prompt(int(key), number))["ms"]
            ),
        )
        for name, by_key in taken.items():
            samples[name].update(by_key)
    return {"unit": "ms", "samples": samples}


def measure_first_token(path: Path, sitting: Sitting) -> dict[str, Any]:
    """Seconds from an unopened model to the first token of a short prompt, and peak memory.

    Every sample is a new process; the file is in the page cache.
    """
    with path.open("rb") as file:
        while file.read(1 << 24):
            pass
    samples: Samples = {name: {"first_token_s": [], "peak_rss_bytes": []} for name in ENGINES}
    record: dict[str, Any] = {"unit": "s", "context": OPEN_CONTEXT, "samples": samples}
    rounds = max(1, round(sitting.rounds / 2))
    for number, name in mirrored_order(list(ENGINES), rounds + 1):
        worker = start(
            name, str(path), threads=sitting.threads, context=OPEN_CONTEXT, peers=sitting.peers
        )
        with worker:
            first = worker.ask(op="prefill", tokens=prompt(OPEN_TOKENS))
            memory = worker.ask(op="memory")
        if number > 0:
            samples[name]["first_token_s"].append(first["ready_s"])
            samples[name]["peak_rss_bytes"].append(memory["peak_rss_bytes"])
        if name == "slipstream":
            record |= {key: memory[key] for key in ("step_bytes", "kv_bytes")}
        print(".", end="", file=sys.stderr, flush=True)
    return record


# In the order of a run: sections of running engines, then those of new processes.
RUNNING: Mapping[str, Callable[[Workers, Sitting], dict[str, Any]]] = {
    "rows": measure_rows,
    "prefill": measure_prefill,
    "decode": measure_decode,
}
FRESH: Mapping[str, Callable[[Path, Sitting], dict[str, Any]]] = {
    "first_token": measure_first_token
}
SECTIONS = (*RUNNING, *FRESH)
