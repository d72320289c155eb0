"""One GET with redirects, a deadline until the answer starts, and a token bound to one origin."""

from __future__ import annotations

import contextlib
import queue
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.message import Message
from http.client import HTTPMessage
from typing import IO

# Longest silence inside a body before the connection counts as cut.
SILENCE_S = 30.0
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_KEPT_HEADERS = ("x-linked-size", "x-linked-etag", "x-repo-commit")


@dataclass(slots=True)
class Answer:
    """Status, headers and unread body of the last answer, and what the redirects announced."""

    status: int
    headers: Message
    body: IO[bytes]
    linked: dict[str, str] = field(default_factory=dict)

    def header(self, name: str) -> str | None:
        return self.headers.get(name)


class HubOpener(urllib.request.HTTPRedirectHandler):
    """Opens one address; the token goes to its origin alone, never to a redirect elsewhere."""

    def __init__(self, address: str, token: str | None) -> None:
        self.address = address
        self._token = token
        self._linked: dict[str, str] = {}

    def open(self, headers: Mapping[str, str]) -> Answer:
        self._linked.clear()
        opener = urllib.request.build_opener(self)
        request = self._authorised(urllib.request.Request(self.address, headers=dict(headers)))
        try:
            response = opener.open(request, timeout=SILENCE_S)
        except urllib.error.HTTPError as error:
            return Answer(error.code, error.headers, error, dict(self._linked))
        return Answer(response.status, response.headers, response, dict(self._linked))

    def http_error_302(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage
    ) -> IO[bytes] | None:
        try:
            return super().http_error_302(req, fp, code, msg, headers)
        except ValueError:  # the redirect leads to what is no address
            fp.close()
            raise

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        old, new = urllib.parse.urlsplit(req.full_url), urllib.parse.urlsplit(newurl)
        if new.scheme != "https" and new.scheme != old.scheme:
            raise urllib.error.URLError(f"redirect from {old.scheme} to {new.scheme} refused")
        found = {name: headers[name] for name in _KEPT_HEADERS if name in headers}
        self._linked = {**found, **self._linked}
        request = super().redirect_request(req, fp, code, msg, headers, newurl)
        return self._authorised(request) if request else None

    def _authorised(self, request: urllib.request.Request) -> urllib.request.Request:
        if self._token and _origin(request.full_url) == _origin(self.address):
            request.add_unredirected_header("Authorization", f"Bearer {self._token}")
        return request


def open_within(opener: HubOpener, headers: Mapping[str, str], reach_s: float) -> Answer:
    """Open, or raise TimeoutError when no answer started after `reach_s` seconds.

    A thread holds the wait because name resolution has no time limit of its own.
    """
    answers: queue.SimpleQueue[Answer | Exception] = queue.SimpleQueue()
    abandoned = threading.Event()

    def open_now() -> None:
        try:
            answer = opener.open(headers)
        except Exception as error:
            answers.put(error)
            return
        answers.put(answer)
        if abandoned.is_set():
            answer.body.close()

    threading.Thread(target=open_now, daemon=True, name="hub-open").start()
    try:
        answer = answers.get(timeout=reach_s)
    except queue.Empty:
        abandoned.set()
        _close_late(answers)
        raise TimeoutError(f"nothing within {reach_s:g} s") from None
    if isinstance(answer, Exception):
        raise answer
    return answer


def _close_late(answers: queue.SimpleQueue[Answer | Exception]) -> None:
    with contextlib.suppress(queue.Empty):
        late = answers.get_nowait()
        if isinstance(late, Answer):
            late.body.close()


def _origin(address: str) -> tuple[str, str | None, int | None]:
    parts = urllib.parse.urlsplit(address)
    return parts.scheme, parts.hostname, parts.port or {"https": 443, "http": 80}.get(parts.scheme)


def may_carry_token(address: str) -> bool:
    """Whether a token sent to `address` stays private: https, or this machine itself."""
    parts = urllib.parse.urlsplit(address)
    return parts.scheme == "https" or parts.hostname in _LOOPBACK
