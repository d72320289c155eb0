"""Pulling by hub reference: tokens, redirects, resume."""

from __future__ import annotations

import io
from collections.abc import Iterator
from http.client import HTTPMessage
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request

import pytest

from hub_server import COMMIT, CONTENT, REFERENCE, SHA256, Hub, interrupted_at, running_hub
from slipstream import catalog, catalog_entries
from slipstream.errors import DownloadError
from slipstream.fetch.partial import Partial
from slipstream.fetch.sources import HubFile
from slipstream.fetch.transport import HubOpener

pytestmark = pytest.mark.usefixtures("server")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    with running_hub(monkeypatch, tmp_path / "cache") as hub_server:
        yield hub_server


def leftovers(path: Path) -> list[str]:
    return sorted(other.name for other in path.parent.iterdir() if other != path)


def test_pull_by_hub_reference(server: Hub) -> None:
    server.behaviour.redirect_to = f"{server.address}/content/tiny"
    server.behaviour.linked = {
        "X-Linked-Etag": f'"{SHA256}"',
        "X-Linked-Size": str(len(CONTENT)),
        "X-Repo-Commit": COMMIT,
    }
    seen: list[tuple[int, int, str]] = []
    pulled = catalog.pull(REFERENCE, progress=lambda *report: seen.append(report))
    assert pulled.path.read_bytes() == CONTENT
    assert pulled.path == catalog.cache_directory() / "models" / "owner" / "repo" / "tiny.gguf"
    assert (pulled.sha256, pulled.digest_known, pulled.revision) == (SHA256, True, COMMIT)
    assert pulled.bytes == len(CONTENT)
    assert (len(CONTENT), len(CONTENT), REFERENCE) in seen
    assert leftovers(pulled.path) == ["tiny.gguf.origin.json"]
    assert server.behaviour.requests[0][0] == "/owner/repo/resolve/main/tiny.gguf"
    assert catalog.locate(REFERENCE) == pulled.path


def test_a_second_pull_asks_nobody(server: Hub) -> None:
    first = catalog.pull(REFERENCE)
    requests = len(server.behaviour.requests)
    second = catalog.pull(REFERENCE)
    assert (second.source, second.sha256) == ("cache", first.sha256)
    assert len(server.behaviour.requests) == requests
    assert second.to_mapping()["path"] == str(first.path)


def test_an_unannounced_digest_is_said(server: Hub) -> None:
    assert server.behaviour.linked == {}
    pulled = catalog.pull(REFERENCE)
    assert (pulled.sha256, pulled.digest_known) == (SHA256, False)


def test_an_announced_digest_is_checked(server: Hub) -> None:
    server.behaviour.redirect_to = f"{server.address}/content/tiny"
    server.behaviour.linked = {"X-Linked-Etag": f'"{"0" * 64}"'}
    with pytest.raises(DownloadError, match=SHA256):
        catalog.pull(REFERENCE)
    assert not catalog_entries.hub_path(HubFile("owner/repo", "tiny.gguf")).exists()


def test_revisions_are_asked_for_and_kept_apart(server: Hub) -> None:
    pulled = catalog.pull(f"{REFERENCE}@refs/pr/1")
    assert server.behaviour.requests[0][0] == "/owner/repo/resolve/refs%2Fpr%2F1/tiny.gguf"
    assert pulled.path.parent.name == "@refs%2Fpr%2F1"


@pytest.mark.usefixtures("server")
def test_split_models_are_pulled_whole() -> None:
    pulled = catalog.pull("owner/repo:m-00002-of-00003.gguf")
    assert pulled.path.name == "m-00001-of-00003.gguf"
    assert pulled.bytes == 3 * len(CONTENT)
    assert len(list(pulled.path.parent.glob("*.gguf"))) == 3


