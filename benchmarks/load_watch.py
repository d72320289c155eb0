"""What is watched beside the clients: memory, /health, free slots afterwards, a clean end."""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from http_exchange import BrokenReplyError, Exchange, ServerEvent, ask, post_json, request_bytes
from load_clients import ANSWER_S, Findings, Load
from load_requests import ENDPOINTS, Endpoint, outcome_of

FREE_S: Final = 15.0
END_S: Final = 60.0
_SAMPLE_S: Final = 0.5
_STREAMS_AT_END: Final = 8


async def sample_memory(rss_bytes: Callable[[], int], until_s: float) -> list[tuple[float, int]]:
    """(seconds since the start, bytes) of all the server's processes."""
    samples: list[tuple[float, int]] = []
    begin = time.monotonic()
    while time.monotonic() < until_s:
        samples.append((time.monotonic() - begin, await asyncio.to_thread(rss_bytes)))
        await asyncio.sleep(_SAMPLE_S)
    return samples


def judge_memory(
    samples: Sequence[tuple[float, int]], warm_up_s: float, growth_bytes: int, findings: Findings
) -> dict[str, Any]:
    """Flat after the warm-up: medians of its first and last quarter differ by less than allowed."""
    later = [size for when, size in samples if when >= warm_up_s]
    if len(later) < 8:
        findings.fail("memory", f"only {len(later)} samples after the warm-up")
        return {}
    quarter = len(later) // 4
    before, after = statistics.median(later[:quarter]), statistics.median(later[-quarter:])
    if after - before > growth_bytes:
        grown = (after - before) / 2**20
        findings.fail("memory", f"grew by {grown:.1f} MiB after the first {warm_up_s:.0f} s")
    return {"after_warm_up": int(before), "at_end": int(after), "peak": max(s for _, s in samples)}


class HealthProbe:
    """``health_probe.py`` beside the load."""

    def __init__(self, load: Load, seconds: float) -> None:
        script = str(Path(__file__).with_name("health_probe.py"))
        words = [sys.executable, script, *map(str, load.address), str(seconds)]
        self._process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)

    def judge(self, findings: Findings, most_ms: float) -> dict[str, Any]:
        """Figures of all probes; a failure where one was wrong or the 99th percentile too long."""
        out, _ = self._process.communicate(timeout=END_S)
        said = json.loads(out.splitlines()[-1])
        taken: list[float] = sorted(said["ms"])
        for wrong in said["bad"]:
            findings.fail("health", wrong)
        p99 = taken[min(len(taken) - 1, int(0.99 * len(taken)))]
        if p99 > most_ms:
            findings.fail("health_slow", f"p99 {p99:.1f} ms of {len(taken)} probes")
        return {
            "probes": len(taken),
            "median": statistics.median(taken),
            "p99": p99,
            "worst": taken[-1],
        }


async def judge_free(load: Load) -> None:
    """Whatever clients did, no slot is busy and nothing waits when they are gone."""
    limit = time.monotonic() + FREE_S
    busy = await _busy(load)
    while busy and time.monotonic() < limit:
        await asyncio.sleep(0.2)
        busy = await _busy(load)
    if busy:
        load.findings.fail("slots", f"{busy} still busy {FREE_S:.0f} s after the last client")


async def _busy(load: Load) -> int:
    data = request_bytes("GET", "/slots", headers=load.headers)
    reply = await ask(load.address, data, limit_s=ANSWER_S)
    if reply.status != 200:
        load.findings.fail("slots", f"/slots: {reply.status} {reply.body!r:.200}")
        return 0
    return sum(bool(slot["is_processing"]) for slot in reply.json())


async def judge_afterwards(load: Load) -> None:
    """Every question once more: the load has changed no answer."""
    for (question, chat), wanted in load.references.items():
        endpoint = ENDPOINTS[2 if chat else 0]
        data = post_json(endpoint.path, endpoint.body(question, False), load.headers)
        reply = await ask(load.address, data, limit_s=ANSWER_S)
        given = outcome_of(endpoint, reply.json()) if reply.status == 200 else None
        if given is None or given.text != wanted.text:
            found = reply.status if given is None else f"{given.text!r:.200}"
            load.findings.fail("text", f"after the load: {found}, not {wanted.text!r:.200}")


async def judge_end(load: Load, terminate: Callable[[], None], long_tokens: int) -> None:
    """Told to end in the middle of streams, the server ends each of them by a last event."""
    begun = [asyncio.Event() for _ in range(_STREAMS_AT_END)]
    endpoints = [ENDPOINTS[place % len(ENDPOINTS)] for place in range(_STREAMS_AT_END)]
    streams = [
        asyncio.create_task(_ended(load, endpoint, long_tokens, event))
        for endpoint, event in zip(endpoints, begun, strict=True)
    ]
    await asyncio.wait([asyncio.create_task(event.wait()) for event in begun], timeout=END_S)
    terminate()
    for endpoint, ending in zip(endpoints, await asyncio.gather(*streams), strict=True):
        if ending is not None:
            load.findings.fail("end", f"{endpoint.path}: {ending}")


async def _ended(load: Load, endpoint: Endpoint, tokens: int, begun: asyncio.Event) -> str | None:
    """What is wrong with how a stream ended, or None; sets ``begun`` at its first event."""
    question = load.questions[0]
    native = endpoint.path == "/completion"
    body = {**endpoint.body(question, True), "n_predict" if native else "max_tokens": tokens}
    events: list[ServerEvent] = []
    try:
        async with asyncio.timeout(END_S):
            data = post_json(endpoint.path, body, load.headers)
            async with await Exchange.open(load.address, data) as exchange:
                head = await exchange.head()
                if head.status != 200:
                    return None if head.status in (429, 503) else f"status {head.status}"
                async for event in exchange.events():
                    events.append(event)
                    begun.set()
    except TimeoutError:
        return f"goes on {END_S:.0f} s after it was told to end"
    except (BrokenReplyError, ConnectionError) as problem:
        return f"torn: {problem}"
    finally:
        begun.set()
    return None if _says_why(endpoint, events) else f"no last event: {events[-1:]}"


def _says_why(endpoint: Endpoint, events: list[ServerEvent]) -> bool:
    """Whether the events end by a reason or an error."""
    if any(event.name == "error" or b'"error"' in event.data for event in events[-2:]):
        return True
    try:
        return outcome_of(endpoint, events).finish is not None
    except BrokenReplyError:
        return False
