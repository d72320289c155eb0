"""A small GGUF writer for tests: sound files, and hostile ones by overriding single fields."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

KINDS = {
    "u8": (0, "B"),
    "i8": (1, "b"),
    "u16": (2, "H"),
    "i16": (3, "h"),
    "u32": (4, "I"),
    "i32": (5, "i"),
    "f32": (6, "f"),
    "bool": (7, "?"),
    "string": (8, ""),
    "array": (9, ""),
    "u64": (10, "Q"),
    "i64": (11, "q"),
    "f64": (12, "d"),
}
"""Value types: the id in a file and the ``struct`` format."""

Pairs: TypeAlias = "Mapping[str, Any] | Iterable[tuple[str | bytes, Any]]"


@dataclass(frozen=True)
class Typed:
    """A metadata value of an explicit type: a scalar, or an array of ``kind`` if it is a list."""

    kind: str
    value: Any


@dataclass(frozen=True)
class Tensor:
    """What a file stores of a tensor; ``shape`` in GGUF order, the input width first."""

    type_id: int
    shape: tuple[int, ...]
    data: bytes


def f32_tensor(values: NDArray[np.floating[Any]]) -> Tensor:
    """A float array ``[..., rows, columns]`` as an F32 tensor."""
    return Tensor(0, values.shape[::-1], values.astype("<f4").tobytes())


@dataclass(frozen=True)
class Layout:
    """Everything about a file besides its contents; the fields past ``alignment`` are for lies.

    Attributes:
        version: the version field.
        alignment: of tensor data; any other than 32 is written as ``general.alignment``.
        byte_order: ``<`` or ``>``, for every number of the header.
        magic: the first four bytes.
        key_count: replaces the true count of metadata keys.
        tensor_count: replaces the true count of tensors.
        offsets: replace the offsets of the named tensors.
        trailing: bytes after the last tensor.
    """

    version: int = 3
    alignment: int = 32
    byte_order: str = "<"
    magic: bytes = b"GGUF"
    key_count: int | None = None
    tensor_count: int | None = None
    offsets: Mapping[str, int] | None = None
    trailing: bytes = b""


def write_gguf(path: Path, metadata: Pairs, tensors: Pairs, **layout: Any) -> Path:
    """Write a file and return its path; see ``gguf_bytes``."""
    path.write_bytes(gguf_bytes(metadata, tensors, **layout))
    return path


def gguf_bytes(metadata: Pairs, tensors: Pairs, **layout: Any) -> bytes:
    """The bytes of a GGUF file.

    Args:
        metadata: values by key, or pairs to repeat a key. Python ints become u32 (i32 if negative,
            64 bits if large), floats f32, lists arrays of one type, lists of lists nested arrays;
            ``Typed`` chooses a type and ``bytes`` writes a string that need not be UTF-8.
        tensors: ``Tensor`` by name, or pairs to repeat a name.
        layout: fields of ``Layout``.
    """
    return _File(Layout(**layout)).encode(_pairs(metadata), _pairs(tensors))


def write_shards(
    folder: Path, stem: str, metadata: Mapping[str, Any], shards: Sequence[Mapping[str, Tensor]]
) -> list[Path]:
    """Write a split model: one file per mapping of ``shards``, the metadata in the first."""
    total = sum(len(shard) for shard in shards)
    paths = []
    for index, tensors in enumerate(shards):
        keys = {
            "split.no": Typed("u16", index),
            "split.count": Typed("u16", len(shards)),
            "split.tensors.count": Typed("i32", total),
        }
        path = folder / f"{stem}-{index + 1:05}-of-{len(shards):05}.gguf"
        paths.append(write_gguf(path, keys | dict(metadata if index == 0 else {}), tensors))
    return paths


def _pairs(items: Pairs) -> list[tuple[str | bytes, Any]]:
    return list(items.items() if isinstance(items, Mapping) else items)


class _File:
    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.padding = layout.alignment if layout.alignment > 0 else 32

    def encode(
        self, metadata: list[tuple[str | bytes, Any]], tensors: list[tuple[str | bytes, Any]]
    ) -> bytes:
        if self.layout.alignment != 32:
            metadata = [("general.alignment", self.layout.alignment), *metadata]
        keys = b"".join(self.string(key) + self.tagged(value) for key, value in metadata)
        table, data = self.table(tensors)
        header = self.layout.magic + self.pack("I", self.layout.version)
        header += self.pack("Q", _or(self.layout.tensor_count, len(tensors)))
        header += self.pack("Q", _or(self.layout.key_count, len(metadata)))
        header += keys + table
        body = self.padded(header) + data if tensors else header
        return body + self.layout.trailing

    def table(self, tensors: list[tuple[str | bytes, Any]]) -> tuple[bytes, bytes]:
        table, data = b"", b""
        for name, tensor in tensors:
            data = self.padded(data)
            label = name if isinstance(name, str) else ""
            offset = (self.layout.offsets or {}).get(label, len(data))
            table += self.string(name) + self.pack("I", len(tensor.shape))
            table += b"".join(self.pack("Q", size) for size in tensor.shape)
            table += self.pack("I", tensor.type_id) + self.pack("Q", offset)
            data += tensor.data
        return table, data

    def padded(self, data: bytes) -> bytes:
        return data + bytes(-len(data) % self.padding)

    def pack(self, code: str, value: float) -> bytes:
        return struct.pack(self.layout.byte_order + code, value)

    def string(self, text: str | bytes) -> bytes:
        raw = text.encode() if isinstance(text, str) else text
        return self.pack("Q", len(raw)) + raw

    def tagged(self, value: Any) -> bytes:
        """A value type and a value."""
        kind = _kind(value)
        scalar = value.value if isinstance(value, Typed) and kind != "array" else value
        return self.pack("I", KINDS[kind][0]) + self.value(kind, scalar)

    def value(self, kind: str, value: Any) -> bytes:
        if kind == "string":
            return self.string(value)
        if kind == "array":
            return self.array(value)
        return self.pack(KINDS[kind][1], value)

    def array(self, values: Any) -> bytes:
        kind = _element_kind(values)
        items = values.value if isinstance(values, Typed) else values
        head = self.pack("I", KINDS[kind][0]) + self.pack("Q", len(items))
        return head + b"".join(self.value(kind, item) for item in items)


def _or(value: int | None, default: int) -> int:
    return default if value is None else value


def _kind(value: Any) -> str:
    if isinstance(value, Typed):
        return "array" if isinstance(value.value, list) else value.kind
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return _integer_kind(value)
    if isinstance(value, float):
        return "f32"
    return "string" if isinstance(value, str | bytes) else "array"


def _integer_kind(value: int) -> str:
    if value < 0:
        return "i32" if value >= -(2**31) else "i64"
    return "u32" if value < 2**32 else "u64"


def _element_kind(value: Any) -> str:
    if isinstance(value, Typed):
        return value.kind
    if isinstance(value, np.ndarray):
        letter = {"u": "u", "i": "i", "f": "f"}.get(value.dtype.kind)
        return "bool" if letter is None else f"{letter}{8 * value.dtype.itemsize}"
    kinds = {_kind(item) for item in value}
    if kinds and kinds <= {"u32", "i32"}:
        return "i32"
    return kinds.pop() if kinds else "i32"