def test_token_from_argument_or_environment(server: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    server.behaviour.token = "secret"
    with pytest.raises(DownloadError) as raised:
        catalog.pull(REFERENCE)
    assert "HTTP 401" in raised.value.found
    assert "HF_TOKEN" in raised.value.remedy
    with pytest.raises(DownloadError) as raised:
        catalog.pull(REFERENCE, token="wrong")
    assert "wrong" not in str(raised.value)
    assert catalog.pull(REFERENCE, token="secret").sha256 == SHA256
    monkeypatch.setenv("HF_TOKEN", "secret")
    assert catalog.pull("owner/repo:other.gguf").sha256 == SHA256


@pytest.mark.parametrize("same_origin", [True, False])
def test_the_token_never_leaves_the_hub(server: Hub, same_origin: bool) -> None:
    host = "127.0.0.1" if same_origin else "localhost"
    server.behaviour.token = "secret"
    server.behaviour.redirect_to = f"http://{host}:{server.port}/content/tiny"
    catalog.pull(REFERENCE, token="secret")
    sent = [authorization for _, authorization, _ in server.behaviour.requests]
    assert sent == ["Bearer secret", "Bearer secret" if same_origin else None]


def test_a_token_is_not_sent_unencrypted() -> None:
    with pytest.raises(DownloadError, match="unencrypted"):
        catalog.pull(REFERENCE, token="secret", endpoint="http://hub.invalid")


def test_a_redirect_out_of_http_is_refused(server: Hub, tmp_path: Path) -> None:
    server.behaviour.redirect_to = f"file://{tmp_path}/x"
    with pytest.raises(DownloadError):
        catalog.pull(REFERENCE)


def test_a_redirect_from_https_to_http_is_refused() -> None:
    opener = HubOpener("https://hub.invalid/x", "secret")
    request = Request("https://hub.invalid/x")
    with pytest.raises(URLError, match="from https to http refused"):
        opener.redirect_request(
            request, io.BytesIO(), 302, "", HTTPMessage(), "http://hub.invalid/x"
        )


def test_missing_file(server: Hub) -> None:
    server.behaviour.missing = True
    with pytest.raises(DownloadError, match="HTTP 404") as raised:
        catalog.pull(REFERENCE)
    assert "hub's page" in raised.value.remedy
    assert len(server.behaviour.requests) == 1


def test_a_busy_hub_is_asked_again(server: Hub) -> None:
    server.behaviour.statuses = [503, 429]
    assert catalog.pull(REFERENCE).sha256 == SHA256
    server.behaviour.statuses = [503] * 10
    with pytest.raises(DownloadError, match="HTTP 503"):
        catalog.pull("owner/repo:busy.gguf")
    assert len(server.behaviour.statuses) == 6


def test_cut_connections_are_resumed(server: Hub) -> None:
    server.behaviour.cut_after = [1000, 50_000, 1]
    assert catalog.pull(REFERENCE).path.read_bytes() == CONTENT
    ranges = [wanted for _, _, wanted in server.behaviour.requests]
    assert ranges == [None, "bytes=1000-", "bytes=51000-", "bytes=51001-"]


def interrupt(server: Hub, reference: str, at: int) -> None:
    server.behaviour.cut_after = [at]
    with pytest.raises(KeyboardInterrupt):
        catalog.pull(reference, progress=interrupted_at(at))
    server.behaviour.cut_after = []


def test_an_interrupted_pull_leaves_no_final_name_and_resumes(server: Hub) -> None:
    interrupt(server, REFERENCE, 300_000)
    final = catalog_entries.hub_path(HubFile("owner/repo", "tiny.gguf"))
    assert not final.exists()
    assert Partial(final).size() == 300_000
    assert catalog.pull(REFERENCE).path.read_bytes() == CONTENT
    assert server.behaviour.requests[-1][2] == "bytes=300000-"
    assert leftovers(final) == ["tiny.gguf.origin.json"]


def test_a_file_that_changed_meanwhile_is_fetched_from_its_start(server: Hub) -> None:
    interrupt(server, REFERENCE, 300_000)
    server.behaviour.content, server.behaviour.etag = CONTENT[::-1], '"v2"'
    assert catalog.pull(REFERENCE).path.read_bytes() == CONTENT[::-1]
    assert [wanted for _, _, wanted in server.behaviour.requests] == [None, "bytes=300000-"]


def test_a_complete_partial_needs_only_verification(server: Hub) -> None:
    interrupt(server, REFERENCE, len(CONTENT))
    assert catalog.pull(REFERENCE).path.read_bytes() == CONTENT


@pytest.mark.parametrize("address", ["http://[::1", "http://127.0.0.1:port", "http://", "ftp://x"])
def test_an_endpoint_that_is_no_address_is_refused(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", address)
    with pytest.raises(DownloadError, match="HF_ENDPOINT"):
        catalog.pull(REFERENCE)


@pytest.mark.parametrize("token", ["secret\nsecret", "secr\u00e9t"])
def test_a_malformed_token_is_refused_and_not_shown(token: str) -> None:
    with pytest.raises(DownloadError, match="access token") as caught:
        catalog.pull(REFERENCE, token=token)
    assert "secr" not in str(caught.value)


def test_a_redirect_to_no_address_is_refused(server: Hub) -> None:
    server.behaviour.redirect_to = "http://[::1"
    with pytest.raises(DownloadError, match="no answer"):
        catalog.pull(REFERENCE)
