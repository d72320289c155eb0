"""Every bar of docs/performance.md in one run: ours against native peers, interleaved.

    python benchmarks/performance.py smollm2-135m qwen2.5-coder-1.5b \\
        --peers ~/.cache/slipstream/peers --out docs/performance/2026-11-29-zen3.json

All engines stay loaded and all but the one that is asked are stopped (SIGSTOP). A section that was
measured replaces the same one of the same model in the file, so a sitting can be split:
``--only prefill``. Writes after every section. Prints medians, and ends with one JSON line.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from performance_sections import FRESH, RUNNING, SECTIONS, Sitting, engines
from workers import PEERS, require

from slipstream.catalog import cache_directory, locate


def machine() -> dict[str, Any]:
    """What the figures hold for."""
    names = [
        line.partition(":")[2].strip()
        for line in _text(Path("/proc/cpuinfo")).splitlines()
        if line.startswith("model name")
    ]
    return {
        "processor": names[0] if names else platform.processor() or platform.machine(),
        "logical_processors": len(names) or None,
        "system": f"{platform.system()} {platform.machine()}",
    }


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def commit() -> str:
    """The commit of this checkout, with a plus sign when files differ from it."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty=+"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def _sections(
    path: Path, wanted: list[str], sitting: Sitting
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and record of every wanted section, each with the identities of the engines."""
    identities: dict[str, Any] = {}
    running = [name for name in RUNNING if name in wanted]
    with engines(path, sitting) as workers:
        identities = {name: worker.ask(op="identity") for name, worker in workers.items()}
        for name in running:
            yield name, {"engines": identities, **RUNNING[name](workers, sitting)}
    for name in FRESH:
        if name in wanted:
            yield name, {"engines": identities, **FRESH[name](path, sitting)}


def keep(out: Path, record: dict[str, Any]) -> None:
    """Write beside the file and move into place, so that an interrupted run loses nothing."""
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = out.with_suffix(".partial")
    partial.write_text(json.dumps(_rounded(record), indent=1) + "\n")
    partial.replace(out)


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value


def _show(model: str, name: str, record: dict[str, Any], elapsed: float) -> None:
    print(f"\n{model}, {name}: {elapsed:.0f} s")
    for engine, by_key in record["samples"].items():
        shown = ", ".join(f"{key}: {statistics.median(v):.4g}" for key, v in by_key.items() if v)
        print(f"  {engine:12s}{shown}")
    sys.stdout.flush()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="+", metavar="MODEL", help="catalogue name or file")
    parser.add_argument("--out", type=Path, required=True, help="JSON file, merged into")
    parser.add_argument("--only", default=",".join(SECTIONS), help=f"of {','.join(SECTIONS)}")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--name", help="of the machine, for the page's heading")
    parser.add_argument("--peers", type=Path, default=cache_directory() / "peers")
    arguments = parser.parse_args()
    arguments.only = arguments.only.split(",")
    unknown = sorted(set(arguments.only) - set(SECTIONS))
    if unknown:
        parser.error(f"no section {unknown[0]}; there are {', '.join(SECTIONS)}")
    return arguments


def main() -> None:
    arguments = _arguments()
    require(PEERS, arguments.peers)
    sitting = Sitting(arguments.peers, arguments.threads, arguments.rounds)
    out: Path = arguments.out
    record: dict[str, Any] = json.loads(out.read_text()) if out.exists() else {"models": {}}
    name = arguments.name or record.get("machine", {}).get("name") or out.stem
    record["machine"] = {"name": name, **machine()}
    seconds: dict[str, float] = {}
    for model in arguments.models:
        path = locate(model)
        sections = record["models"].setdefault(Path(model).stem if "/" in model else model, {})
        begin = time.perf_counter()
        for section, measured in _sections(path, arguments.only, sitting):
            elapsed = time.perf_counter() - begin
            head = {
                "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
                "commit": commit(),
                "threads": arguments.threads,
            }
            sections[section] = {**head, **measured}
            keep(out, record)
            _show(model, section, measured, elapsed)
            seconds[f"{model} {section}"] = round(elapsed, 1)
            begin = time.perf_counter()
    print(json.dumps({"out": str(out), "seconds": seconds}))


if __name__ == "__main__":
    main()
