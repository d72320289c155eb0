"""Where a model file can come from. Light to import: no network module is loaded here."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from slipstream.errors import OptionError

# Progress(done_bytes, total_bytes, label); total_bytes is 0 while it is unknown.
Progress = Callable[[int, int, str], None]

_REFERENCE = re.compile(
    r"(?P<repository>[\w.-]+/[\w.-]+):(?P<file>[^@:\\]+)(?:@(?P<revision>[\w./-]+))?"
)


@dataclass(frozen=True, slots=True)
class HubFile:
    """One file of a hub repository, written `owner/repo:file[@revision]`."""

    repository: str
    file: str
    revision: str = "main"

    def describe(self) -> str:
        """The reference as a user types it."""
        suffix = "" if self.revision == "main" else f"@{self.revision}"
        return f"{self.repository}:{self.file}{suffix}"


@dataclass(frozen=True, slots=True)
class WheelPart:
    """One member of one wheel: `size_bytes` consecutive bytes of the model file."""

    package: str
    version: str
    member: str
    size_bytes: int

    def describe(self) -> str:
        return f"{self.package}=={self.version}"


@dataclass(frozen=True, slots=True)
class WheelParts:
    """A model file cut into members of wheels, in order."""

    parts: tuple[WheelPart, ...]

    def describe(self) -> str:
        first, last = self.parts[0], self.parts[-1]
        if first == last:
            return f"package index ({first.describe()})"
        return f"package index ({first.describe()} to {last.describe()})"

    @property
    def size_bytes(self) -> int:
        return sum(part.size_bytes for part in self.parts)


Source = HubFile | WheelParts


def is_hub_reference(text: str) -> bool:
    """Whether `text` has the form `owner/repo:file[@revision]`."""
    return _REFERENCE.fullmatch(text) is not None


def parse_hub_reference(text: str) -> HubFile:
    """Read `owner/repo:file[@revision]`.

    Raises:
        OptionError: another form, or a name that would leave its own directory.
    """
    match = _REFERENCE.fullmatch(text)
    if match is None:
        raise OptionError(
            "a hub reference of the form `owner/repo:file[@revision]`",
            f"`{text}`",
            "Write for example `Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF:model.gguf`.",
        )
    source = HubFile(match["repository"], match["file"], match["revision"] or "main")
    names = [*source.repository.split("/"), *source.file.split("/"), *source.revision.split("/")]
    if any(name in {"", ".", ".."} or name != name.strip() for name in names):
        raise OptionError(
            "names without empty, `.` or `..` parts in a hub reference",
            f"`{text}`",
            "Copy the owner, repository and file name from the hub page.",
        )
    return source
