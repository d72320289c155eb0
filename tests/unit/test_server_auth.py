"""Who is let in: keys, addresses, pages of other origins."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from asgi import Headers, Reply, ask
from slipstream.errors import OptionError, RequestError
from slipstream.server.auth import (
    MOST_KEY_CHARACTERS,
    Access,
    Keys,
    caller_of,
    is_loopback,
    key_warnings,
    read_keys,
    require_safe_address,
    session_of,
)
from slipstream.server_options import ServerOptions

KEY, OTHER = "first-key-of-this-server", "second-key-of-this-server"


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Says which session it sees."""
    del receive
    await send({"type": "http.response.start", "status": 200, "headers": []})
    body = json.dumps(caller_of(scope, "mine").session).encode()
    await send({"type": "http.response.body", "body": body})


def reply(headers: Headers = (), path: str = "/v1/models", **keywords: Any) -> Reply:
    keys = keywords.pop("keys", Keys([KEY, OTHER]))
    return ask(Access(app, keys, **keywords), path, headers=headers)


@pytest.mark.parametrize(
    "headers",
    [
        [("Authorization", f"Bearer {KEY}")],
        [("authorization", f"bearer  {KEY} ")],
        [("x-api-key", KEY)],
        [("x-api-key", OTHER)],
        [("Authorization", "Bearer wrong"), ("x-api-key", KEY)],
    ],
)
def test_a_key_is_let_in(headers: Headers) -> None:
    assert reply(headers).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("Authorization", "")],
        [("Authorization", "Bearer")],
        [("Authorization", "Bearer ")],
        [("Authorization", f"Basic {KEY}")],
        [("Authorization", KEY)],
        [("Authorization", f"Bearer {KEY}x")],
        [("Authorization", f"Bearer {KEY[:-1]}")],
        [("x-api-key", "\xff\xfe")],
        [("cookie", KEY)],
    ],
)
def test_anything_else_is_not(headers: Headers) -> None:
    refused = reply(headers)
    assert refused.status == 401
    assert refused.headers["www-authenticate"] == "Bearer"
    assert refused.json["error"]["type"] == "authentication_error"
    assert KEY not in refused.body.decode()


def test_anthropics_paths_get_its_shape() -> None:
    error = reply(path="/v1/messages").json
    assert error["type"] == "error"
    assert error["error"]["type"] == "authentication_error"


def test_health_and_the_page_need_no_key() -> None:
    for path in ("/health", "/v1/health", "/"):
        assert reply(path=path).status == 200
    assert reply(path="/health/").status == 401
    assert reply(path="/page/x.js", open_paths={"/page/x.js"}).status == 200


def test_without_keys_everybody_is_let_in() -> None:
    assert reply(keys=Keys()).status == 200


def test_sessions_begin_with_the_key() -> None:
    keys = Keys([KEY, OTHER])
    first = reply([("x-api-key", KEY)], keys=keys).json
    again = reply([("authorization", f"Bearer {KEY}")], keys=keys).json
    other = reply([("x-api-key", OTHER)], keys=keys).json
    assert first == again != other
    assert first.endswith(":mine")
    assert KEY not in first
    assert reply(keys=Keys()).json == ":mine"


def test_names_of_sessions() -> None:
    assert session_of("", None) == ""
    assert session_of("abc", "") == "abc"
    assert session_of("abc", "x") == "abc:x"
    assert session_of("", "abc") != session_of("abc", None)
    with pytest.raises(RequestError, match="at most 200"):
        session_of("", "x" * 201)


def test_a_key_file(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text(f"# keys\n\n  {KEY}  \r\n{OTHER}\n{KEY}\n")
    keys = read_keys(path)
    assert len(keys) == 2
    assert keys.digest_of(KEY) is not None
    assert keys.digest_of("# keys") is None
    assert keys.digest_of("") is None


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"", "no key"),
        (b"# nothing\n\n", "no key"),
        (b"a b\n", "line 1"),
        (b"good-one\nbad\x00one\n", "line 2"),
        (b"k" * (MOST_KEY_CHARACTERS + 1), "line 1"),
        ("schlüssel\n".encode(), "not ASCII"),
        (b"k\n" * (1 << 20), "more than"),
    ],
)
def test_a_bad_key_file_is_refused(tmp_path: Path, data: bytes, found: str) -> None:
    path = tmp_path / "keys"
    path.write_bytes(data)
    with pytest.raises(OptionError, match=found):
        read_keys(path)


def test_an_absent_key_file_is_refused_without_a_traceback(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="No such file"):
        read_keys(tmp_path / "absent")
    with pytest.raises(OptionError, match="directory"):
        read_keys(tmp_path)


def test_what_is_unwise_is_said(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text(f"{KEY}\n")
    path.chmod(0o600)
    assert key_warnings(path) == []
    path.chmod(0o644)
    path.write_text("short\n")
    told = " ".join(key_warnings(path))
    assert "other users" in told
    assert "shorter" in told


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("[::1]", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.0.2", False),
        ("example.org", False),
        ("localhost.example.org", False),
    ],
)
def test_only_loopback_needs_no_key(host: str, loopback: bool) -> None:
    assert is_loopback(host) == loopback
    require_safe_address(ServerOptions(host=host, api_key_file="keys"))
    require_safe_address(ServerOptions(host=host, allow_public=True))
    if loopback:
        require_safe_address(ServerOptions(host=host))
    else:
        with pytest.raises(OptionError, match="allow_public"):
            require_safe_address(ServerOptions(host=host))


def from_page(origin: str, host: str = "localhost:8080", **keywords: Any) -> int:
    return reply([("origin", origin), ("host", host)], keys=Keys(), **keywords).status


def test_pages_of_other_origins_are_kept_out() -> None:
    assert from_page("http://localhost:8080") == 200
    assert from_page("http://LOCALHOST:8080") == 200
    for origin in ("http://evil.example", "http://localhost:3000", "null", "http://[", "x"):
        assert from_page(origin) == 403, origin
    assert from_page("http://localhost:3000", origins=["http://localhost:3000"]) == 200
    assert from_page("http://evil.example", origins=["*"]) == 200
    assert from_page("", host="") == 200


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1:8080", "localhost:8080", "[::1]:8080", "a.localhost", "192.168.1.1", "box", ""],
)
def test_a_server_knows_its_names(host: str) -> None:
    assert reply([("host", host)], keys=Keys(), hosts={"Box"}).status == 200


@pytest.mark.parametrize("host", ["evil.example:8080", "localhost.evil.example", "[::1", "a:b:c"])
def test_a_name_made_to_mean_this_machine_is_kept_out(host: str) -> None:
    refused = reply([("host", host)], keys=Keys(), hosts={"127.0.0.1"})
    assert refused.status == 403
