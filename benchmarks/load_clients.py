"""Clients of the load test: what each one does, and what it holds against the server."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from http_exchange import (
    Address,
    BrokenReplyError,
    Exchange,
    Reply,
    ServerEvent,
    ask,
    post_json,
    request_bytes,
)
from load_requests import ENDPOINTS, METHODS, Endpoint, Outcome, Question, outcome_of

ANSWER_S: Final = 120.0
"""Longer than any answer takes: what has none by then hangs."""
MOST_DETAILS: Final = 5
SESSIONS: Final = 8
"""Of all clients: those of one share what drafters and the prefix cache keep."""
ACTIONS: Final = {
    "whole": 25,
    "stream": 30,
    "slow": 8,
    "cancel": 12,
    "leave": 7,
    "oversized": 3,
    "malformed": 6,
    "unknown_key": 4,
    "half": 5,
}
"""What a client does next -> weight."""
MALFORMED: Final = (
    b"",
    b"{",
    b'{"prompt": "a",}',
    b"[1, 2",
    b'{"prompt": NaN}',
    b"\xff\xfe\x00",
    b'"text"',
    b'{"prompt": "a", "n_predict": "many"}',
    b'{"messages": 3, "prompt": {"a": 1}}',
)


class Findings:
    """Counts of what was done, and failures by kind with the first few in words."""

    def __init__(self) -> None:
        self.done: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self.details: dict[str, list[str]] = {}
        self.ids: set[str] = set()
        self.tokens = 0

    def fail(self, kind: str, detail: str) -> None:
        self.failures[kind] += 1
        kept = self.details.setdefault(kind, [])
        if len(kept) < MOST_DETAILS:
            kept.append(detail)

    def new_id(self, name: str | None) -> None:
        """Ids of requests are never used twice."""
        if name is not None and name in self.ids:
            self.fail("identity", f"two requests with the id {name}")
        if name is not None:
            self.ids.add(name)


@dataclass
class Load:
    """What all clients share.

    Attributes:
        references: (question, whether through the chat template) -> the one right outcome.
        oversized_bytes: of a body that must be refused.
        until_s: on the monotonic clock.
    """

    address: Address
    questions: Sequence[Question]
    references: Mapping[tuple[Question, bool], Outcome]
    oversized_bytes: int
    until_s: float
    methods: Sequence[str] = METHODS
    headers: Mapping[str, str] = field(default_factory=dict)
    findings: Findings = field(default_factory=Findings)


class Client:
    """One of many; the same number and seed do the same things in the same order."""

    def __init__(self, load: Load, number: int, seed: int) -> None:
        self.load = load
        self.findings = load.findings
        self._random = random.Random(f"{seed}/{number}")
        self._session = f"session {number % SESSIONS}"
        self._first = list(ACTIONS)[number % len(ACTIONS)]

    async def run(self) -> None:
        actions: dict[str, Callable[[], Awaitable[None]]] = {
            name: getattr(self, name) for name in ACTIONS
        }
        weights = list(ACTIONS.values())
        await self._guarded(self._first, actions[self._first])  # all of them, in a short run too
        while time.monotonic() < self.load.until_s:
            (name,) = self._random.choices(list(actions), weights)
            await self._guarded(name, actions[name])

    async def _guarded(self, name: str, action: Callable[[], Awaitable[None]]) -> None:
        self.findings.done[name] += 1
        try:
            async with asyncio.timeout(ANSWER_S):
                await action()
        except TimeoutError:
            self.findings.fail("hang", f"{name}: no answer after {ANSWER_S:.0f} s")
        except BrokenReplyError as problem:
            self.findings.fail("broken_reply", f"{name}: {problem}")
        except ConnectionError as problem:
            self.findings.fail("refused", f"{name}: {problem!r}")
            await asyncio.sleep(0.5)

    def _question(self) -> tuple[Endpoint, Question]:
        endpoint = self._random.choice(ENDPOINTS)
        fit = [q for q in self.load.questions if endpoint.seeded or q.temperature == 0]
        return endpoint, self._random.choice(fit)

    def _body(self, endpoint: Endpoint, question: Question, stream: bool) -> dict[str, Any]:
        body = endpoint.body(question, stream)
        method = self._random.choice(self.load.methods)
        return {**body, "speculative": {"type": method}, "session": self._session}

    def _post(self, path: str, body: Any) -> bytes:
        return post_json(path, body, self.load.headers)

    def _raw(self, path: str, body: bytes) -> bytes:
        return request_bytes("POST", path, body, self.load.headers)

    def _judge(self, endpoint: Endpoint, question: Question, given: Outcome) -> None:
        """A complete outcome must be the reference, word for word."""
        wanted = self.load.references[question, endpoint.chat]
        self.findings.new_id(given.id)
        self.findings.tokens += given.tokens or 0
        where = f"{endpoint.path} {question.prompt[:40]!r} seed {question.seed}"
        if given.finish is None:
            self.findings.fail("unfinished", f"{where}: no last event after {given.text!r:.200}")
        elif given.text != wanted.text:
            self.findings.fail("text", f"{where}: {given.text!r:.200}, not {wanted.text!r:.200}")
        elif (given.finish, given.tokens) != (wanted.finish, wanted.tokens):
            found, right = (given.finish, given.tokens), (wanted.finish, wanted.tokens)
            self.findings.fail("usage", f"{where}: {found}, not {right}")

    def _refused(self, status: int, headers: Mapping[str, str], what: str) -> float | None:
        """Seconds to wait where the server was full; None where the status is wrong."""
        after = headers.get("retry-after", "")
        if status == 429 and after.isdigit():
            self.findings.done["429"] += 1
            return min(float(after), 1.0)
        kind = "5xx" if status >= 500 else "retry_after" if status == 429 else "status"
        self.findings.fail(kind, f"{what}: {status} {dict(headers)}")
        return None

    async def whole(self) -> None:
        """One reply."""
        endpoint, question = self._question()
        data = self._post(endpoint.path, self._body(endpoint, question, False))
        reply = await ask(self.load.address, data, limit_s=ANSWER_S)
        if reply.status == 200:
            self._judge(endpoint, question, outcome_of(endpoint, reply.json()))
        else:
            await self._back_off(reply.status, reply.headers, endpoint.path)

    async def _back_off(self, status: int, headers: Mapping[str, str], what: str) -> None:
        await asyncio.sleep(self._refused(status, headers, what) or 0.0)

    async def stream(self) -> None:
        """A stream, read as it comes."""
        await self._streamed(pause_s=0.0)

    async def slow(self) -> None:
        """A stream, read with pauses."""
        await self._streamed(pause_s=0.2 * self._random.random())

    async def cancel(self) -> None:
        """A stream that is left after a few events; what came must begin the reference."""
        await self._streamed(pause_s=0.0, most=self._random.randint(1, 12))

    async def _streamed(self, *, pause_s: float, most: int | None = None) -> None:
        endpoint, question = self._question()
        data = self._post(endpoint.path, self._body(endpoint, question, True))
        async with await Exchange.open(self.load.address, data) as exchange:
            head = await exchange.head()
            if head.status != 200:
                await self._back_off(head.status, head.headers, endpoint.path)
                return
            events: list[ServerEvent] = []
            async for event in exchange.events():
                events.append(event)
                if len(events) == most:
                    exchange.abort()
                    break
                if pause_s:
                    await asyncio.sleep(pause_s)
        self._judge_stream(endpoint, question, events, cut=len(events) == most)

    def _judge_stream(
        self, endpoint: Endpoint, question: Question, events: list[ServerEvent], *, cut: bool
    ) -> None:
        given = outcome_of(endpoint, events)
        if given.finish is not None or not cut:
            self._judge(endpoint, question, given)
            return
        self.findings.new_id(given.id)
        wanted = self.load.references[question, endpoint.chat].text
        if not wanted.startswith(given.text):
            what = f"{given.text!r:.200} begins no {wanted!r:.200}"
            self.findings.fail("text", f"{endpoint.path}, left early: {what}")

    async def leave(self) -> None:
        """Gone before the reply of a request that does not stream."""
        endpoint, question = self._question()
        data = self._post(endpoint.path, self._body(endpoint, question, False))
        async with await Exchange.open(self.load.address, data) as exchange:
            await asyncio.sleep(0.3 * self._random.random())
            exchange.abort()

    async def half(self) -> None:
        """Gone in the middle of its own request."""
        endpoint, question = self._question()
        data = self._post(endpoint.path, self._body(endpoint, question, True))
        part = data[: self._random.randrange(1, len(data))]
        async with await Exchange.open(self.load.address, part) as exchange:
            await asyncio.sleep(0.1 * self._random.random())
            if self._random.random() < 0.5:
                exchange.abort()

    async def oversized(self) -> None:
        """A body over the limit: 413, at the latest when all of it is sent."""
        endpoint = self._random.choice(ENDPOINTS)
        filling = "a" * self.load.oversized_bytes
        data = self._post(endpoint.path, {"prompt": filling, "messages": filling})
        try:
            reply = await ask(self.load.address, data, limit_s=ANSWER_S)
        except (BrokenReplyError, ConnectionError):
            # a server that closes on what it will not read may take its own reply with it
            self.findings.done["oversized_closed"] += 1
            return
        self._expect(reply, 413, "an oversized body")
        self.findings.done["oversized_413"] += 1

    async def malformed(self) -> None:
        endpoint, body = self._random.choice(ENDPOINTS), self._random.choice(MALFORMED)
        data = self._raw(endpoint.path, body)
        reply = await ask(self.load.address, data, limit_s=ANSWER_S)
        self._expect(reply, 400, f"malformed body {body!r}")

    async def unknown_key(self) -> None:
        """Refused, with the key named."""
        endpoint, question = self._question()
        body = {**endpoint.body(question, False), "temprature": 1}
        reply = await ask(self.load.address, self._post(endpoint.path, body), limit_s=ANSWER_S)
        self._expect(reply, 400, "an unknown key")
        if reply.status == 400 and b"temprature" not in reply.body:
            self.findings.fail("message", f"the unknown key is not named: {reply.body!r:.300}")

    def _expect(self, reply: Reply, status: int, what: str) -> None:
        if reply.status != status:
            kind = "5xx" if reply.status >= 500 else "status"
            self.findings.fail(kind, f"{what}: {reply.status} {reply.body!r:.300}, not {status}")
            return
        if not error_text(reply.body):
            self.findings.fail("message", f"{what}: no error in words: {reply.body!r:.300}")


def error_text(body: bytes) -> str:
    """The message of an error's JSON, in any of the shapes; empty where there is none."""
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return ""


async def references(
    address: Address, questions: Sequence[Question], headers: Mapping[str, str]
) -> dict[tuple[Question, bool], Outcome]:
    """What the server itself says when it has nothing else to do, without drafts.

    Raises:
        BrokenReplyError: it refuses a question.
    """
    found: dict[tuple[Question, bool], Outcome] = {}
    for question in questions:
        for endpoint in (ENDPOINTS[0], ENDPOINTS[2]):
            body = {**endpoint.body(question, False), "speculative": {"type": "none"}}
            data = post_json(endpoint.path, body, headers)
            reply = await ask(address, data, limit_s=ANSWER_S)
            if reply.status != 200:
                raise BrokenReplyError(f"{endpoint.path}: {reply.status} {reply.body!r:.400}")
            found[question, endpoint.chat] = outcome_of(endpoint, reply.json())
    return found
