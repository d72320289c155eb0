"""Hostile requests without end: no 5xx, no hang, no traceback, and good requests are still served.

    python benchmarks/server_fuzz.py smollm2-135m --seconds 1800

Three parts share the time: raw bytes (spoilt HTTP), JSON bodies (well-formed HTTP with values,
keys and texts that are wrong), and schemathesis on /openapi.json where it is installed. A case is
made from its seed and number: ``--only bytes --first 123 --cases 1`` sends that one again, and
``--keep FOLDER`` writes every case that failed. After every few cases a known request must give the
answer that it gave at first. Ends with one JSON line; exit code 1 where anything failed.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from fuzz_cases import body_case, byte_case
from fuzz_schema import run_schemathesis
from http_exchange import Address, BrokenReplyError, Exchange, ask, post_json, request_bytes
from load_clients import Findings
from performance import commit

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from servers import RunningServer, start

CASES: Final[dict[str, Callable[[int, int], bytes]]] = {"bytes": byte_case, "bodies": body_case}
PARTS: Final = (*CASES, "schema")
WORKERS: Final = 4
CANARY_EVERY: Final = 50
BYTES_S, BODIES_S, CANARY_S = 15.0, 90.0, 60.0
"""Longest wait for the end of a reply: bytes are followed by an end of sending, so nothing is left
to wait for; a body may ask for as many tokens as the context holds."""
LINGER_S: Final = 0.1
"""Between the last byte of a spoilt request and the end of sending, which is a disconnect."""
MOST_REPLY: Final = 1 << 26
DEFAULT_TOKENS: Final = 32
"""Of an output whose request does not say; without it a dropped key costs a whole context."""


@dataclass
class Fuzz:
    """One run.

    Attributes:
        keep: folder for the cases that failed, or None.
        known: what the canary said at first.
    """

    address: Address
    seed: int
    keep: Path | None
    findings: Findings = field(default_factory=Findings)
    known: bytes = b""
    statuses: dict[str, int] = field(default_factory=dict)

    def fail(self, kind: str, case: str, data: bytes, detail: str) -> None:
        self.findings.fail(kind, f"{case}: {detail}; sent {data[:300]!r}")
        if self.keep is not None:
            self.keep.mkdir(parents=True, exist_ok=True)
            (self.keep / f"{kind}-{case.replace(' ', '-')}").write_bytes(data)

    async def case(self, part: str, number: int) -> None:
        data = CASES[part](self.seed, number)
        name = f"{part} {number}"
        raw = part == "bytes"
        self.findings.done[part] += 1
        try:
            async with asyncio.timeout(BYTES_S if raw else BODIES_S):
                reply = await self._sent(data, end=raw)
        except TimeoutError:
            self.fail("hang", name, data, "no end of the reply")
            return
        except OSError as problem:
            self.fail("refused", name, data, repr(problem))
            return
        self._judge(name, data, reply, needed=not raw)

    async def _sent(self, data: bytes, *, end: bool) -> bytes:
        """All bytes that come back until the connection ends."""
        exchange = await Exchange.open(self.address)
        async with exchange:
            sending = asyncio.create_task(exchange.send(data))
            reading = asyncio.create_task(exchange.rest(MOST_REPLY))
            try:
                if end:
                    await sending
                    await asyncio.wait([reading], timeout=LINGER_S)
                    exchange.end()
                return await reading
            finally:
                sending.cancel()
                reading.cancel()

    def _judge(self, name: str, data: bytes, reply: bytes, *, needed: bool) -> None:
        statuses = statuses_of(reply)
        for status in statuses:
            self.statuses[str(status)] = self.statuses.get(str(status), 0) + 1
        if any(status >= 500 for status in statuses):
            self.fail("5xx", name, data, f"{reply[:300]!r}")
        if b"Traceback (most recent" in reply:
            self.fail("traceback", name, data, f"{reply[:300]!r}")
        if (reply and not statuses) or (needed and not reply):
            self.fail("no_reply", name, data, f"{reply[:300]!r}")

    async def canary(self, after: str) -> None:
        """A good request, and /health."""
        body = {"prompt": "one two three", "n_predict": 8, "temperature": 0.0}
        data = post_json("/completion", body)
        try:
            health = await ask(self.address, request_bytes("GET", "/health"), limit_s=CANARY_S)
            reply = await ask(self.address, data, limit_s=CANARY_S)
            said = str(reply.json()["content"]).encode() if reply.status == 200 else b""
        except (BrokenReplyError, OSError, TimeoutError, KeyError, TypeError) as problem:
            self.fail("dead", f"canary after {after}", data, repr(problem))
            return
        if health.status != 200 or reply.status != 200:
            found = f"/health {health.status}, /completion {reply.status} {reply.body[:200]!r}"
            self.fail("dead", f"canary after {after}", data, found)
        elif self.known and said != self.known:
            self.fail("text", f"canary after {after}", data, f"{said!r}, not {self.known!r}")
        self.known = self.known or said

    async def part(self, part: str, first: int, most: int | None, seconds: float) -> None:
        """Cases from ``first`` on until the time is over or ``most`` of them are sent."""
        limit, following = time.monotonic() + seconds, first

        async def worker() -> None:
            nonlocal following
            while time.monotonic() < limit and (most is None or following < first + most):
                number, following = following, following + 1
                await self.case(part, number)
                if number % CANARY_EVERY == CANARY_EVERY - 1:
                    await self.canary(f"{part} {number}")

        await asyncio.gather(*(worker() for _ in range(WORKERS)))
        await self.canary(f"all {part}")


def statuses_of(reply: bytes) -> list[int]:
    """Statuses of the replies in what came back; one that is cut short is the last."""
    found: list[int] = []
    while reply.startswith(b"HTTP/1."):
        head, ended, rest = reply.partition(b"\r\n\r\n")
        words = head.split(b" ", 2)
        if len(words) < 2 or not words[1].isdigit():
            return found
        found.append(int(words[1]))
        if not ended:
            return found
        reply = rest if found[-1] < 200 else _behind_body(head.lower(), rest)
    return found


def _behind_body(head: bytes, rest: bytes) -> bytes:
    """What follows a body; nothing where it ends with the connection."""
    if b"transfer-encoding: chunked" in head:
        while True:
            line, _, rest = rest.partition(b"\r\n")
            size = int(line, 16) if line.strip(b"0123456789abcdef") == b"" and line else 0
            rest = rest[size + 2 :]
            if not size:
                return rest
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name == b"content-length" and value.strip().isdigit():
            return rest[int(value) :]
    return b""


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", help="catalogue name or file")
    parser.add_argument("--seconds", type=float, default=1800.0, help="of all parts together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default=",".join(PARTS), help=f"of {','.join(PARTS)}")
    parser.add_argument("--first", type=int, default=0, help="number of the first case [0]")
    parser.add_argument("--cases", type=int, help="most of each part")
    parser.add_argument("--keep", type=Path, help="folder for the cases that fail")
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--backend", default="cpu")
    parser.add_argument("--flag", action="append", default=[], help="one more word for the server")
    arguments = parser.parse_args(words)
    arguments.only = arguments.only.split(",")
    unknown = sorted(set(arguments.only) - set(PARTS))
    if unknown:
        parser.error(f"no part {unknown[0]}; there are {', '.join(PARTS)}")
    return arguments


async def _fuzzed(arguments: argparse.Namespace, fuzz: Fuzz, server: RunningServer) -> Any:
    """Every part in turn; what schemathesis said."""
    schema = None
    seconds = arguments.seconds / len(arguments.only)
    await fuzz.canary("the start")
    for part in arguments.only:
        if part == "schema":
            schema = await asyncio.to_thread(
                run_schemathesis, server.url, seconds, arguments.seed, fuzz.findings
            )
            await fuzz.canary("schemathesis")
        else:
            await fuzz.part(part, arguments.first, arguments.cases, seconds)
    return schema


def run(words: Sequence[str] | None = None) -> dict[str, Any]:
    """The whole test; its last line as a dictionary."""
    arguments = _arguments(words)
    flags = ["--context", str(arguments.context), "--backend", arguments.backend, "--metrics"]
    flags += ["-n", str(DEFAULT_TOKENS)]
    server = start(arguments.model, "--parallel", "4", *flags, *arguments.flag)
    fuzz = Fuzz(Address(server.host, server.port), arguments.seed, arguments.keep)
    try:
        schema = asyncio.run(_fuzzed(arguments, fuzz, server))
        code = server.process.poll()
        if code is not None or server.stop() != 0:
            fuzz.findings.fail("dead", f"exit code {code or server.process.returncode}")
    finally:
        server.kill()
    if "Traceback" in server.said():
        fuzz.findings.fail("traceback", server.said()[-2000:])
    return {
        "ok": not fuzz.findings.failures,
        "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "commit": commit(),
        "seed": arguments.seed,
        "cases": dict(fuzz.findings.done),
        "statuses": dict(sorted(fuzz.statuses.items())),
        "schemathesis": schema,
        "failures": dict(fuzz.findings.failures),
        "details": fuzz.findings.details,
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
