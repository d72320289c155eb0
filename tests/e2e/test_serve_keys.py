"""API keys and sessions: who has none is refused, and nothing crosses from one to another."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from servers import RunningServer, serving, tiny_backend

FIRST, SECOND = "first-key-0123456789abcdef", "second-key-0123456789abcdef"
SECRET = "the password is swordfish and nobody else may read it " * 8
HELLO = [{"role": "user", "content": "hello"}]
GUARDED = (
    ("POST", "/completion", {"prompt": "a", "n_predict": 1}),
    ("POST", "/v1/completions", {"prompt": "a", "max_tokens": 1}),
    ("POST", "/v1/chat/completions", {"messages": HELLO, "max_tokens": 1}),
    ("POST", "/v1/messages", {"messages": HELLO, "max_tokens": 1}),
    ("POST", "/tokenize", {"content": "a"}),
    ("POST", "/detokenize", {"tokens": [5]}),
    ("POST", "/apply-template", {"messages": HELLO}),
    ("GET", "/v1/models", None),
    ("GET", "/slots", None),
    ("GET", "/props", None),
    ("GET", "/metrics", None),
)


@pytest.fixture(scope="module")
def server(chatty: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    keys = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text(f"# of the tests\n{FIRST}\n\n{SECOND}\n")
    keys.chmod(0o600)
    flags = ["--api-key-file", str(keys), "--parallel", "2", "--context", "1024", "--metrics"]
    with serving(chatty, *flags, *tiny_backend()) as running:
        yield running


@pytest.mark.parametrize(("method", "path", "body"), GUARDED, ids=lambda v: str(v)[:24])
def test_no_path_is_open_without_a_key(
    server: RunningServer, method: str, path: str, body: Any
) -> None:
    for key in (None, "wrong-key", FIRST[:-1], FIRST + "x", ""):
        with server.client(key) as http:
            reply = http.request(method, path, json=body)
        assert reply.status_code == 401, (key, reply.text)
        assert reply.json()["error"]["type"] == "authentication_error"
    with server.client(SECOND) as http:
        assert http.request(method, path, json=body).status_code == 200


def test_health_needs_no_key(server: RunningServer) -> None:
    with server.client() as http:
        assert http.get("/health").status_code == 200


def test_both_ways_of_giving_a_key(server: RunningServer) -> None:
    with server.client() as http:
        for headers in ({"Authorization": f"Bearer {FIRST}"}, {"x-api-key": SECOND}):
            assert http.get("/v1/models", headers=headers).status_code == 200


def cached(server: RunningServer, key: str, prompt: str, session: str | None = None) -> int:
    """Tokens of a prompt that were there already."""
    more = {} if session is None else {"session": session}
    body = {"prompt": prompt, "n_predict": 2, "temperature": 0.0}
    with server.client(key) as http:
        reply = http.post("/completion", json={**body, **more})
    assert reply.status_code == 200, reply.text
    found: int = reply.json()["timings"]["cache_n"]
    return found


def test_prefixes_stay_with_their_key_and_session(server: RunningServer) -> None:
    assert cached(server, FIRST, SECRET) == 0
    assert cached(server, FIRST, SECRET) > 50
    assert cached(server, SECOND, SECRET) == 0
    assert cached(server, FIRST, SECRET, "a") == 0
    assert cached(server, FIRST, SECRET, "a") > 50
    assert cached(server, FIRST, SECRET, "b") == 0
    # a session's name of one key is no way into another's
    assert cached(server, SECOND, SECRET, "a") == 0
    assert cached(server, SECOND, SECRET, "b") == 0


def test_no_text_of_one_is_shown_to_another(server: RunningServer) -> None:
    body = {"prompt": SECRET, "n_predict": 400, "ignore_eos": True, "stream": True}
    with (
        server.client(FIRST) as mine,
        server.client(SECOND) as other,
        mine.stream("POST", "/completion", json=body) as reply,
    ):
        next(reply.iter_lines())
        for path in ("/slots", "/props", "/metrics"):
            shown = other.get(path)
            assert shown.status_code == 200
            assert "swordfish" not in shown.text
            assert FIRST not in shown.text
    assert FIRST not in server.said()
    assert SECOND not in server.said()
    assert "swordfish" not in server.said()


def test_no_folder_of_the_machine_is_shown(server: RunningServer, chatty: Path) -> None:
    with server.client(FIRST) as http:
        texts = [http.get(path).text for path in ("/props", "/v1/models", "/slots", "/metrics")]
        texts.append(http.post("/completion", json={"prompt": "a", "x": 1}).text)
    assert not any(str(chatty.parent) in text for text in texts)


@pytest.mark.parametrize("text", ["", "# nothing\n\n", "two words\n", "é\n"])
def test_a_file_without_keys_is_no_key_file(
    slipstream: Any, chatty: Path, tmp_path: Path, text: str
) -> None:
    keys = tmp_path / "keys"
    keys.write_text(text)
    words = ["serve", chatty, *tiny_backend(), "--port", "0", "--api-key-file", keys]
    done = slipstream(*words)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
