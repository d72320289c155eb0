"""Parsing the header of one GGUF file: metadata and tensor table, with every bound checked.

Layout (GGUF specification, versions 2 and 3, little-endian): magic, version u32, tensor count u64,
key count u64; per key its name, a type u32 and a value; per tensor its name, dimension count u32,
dimensions u64 (input width first), type u32, offset u64 from the aligned end of the header.
"""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from pathlib import Path
from typing import Final

import numpy as np

from slipstream._gguf_metadata import DAMAGED, Array, StringArray, Value, clip, describe
from slipstream.errors import ModelFileError
from slipstream.quants import type_layout

HEADER_LIMIT: Final = 128 << 20
STRING_LIMIT: Final = 1 << 22
"""Bytes of a header and strings in its arrays: over ten times those of the largest vocabulary."""
KEY_LIMIT: Final = 1 << 16
TENSOR_LIMIT: Final = 1 << 17
NESTED_ARRAY_LIMIT: Final = 1 << 16
NESTING_LIMIT: Final = 4
NAME_BYTES_LIMIT: Final = 64
KEY_BYTES_LIMIT: Final = (1 << 16) - 1

MAGIC: Final = b"GGUF"
VERSIONS: Final = (2, 3)
DEFAULT_ALIGNMENT: Final = 32

SCALARS: Final = {
    0: struct.Struct("<B"),
    1: struct.Struct("<b"),
    2: struct.Struct("<H"),
    3: struct.Struct("<h"),
    4: struct.Struct("<I"),
    5: struct.Struct("<i"),
    6: struct.Struct("<f"),
    7: struct.Struct("<B"),
    10: struct.Struct("<Q"),
    11: struct.Struct("<q"),
    12: struct.Struct("<d"),
}
"""Numeric value types by id."""
BOOL, STRING, ARRAY = 7, 8, 9
U32, U64 = SCALARS[4], SCALARS[10]


@dataclass(frozen=True)
class TensorInfo:
    """Where a tensor lies.

    Attributes:
        name: its name, unique over all shards.
        type_id: its GGML type.
        shape: GGUF order, the input width first.
        offset: bytes from the start of its shard.
        nbytes: bytes of its data.
        shard: index of the file that holds it.
    """

    name: str
    type_id: int
    shape: tuple[int, ...]
    offset: int
    nbytes: int
    shard: int


@dataclass(frozen=True)
class Header:
    """The parsed header of one file."""

    version: int
    metadata: dict[str, Value]
    tensors: dict[str, TensorInfo]


def read_header(buffer: mmap.mmap, path: Path, shard: int) -> Header:
    """Parse and check the header of one mapped file.

    Raises:
        ModelFileError: the file is not a sound little-endian GGUF of version 2 or 3.
        UnsupportedError: a tensor has an unknown type id.
    """
    cursor = _Cursor(buffer, path)
    version = _read_version(cursor)
    tensor_count = cursor.count("tensor", 32, TENSOR_LIMIT)
    key_count = cursor.count("metadata key", 13, KEY_LIMIT)
    metadata = _read_metadata(cursor, key_count)
    tensors = _read_tensors(cursor, tensor_count, shard, _alignment(cursor, metadata))
    return Header(version, metadata, tensors)


