"""Damaged and hostile GGUF files: a clear error, in bounded time and memory."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any

import pytest

from builders import Tensor, Typed, gguf_bytes, write_gguf
from hostile import METADATA, Q8, TENSORS, refused
from slipstream import _gguf_header
from slipstream.errors import ModelFileError, UnsupportedError
from slipstream.gguf import open_gguf


def test_truncation_at_every_byte(tmp_path: Path) -> None:
    path = tmp_path / "cut.gguf"
    data = gguf_bytes(METADATA, TENSORS)
    assert len(data) <= 4096
    path.write_bytes(data)
    open_gguf(path).close()
    for length in range(len(data)):
        path.write_bytes(data[:length])
        with pytest.raises(ModelFileError, match=r"cut\.gguf"):
            open_gguf(path)


@pytest.mark.parametrize("magic", [b"GGML", b"FUGG", b"\x00\x00\x00\x00", b"vers"])
def test_wrong_magic(tmp_path: Path, magic: bytes) -> None:
    refused(write_gguf(tmp_path / "m.gguf", METADATA, TENSORS, magic=magic), "GGUF", repr(magic))


@pytest.mark.parametrize("version", [2, 3])
def test_big_endian_is_named(tmp_path: Path, version: int) -> None:
    path = write_gguf(tmp_path / "b.gguf", METADATA, TENSORS, version=version, byte_order=">")
    refused(path, "big-endian", f"version {version}")


@pytest.mark.parametrize("version", [0, 1, 4, 2**32 - 1])
def test_other_versions_are_named(tmp_path: Path, version: int) -> None:
    path = write_gguf(tmp_path / "v.gguf", METADATA, TENSORS, version=version)
    refused(path, "version 2 or 3", f"version {version}")


@pytest.mark.parametrize("count", [8, 1000, 2**31, 2**32, 2**63, 2**64 - 1])
@pytest.mark.parametrize("field", ["key_count", "tensor_count"])
def test_absurd_counts(tmp_path: Path, field: str, count: int) -> None:
    refused(write_gguf(tmp_path / "c.gguf", METADATA, TENSORS, **{field: count}))


@pytest.mark.parametrize("count", [4, 2**20, 2**32, 2**61, 2**63, 2**64 - 1])
@pytest.mark.parametrize("kind", [0, 5, 7, 8, 9, 12])
def test_absurd_array_lengths(tmp_path: Path, kind: int, count: int) -> None:
    path = write_gguf(tmp_path / "a.gguf", {"array": Typed("u8", 0)}, {})
    data = path.read_bytes()[:-5] + struct.pack("<IIQ", 9, kind, count)
    path.write_bytes(data)
    refused(path)


@pytest.mark.parametrize("length", [100, 2**31, 2**62, 2**63, 2**64 - 1])
@pytest.mark.parametrize("target", [b"one", b"two", b"three", b"llama", b"a.float", b"second"])
def test_absurd_string_lengths(tmp_path: Path, target: bytes, length: int) -> None:
    """A string that runs past the end, at every kind of place a string can stand."""
    data = gguf_bytes(METADATA, {"second": Q8})
    old = struct.pack("<Q", len(target)) + target
    assert data.count(old) == 1
    path = tmp_path / "s.gguf"
    path.write_bytes(
        data.replace(old, struct.pack("<Q", min(length + len(data), 2**64 - 1)) + target)
    )
    refused(path)


def test_nesting_is_bounded(tmp_path: Path) -> None:
    deep: list[Any] = [1]
    for _ in range(200):
        deep = [deep]
    refused(write_gguf(tmp_path / "n.gguf", {"deep": deep}, {}), "4 levels")


def test_the_number_of_nested_arrays_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_gguf_header, "NESTED_ARRAY_LIMIT", 10)
    wide = [[[1], [2], [3]] for _ in range(4)]
    refused(write_gguf(tmp_path / "w.gguf", {"wide": wide}, {}), "10 arrays")


def test_the_header_is_bounded_in_a_large_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sparse file of zeros holds millions of empty strings for nothing."""
    monkeypatch.setattr(_gguf_header, "HEADER_LIMIT", 2**20)
    path = write_gguf(tmp_path / "z.gguf", {"array": Typed("u8", 0)}, {})
    path.write_bytes(path.read_bytes()[:-5] + struct.pack("<IIQ", 9, 8, 2**20))
    os.truncate(path, 2**32)
    refused(path, "at most 131")


