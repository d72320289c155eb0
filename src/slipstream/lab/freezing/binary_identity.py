"""What a program's files tell without running it: digests, compiler, the libraries beside it.

The digest of a dynamically linked binary alone pins little: the kernels are in the libraries that
lie beside it, so those are identified too.
"""

from __future__ import annotations

import hashlib
import mmap
import re
import shutil
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

import slipstream
from slipstream.cache import remembered_sha256, sha256_of
from slipstream.lab.contract.manifest import UNKNOWN, RuntimeIdentity
from slipstream.lab.contract.plan import RuntimePlan
from slipstream.paths import path_of

_LIBRARY: Final = re.compile(r".+\.(so(\.[0-9]+)*|dylib|dll|metallib)")
_RELATED: Final = re.compile(r"lib(llama|ggml|mtmd).*")
_MOST_LIBRARIES: Final = 200
_MOST_COMMENT_BYTES: Final = 4096
_ELF_MAGIC: Final = b"\x7fELF"
_SECTION_64: Final = struct.Struct("<IIQQQQIIQQ")
_MOST_SECTIONS: Final = 4096
_NOT_MEASURED: Final = ("cli", "lab", "measure")
_PACKAGES: Final = ("xllamacpp",)


@dataclass(frozen=True)
class BinaryFacts:
    """
    Attributes:
        sha256: of the file itself.
        libraries: SHA-256 of those beside it, by name, and of llama.cpp's own in ``../lib``.
        compiler: as the ELF section ``.comment`` names it; ``unknown`` elsewhere.
    """

    sha256: str
    libraries: dict[str, str] = field(default_factory=dict)
    compiler: str = UNKNOWN


def completed(identity: RuntimeIdentity, plan: RuntimePlan) -> RuntimeIdentity:
    """An identity with what its files tell where the runtime left it ``unknown``."""
    try:
        facts = runtime_facts(plan)
    except OSError:
        facts = None
    if facts is None:
        return identity
    told = {"binary_sha256": facts.sha256, "compiler": facts.compiler}
    changes: dict[str, object] = {
        name: value for name, value in told.items() if getattr(identity, name) == UNKNOWN
    }
    if not identity.libraries:
        changes["libraries"] = facts.libraries
    return msgspec.structs.replace(identity, **changes)


def runtime_facts(plan: RuntimePlan) -> BinaryFacts | None:
    """Of the program that a plan names; None where no file of it is known here."""
    if plan.kind == "slipstream":
        return own_facts()
    if plan.binary:
        found = shutil.which(str(path_of(plan.binary, "`binary`")))
        return None if found is None else binary_facts(Path(found))
    return wheel_facts(path_of(plan.python, "`python`")) if plan.python else None


def binary_facts(path: Path) -> BinaryFacts:
    """
    Raises:
        OSError: the file cannot be read.
    """
    path = path.resolve()
    beside = [file for file in _libraries(path.parent) if file != path]
    installed = _libraries(path.parent.parent / "lib")
    beside += [file for file in installed if _RELATED.match(file.name)]
    digests = {file.name: remembered_sha256(file) for file in beside[:_MOST_LIBRARIES]}
    return BinaryFacts(remembered_sha256(path), digests, elf_compiler(path))


def wheel_facts(python: Path) -> BinaryFacts | None:
    """Of the extension of a wheel in an environment, found by its interpreter's path."""
    root = python.parent.parent
    for package in _PACKAGES:
        places = list(root.glob(f"lib*/python3*/site-packages/{package}*"))
        files = sorted({file for place in places for file in _libraries(place)})
        own = [file for file in files if file.name.startswith(package)]
        if own:
            others = {f.name: remembered_sha256(f) for f in files[:_MOST_LIBRARIES] if f != own[0]}
            return BinaryFacts(remembered_sha256(own[0]), others, elf_compiler(own[0]))
    return None


