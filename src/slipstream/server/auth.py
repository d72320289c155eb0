"""Who may use the server: API keys from a file, addresses, and names that browsers may call.

The keys themselves go no further than this module: everything else knows a digest, made with a
secret of this process, which is the beginning of every session's name.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
import stat
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from slipstream.errors import OptionError, RequestError
from slipstream.server.order import Caller
from slipstream.server.refusals import AccessError, ForbiddenError, refuse
from slipstream.server_options import ServerOptions

MOST_KEY_FILE_BYTES: Final = 1 << 20
MOST_KEY_CHARACTERS: Final = 1024
MOST_SESSION_CHARACTERS: Final = 200
SHORT_KEY: Final = 16
KEY_OF: Final = "slipstream.key"  # the scope's entry: digest of the key that a request carries
OPEN_PATHS: Final = frozenset({"/health", "/v1/health", "/"})


class Keys:
    """API keys; without any, everybody is let in.

    Args:
        keys: as clients send them.
    """

    def __init__(self, keys: Iterable[str] = ()) -> None:
        self._secret = secrets.token_bytes(32)
        self._digests = [self._digest(key) for key in dict.fromkeys(keys)]

    def __len__(self) -> int:
        return len(self._digests)

    def __bool__(self) -> bool:
        return bool(self._digests)

    def digest_of(self, key: str) -> str | None:
        """16 hexadecimal digits for a key that is let in, else None.

        It takes the same time whichever key it is, if any.
        """
        asked = self._digest(key)
        found = False
        for digest in self._digests:
            found |= hmac.compare_digest(digest, asked)
        return asked.hex()[:16] if found else None

    def _digest(self, key: str) -> bytes:
        data = key.encode("utf-8", "surrogateescape")
        return hashlib.blake2b(data, key=self._secret, digest_size=32).digest()


def read_keys(path: str | Path) -> Keys:
    """The keys of a file, one a line; empty lines and lines that begin with ``#`` are none.

    Raises:
        OptionError: it cannot be read, is too large, or holds no key or an impossible one.
    """
    try:
        with Path(path).open("rb") as stream:
            data = stream.read(MOST_KEY_FILE_BYTES + 1)
        text = data.decode("ascii")
    except OSError as problem:
        raise _no_keys(problem.strerror or "unreadable") from None
    except UnicodeDecodeError:
        raise _no_keys("a character that is not ASCII") from None
    if len(data) > MOST_KEY_FILE_BYTES:
        raise _no_keys(f"more than {MOST_KEY_FILE_BYTES} bytes")
    lines = [line.strip() for line in text.splitlines()]
    keys = [line for line in lines if line and not line.startswith("#")]
    if not keys:
        raise _no_keys("no key")
    for number, line in enumerate(lines, 1):
        if line in keys and (len(line) > MOST_KEY_CHARACTERS or not _is_token(line)):
            raise _no_keys(f"no key in line {number}: a space, a control character, or too long")
    return Keys(keys)


def _is_token(key: str) -> bool:
    return key.isprintable() and " " not in key


def _no_keys(found: str) -> OptionError:
    return OptionError(
        "`api_key_file` to name a readable file with one key a line",
        found,
        "Write keys of printable ASCII without spaces, such as `openssl rand -hex 24` prints.",
    )


def key_warnings(path: str | Path) -> list[str]:
    """What is unwise about a file of keys, in words; it must be readable."""
    found = []
    if Path(path).stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
        found.append("the API key file can be read by other users of this machine (chmod 600)")
    lines = [line.strip() for line in Path(path).read_text("ascii").splitlines()]
    if any(len(line) < SHORT_KEY for line in lines if line and not line.startswith("#")):
        found.append(f"an API key is shorter than {SHORT_KEY} characters: it may be guessed")
    return found


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address; a name counts if it is ``localhost``."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]").partition("%")[0]).is_loopback
    except ValueError:
        return False


def require_safe_address(options: ServerOptions) -> None:
    """
    Raises:
        OptionError: others than this machine could use the server without a key, and that was not
            asked for.
    """
    if is_loopback(options.host) or options.api_key_file is not None or options.allow_public:
        return
    raise OptionError(
        "`host` to be a loopback address where there are no API keys",
        f"`{options.host}`",
        "Give `api_key_file`, or `allow_public` if anyone who reaches the address may use it.",
    )


def session_of(key: str, session: str | None) -> str:
    """The name of a session: the digest of a key, then the request's own field.

    Args:
        key: its digest; empty without keys.

    Raises:
        RequestError: the field is too long.
    """
    if not session:
        return key
    if len(session) > MOST_SESSION_CHARACTERS:
        raise RequestError(
            f"`session` of at most {MOST_SESSION_CHARACTERS} characters",
            f"{len(session)}",
            "Name it by a shorter text.",
        )
    return f"{key}:{session}"


def caller_of(scope: Mapping[str, Any], session: str | None = None) -> Caller:
    """Who asks.

    Args:
        scope: of the request (``request.scope``), after ``Access`` let it in.
        session: the request's own field, or None.

    Raises:
        RequestError: the field is too long.
    """
    return Caller(session=session_of(scope.get(KEY_OF, ""), session))


class Access:
    """ASGI middleware: lets in who has a key, and no page of another origin.

    Args:
        app: what is guarded.
        keys: without any, everybody is let in.
        open_paths: need no key.
        origins: of pages that may use the server, beside its own; ``*`` = all.
        hosts: names by which it is called; None = any. A page elsewhere whose name was made to
            mean this machine is so kept out of a server that asks for no key.
    """

    def __init__(
        self,
        app: ASGIApp,
        keys: Keys,
        *,
        open_paths: Collection[str] = OPEN_PATHS,
        origins: Collection[str] = (),
        hosts: Collection[str] | None = None,
    ) -> None:
        self._app = app
        self._keys = keys
        self._open = frozenset(open_paths)
        self._origins = frozenset(origins)
        self._hosts = None if hosts is None else frozenset(name.lower() for name in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers: dict[bytes, bytes] = dict(scope["headers"])
        stranger = self._stranger(headers)
        if stranger is not None:
            await refuse(scope, send, stranger)
            return
        digest = self._digest(headers)
        if digest is None and scope["path"] not in self._open:
            await refuse(scope, send, _no_access(headers))
            return
        scope[KEY_OF] = digest or ""
        await self._app(scope, receive, send)

    def _digest(self, headers: Mapping[bytes, bytes]) -> str | None:
        """Of the key that a request carries; empty where none is needed, None without one."""
        if not self._keys:
            return ""
        found = [self._keys.digest_of(key) for key in _presented(headers)]
        return next((digest for digest in found if digest is not None), None)

    def _stranger(self, headers: Mapping[bytes, bytes]) -> ForbiddenError | None:
        host = headers.get(b"host", b"").decode("latin-1")
        if self._hosts is not None and not self._is_ours(host):
            return ForbiddenError(
                "a request to this server by an address or a name that it was given",
                f"`{host:.80}`",
                "Use the address, or start the server with `host` of that name or with API keys.",
            )
        origin = headers.get(b"origin", b"").decode("latin-1")
        if not origin or "*" in self._origins or origin in self._origins:
            return None
        if host and origin.partition("://")[2].lower() == host.lower():
            return None
        return ForbiddenError(
            "a page of this server or of an origin that it allows",
            f"`{origin:.80}`",
            "Start the server with `cors_origins` of that origin.",
        )

    def _is_ours(self, host: str) -> bool:
        """Whether a Host header names an address, localhost, or a name of ours."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        assert self._hosts is not None
        if not host or name in self._hosts or name == "localhost" or name.endswith(".localhost"):
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


def _presented(headers: Mapping[bytes, bytes]) -> list[str]:
    """The keys that a request carries: ``Authorization: Bearer KEY`` and ``x-api-key: KEY``."""
    found = []
    scheme, _, key = headers.get(b"authorization", b"").decode("latin-1").strip().partition(" ")
    if scheme.lower() == "bearer" and key.strip():
        found.append(key.strip())
    plain = headers.get(b"x-api-key", b"").decode("latin-1").strip()
    return [*found, *([plain] if plain else [])]


def _no_access(headers: Mapping[bytes, bytes]) -> AccessError:
    given = bool(_presented(headers))
    return AccessError(
        "an API key of this server (`Authorization: Bearer KEY` or `x-api-key: KEY`)",
        "one that it does not know" if given else "none",
        "Use a key from the server's key file.",
    )