def test_the_number_of_strings_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_gguf_header, "STRING_LIMIT", 5)
    open_gguf(write_gguf(tmp_path / "s.gguf", {"a": ["x"] * 3, "b": ["y"] * 2}, {})).close()
    refused(write_gguf(tmp_path / "s.gguf", {"a": ["x"] * 3, "b": ["y"] * 3}, {}), "'b'", "most 2")


@pytest.mark.parametrize("kind", [13, 255, 2**32 - 1])
def test_unknown_value_types(tmp_path: Path, kind: int) -> None:
    path = write_gguf(tmp_path / "k.gguf", {"key": Typed("u32", 7)}, {})
    data = path.read_bytes()
    path.write_bytes(data[:-8] + struct.pack("<II", kind, 7))
    refused(path, "'key'", f"type {kind}")
    path.write_bytes(data[:-8] + struct.pack("<IIQ", 9, kind, 0))
    refused(path, "'key'", f"type {kind}")


def test_booleans_are_zero_or_one(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "b.gguf", {"key": True}, {})
    path.write_bytes(path.read_bytes()[:-1] + b"\x02")
    refused(path, "'key'", "0 or 1")
    write_gguf(path, {"key": [True, False]}, {})
    path.write_bytes(path.read_bytes()[:-1] + b"\x07")
    refused(path, "'key'", "the byte 7")


@pytest.mark.parametrize("alignment", [0, 3, 24, 33])
def test_alignment_is_a_power_of_two(tmp_path: Path, alignment: int) -> None:
    path = write_gguf(tmp_path / "a.gguf", {}, {"a": Q8}, alignment=alignment)
    refused(path, "general.alignment", str(alignment))


@pytest.mark.parametrize("value", ["32", True, 32.0, [32]])
def test_alignment_is_an_integer(tmp_path: Path, value: Any) -> None:
    refused(
        write_gguf(tmp_path / "a.gguf", {"general.alignment": value}, {"a": Q8}), "power of two"
    )


def test_repeated_keys(tmp_path: Path) -> None:
    refused(write_gguf(tmp_path / "k.gguf", [("x", 1), ("x", 2)], {}), "unique", "'x'")


def test_repeated_tensor_names(tmp_path: Path) -> None:
    refused(write_gguf(tmp_path / "t.gguf", {}, [("x", Q8), ("x", Q8)]), "unique", "'x'")


def test_names_are_bounded(tmp_path: Path) -> None:
    refused(write_gguf(tmp_path / "t.gguf", {}, {"x" * 65: Q8}), "at most 64 bytes")
    refused(write_gguf(tmp_path / "k.gguf", {"x" * 65536: 1}, {}), "at most 65535 bytes")


BAD = b"\xff\xfe\xc3"


def test_keys_names_and_values_are_utf8(tmp_path: Path) -> None:
    refused(write_gguf(tmp_path / "k.gguf", [(BAD, 1)], {}), "UTF-8", "key")
    refused(write_gguf(tmp_path / "n.gguf", {}, [(BAD, Q8)]), "UTF-8", "tensor name")
    refused(write_gguf(tmp_path / "v.gguf", {"key": BAD}, {}), "UTF-8", "'key'")


def test_string_arrays_are_utf8_when_read(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "a.gguf", {"key": ["good", BAD]}, {})
    with open_gguf(path) as file, pytest.raises(ModelFileError, match=r"'key'.*index 1"):
        list(file.get_string_array("key"))


