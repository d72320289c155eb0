"""A server without a model that stands for llama-server and for any OpenAI server, and can lie.

Its words depend on prompt, seed and temperature alone, so honest drafting changes nothing but the
time. ``stand_in`` makes a file that can be named as a ``llama-server`` binary (``--help``,
``--version`` and the log included); ``running`` serves for a while at a URL. It lies from the
request ``after`` on, where the lie is one of requests.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import shlex
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lying_replies import COMMIT, help_text
from lying_server import Server, serve

LIES = {
    "wrong-counts": "tells five tokens more than it sent",
    "wrong-drafts": "tells more accepted draft tokens than it drafted",
    "stall": "waits `stall_s` before token 10",
    "diverge": "has other tokens from the 40th on while it drafts",
    "rows": "has other tokens among many rows: those of `diverge`, and after a long prompt",
    "crash": "ends without a word at request 7",
    "reset": "its counters begin anew with every third request",
    "ignored-flags": "takes the flags of drafting and drafts nothing",
    "noise": "none of its draft tokens is accepted",
    "router": "is a router",
    "wrong-model": "serves another file",
    "endless": "goes on for ever, whatever was asked for",
    "endless-pings": "sends comments for ever and no token",
    "huge-line": "sends one event of 16 MiB",
    "garbage": "sends an event that is no JSON",
    "torn": "closes the connection after five tokens",
    "http-500": "answers a request with an error",
    "http-400": "refuses a request",
    "error-event": "ends a stream with an error",
    "other-temperature": "says that it sampled at 0.8",
    "short-context": "has half of the context asked for",
    "cached": "says that prompt tokens came from a cache",
    "never-ready": "is never healthy",
    "missing-flag": "its help has no flag of ngram-simple's",
    "no-metrics": "has no /metrics",
    "other-commit": "its version is another commit",
}
FACTS: dict[str, Any] = {
    "token_s": 0.0002, "speedup": 1.5, "stall_s": 3.0, "after": 0, "metrics": "llama",
    "drafting_alone": False,  # it lies only while it drafts
    "metal": False, "ballast_mib": 0, "served": "model.gguf",
    "whole": False,  # drafts are as long as ngram-mod's may be, else of four tokens
}  # fmt: skip


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--lies", default="")
    parser.add_argument("--facts", default="{}")
    known, rest = parser.parse_known_args(words)
    lies = frozenset(filter(None, known.lies.split(",")))
    facts = {**FACTS, **json.loads(known.facts)}
    assert lies <= set(LIES), lies - set(LIES)
    commit = "0123456789abcdef" if "other-commit" in lies else COMMIT
    if "--help" in rest:
        print(help_text(lies))
    elif "--version" in rest:
        print(f"version: 4242 ({commit})\nbuilt with cc 12.2.0 for x86_64-linux-gnu")
    elif "--list-devices" in rest:
        print("Available devices:\n  (none)")
    else:
        asyncio.run(serve(Server(rest, lies, facts)))


def command(*lies: str, **facts: Any) -> list[str]:
    """Its command line, all but llama-server's flags."""
    unknown = {*lies} - set(LIES) | {*facts} - set(FACTS)
    assert not unknown, unknown
    told = ["--lies", ",".join(lies), "--facts", json.dumps(facts)]
    return [sys.executable, str(Path(__file__).resolve()), *told]


def stand_in(folder: Path, *lies: str, **facts: Any) -> Path:
    """A file that can be named as a ``llama-server`` binary."""
    file = folder / f"llama-server-{'-'.join(lies) or 'honest'}"
    file.write_text(f'#!/bin/sh\nexec {shlex.join(command(*lies, **facts))} "$@"\n')
    file.chmod(0o755)
    return file


@contextlib.contextmanager
def running(*lies: str, flags: tuple[str, ...] = (), **facts: Any) -> Iterator[str]:
    """A server for a while; gives its URL."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = [*command(*lies, **facts), "--port", str(port), *flags]
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield _listening(f"http://127.0.0.1:{port}", process)
    finally:
        process.kill()
        process.wait()


def _listening(url: str, process: subprocess.Popen[bytes]) -> str:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    limit = time.monotonic() + 30
    while time.monotonic() < limit and process.poll() is None:
        with contextlib.suppress(OSError), opener.open(f"{url}/v1/models", timeout=5):
            return url
        time.sleep(0.02)
    raise AssertionError("it does not listen")


if __name__ == "__main__":
    main(sys.argv[1:])
