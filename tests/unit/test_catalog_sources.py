"""Pulling a named model: sources in order, one digest, safe under concurrency."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from hub_server import CONTENT, REFERENCE, SHA256, Handler, Hub, running_hub, use_entry
from slipstream import catalog, catalog_entries
from slipstream.errors import DownloadError
from slipstream.fetch import hub
from slipstream.fetch.partial import Partial
from slipstream.fetch.sources import HubFile

pytestmark = pytest.mark.usefixtures("server")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    with running_hub(monkeypatch, tmp_path / "cache") as hub_server:
        yield hub_server


def test_wrong_kept_bytes_are_dropped_once(server: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = use_entry(monkeypatch, HubFile("owner/repo", "tiny.gguf"))
    partial = Partial(catalog_entries.entry_path(entry))
    partial.begin(f"sha256 {SHA256}")
    partial.data.write_bytes(b"wrong")
    assert catalog.pull("tiny").path.read_bytes() == CONTENT
    assert [wanted for _, _, wanted in server.behaviour.requests] == ["bytes=5-", None]


def test_another_size_is_refused_before_the_first_byte(
    server: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = use_entry(monkeypatch, HubFile("owner/repo", "tiny.gguf"))
    server.behaviour.content = CONTENT[:-1]
    with pytest.raises(DownloadError, match="announces another size"):
        catalog.pull("tiny")
    assert not catalog_entries.entry_path(entry).exists()
    assert Partial(catalog_entries.entry_path(entry)).size() == 0


def test_another_digest_moves_on_and_is_recorded(
    server: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_entry(monkeypatch, HubFile("bad/repo", "a.gguf"), HubFile("owner/repo", "tiny.gguf"))
    good, server.behaviour.content = server.behaviour.content, CONTENT[::-1]
    seen: list[str] = []

    def heal(_done: int, _total: int, label: str) -> None:
        seen.append(label)
        if label == "verifying":
            server.behaviour.content = good

    pulled = catalog.pull("tiny", progress=heal)
    assert pulled.path.read_bytes() == CONTENT
    assert pulled.source == "owner/repo:tiny.gguf"
    assert [refusal.source for refusal in pulled.refusals] == ["bad/repo:a.gguf"]
    assert "SHA-256" in pulled.refusals[0].reason


def test_the_final_error_lists_every_source(server: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    use_entry(monkeypatch, HubFile("a/a", "a.gguf"), HubFile("b/b", "b.gguf"))
    server.behaviour.missing = True
    with pytest.raises(DownloadError) as raised:
        catalog.pull("tiny")
    assert "a/a:a.gguf: HTTP 404" in raised.value.found
    assert "b/b:b.gguf: HTTP 404" in raised.value.found


@pytest.mark.usefixtures("server")
def test_an_unreachable_hub_is_given_up_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "REACH_S", 0.2)
    with pytest.raises(DownloadError, match="no answer"):
        catalog.pull(REFERENCE, endpoint="http://127.0.0.1:9")
    held = threading.Event()
    monkeypatch.setattr(Handler, "do_GET", lambda _: held.wait(60))
    with pytest.raises(DownloadError, match=r"nothing within 0.2 s"):
        catalog.pull(REFERENCE)
    held.set()


@pytest.mark.usefixtures("server")
def test_a_full_disk_is_said_before_the_first_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=len(CONTENT)))
    with pytest.raises(DownloadError, match="free bytes") as raised:
        catalog.pull(REFERENCE)
    assert "SLIPSTREAM_CACHE" in raised.value.remedy
    assert Partial(catalog_entries.hub_path(HubFile("owner/repo", "tiny.gguf"))).size() == 0


def test_concurrent_pulls_fetch_once(server: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    use_entry(monkeypatch, HubFile("owner/repo", "tiny.gguf"))
    outcomes: list[str] = []
    threads = [
        threading.Thread(target=lambda: outcomes.append(catalog.pull("tiny").source))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["cache", "cache", "cache", "owner/repo:tiny.gguf"]
    assert len(server.behaviour.requests) == 1


@pytest.mark.usefixtures("server")
def test_a_wrong_file_under_the_name_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = use_entry(monkeypatch, HubFile("owner/repo", "tiny.gguf"))
    path = catalog_entries.entry_path(entry)
    path.parent.mkdir(parents=True)
    path.write_bytes(bytes(len(CONTENT)))
    assert catalog.pull("tiny").source == "owner/repo:tiny.gguf"
    assert path.read_bytes() == CONTENT


def test_ensure_pulls_once(server: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    use_entry(monkeypatch, HubFile("owner/repo", "tiny.gguf"))
    assert catalog.ensure("tiny").read_bytes() == CONTENT
    server.behaviour.missing = True
    assert catalog.ensure("tiny").read_bytes() == CONTENT