@pytest.mark.parametrize("dimensions", [0, 5, 2**32 - 1])
def test_dimension_counts(tmp_path: Path, dimensions: int) -> None:
    path = tmp_path / "d.gguf"
    data = gguf_bytes({}, {"x": Tensor(0, (1,), bytes(4))})
    path.write_bytes(data[:33] + struct.pack("<I", dimensions) + data[37:])
    refused(path, "1 to 4 dimensions", str(dimensions))


@pytest.mark.parametrize(
    "shape",
    [
        (2**63, 2**63, 2**63, 2**63),
        (2**32, 2**32),
        (2**64 - 32, 2),
        (2**63,),
        (32, 2**59),
        (64, 2),
    ],
)
def test_tensors_larger_than_the_file(tmp_path: Path, shape: tuple[int, ...]) -> None:
    path = write_gguf(tmp_path / "o.gguf", {}, {"x": Tensor(8, shape, bytes(68))})
    refused(path, "'x' inside the file")


@pytest.mark.parametrize("shape", [(0,), (0, 4), (32, 0), (32, 1, 0, 1)])
def test_empty_dimensions(tmp_path: Path, shape: tuple[int, ...]) -> None:
    path = write_gguf(tmp_path / "e.gguf", {}, {"x": Tensor(8, shape, bytes(68))})
    refused(path, "empty dimension", "'x'")


@pytest.mark.parametrize(("type_id", "columns"), [(8, 33), (12, 128), (14, 257), (10, 255)])
def test_rows_are_whole_blocks(tmp_path: Path, type_id: int, columns: int) -> None:
    path = write_gguf(tmp_path / "r.gguf", {}, {"x": Tensor(type_id, (columns, 2), bytes(4096))})
    refused(path, "multiple of", "'x'", str(columns))


@pytest.mark.parametrize("offset", [1, 8, 31, 33])
def test_misaligned_offsets(tmp_path: Path, offset: int) -> None:
    path = write_gguf(tmp_path / "m.gguf", {}, TENSORS, offsets={"second": offset})
    refused(path, "multiple of 32", "'second'", str(offset))


@pytest.mark.parametrize("offset", [0, 32, 64])
def test_overlapping_tensors(tmp_path: Path, offset: int) -> None:
    path = write_gguf(tmp_path / "o.gguf", {}, TENSORS, offsets={"second": offset})
    refused(path, "after the end of tensor")


@pytest.mark.parametrize("offset", [2**20, 2**63, 2**64 - 32])
def test_offsets_outside_the_file(tmp_path: Path, offset: int) -> None:
    path = write_gguf(tmp_path / "o.gguf", {}, TENSORS, offsets={"second": offset})
    refused(path, "inside the file", "'second'")


@pytest.mark.parametrize("type_id", [4, 5, 31, 36, 43, 2**32 - 1])
def test_unknown_tensor_types(tmp_path: Path, type_id: int) -> None:
    path = write_gguf(tmp_path / "u.gguf", {}, {"weird": Tensor(type_id, (32, 2), bytes(68))})
    with pytest.raises(UnsupportedError, match=rf"'weird'.*q6_k.*id {type_id}\b"):
        open_gguf(path)


def test_files_that_are_no_files(tmp_path: Path) -> None:
    empty = tmp_path / "empty.gguf"
    empty.touch()
    pipe = tmp_path / "pipe.gguf"
    os.mkfifo(pipe)
    refused(empty, "an empty file")
    refused(tmp_path, "not a regular file")
    refused(pipe, "not a regular file")
    refused(tmp_path / "absent.gguf", "No such file")
    refused(empty / "below.gguf", "Not a directory")
    refused(tmp_path / "nul\0.gguf", "null")


def test_an_unreadable_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_gguf(tmp_path / "x.gguf", {}, {})

    def denied(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", denied)
    refused(path, "Permission denied", str(path))
