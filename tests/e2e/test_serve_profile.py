"""A server with a profile: a workload's tag chooses the method and the limits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from servers import RunningServer, reference, serving, tiny_backend

PROFILE = """
[default]
type = ["none"]

[workload.edit]
type = ["suffix"]
n_max = 7
max_tokens = 5

[workload.copy]
type = ["ngram-simple", "suffix"]
"""
LOOP = "one two three one two three one two"


@pytest.fixture(scope="module")
def server(chatty: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    path = tmp_path_factory.mktemp("profile") / "profile.toml"
    path.write_text(PROFILE)
    flags = ["--profile", str(path), "--spec", "suffix", "--context", "512"]
    with serving(chatty, *flags, *tiny_backend()) as running:
        yield running


def asked(server: RunningServer, headers: Any = None, **body: Any) -> dict[str, Any]:
    with server.client() as http:
        reply = http.post(
            "/completion", json={"prompt": LOOP, "n_predict": 12, **body}, headers=headers
        )
    assert reply.status_code == 200, reply.text
    made: dict[str, Any] = reply.json()
    return made


@pytest.mark.parametrize(
    ("tag", "method", "tokens"),
    [(None, "none", 12), ("no-such", "none", 12), ("edit", "suffix", 5), ("copy", None, 12)],
)
@pytest.mark.parametrize("by_header", [False, True])
def test_a_tag_chooses(
    server: RunningServer,
    chatty: Path,
    tag: str | None,
    method: str | None,
    tokens: int,
    by_header: bool,
) -> None:
    field = {} if tag is None or by_header else {"workload": tag}
    header = {"x-slipstream-workload": tag} if tag is not None and by_header else None
    made = asked(server, header, **field)
    told = made["speculative"]
    wanted = {"ngram-simple", "suffix"} if method is None else {method}
    assert set(told["type"].split(",")) == wanted
    assert made["tokens_predicted"] == tokens
    assert made["content"] == reference(chatty, context=512).complete(LOOP, max_tokens=tokens).text
    if tag == "edit":
        assert told["n_max"] == 7


def test_a_request_that_says_how_it_drafts_is_obeyed_within_the_limits(
    server: RunningServer,
) -> None:
    made = asked(server, workload="edit", speculative={"type": "ngram-mod"})
    assert made["speculative"]["type"] == "ngram-mod"
    assert made["tokens_predicted"] == 5


@pytest.mark.parametrize("text", ["[default", "[workload.a]\ntyp = ['none']", "[other]\nx = 1"])
def test_a_profile_that_is_wrong(slipstream: Any, chatty: Path, tmp_path: Path, text: str) -> None:
    path = tmp_path / "profile.toml"
    path.write_text(text)
    words = ["serve", chatty, *tiny_backend(), "--port", "0", "--profile", path]
    done = slipstream(*words)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