class _Cursor:
    """A position in a mapped header; each read checks that the bytes are there."""

    def __init__(self, buffer: mmap.mmap, path: Path) -> None:
        self.buffer = buffer
        self.path = path
        self.size = len(buffer)
        self.limit = min(self.size, HEADER_LIMIT)
        self.position = 0
        self.strings = self.nested_arrays = 0

    def error(self, expected: str, found: str) -> ModelFileError:
        return ModelFileError(expected, f"{found} in {self.path.name}", DAMAGED)

    def advance(self, length: int, what: str) -> int:
        """Step over ``length`` bytes and return where they start."""
        start = self.position
        if length > self.limit - start:
            end = "the file ends" if self.limit == self.size else "the largest header ends"
            expected = f"{length} bytes of {what} at byte {start}"
            raise self.error(expected, f"{end} at byte {self.limit}")
        self.position = start + length
        return start

    def integer(self, layout: struct.Struct, what: str) -> int:
        value: int = layout.unpack_from(self.buffer, self.advance(layout.size, what))[0]
        return value

    def count(self, what: str, least_bytes: int, limit: int) -> int:
        """A count of items that take at least ``least_bytes`` each."""
        count = self.integer(U64, f"{what} count")
        possible = min(limit, (self.limit - self.position) // least_bytes)
        if count > possible:
            raise self.error(f"a {what} count of at most {possible}", f"the count {count}")
        return count

    def text(self, what: str, limit: int) -> str:
        length = self.integer(U64, f"length of {what}")
        if length > limit:
            raise self.error(f"{what} of at most {limit} bytes", f"the length {length}")
        start = self.advance(length, what)
        raw = self.buffer[start : start + length]
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise self.error(f"UTF-8 text as {what}", clip(raw)) from None


def _read_version(cursor: _Cursor) -> int:
    start = cursor.advance(4, "the GGUF magic")
    magic = cursor.buffer[start : start + 4]
    if magic != MAGIC:
        raise cursor.error("a GGUF file, which starts with b'GGUF'", f"the first bytes {magic!r}")
    version = cursor.integer(U32, "the GGUF version")
    if version in VERSIONS:
        return version
    swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
    order = "a big-endian file of " if swapped in (1, *VERSIONS) else ""
    found = f"{order}version {swapped if order else version}"
    raise cursor.error("a little-endian GGUF file of version 2 or 3", found)


def _read_metadata(cursor: _Cursor, count: int) -> dict[str, Value]:
    metadata: dict[str, Value] = {}
    for _ in range(count):
        key = cursor.text("a metadata key", KEY_BYTES_LIMIT)
        if key in metadata:
            raise cursor.error("metadata keys to be unique", f"{clip(key)} twice")
        label = f"metadata key {clip(key)}"
        metadata[key] = _read_value(cursor, cursor.integer(U32, "a value type"), label, 0)
    return metadata


def _read_value(cursor: _Cursor, kind: int, label: str, depth: int) -> Value:
    if kind in SCALARS:
        layout = SCALARS[kind]
        value: int | float = layout.unpack_from(
            cursor.buffer, cursor.advance(layout.size, f"value of {label}")
        )[0]
        return value if kind != BOOL else _boolean(cursor, int(value), label)
    if kind == STRING:
        return cursor.text(f"value of {label}", cursor.limit)
    if kind == ARRAY:
        return _read_array(cursor, label, depth)
    raise cursor.error(f"a value type from 0 to 12 for {label}", f"type {kind}")


def _boolean(cursor: _Cursor, value: int, label: str) -> bool:
    if value > 1:
        raise cursor.error(f"0 or 1 as boolean in {label}", f"the byte {value}")
    return value == 1


def _read_array(cursor: _Cursor, label: str, depth: int) -> Value:
    kind = cursor.integer(U32, f"array type of {label}")
    if kind == STRING:
        return _read_strings(cursor, label)
    if kind == ARRAY:
        return _read_nested(cursor, label, depth)
    if kind in SCALARS:
        return _read_numbers(cursor, kind, label)
    raise cursor.error(f"an element type from 0 to 12 for {label}", f"type {kind}")


def _read_numbers(cursor: _Cursor, kind: int, label: str) -> Array:
    layout = SCALARS[kind]
    count = cursor.count(f"element of {label}", layout.size, cursor.limit)
    start = cursor.advance(count * layout.size, label)
    array = np.frombuffer(cursor.buffer, np.dtype(layout.format), count, start).copy()
    if kind == BOOL:
        _boolean(cursor, int(array.max(initial=0)), label)
        array = array.view(np.bool_)
    array.flags.writeable = False
    return array


def _read_strings(cursor: _Cursor, label: str) -> StringArray:
    count = cursor.count(f"string of {label}", 8, STRING_LIMIT - cursor.strings)
    cursor.strings += count
    start = position = cursor.position
    buffer, limit, length_at = cursor.buffer, cursor.limit, U64.unpack_from
    try:
        for _ in repeat(None, count):
            position += 8 + length_at(buffer, position)[0]
    except (struct.error, OverflowError):
        position = limit + 1
    if position > limit:
        raise cursor.error(f"{count} strings in {label}", f"one that ends after byte {limit}")
    cursor.position = position
    return StringArray(buffer[start:position], count, label)


def _read_nested(cursor: _Cursor, label: str, depth: int) -> tuple[Value, ...]:
    count = cursor.count(f"array of {label}", 12, NESTED_ARRAY_LIMIT)
    cursor.nested_arrays += count
    if depth >= NESTING_LIMIT or cursor.nested_arrays > NESTED_ARRAY_LIMIT:
        expected = f"at most {NESTING_LIMIT} levels and {NESTED_ARRAY_LIMIT} arrays inside arrays"
        raise cursor.error(expected, f"more, reached in {label}")
    return tuple(_read_array(cursor, label, depth + 1) for _ in range(count))


def _alignment(cursor: _Cursor, metadata: dict[str, Value]) -> int:
    value = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1 or value & (value - 1):
        raise cursor.error("general.alignment to be a power of two", describe(value))
    return value


def _read_tensors(cursor: _Cursor, count: int, shard: int, alignment: int) -> dict[str, TensorInfo]:
    """The tensor table, with offsets still relative to the data section made absolute."""
    relative: dict[str, TensorInfo] = {}
    for _ in range(count):
        info = _read_tensor(cursor, shard)
        if info.name in relative:
            raise cursor.error("tensor names to be unique", f"{clip(info.name)} twice")
        if info.offset % alignment:
            expected = f"tensor {clip(info.name)} at a multiple of {alignment}"
            raise cursor.error(expected, f"offset {info.offset}")
        relative[info.name] = info
    start = -(-cursor.position // alignment) * alignment
    return _placed(cursor, list(relative.values()), start)


def _read_tensor(cursor: _Cursor, shard: int) -> TensorInfo:
    name = cursor.text("a tensor name", NAME_BYTES_LIMIT)
    label = f"tensor {clip(name)}"
    dimensions = cursor.integer(U32, f"dimension count of {label}")
    if not 1 <= dimensions <= 4:
        raise cursor.error(f"1 to 4 dimensions of {label}", f"{dimensions}")
    shape = tuple(cursor.integer(U64, f"shape of {label}") for _ in range(dimensions))
    type_id = cursor.integer(U32, f"type of {label}")
    offset = cursor.integer(U64, f"offset of {label}")
    return TensorInfo(name, type_id, shape, offset, _size(cursor, name, type_id, shape), shard)


def _size(cursor: _Cursor, name: str, type_id: int, shape: tuple[int, ...]) -> int:
    layout = type_layout(type_id, name)
    if 0 in shape:
        raise cursor.error(f"no empty dimension in tensor {clip(name)}", f"shape {list(shape)}")
    if shape[0] % layout.block_elements:
        expected = f"rows of a multiple of {layout.block_elements} in tensor {clip(name)}"
        raise cursor.error(expected, f"{shape[0]} ({layout.name})")
    return math.prod(shape) // layout.block_elements * layout.block_bytes


def _placed(cursor: _Cursor, tensors: Sequence[TensorInfo], start: int) -> dict[str, TensorInfo]:
    """Make offsets absolute; refuse tensors outside the file or on top of each other."""
    end, before = start, "the header"
    placed = {info.name: replace(info, offset=start + info.offset) for info in tensors}
    for info in sorted(placed.values(), key=lambda info: info.offset):
        if info.nbytes > cursor.size - info.offset:
            found = f"{info.nbytes} bytes at byte {info.offset} of {cursor.size}"
            raise cursor.error(f"tensor {clip(info.name)} inside the file", found)
        if info.offset < end:
            expected = f"tensor {clip(info.name)} after the end of {before} at byte {end}"
            raise cursor.error(expected, f"offset {info.offset}")
        end, before = info.offset + info.nbytes, f"tensor {clip(info.name)}"
    return placed