def own_facts() -> BinaryFacts:
    """Slipstream's native core, and its Python sources as one digest under ``sources``."""
    package = Path(slipstream.__file__).parent
    native = sorted(package.glob("_native.*.so")) + sorted(package.glob("_native.*.pyd"))
    libraries = {"sources": sources_digest(package)}
    if not native:
        return BinaryFacts(UNKNOWN, libraries)
    return BinaryFacts(sha256_of(native[0]), libraries, elf_compiler(native[0]))


def sources_digest(package: Path) -> str:
    """SHA-256 over names and contents of the Python files that run a model, sorted by name.

    The lab, the measurements and the command line are left out: they do not serve requests.
    """
    digest = hashlib.sha256()
    for file in sorted(package.rglob("*.py")):
        if file.relative_to(package).parts[0] in _NOT_MEASURED:
            continue
        content = file.read_bytes()
        name = file.relative_to(package).as_posix().encode()
        for part in (name, content):
            digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()


def own_release() -> str:
    """Version and commit of this Slipstream: ``0.1.0, commit ...`` or ``commit unknown``."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        number = version("slipstream")
    except PackageNotFoundError:
        number = UNKNOWN
    return f"{number}, commit {source_commit(Path(slipstream.__file__))}"


def source_commit(file: Path) -> str:
    """The commit checked out where a file lies, read from the repository; else ``unknown``.

    Files that differ from it are told by ``sources_digest``, not by this.
    """
    for folder in file.resolve().parents:
        if (folder / ".git").exists():
            return _head(folder / ".git") or UNKNOWN
    return UNKNOWN


def _head(git: Path) -> str:
    """Follows a linked worktree, a symbolic reference and packed references."""
    if git.is_file():
        git = git.parent / _line(git).removeprefix("gitdir: ")
    shared = _line(git / "commondir")
    common = git / shared if shared else git
    head = _line(git / "HEAD")
    if not head.startswith("ref: "):
        return head
    name = head.removeprefix("ref: ")
    direct = _line(git / name) or _line(common / name)
    return direct or _packed(common / "packed-refs", name)


def _packed(path: Path, name: str) -> str:
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        return ""
    return next((line.split()[0] for line in lines if line.endswith(f" {name}")), "")


def _line(path: Path) -> str:
    try:
        with path.open() as stream:
            return stream.readline(4096).strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _libraries(folder: Path) -> list[Path]:
    try:
        files = sorted(folder.iterdir())
    except OSError:
        return []
    return [file for file in files if _LIBRARY.fullmatch(file.name) and file.is_file()]


def elf_compiler(path: Path) -> str:
    """Compilers that an ELF file's ``.comment`` section names, ``unknown`` without one.

    Source: the ELF-64 object file format; GCC and Clang write their versions there.
    """
    try:
        with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as m:
            comment = _comment(m)
    except (OSError, ValueError, OverflowError, struct.error, IndexError):
        return UNKNOWN
    names = [part.decode("ascii", "replace").strip() for part in comment.split(b"\0")]
    return "; ".join(_distinct(name for name in names if name)) or UNKNOWN


def _distinct(names: Iterable[str]) -> Iterator[str]:
    yield from dict.fromkeys(names)


def _comment(content: mmap.mmap) -> bytes:
    if content[:4] != _ELF_MAGIC or content[4:6] != b"\x02\x01":  # 64 bits, little-endian
        return b""
    (table,) = struct.unpack_from("<Q", content, 40)
    size, count, names = struct.unpack_from("<HHH", content, 58)
    if size != _SECTION_64.size or count > _MOST_SECTIONS or names >= count:
        return b""
    sections = [_SECTION_64.unpack_from(content, table + i * size) for i in range(count)]
    base = sections[names][4]
    for section in sections:
        start = base + section[0]
        if content[start : start + 9] == b".comment\0":
            return bytes(content[section[4] : section[4] + min(section[5], _MOST_COMMENT_BYTES)])
    return b""
