"""A/A blocks of this machine: the same server and requests again and again, kept for the lab.

    python benchmarks/lab_aa.py --out experiments/aa/NAME.jsonl [MODEL] [--blocks 60]

A block is what the lab runs: a fresh `slipstream serve` without drafting, a warm-up on a prompt
that is not measured, and one pass over the prompts, one at a time. Blocks are written as they end,
so an interrupted recording keeps those it has; the machine is probed between them, as in a run.
Ends with one JSON line: the spread of a pair, the pairs that a plan needs for margins of 3 and 5 %
(docs/lab-verdicts.md), and how many blocks each drift limit would repeat.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, Final

import msgspec
from http_exchange import Address
from stream_timing import Streamed, body_of, timed

from slipstream.cache import remembered_sha256
from slipstream.catalog import locate
from slipstream.gguf import open_gguf
from slipstream.lab.evidence.noise import pairs_needed, pairs_to_plan
from slipstream.lab.freezing.binary_identity import own_release
from slipstream.lab.judging.aa import AABlock, Recording, read_aa
from slipstream.lab.observation import probe as machine
from slipstream.lab.observation.probe import Reading, drift
from slipstream.measure.workload import WorkloadPrompt, read_workloads
from slipstream.tokenizer import build_tokenizer

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import servers

STRATA: Final = ("repetitive", "chat", "reasoning")
MARGINS: Final = (0.03, 0.05)
DRIFT_LIMITS: Final = (0.05, 0.1, 0.15, 0.2)
CONFIDENCE: Final = 0.95


def prompt_ids(model: Path, prompts: Sequence[WorkloadPrompt]) -> dict[str, list[int]]:
    """Prompt -> token ids of its text, without a chat template: only time is of interest."""
    with open_gguf(model) as file:
        tokenizer = build_tokenizer(file.metadata)
    return {p.id: tokenizer.encode("\n".join(m.content for m in p.messages)) for p in prompts}


def one_block(
    number: int, origin_s: float, command: Sequence[str], ids: dict[str, list[int]], tokens: int
) -> AABlock:
    """A process, a warm-up with the first prompt, and the others one after another."""
    warm_up, *measured = ids
    began_s = time.perf_counter() - origin_s
    with servers.serving(*command) as server:
        address = Address(server.host, server.port)
        timed(address, [body_of(ids[warm_up], tokens)])
        made: dict[str, Streamed] = {
            prompt: timed(address, [body_of(ids[prompt], tokens)])[0] for prompt in measured
        }
    return AABlock(
        block=number,
        began_s=began_s,
        total_s={prompt: one.whole_s for prompt, one in made.items()},
        tokens={prompt: one.tokens for prompt, one in made.items()},
    )


def probed(block: AABlock, readings: Sequence[Reading], earlier: list[float]) -> AABlock:
    """The block with what the machine's probe says around it, as a run would judge it.

    Args:
        earlier: readings of the blocks before; this one's is added.
    """
    change, slower = drift(readings, earlier), machine.slower(readings)
    if slower is not None:
        earlier.append(slower)
    return msgspec.structs.replace(
        block, drift=change, probe_s=slower, other_load=machine.busier(readings)
    )


def write(file: IO[bytes], line: Recording | AABlock) -> None:
    """Whole lines, each synced."""
    file.write(msgspec.json.encode(line) + b"\n")
    file.flush()
    os.fsync(file.fileno())


def facts(options: argparse.Namespace, model: Path, prompts: Sequence[str]) -> dict[str, Any]:
    return {
        "model": options.model,
        "sha256": remembered_sha256(model),
        "program": f"slipstream {own_release()}",
        "machine": f"{platform.machine()}, {os.cpu_count()} processors, {platform.system()}",
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "tokens": options.tokens,
        "warm_up": prompts[0],
        "prompts": list(prompts[1:]),
    }


def record(options: argparse.Namespace) -> None:
    model = Path(locate(options.model))
    found = read_workloads(options.workloads, STRATA)
    prompts = [p for stratum in STRATA for p in found[stratum]][-1:] + [
        found[stratum][0] for stratum in STRATA
    ]
    ids = prompt_ids(model, prompts)
    flags = (options.model, "--spec", "none", "--parallel", "1", "--context", "2048")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    probe, earlier = machine.machine_probe(), list[float]()
    before = probe()
    origin_s = time.perf_counter()
    began = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
    head = Recording(began=began, facts=facts(options, model, list(ids)))
    with options.out.open("xb") as file:
        write(file, head)
        for number in range(options.blocks):
            block = one_block(number, origin_s, flags, ids, options.tokens)
            after = probe()
            block = probed(block, (before, after), earlier)
            before = after
            write(file, block)
            told = f"{sum(block.total_s.values()):.3f} s, probe {1e3 * (block.probe_s or 0):.1f} ms"
            print(f"block {number + 1}/{options.blocks}: {told}", flush=True)


def summary(path: Path) -> dict[str, Any]:
    kept = read_aa(path)
    noise = kept.spread()
    sigma = None if noise is None else noise.sigma
    needed = {
        f"{margin:g}": None
        if sigma is None
        else [pairs_needed(sigma, margin, CONFIDENCE), pairs_to_plan(sigma, margin, CONFIDENCE)]
        for margin in MARGINS
    }
    repeats = {f"{limit:g}": len(kept.disturbed(limit)) for limit in DRIFT_LIMITS}
    return {
        "file": path.name,
        "blocks": len(kept.blocks),
        "sigma": sigma,
        "pairs": needed,
        "disturbed_at_drift_limit": repeats,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", nargs="?", default="smollm2-135m")
    parser.add_argument("--out", type=Path, required=True, help="new file, ends in .jsonl")
    parser.add_argument("--blocks", type=int, default=60)
    parser.add_argument("--tokens", type=int, default=96, help="of each request")
    parser.add_argument("--workloads", type=Path, default=Path("workloads"))
    options = parser.parse_args()
    record(options)
    print(json.dumps(summary(options.out)))


if __name__ == "__main__":
    main()
