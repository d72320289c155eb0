"""The server's bars in one run: against native llama-server at its best setting, and our engine.

    python benchmarks/server.py qwen2.5-coder-1.5b --draft-model qwen2.5-coder-0.5b \\
        --peers ~/.cache/slipstream/peers --out docs/performance/2026-12-01-zen3-server.json
    python benchmarks/server.py smollm2-135m --only overhead --out ...

Sections: grid (llama-server's slot, batch and flash-attention settings for 1, 4 and 8 streams),
drafting (its drafting settings; taken from speculation.py's record where the file has one), single
(one stream, plain), editing (code editing with speculation), streams (4 and 8 at once, plain) and
overhead (the server against the engine in its own process). Each pair is taken in turns, all but
the one that is asked are stopped (SIGSTOP); the same client times all. llama-server is built by
``build_peers.sh --servers``. The file is written after every prompt or setting, and a sitting that
was stopped goes on where it was. Ends with one JSON line.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import server_sections as sections
from performance import commit, keep, machine
from server_bars import outcomes
from server_grid import PEER
from server_sections import OF_PEER, SECTIONS
from speculation_sections import Sitting
from workers import HERE

from slipstream.catalog import cache_directory, locate

Measured = Iterator[dict[str, Any]]
NEEDS: Final = {"single": ("grid",), "editing": ("grid", "drafting"), "streams": ("grid",)}
"""Section -> those whose records it reads."""


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
    parser.add_argument("--tokens", type=int, default=256, help="of code editing [256]")
    parser.add_argument("--rounds", type=int, default=7, help="of streams and overhead [7]")
    parser.add_argument("--duel-rounds", type=int, default=3, help="of single and editing [3]")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--context", type=int, default=4096, help="of a sequence")
    parser.add_argument("--backend", default="cpu", help="of our own engine [cpu]")
    parser.add_argument("--name", help="of the machine, for the page's heading")
    parser.add_argument("--peers", type=Path, default=cache_directory() / "peers")
    parser.add_argument("--quick", action="store_true", help="a smoke test, no figures")
    arguments = parser.parse_args()
    arguments.only = arguments.only.split(",")
    unknown = sorted(set(arguments.only) - set(SECTIONS))
    if unknown:
        parser.error(f"no section {unknown[0]}; there are {', '.join(SECTIONS)}")
    return arguments


def _servers(arguments: argparse.Namespace) -> dict[str, str]:
    """The peer's server; ends with a message where it is needed and missing."""
    if not OF_PEER & set(arguments.only):
        return {}
    path = arguments.peers / PEER / "bin" / "llama-server"
    if not path.exists():
        raise SystemExit(
            f"no server at {path}: run benchmarks/build_peers.sh --servers first, "
            "or measure --only overhead"
        )
    return {PEER: str(path)}


def _sitting(arguments: argparse.Namespace) -> Sitting:
    quick, servers = arguments.quick, _servers(arguments)  # what is missing is said first
    draft = arguments.draft_model
    return Sitting(
        model=str(locate(arguments.model)),
        draft=None if draft is None else str(locate(draft)),
        servers=servers,
        workloads=arguments.workloads,
        threads=arguments.threads,
        context=arguments.context,
        backend=arguments.backend,
        tokens=min(arguments.tokens, 12) if quick else arguments.tokens,
        prompts=1 if quick else arguments.prompts,
        rounds=2 if quick else arguments.rounds,
        set_rounds=0,
        duel_rounds=2 if quick else arguments.duel_rounds,
        quick=quick,
    )


def _measurements(
    wanted: list[str], sitting: Sitting, kept: dict[str, Any], speculation: Mapping[str, Any]
) -> Iterator[tuple[str, Callable[[], Measured]]]:
    """Name and measurement of every wanted section, in order."""
    for name in SECTIONS:
        if name not in wanted:
            continue
        for needed in NEEDS.get(name, ()):
            if needed not in kept:
                raise SystemExit(f"the section {name} needs the record of {needed}: run that first")
        yield name, _measurement(name, sitting, kept, speculation)


def _measurement(
    name: str, sitting: Sitting, kept: dict[str, Any], speculation: Mapping[str, Any]
) -> Callable[[], Measured]:
    """What is the peer's alone stands whatever our commit; the rest is of one program."""
    if name == "grid":
        return lambda: sections.grid(sitting, kept.get("grid", {}))
    if name == "drafting":
        return lambda: sections.drafting(sitting, speculation, kept.get("drafting", {}))
    earlier = _same_program(kept, name)
    if name == "overhead":
        return lambda: sections.overhead(sitting, earlier)
    measure = getattr(sections, name)
    return lambda: measure(sitting, kept, earlier)


def _same_program(kept: dict[str, Any], section: str) -> dict[str, Any]:
    """What a run of this very commit has measured of a section; another program starts anew."""
    earlier: dict[str, Any] = kept.get(section, {})
    before = str(earlier.get("commit", "")).rstrip("+")
    return earlier if before == commit().rstrip("+") and not earlier.get("quick") else {}


def _head(arguments: argparse.Namespace) -> dict[str, Any]:
    return {
        "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "commit": commit(),
        "threads": arguments.threads,
        "draft": arguments.draft_model,
        "quick": arguments.quick,
    }


def main() -> None:
    arguments = _arguments()
    sitting = _sitting(arguments)
    out: Path = arguments.out
    record: dict[str, Any] = json.loads(out.read_text()) if out.exists() else {"models": {}}
    name = arguments.name or record.get("machine", {}).get("name") or out.stem
    record["machine"] = {"name": name, **machine()}
    model = Path(arguments.model).stem if "/" in arguments.model else arguments.model
    about: dict[str, Any] = record["models"].setdefault(model, {})
    kept: dict[str, Any] = about.setdefault("server", {})
    seconds: dict[str, float] = {}
    for section, measure in _measurements(
        arguments.only, sitting, kept, about.get("speculation", {})
    ):
        begin = time.perf_counter()
        for measured in measure():
            kept[section] = {**measured, **_head(arguments)}
            keep(out, record)
        seconds[section] = round(time.perf_counter() - begin, 1)
        print(f"{model}, {section}: {seconds[section]:.0f} s", file=sys.stderr)
    made = outcomes(model, kept)
    for bar in made:
        print(f"  {bar.title}: {bar.shown()}")
    bars = {bar.title: bar.plain() for bar in made}
    print(json.dumps({"out": str(out), "seconds": seconds, "bars": bars}))


if __name__ == "__main__":
    main()
