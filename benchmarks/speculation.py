"""Every bar of speculation in one run: never slower, our own methods, and native peers' best.

    python benchmarks/speculation.py qwen2.5-coder-1.5b --draft-model qwen2.5-coder-0.5b \\
        --peers ~/.cache/slipstream/peers --out docs/performance/2026-12-01-zen3-speculation.json

Sections: never_slower (``auto`` against plain, in turns, in one process), sets
(draft-simple with trees and with chains against plain), grid (each peer's llama-server under every
setting, one output of the first prompt per task; then the three best and plain on all prompts; goes
on where it was stopped) and duel (``auto`` and each peer's best setting of the grid, in turns).
Peers' servers are built by ``build_peers.sh --servers``; ``--without-peers`` leaves them out. A
peer that is not asked is stopped or not running. The file is written after every prompt or setting,
so a sitting can be split: ``--only grid``. Ends with one JSON line.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from performance import commit, keep, machine
from speculation_bars import outcomes
from speculation_sections import SECTIONS, Sitting, duel, grid, never_slower, sets
from workers import HERE, PEERS

from slipstream.catalog import cache_directory, locate

SERVER = Path("bin") / "llama-server"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", help="catalogue name or file")
    parser.add_argument("--draft-model", metavar="MODEL")
    parser.add_argument("--out", type=Path, required=True, help="JSON file, merged into")
    parser.add_argument("--only", default=",".join(SECTIONS), help=f"of {','.join(SECTIONS)}")
    parser.add_argument("--workloads", type=Path, default=HERE.parent / "workloads")
    parser.add_argument("--prompts", type=int, default=3, help="of each task [3]")
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=9, help="pairs of never_slower [9]")
    parser.add_argument("--set-rounds", type=int, default=3, help="pairs of sets [3]")
    parser.add_argument("--duel-rounds", type=int, default=3, help="rounds of duel [3]")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--context", type=int, default=4096)
    parser.add_argument("--backend", default="cpu", help="of our own engine [cpu]")
    parser.add_argument("--name", help="of the machine, for the page's heading")
    parser.add_argument("--peers", type=Path, default=cache_directory() / "peers")
    parser.add_argument("--without-peers", action="store_true")
    parser.add_argument("--quick", action="store_true", help="a smoke test, no figures")
    arguments = parser.parse_args()
    arguments.only = arguments.only.split(",")
    unknown = sorted(set(arguments.only) - set(SECTIONS))
    if unknown:
        parser.error(f"no section {unknown[0]}; there are {', '.join(SECTIONS)}")
    return arguments


def _servers(arguments: argparse.Namespace) -> dict[str, str]:
    """Peer -> its server; ends with a message where one is missing."""
    if arguments.without_peers or not {"grid", "duel"} & set(arguments.only):
        return {}
    servers = {peer: arguments.peers / peer / SERVER for peer in PEERS}
    for path in servers.values():
        if not path.exists():
            raise SystemExit(
                f"no server at {path}: run benchmarks/build_peers.sh --servers first, "
                "or give --without-peers"
            )
    return {peer: str(path) for peer, path in servers.items()}


def _file(model: str | None) -> str | None:
    return None if model is None else str(locate(model))


def _sitting(arguments: argparse.Namespace) -> Sitting:
    quick, servers = arguments.quick, _servers(arguments)  # what is missing is said first
    return Sitting(
        model=str(locate(arguments.model)),
        draft=_file(arguments.draft_model),
        servers=servers,
        workloads=arguments.workloads,
        threads=arguments.threads,
        context=arguments.context,
        backend=arguments.backend,
        tokens=min(arguments.tokens, 12) if quick else arguments.tokens,
        prompts=1 if quick else arguments.prompts,
        rounds=2 if quick else arguments.rounds,
        set_rounds=1 if quick else arguments.set_rounds,
        duel_rounds=1 if quick else arguments.duel_rounds,
        quick=quick,
    )


def _sections(
    wanted: list[str], sitting: Sitting, kept: dict[str, Any]
) -> Iterator[tuple[str, Callable[[], Iterator[dict[str, Any]]]]]:
    """Name and measurement of every wanted section, in order."""
    if "never_slower" in wanted:
        yield "never_slower", lambda: never_slower(sitting, _same_program(kept, "never_slower"))
    if "sets" in wanted:
        yield "sets", lambda: sets(sitting, _same_program(kept, "sets"))
    if sitting.servers and "grid" in wanted:
        yield "grid", lambda: grid(sitting, kept.get("grid", {}))
    if sitting.servers and "duel" in wanted:
        if "grid" not in kept:
            raise SystemExit("the section duel needs the record of grid: run that first")
        yield "duel", lambda: duel(sitting, kept["grid"])


def _same_program(kept: dict[str, Any], section: str) -> dict[str, Any]:
    """What a run of this very commit has measured of a section; another program starts anew."""
    earlier: dict[str, Any] = kept.get(section, {})
    before = str(earlier.get("commit", "")).rstrip("+")
    return earlier if before == commit().rstrip("+") and not earlier.get("quick") else {}


def _show(record: dict[str, Any]) -> None:
    for bar in outcomes(record):
        print(f"  {bar.title}: {bar.shown()}")


def main() -> None:
    arguments = _arguments()
    sitting = _sitting(arguments)
    out: Path = arguments.out
    record: dict[str, Any] = json.loads(out.read_text()) if out.exists() else {"models": {}}
    name = arguments.name or record.get("machine", {}).get("name") or out.stem
    record["machine"] = {"name": name, **machine()}
    model = Path(arguments.model).stem if "/" in arguments.model else arguments.model
    kept: dict[str, Any] = record["models"].setdefault(model, {}).setdefault("speculation", {})
    seconds: dict[str, float] = {}
    for section, measure in _sections(arguments.only, sitting, kept):
        begin = time.perf_counter()
        for measured in measure():
            head = {
                "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
                "commit": commit(),
                "threads": arguments.threads,
                "draft_model": arguments.draft_model,
                "quick": arguments.quick,
            }
            kept[section] = {**head, **measured}
            keep(out, record)
        seconds[section] = round(time.perf_counter() - begin, 1)
        print(f"{model}, {section}: {seconds[section]:.0f} s", file=sys.stderr)
    _show(kept)
    bars = {bar.title: bar.plain() for bar in outcomes(kept)}
    print(json.dumps({"out": str(out), "seconds": seconds, "bars": bars}))


if __name__ == "__main__":
    main()
