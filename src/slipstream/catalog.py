"""Named models: what they are, where they come from, the one SHA-256 every source must meet.

`locate` finds a model that is already here, `ensure` fetches it when it is not, `pull` fetches by
name or hub reference and tells what came. A path works anywhere a name does.
"""

from __future__ import annotations

import difflib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from slipstream.cache import cache_directory
from slipstream.catalog_entries import ENTRIES, CatalogEntry, entry_path, hub_path, identify
from slipstream.errors import ModelFileError, OptionError
from slipstream.fetch.sources import HubFile, Progress, is_hub_reference, parse_hub_reference

if TYPE_CHECKING:
    from slipstream.catalog_pull import Pulled

__all__ = [
    "DEFAULT_MODEL",
    "CatalogEntry",
    "Progress",
    "cache_directory",
    "ensure",
    "entries",
    "find",
    "identify",
    "locate",
    "pull",
]

DEFAULT_MODEL = "smollm2-135m"


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
    path = _existing(text)
    if path is not None and path.is_dir():
        raise ModelFileError(
            "a model file", f"the directory {text}", "Name a .gguf file inside it."
        )
    if path is not None:
        return path
    if is_hub_reference(text):
        return _located_hub_file(parse_hub_reference(text))
    looks_like_path = os.sep in text or text.endswith(".gguf")
    raise ModelFileError(
        "a model: a path, a catalogue name or owner/repo:file",
        f"no file at `{text}`" if looks_like_path else f"`{text}`",
        "Check the path." if looks_like_path else _nearest(text),
    )


def _existing(text: str) -> Path | None:
    """The file or directory at a path, if the text is the path of one."""
    try:
        path = Path(text).expanduser()
        return path if path.is_file() or path.is_dir() else None
    except (OSError, RuntimeError):  # a name too long, or the home of an unknown user
        return None


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
    from slipstream.catalog_pull import Puller

    puller = Puller(token, endpoint, progress)
    if is_hub_reference(reference):
        return puller.hub_file(parse_hub_reference(reference))
    return puller.entry(find(reference))


def _located_entry(entry: CatalogEntry) -> Path:
    path = entry_path(entry)
    found = path.stat().st_size if path.is_file() else None
    if found != entry.size_bytes:
        raise ModelFileError(
            f"{entry.name}, {entry.size_bytes:,} bytes at {path}",
            "no such file" if found is None else f"{found:,} bytes",
            f"Run `slipstream pull {entry.name}`.",
        )
    return path


def _located_hub_file(source: HubFile) -> Path:
    path = hub_path(source)
    if not path.is_file():
        raise ModelFileError(
            f"{source.describe()} at {path}",
            "no such file",
            f"Run `slipstream pull {source.describe()}`.",
        )
    return path


def _nearest(name: str) -> str:
    names = [entry.name for entry in ENTRIES]
    if "/" in name and ":" not in name:
        return "A path must exist; a hub reference is `owner/repo:file.gguf`."
    near = difflib.get_close_matches(name, names, n=2, cutoff=0.5) or names
    quoted = " or ".join(f"`{candidate}`" for candidate in near)
    return f"Did you mean {quoted}? `slipstream pull NAME` fetches it."
