"""Named models: what they are, where they come from, the one SHA-256 every source must meet.

`locate` finds a model that is already here, `ensure` fetches it when it is not, `pull` fetches by
name or hub reference and tells what came. A path works anywhere a name does.
"""

from __future__ import annotations

import difflib
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from slipstream.catalog_entries import ENTRIES, CatalogEntry
from slipstream.errors import ModelFileError, OptionError
from slipstream.fetch.partial import sha256_of, write_atomically
from slipstream.fetch.sources import HubFile, Progress, is_hub_reference, parse_hub_reference

DEFAULT_MODEL = "smollm2-135m"
# The memo of digests keeps this many of the files met last.
_MEMO_ENTRIES = 256


@dataclass(frozen=True, slots=True)
class Pulled:
    """A model file that is now here.

    `source` is where its bytes came from (`cache` when they were already here), `refusals` are
    the sources passed over, each with its reason. `digest_known` is False where nobody announced
    a SHA-256, so that only the size could be checked.
    """

    path: Path
    name: str
    bytes: int
    sha256: str
    digest_known: bool
    source: str
    revision: str
    description: str
    licence: str
    terms: str
    refusals: tuple[tuple[str, str], ...] = ()

    def to_mapping(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {**asdict(self), "path": str(self.path)}


class HubRecord(msgspec.Struct, frozen=True):
    """What is kept beside a file pulled by hub reference, in `<file>.origin.json`."""

    reference: str
    bytes: int
    sha256: str
    digest_known: bool
    revision: str


def cache_directory() -> Path:
    """$SLIPSTREAM_CACHE, else `~/.cache/slipstream`."""
    configured = os.environ.get("SLIPSTREAM_CACHE")
    return Path(configured).expanduser() if configured else Path.home() / ".cache" / "slipstream"


def entries() -> tuple[CatalogEntry, ...]:
    """All named models, smallest first."""
    return ENTRIES


def find(name: str) -> CatalogEntry:
    """The entry called `name`.

    Raises:
        OptionError: no such name; it lists the nearest.
    """
    for entry in ENTRIES:
        if entry.name == name:
            return entry
    raise OptionError(
        f"a catalogue name ({', '.join(entry.name for entry in ENTRIES)})",
        f"`{name}`",
        _nearest(name),
    )


def locate(model: str | Path) -> Path:
    """The file of a catalogue name, a hub reference or a path, without fetching anything.

    Raises:
        ModelFileError: the file is not here; it says what to pull, or names the nearest model.
    """
    text = str(model)
    if text in {entry.name for entry in ENTRIES}:
        return _located_entry(find(text))
    path = Path(text).expanduser()
    if path.is_file():
        return path
    if path.is_dir():
        raise ModelFileError(
            "a model file", f"the directory {text}", "Name a .gguf file inside it."
        )
    if is_hub_reference(text):
        return _located_hub_file(parse_hub_reference(text))
    looks_like_path = os.sep in text or text.endswith(".gguf")
    raise ModelFileError(
        "a model: a path, a catalogue name or owner/repo:file",
        f"no file at `{text}`" if looks_like_path else f"`{text}`",
        "Check the path." if looks_like_path else _nearest(text),
    )


def ensure(model: str | Path, progress: Progress | None = None) -> Path:
    """`locate`, or `pull` when a catalogue name or hub reference is not here yet."""
    text = str(model)
    try:
        return locate(text)
    except ModelFileError:
        if text in {entry.name for entry in ENTRIES} or is_hub_reference(text):
            return pull(text, progress=progress).path
        raise


def pull(
    reference: str,
    *,
    token: str | None = None,
    endpoint: str | None = None,
    progress: Progress | None = None,
) -> Pulled:
    """Fetch a catalogue name or `owner/repo:file[@revision]` into the cache, verified.

    Args:
        token: access token for the hub; None takes $HF_TOKEN.
        endpoint: base address of the hub; None takes $HF_ENDPOINT, else the public hub.
        progress: called with done bytes, total bytes (0 = unknown) and what is being done.

    Raises:
        OptionError: neither a catalogue name nor a hub reference.
        DownloadError: no source delivered the expected bytes, or the disk is too small.
    """
    if is_hub_reference(reference):
        return _pull_hub_file(parse_hub_reference(reference), token, endpoint, progress)
    return _pull_entry(find(reference), token, endpoint, progress)


def identify(path: Path) -> CatalogEntry | None:
    """The catalogue entry whose bytes `path` holds, or None. Computes a digest at most once."""
    size = path.stat().st_size
    for entry in ENTRIES:
        if entry.size_bytes == size:
            return entry if digest_of(path) == entry.sha256 else None
    return None


def digest_of(path: Path, progress: Progress | None = None) -> str:
    """SHA-256 of a file, remembered in the cache by path, size and modification time."""
    facts = path.stat()
    key = f"{path.resolve()}|{facts.st_size}|{facts.st_mtime_ns}"
    memo = _read_memo()
    digest = memo.pop(key, None) or sha256_of(path, progress)
    newest = [*memo.items(), (key, digest)][-_MEMO_ENTRIES:]
    if newest[-1:] != list(_read_memo().items())[-1:]:
        write_atomically(_memo_path(), msgspec.json.encode(dict(newest)))
    return digest


def _memo_path() -> Path:
    return cache_directory() / "digests.json"


def _read_memo() -> dict[str, str]:
    try:
        return msgspec.json.decode(_memo_path().read_bytes(), type=dict[str, str])
    except (OSError, msgspec.DecodeError):
        return {}


def _entry_path(entry: CatalogEntry) -> Path:
    return cache_directory() / "models" / f"{entry.name}.gguf"


def _hub_path(source: HubFile) -> Path:
    revision = [] if source.revision == "main" else [f"@{quote(source.revision, safe='')}"]
    return cache_directory().joinpath("models", source.repository, *revision, source.file)


def _located_entry(entry: CatalogEntry) -> Path:
    path = _entry_path(entry)
    found = path.stat().st_size if path.is_file() else None
    if found != entry.size_bytes:
        raise ModelFileError(
            f"{entry.name}, {entry.size_bytes:,} bytes at {path}",
            "no such file" if found is None else f"{found:,} bytes",
            f"Run `slipstream pull {entry.name}`.",
        )
    return path


def _located_hub_file(source: HubFile) -> Path:
    path = _hub_path(source)
    if not path.is_file():
        raise ModelFileError(
            f"{source.describe()} at {path}",
            "no such file",
            f"Run `slipstream pull {source.describe()}`.",
        )
    return path


def _nearest(name: str) -> str:
    names = [entry.name for entry in ENTRIES]
    near = difflib.get_close_matches(name, names, n=2, cutoff=0.5) or names
    quoted = " or ".join(f"`{candidate}`" for candidate in near)
    return f"Did you mean {quoted}? `slipstream pull NAME` fetches it."


def _pull_entry(
    entry: CatalogEntry, token: str | None, endpoint: str | None, progress: Progress | None
) -> Pulled:
    from slipstream.fetch.pull import Expected, Fetcher

    path = _entry_path(entry)
    source, refusals = "cache", ()
    if not (path.is_file() and identify(path) == entry):
        fetcher = Fetcher(cache_directory() / "locks", token, endpoint, progress)
        fetched = fetcher.fetch(path, entry.sources, Expected(entry.size_bytes, entry.sha256))
        source, refusals = (fetched.source, fetched.refusals) if fetched else (source, refusals)
    return Pulled(
        path=path,
        name=entry.name,
        bytes=entry.size_bytes,
        sha256=entry.sha256,
        digest_known=True,
        source=source,
        revision=entry.revision,
        description=entry.description,
        licence=entry.licence,
        terms=entry.terms,
        refusals=refusals,
    )
