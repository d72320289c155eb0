"""Process start to help text and to the first token of `slipstream run`; opening a large file.

    python benchmarks/startup.py [MODEL]

Each sample is a new process, the files are in the page cache; `open_vocabulary` opens
gemma-3-270m (262,144 tokens) in this process. Ends with one JSON line.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from slipstream.catalog import locate
from slipstream.gguf import open_gguf

LARGE_VOCABULARY = "gemma-3-270m"
PROGRAM = [sys.executable, "-m", "slipstream"]


def seconds_to_first_byte(arguments: list[str]) -> float:
    """From the start of the process to its first byte on stdout."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    begin = time.perf_counter()
    with subprocess.Popen(
        [*PROGRAM, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
        bufsize=0,
    ) as process:
        assert process.stdout is not None
        process.stdout.read(1)
        elapsed = time.perf_counter() - begin
        process.stdout.read()
    return elapsed


def seconds_to_open(path: Path) -> float:
    begin = time.perf_counter()
    with open_gguf(path):
        return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default="smollm2-135m")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    Path(locate(options.model)).read_bytes()  # warm page cache
    run = ["run", options.model, "-p", "Once upon a time", "-n", "4"]
    large = locate(LARGE_VOCABULARY)
    opened = [seconds_to_open(large) for _ in range(options.rounds + 1)][1:]
    results = {"open_vocabulary_s": statistics.median(opened)}
    print(f"open_vocabulary: {statistics.median(opened):.3f} s (worst {max(opened):.3f})")
    for name, arguments in {"help": ["--help"], "first_token": run}.items():
        seconds_to_first_byte(arguments)
        samples = [seconds_to_first_byte(arguments) for _ in range(options.rounds)]
        results[f"{name}_s"] = statistics.median(samples)
        print(f"{name}: {statistics.median(samples):.3f} s (worst {max(samples):.3f})")
    date = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
    print(json.dumps({"date": date, "model": options.model, **results}))


if __name__ == "__main__":
    main()
