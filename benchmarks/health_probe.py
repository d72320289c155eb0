"""Asks /health again and again, in a process of its own so that no busy client slows the clock.

    python benchmarks/health_probe.py HOST PORT SECONDS [INTERVAL]

Each probe is a new connection. Ends with one JSON line: milliseconds, and what was not a 200.
"""

from __future__ import annotations

import json
import socket
import sys
import time

REQUEST = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
LIMIT_S = 30.0


def probe(host: str, port: int) -> tuple[float, str | None]:
    """Milliseconds from connecting to the last byte, and what was wrong or None."""
    begin = time.perf_counter()
    reply = b""
    try:
        with socket.create_connection((host, port), timeout=LIMIT_S) as connection:
            connection.sendall(REQUEST)
            while part := connection.recv(4096):
                reply += part
    except OSError as problem:
        return (time.perf_counter() - begin) * 1e3, repr(problem)
    status = reply.partition(b"\r\n")[0].decode("latin-1")
    return (time.perf_counter() - begin) * 1e3, None if " 200 " in f"{status} " else status


def main() -> None:
    host, port, seconds, *rest = sys.argv[1:]
    interval = float(rest[0]) if rest else 0.1
    taken: list[float] = []
    bad: list[str] = []
    limit = time.monotonic() + float(seconds)
    while time.monotonic() < limit:
        elapsed, wrong = probe(host, int(port))
        taken.append(round(elapsed, 3))
        if wrong is not None:
            bad.append(wrong)
        time.sleep(interval)
    print(json.dumps({"ms": taken, "bad": bad}))


if __name__ == "__main__":
    main()
