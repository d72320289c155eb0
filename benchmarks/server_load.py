"""Many clients at once, well-behaved and not: nothing lost, nothing crossed, nothing grown.

    python benchmarks/server_load.py smollm2-135m --clients 64 --seconds 600

Starts a server. Clients ask through every endpoint, whole or streamed, with every drafting method,
cancel, leave, read slowly, send oversized and malformed bodies; each answer is compared with that
of ``Model.complete`` for the same prompt, seed and limit, computed before the server starts.
Beside them /health is probed and memory sampled. In the end all slots must be free, every answer
the same, and SIGTERM in the middle of streams must end each of them by a last event.
Ends with one JSON line; exit code 1 where anything failed.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import psutil
from http_exchange import Address, BrokenReplyError
from load_clients import Client, Findings, Load, references
from load_requests import METHODS, Outcome, Question
from load_watch import (
    HealthProbe,
    judge_afterwards,
    judge_end,
    judge_free,
    judge_memory,
    sample_memory,
)
from performance import commit

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from servers import RunningServer, start

PROMPTS: Final = (
    "The three primary colours are",
    "Stock list:\nbolt-m3, shelf A1, 120 pieces\nbolt-m4, shelf A2, 340 pieces\n\nAgain:\n",
    "Write one sentence about a river.",
    "1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3,",
    "def add(a, b):\n    return a + b\n\ndef subtract(a, b):\n",
    "Übersicht: naïve café, 東京, emoji 🙂, and back to plain text:",
)
SAMPLING: Final = ((0.0, 0), (0.8, 11), (1.0, 5_000_000_017))
"""(temperature, seed) of each prompt."""
BODY_LIMIT: Final = 1 << 20
OUTLIVE_S: Final = 5.0


def questions(tokens: int) -> list[Question]:
    return [Question(p, t, seed, tokens) for p in PROMPTS for t, seed in SAMPLING]


def model_references(
    model: str, asked: Sequence[Question], context: int, backend: str
) -> dict[tuple[Question, bool], Outcome]:
    """What the model says of itself, without a server."""
    from slipstream import Model
    from slipstream.errors import TemplateError

    found: dict[tuple[Question, bool], Outcome] = {}
    loaded = Model(model, context=context, backend=backend)
    for q in asked:
        options = {"max_tokens": q.tokens, "temperature": q.temperature, "seed": q.seed}
        done = [(False, loaded.complete(q.prompt, **options))]
        try:
            done.append((True, loaded.chat(q.messages, **options)))
        except TemplateError:
            raise SystemExit("the load test needs a model with a chat template") from None
        for chat, c in done:
            found[q, chat] = Outcome(c.text, c.finish_reason, len(c.ids))
    return found


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", help="catalogue name or file")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=32, help="of each output [32]")
    parser.add_argument("--long-tokens", type=int, default=600, help="of the streams at the end")
    parser.add_argument("--parallel", type=int, default=8)
    parser.add_argument("--queue", type=int, default=40, help="requests that may wait [40]")
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--backend", default="cpu")
    parser.add_argument("--warm-up", type=float, default=60.0, help="seconds, a third at most")
    parser.add_argument("--growth-mb", type=float, default=24.0, help="MiB after the warm-up")
    parser.add_argument("--health-ms", type=float, default=100.0, help="most of /health, p99 [100]")
    parser.add_argument("--reference", choices=("model", "server"), default="model")
    parser.add_argument("--flag", action="append", default=[], help="one more word for the server")
    return parser.parse_args(words)


def _started(arguments: argparse.Namespace) -> RunningServer:
    return start(
        arguments.model,
        *("--parallel", str(arguments.parallel), "--context", str(arguments.context)),
        *("--queue", str(arguments.queue), "--backend", arguments.backend, "--metrics"),
        *("--body-limit-bytes", str(BODY_LIMIT)),
        *arguments.flag,
    )


async def _under_load(
    server: RunningServer, arguments: argparse.Namespace, load: Load
) -> dict[str, Any]:
    """Everything that happens while clients are at work, and what it showed."""
    seconds = arguments.seconds
    load.until_s = time.monotonic() + seconds
    probe = HealthProbe(load, seconds)
    memory = asyncio.create_task(sample_memory(server.rss_bytes, load.until_s))
    clients = [Client(load, number, arguments.seed) for number in range(arguments.clients)]
    await asyncio.gather(*(client.run() for client in clients))
    warm_up = min(arguments.warm_up, seconds / 3)
    growth = int(arguments.growth_mb * 2**20)
    rss = judge_memory(await memory, warm_up, growth, load.findings)
    health = await asyncio.to_thread(probe.judge, load.findings, arguments.health_ms)
    try:
        await judge_free(load)
        await judge_afterwards(load)
    except (BrokenReplyError, ConnectionError, TimeoutError) as problem:
        load.findings.fail("dead", f"after the load: {problem!r}")
    return {"rss_bytes": rss, "health_ms": health}


async def _measured(
    server: RunningServer,
    arguments: argparse.Namespace,
    known: dict[tuple[Question, bool], Outcome] | None,
) -> tuple[Findings, dict[str, Any]]:
    address, asked = Address(server.host, server.port), questions(arguments.tokens)
    if known is None:
        known = await references(address, asked, {})
    load = Load(address, asked, known, 2 * BODY_LIMIT, 0.0, METHODS)
    shown = await _under_load(server, arguments, load)
    _judge_coverage(load.findings)
    if server.process.poll() is not None:
        load.findings.fail("dead", f"the server ended: {server.said()[-400:]}")
        return load.findings, shown
    family = server.processes()[1:]
    await judge_end(load, server.terminate, arguments.long_tokens)
    await asyncio.to_thread(_judge_exit, server, family, load.findings)
    return load.findings, shown


def _judge_coverage(findings: Findings) -> None:
    """A test that asked nothing has shown nothing."""
    if findings.tokens == 0:
        findings.fail("coverage", "not one whole answer came")
    if findings.done["oversized"] and not findings.done["oversized_413"]:
        findings.fail("status", "an oversized body was never answered by 413")


def _judge_exit(
    server: RunningServer, family: Sequence[psutil.Process], findings: Findings
) -> None:
    try:
        code = server.wait()
    except subprocess.TimeoutExpired:
        findings.fail("end", "the server goes on after SIGTERM")
        return
    if code != 0:
        findings.fail("end", f"exit code {code} after SIGTERM")
    _, left = psutil.wait_procs(family, timeout=OUTLIVE_S)
    if left:
        findings.fail("end", f"{len(left)} processes outlive the server")
    if "Traceback" in server.said():
        findings.fail("traceback", server.said()[-1000:])


def run(words: Sequence[str] | None = None) -> dict[str, Any]:
    """The whole test; its last line as a dictionary."""
    arguments = _arguments(words)
    known = None
    if arguments.reference == "model":
        asked = questions(arguments.tokens)
        known = model_references(arguments.model, asked, arguments.context, arguments.backend)
    server = _started(arguments)
    begin = time.monotonic()
    try:
        findings, shown = asyncio.run(_measured(server, arguments, known))
    finally:
        server.kill()
    return {
        "ok": not findings.failures,
        "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "commit": commit(),
        "clients": arguments.clients,
        "seconds": round(time.monotonic() - begin, 1),
        "done": dict(findings.done),
        "tokens": findings.tokens,
        **shown,
        "failures": dict(findings.failures),
        "details": findings.details,
    }


def main() -> None:
    result = run()
    for kind, details in result["details"].items():
        print(f"{kind}: {result['failures'][kind]}, such as", file=sys.stderr)
        for detail in details:
            print(f"  {detail}", file=sys.stderr)
    print(json.dumps(result))
    sys.exit(0 if result["ok"] else 1)


if __name__ == "__main__":
    main()
