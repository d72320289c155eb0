"""Metadata values of a GGUF file: lazily decoded string arrays and getters that check types."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, TypeAlias, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from slipstream.errors import ModelFileError

Default = TypeVar("Default")
Kind = TypeVar("Kind")

DAMAGED: Final = "The file is damaged, incomplete or hostile; fetch it again from a trusted source."


def clip(text: object, limit: int = 80) -> str:
    """``repr`` for an error message: hostile text of any length stays short and printable."""
    shown = ascii(text[:limit] if isinstance(text, str | bytes) else text)
    return shown if len(shown) <= 2 * limit else shown[: 2 * limit] + "..."


class StringArray(Sequence[str]):
    """An array of strings whose bounds were checked when the file was opened.

    The strings are decoded together when the first of them is read, because decoding a large
    vocabulary takes longer than opening its file.

    Args:
        raw: for each string a 64-bit length and its UTF-8 bytes, copied out of the file.
        count: strings in ``raw``.
        label: names the array in errors.
    """

    def __init__(self, raw: bytes, count: int, label: str) -> None:
        self._raw = raw
        self._count = count
        self._label = label
        self._strings: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[str, ...]: ...
    def __getitem__(self, index: int | slice) -> str | tuple[str, ...]:
        return self._decoded()[index]

    def __iter__(self) -> Iterator[str]:
        return iter(self._decoded())

    def __repr__(self) -> str:
        return f"StringArray({self._label}, {self._count} strings)"

    def _decoded(self) -> tuple[str, ...]:
        """The strings.

        Raises:
            ModelFileError: one of them is not UTF-8; names its index.
        """
        if self._strings is None:
            self._strings = tuple(self._decode())
            self._raw = b""
        return self._strings

    def _decode(self) -> Iterator[str]:
        raw, start = self._raw, 0
        length_at = struct.Struct("<Q").unpack_from
        for index in range(self._count):
            end = start + 8 + length_at(raw, start)[0]
            try:
                yield raw[start + 8 : end].decode()
            except UnicodeDecodeError:
                found = f"{clip(raw[start + 8 : end])} at index {index}"
                raise ModelFileError(f"UTF-8 text in {self._label}", found, DAMAGED) from None
            start = end


Array: TypeAlias = NDArray[np.generic]
Value: TypeAlias = "int | float | bool | str | Array | StringArray | tuple[Value, ...]"


class _Required:
    """The type of the mark that a getter was given no default."""


REQUIRED: Final = _Required()


class TypedMetadata:
    """Getters over metadata that raise ``ModelFileError`` naming key, expected and found.

    Without ``default`` the key is required; with it, an absent key gives the default. A present
    key of another type is always an error.
    """

    path: Path
    metadata: Mapping[str, Value]

    @overload
    def get_int(self, key: str) -> int: ...
    @overload
    def get_int(self, key: str, default: Default) -> int | Default: ...
    def get_int(self, key: str, default: object = REQUIRED) -> object:
        """An integer of any width."""
        return self._get(key, "an integer", _as_int, default)

    @overload
    def get_float(self, key: str) -> float: ...
    @overload
    def get_float(self, key: str, default: Default) -> float | Default: ...
    def get_float(self, key: str, default: object = REQUIRED) -> object:
        """A finite float of either width."""
        return self._get(key, "a finite float", _as_float, default)

    @overload
    def get_bool(self, key: str) -> bool: ...
    @overload
    def get_bool(self, key: str, default: Default) -> bool | Default: ...
    def get_bool(self, key: str, default: object = REQUIRED) -> object:
        """A boolean."""
        return self._get(key, "a boolean", _as_bool, default)

    @overload
    def get_string(self, key: str) -> str: ...
    @overload
    def get_string(self, key: str, default: Default) -> str | Default: ...
    def get_string(self, key: str, default: object = REQUIRED) -> object:
        """A string."""
        return self._get(key, "a string", _as_string, default)

    @overload
    def get_int_array(self, key: str) -> NDArray[np.int64]: ...
    @overload
    def get_int_array(self, key: str, default: Default) -> NDArray[np.int64] | Default: ...
    def get_int_array(self, key: str, default: object = REQUIRED) -> object:
        """An array of integers of any width that fit in 64 signed bits."""
        return self._get(key, "an array of integers", _as_int_array, default)

    @overload
    def get_float_array(self, key: str) -> NDArray[np.float32]: ...
    @overload
    def get_float_array(self, key: str, default: Default) -> NDArray[np.float32] | Default: ...
    def get_float_array(self, key: str, default: object = REQUIRED) -> object:
        """An array of floats without NaN."""
        return self._get(key, "an array of floats without NaN", _as_float_array, default)

    @overload
    def get_bool_array(self, key: str) -> NDArray[np.bool_]: ...
    @overload
    def get_bool_array(self, key: str, default: Default) -> NDArray[np.bool_] | Default: ...
    def get_bool_array(self, key: str, default: object = REQUIRED) -> object:
        """An array of booleans."""
        return self._get(key, "an array of booleans", _as_bool_array, default)

    @overload
    def get_string_array(self, key: str) -> StringArray: ...
    @overload
    def get_string_array(self, key: str, default: Default) -> StringArray | Default: ...
    def get_string_array(self, key: str, default: object = REQUIRED) -> object:
        """An array of strings, decoded when first read."""
        return self._get(key, "an array of strings", _as_string_array, default)

    def _get(
        self, key: str, expected: str, convert: Callable[[Value], object | None], default: object
    ) -> object:
        value = self.metadata.get(key)
        if value is None and default is not REQUIRED:
            return default
        converted = None if value is None else convert(value)
        if converted is None:
            found = "no such key" if value is None else describe(value)
            raise ModelFileError(
                expected=f"metadata key {key!r} to be {expected}",
                found=f"{found} in {self.path.name}",
                remedy="The model was converted wrongly or is of an unknown kind.",
            )
        return converted


def describe(value: Value) -> str:
    """A short account of a metadata value for an error message."""
    if isinstance(value, np.ndarray):
        return f"an array of {value.size} {value.dtype}"
    if isinstance(value, StringArray):
        return f"an array of {len(value)} strings"
    if isinstance(value, tuple):
        return f"an array of {len(value)} arrays"
    return f"the {type(value).__name__} {clip(value)}"


def _as_int(value: Value) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _as_float(value: Value) -> float | None:
    return value if isinstance(value, float) and math.isfinite(value) else None


def _as_bool(value: Value) -> bool | None:
    return value if isinstance(value, bool) else None


def _as_string(value: Value) -> str | None:
    return value if isinstance(value, str) else None


def _array_of(value: Value, kinds: Literal["iu", "f", "b"]) -> Array | None:
    return value if isinstance(value, np.ndarray) and value.dtype.kind in kinds else None


def _as_int_array(value: Value) -> NDArray[np.int64] | None:
    array = _array_of(value, "iu")
    if array is None or (array.dtype == np.uint64 and np.any(array > np.uint64(2**63 - 1))):
        return None
    return array.astype(np.int64)


def _as_float_array(value: Value) -> NDArray[np.float32] | None:
    array = _array_of(value, "f")
    if array is None or np.isnan(np.asarray(array, np.float64)).any():
        return None
    return array.astype(np.float32)


def _as_bool_array(value: Value) -> NDArray[np.bool_] | None:
    array = _array_of(value, "b")
    return None if array is None else array.astype(np.bool_)


def _as_string_array(value: Value) -> StringArray | None:
    return value if isinstance(value, StringArray) else None
