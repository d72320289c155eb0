"""A server on the loopback that plays a model hub and its content host."""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from slipstream import catalog, catalog_entries
from slipstream.catalog_entries import CatalogEntry
from slipstream.fetch import hub
from slipstream.fetch.sources import Source

CONTENT = bytes(range(256)) * 4096
SHA256 = hashlib.sha256(CONTENT).hexdigest()
COMMIT = "0123456789abcdef0123456789abcdef01234567"
REFERENCE = "owner/repo:tiny.gguf"


@dataclass
class Behaviour:
    """What the server does; `requests` records (path, authorization, range) of every request."""

    content: bytes = CONTENT
    token: str | None = None
    missing: bool = False
    statuses: list[int] = field(default_factory=list)
    cut_after: list[int] = field(default_factory=list)
    etag: str = '"v1"'
    linked: dict[str, str] = field(default_factory=dict)
    redirect_to: str | None = None
    requests: list[tuple[str, str | None, str | None]] = field(default_factory=list)


class Handler(BaseHTTPRequestHandler):
    behaviour: Behaviour

    def do_GET(self) -> None:
        behaviour = self.behaviour
        authorization = self.headers.get("Authorization")
        self.behaviour.requests.append((self.path, authorization, self.headers.get("Range")))
        if self.path.startswith("/content/"):
            self.send_content()
        elif behaviour.statuses:
            self.refuse(behaviour.statuses.pop(0))
        elif behaviour.token and authorization != f"Bearer {behaviour.token}":
            self.refuse(401)
        elif behaviour.missing:
            self.refuse(404)
        elif behaviour.redirect_to:
            self.redirect(behaviour.redirect_to)
        else:
            self.send_content()

    def refuse(self, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def redirect(self, address: str) -> None:
        self.send_response(302)
        for name, value in {**self.behaviour.linked, "Location": address}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def send_content(self) -> None:
        behaviour, start = self.behaviour, 0
        size = len(behaviour.content)
        wanted = self.headers.get("Range")
        if wanted and self.headers.get("If-Range") in {None, behaviour.etag}:
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
        if start >= size:
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{size}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{size - 1}/{size}")
        self.send_header("ETag", behaviour.etag)
        self.send_header("Content-Length", str(size - start))
        self.end_headers()
        end = start + behaviour.cut_after.pop(0) if behaviour.cut_after else size
        self.wfile.write(behaviour.content[start:end])

    def log_message(self, format: str, *args: Any) -> None:
        pass


@dataclass
class Hub:
    behaviour: Behaviour
    address: str
    port: int


@contextlib.contextmanager
def running_hub(monkeypatch: pytest.MonkeyPatch, cache: Path) -> Iterator[Hub]:
    """Serve on a free port, with the cache and the hub address of the environment set to it."""
    behaviour = Behaviour()
    handler = type("BoundHandler", (Handler,), {"behaviour": behaviour})
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=httpd.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    port = httpd.server_address[1]
    monkeypatch.setenv("SLIPSTREAM_CACHE", str(cache))
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr(hub, "_BACKOFF_S", 0.01)
    monkeypatch.setattr(hub, "REACH_S", 60.0)  # the machine may stall
    try:
        yield Hub(behaviour, f"http://127.0.0.1:{port}", port)
    finally:
        httpd.shutdown()
        httpd.server_close()
        thread.join()


def use_entry(monkeypatch: pytest.MonkeyPatch, *sources: Source) -> CatalogEntry:
    """Make `tiny`, the content this server has, the only named model."""
    return use_content_entry(monkeypatch, CONTENT, *sources)


def use_content_entry(
    monkeypatch: pytest.MonkeyPatch, content: bytes, *sources: Source
) -> CatalogEntry:
    """Make `tiny`, with this content and these sources, the only named model."""
    sha256 = hashlib.sha256(content).hexdigest()
    entry = CatalogEntry(
        "tiny", "tiny", len(content), sha256, "main", "MIT", "https://example.org", sources
    )
    monkeypatch.setattr(catalog, "ENTRIES", (entry,))
    monkeypatch.setattr(catalog_entries, "ENTRIES", (entry,))
    return entry


def interrupted_at(limit: int) -> Callable[[int, int, str], None]:
    """A progress callback that plays Ctrl-C once `limit` bytes are there."""

    def progress(done: int, _total: int, _label: str) -> None:
        if done >= limit:
            raise KeyboardInterrupt

    return progress
