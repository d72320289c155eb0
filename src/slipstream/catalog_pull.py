"""`catalog.pull`: a catalogue entry or a hub file into the cache, and what came."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec

from slipstream.cache import cache_directory, write_atomically
from slipstream.catalog_entries import CatalogEntry, entry_path, hub_path, identify
from slipstream.errors import OptionError
from slipstream.fetch.hub import Expected, endpoint_address
from slipstream.fetch.pull import Fetched, Fetcher, Refusal
from slipstream.fetch.sources import HubFile, Progress

FROM_CACHE = "cache"
_SPLIT = re.compile(r"(?P<stem>.*)-\d{5}-of-(?P<count>\d{5})\.gguf")
# llama.cpp's split naming has five digits; more files than this is not a model but a mistake.
_MAXIMUM_SPLIT_FILES = 999


@dataclass(frozen=True, slots=True)
class Pulled:
    """A model file that is now here.

    `source` is where its bytes came from (`cache` when they were already here), `refusals` are
    the sources passed over, each with its reason. `digest_known` is False where nobody announced
    a SHA-256, so that only the size could be checked. For a model split over several files,
    `path`, `sha256` and `source` are those of the first, `bytes` is the sum.
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
    refusals: tuple[Refusal, ...] = ()

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
    source: str = FROM_CACHE


class Puller:
    """Fetches into the cache with one set of credentials; see `catalog.pull`."""

    def __init__(self, token: str | None, endpoint: str | None, progress: Progress | None) -> None:
        self._endpoint = endpoint
        self._fetcher = Fetcher(cache_directory() / "locks", token, endpoint, progress)

    def entry(self, entry: CatalogEntry) -> Pulled:
        path = entry_path(entry)
        fetched = self._fetcher.fetch(
            path,
            entry.sources,
            Expected(entry.size_bytes, entry.sha256),
            present=lambda: path.is_file() and identify(path) == entry,
        )
        return Pulled(
            path=path,
            name=entry.name,
            bytes=entry.size_bytes,
            sha256=entry.sha256,
            digest_known=True,
            source=fetched.source if fetched else FROM_CACHE,
            revision=entry.revision,
            description=entry.description,
            licence=entry.licence,
            terms=entry.terms,
            refusals=fetched.refusals if fetched else (),
        )

    def hub_file(self, source: HubFile) -> Pulled:
        records = [self._hub_file(part) for part in _split_files(source)]
        first = records[0]
        page = f"{endpoint_address(self._endpoint)}/{source.repository}"
        return Pulled(
            path=hub_path(_split_files(source)[0]),
            name=source.describe(),
            bytes=sum(record.bytes for record in records),
            sha256=first.sha256,
            digest_known=all(record.digest_known for record in records),
            source=first.source,
            revision=first.revision,
            description=f"{source.file} of {source.repository}",
            licence="stated on the repository's page",
            terms=page,
        )

    def _hub_file(self, source: HubFile) -> HubRecord:
        path = hub_path(source)
        fetched = self._fetcher.fetch(
            path, [source], Expected(), present=lambda: _kept(path) is not None
        )
        if fetched is None:
            return msgspec.json.decode(_record_path(path).read_bytes(), type=HubRecord)
        record = _record(source, fetched)
        write_atomically(_record_path(path), msgspec.json.encode(record))
        return msgspec.structs.replace(record, source=fetched.source)


def _split_files(source: HubFile) -> list[HubFile]:
    """All files of a model split in llama.cpp's manner (`-00001-of-00003.gguf`), else the one."""
    match = _SPLIT.fullmatch(source.file)
    if match is None:
        return [source]
    count = int(match["count"])
    if not 1 <= count <= _MAXIMUM_SPLIT_FILES:
        raise OptionError(
            f"a model in 1 to {_MAXIMUM_SPLIT_FILES} files",
            f"`{source.file}`",
            "Check the file name on the hub's page.",
        )
    names = [f"{match['stem']}-{i:05d}-of-{count:05d}.gguf" for i in range(1, count + 1)]
    return [HubFile(source.repository, name, source.revision) for name in names]


def _record_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.origin.json")


def _kept(path: Path) -> HubRecord | None:
    """The record of a complete earlier pull; a file without one is fetched again."""
    try:
        record = msgspec.json.decode(_record_path(path).read_bytes(), type=HubRecord)
        return record if path.stat().st_size == record.bytes else None
    except (OSError, msgspec.DecodeError):
        return None


def _record(source: HubFile, fetched: Fetched) -> HubRecord:
    return HubRecord(
        reference=source.describe(),
        bytes=fetched.size_bytes,
        sha256=fetched.sha256,
        digest_known=fetched.digest_known,
        revision=fetched.commit or source.revision,
    )
