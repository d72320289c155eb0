"""What a program's files tell: digests of binary and libraries, compiler, commit."""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path

import msgspec
import pytest

from slipstream.lab.contract.manifest import RuntimeIdentity
from slipstream.lab.contract.plan import RuntimePlan
from slipstream.lab.freezing.binary_identity import (
    binary_facts,
    completed,
    elf_compiler,
    own_facts,
    own_release,
    source_commit,
    sources_digest,
    wheel_facts,
)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIPSTREAM_CACHE", str(tmp_path / "cache"))


def elf(comment: bytes) -> bytes:
    """A 64-bit ELF file of three sections: nothing, ``.comment`` and the names."""
    names = b"\0.comment\0.names\0"
    at, table = 64, 64 + len(comment) + len(names)
    header = b"\x7fELF\x02\x01\x01" + bytes(9)
    header += struct.pack("<HHIQQQIHHHHHH", 2, 62, 1, 0, 0, table, 0, 64, 0, 0, 64, 3, 2)

    def section(name: int, offset: int, size: int) -> bytes:
        return struct.pack("<IIQQQQIIQQ", name, 1, 0, 0, offset, size, 0, 0, 1, 0)

    rows = section(0, 0, 0) + section(1, at, len(comment))
    rows += section(10, at + len(comment), len(names))
    return header + comment + names + rows


def test_the_compiler_of_an_elf_file(tmp_path: Path) -> None:
    path = tmp_path / "program"
    path.write_bytes(elf(b"GCC: (Debian) 12.2.0\0clang version 14\0GCC: (Debian) 12.2.0\0"))
    assert elf_compiler(path) == "GCC: (Debian) 12.2.0; clang version 14"


@pytest.mark.parametrize("cut", [0, 3, 40, 63, 70, 100, 200])
def test_a_torn_or_foreign_file_tells_no_compiler(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "program"
    path.write_bytes(elf(b"GCC: 12\0")[:cut])
    assert elf_compiler(path) == "unknown"
    path.write_bytes(b"#!/bin/sh\n" * 50)
    assert elf_compiler(path) == "unknown"


def test_a_hostile_section_table(tmp_path: Path) -> None:
    content = bytearray(elf(b"GCC: 12\0"))
    struct.pack_into("<Q", content, 40, 2**63)
    path = tmp_path / "program"
    path.write_bytes(bytes(content))
    assert elf_compiler(path) == "unknown"


def test_libraries_beside_a_binary(tmp_path: Path) -> None:
    files = ("bin/server", "bin/libggml.so.1", "lib/libllama.so", "lib/readme.txt", "lib/libc.so")
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    found = binary_facts(tmp_path / "bin/server")
    assert found.sha256 == hashlib.sha256(b"bin/server").hexdigest()
    assert set(found.libraries) == {"libggml.so.1", "libllama.so"}
    assert found.libraries["libllama.so"] == hashlib.sha256(b"lib/libllama.so").hexdigest()


def test_a_wheel_is_found_by_its_interpreter(tmp_path: Path) -> None:
    python = tmp_path / "bin/python"
    folder = tmp_path / "lib/python3.11/site-packages"
    (folder / "xllamacpp").mkdir(parents=True)
    (folder / "xllamacpp/xllamacpp.abi3.so").write_bytes(b"core")
    (folder / "xllamacpp.libs").mkdir()
    (folder / "xllamacpp.libs/libgomp.so.1").write_bytes(b"gomp")
    found = wheel_facts(python)
    assert found is not None
    assert found.sha256 == hashlib.sha256(b"core").hexdigest()
    assert list(found.libraries) == ["libgomp.so.1"]
    assert wheel_facts(tmp_path / "elsewhere/bin/python") is None


def test_only_what_the_runtime_left_open_is_filled(tmp_path: Path) -> None:
    binary = tmp_path / "server"
    binary.write_bytes(elf(b"GCC: 12\0"))
    binary.chmod(0o755)
    plan = RuntimePlan(kind="llama-server", binary=str(binary))
    bare = RuntimeIdentity(name="a", kind="llama-server")
    filled = completed(bare, plan)
    assert filled.compiler == "GCC: 12"
    assert filled.binary_sha256 == hashlib.sha256(binary.read_bytes()).hexdigest()
    (tmp_path / "libggml.so").write_bytes(b"kernels")
    digest = hashlib.sha256(b"kernels").hexdigest()
    assert completed(bare, plan).libraries == {"libggml.so": digest}
    (tmp_path / "libggml.so").unlink()
    told = msgspec.structs.replace(bare, compiler="MSVC", binary_sha256="1" * 64)
    assert completed(told, plan) == told
    elsewhere = RuntimePlan(kind="openai", url="http://x")
    assert completed(bare, elsewhere) == bare


def test_sources_leave_out_what_does_not_serve(tmp_path: Path) -> None:
    (tmp_path / "lab").mkdir()
    (tmp_path / "engine.py").write_text("a = 1\n")
    (tmp_path / "lab/report.py").write_text("b = 1\n")
    first = sources_digest(tmp_path)
    (tmp_path / "lab/report.py").write_text("b = 2\n")
    assert sources_digest(tmp_path) == first
    (tmp_path / "engine.py").write_text("a = 2\n")
    assert sources_digest(tmp_path) != first


def test_own_identity() -> None:
    assert len(own_facts().libraries["sources"]) == 64
    assert ", commit " in own_release()


COMMIT = "0123456789abcdef0123456789abcdef01234567"


def test_the_commit_of_a_checkout(tmp_path: Path) -> None:
    git, file = tmp_path / ".git", tmp_path / "src/module.py"
    git.mkdir()
    assert source_commit(file) == "unknown"
    (git / "HEAD").write_text(f"{COMMIT}\n")
    assert source_commit(file) == COMMIT
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    (git / "packed-refs").write_text(f"# pack\n{COMMIT} refs/heads/main\n")
    assert source_commit(file) == COMMIT
    (git / "refs/heads").mkdir(parents=True)
    (git / "refs/heads/main").write_text("f" * 40)
    assert source_commit(file) == "f" * 40


def test_the_commit_of_a_linked_worktree(tmp_path: Path) -> None:
    main, linked = tmp_path / "main/.git", tmp_path / "linked"
    (main / "worktrees/linked").mkdir(parents=True)
    (main / "refs/heads").mkdir(parents=True)
    (main / "refs/heads/topic").write_text(COMMIT)
    (main / "worktrees/linked/HEAD").write_text("ref: refs/heads/topic\n")
    (main / "worktrees/linked/commondir").write_text("../..\n")
    linked.mkdir()
    (linked / ".git").write_text(f"gitdir: {main}/worktrees/linked\n")
    assert source_commit(linked / "module.py") == COMMIT
