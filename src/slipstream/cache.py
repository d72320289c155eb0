"""The cache directory, atomic writes into it, and the memo of file digests."""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec

from slipstream.errors import OptionError

_CHUNK_BYTES = 4 << 20
# The memo of digests keeps this many of the files added last.
_MEMO_ENTRIES = 256


def cache_directory() -> Path:
    """$SLIPSTREAM_CACHE, else `~/.cache/slipstream`.

    Raises:
        OptionError: the home directory that either means is unknown.
    """
    configured = os.environ.get("SLIPSTREAM_CACHE") or "~/.cache/slipstream"
    try:
        return Path(configured).expanduser()
    except RuntimeError:
        raise OptionError(
            "a cache directory", f"`{configured}`, no known home", "Set SLIPSTREAM_CACHE to a path."
        ) from None


def write_atomically(path: Path, content: bytes) -> None:
    """Replace `path` in one step, so that a reader sees the old or the new content."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.new")
    temporary.write_bytes(content)
    temporary.replace(path)


def sha256_of(path: Path, progress: Callable[[int, int, str], None] | None = None) -> str:
    """SHA-256 of a file as 64 lower-case hexadecimal digits."""
    digest = hashlib.sha256()
    total, done = path.stat().st_size, 0
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            digest.update(chunk)
            done += len(chunk)
            if progress:
                progress(done, total, "verifying")
    return digest.hexdigest()


def remembered_sha256(path: Path) -> str:
    """`sha256_of`, remembered in the cache by path, size and modification time."""
    key = _memo_key(path)
    digest = _read_memo().get(key)
    if digest is None:
        digest = sha256_of(path)
        remember_sha256(path, digest)
    return digest


def known_sha256(path: Path) -> str | None:
    """The digest of a file that was computed before and has not changed since, or None."""
    try:
        return _read_memo().get(_memo_key(path))
    except OSError:
        return None


def remember_sha256(path: Path, digest: str) -> None:
    """Note a digest that was just computed. A cache that cannot be written costs only time."""
    memo = {**_read_memo(), _memo_key(path): digest}
    newest = dict(list(memo.items())[-_MEMO_ENTRIES:])
    with contextlib.suppress(OSError):
        write_atomically(_memo_path(), msgspec.json.encode(newest))


def _memo_path() -> Path:
    return cache_directory() / "digests.json"


def _memo_key(path: Path) -> str:
    facts = path.stat()
    return f"{path.resolve()}|{facts.st_size}|{facts.st_mtime_ns}"


def _read_memo() -> dict[str, str]:
    try:
        return msgspec.json.decode(_memo_path().read_bytes(), type=dict[str, str])
    except (OSError, msgspec.DecodeError):
        return {}
