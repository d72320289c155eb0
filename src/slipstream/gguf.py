"""Reading GGUF model files: metadata and tensors over a read-only memory map.

Opening checks every length and offset against the file before anything is allocated, so a
truncated or hostile file gives an error in bounded time and memory. A file must not shrink while
it is open: the operating system kills a process that reads a mapped page which is gone.
"""

from __future__ import annotations

import contextlib
import mmap
import re
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from slipstream._gguf_header import Header, TensorInfo, read_header
from slipstream._gguf_metadata import DAMAGED, StringArray, TypedMetadata, Value, clip, describe
from slipstream.errors import ModelFileError
from slipstream.quants import quant_type

__all__ = ["GGUFFile", "StringArray", "TensorInfo", "Value", "open_gguf"]

SHARD_NAME: Final = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")


class GGUFFile(TypedMetadata):
    """An open model file, or all shards of one.

    Attributes:
        path: the file it was opened by.
        version: GGUF version of the first shard.
        metadata: values by key, those of the first shard; arrays of numbers are read-only NumPy
            arrays, arrays of strings are decoded when first read, arrays of arrays are tuples.
        tensors: tensors of all shards by name, in file order.
    """

    def __init__(self, path: Path, headers: Sequence[Header], maps: Sequence[mmap.mmap]) -> None:
        self.path = path
        self.version = headers[0].version
        self.metadata: Mapping[str, Value] = MappingProxyType(headers[0].metadata)
        self.tensors: Mapping[str, TensorInfo] = MappingProxyType(
            {name: info for header in headers for name, info in header.tensors.items()}
        )
        self._maps = tuple(maps)

    def data(self, name: str) -> NDArray[np.uint8]:
        """The bytes of a tensor: a read-only zero-copy view, uint8 ``[nbytes]``.

        Raises:
            ModelFileError: there is no such tensor.
            UnsupportedError: its type is not one that Slipstream runs.
        """
        info = self._tensor(name)
        quant_type(info.type_id, name)
        return np.frombuffer(self._map(info), np.uint8, info.nbytes, info.offset)

    def prefetch(self, name: str) -> None:
        """Ask the system to read a tensor from the disk in the background; returns at once.

        Raises:
            ModelFileError: there is no such tensor.
        """
        self._advise(name, mmap.MADV_WILLNEED)

    def release(self, name: str) -> None:
        """Drop the resident pages that lie wholly inside a tensor; reading it again is still fine.

        Raises:
            ModelFileError: there is no such tensor.
        """
        self._advise(name, mmap.MADV_DONTNEED)

    def _advise(self, name: str, advice: int) -> None:
        info = self._tensor(name)
        start = -(-info.offset // mmap.PAGESIZE) * mmap.PAGESIZE
        end = (info.offset + info.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
        if start < end:
            self._map(info).madvise(advice, start, end - start)

    def close(self) -> None:
        """Give the maps back; a map with views still in use goes with the last of them."""
        for opened in self._maps:
            with contextlib.suppress(BufferError):
                opened.close()
        self._maps = ()

    def __enter__(self) -> GGUFFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _tensor(self, name: str) -> TensorInfo:
        info = self.tensors.get(name)
        if info is None:
            raise ModelFileError(
                expected=f"a tensor {clip(name)}",
                found=f"{len(self.tensors)} tensors without it in {self.path.name}",
                remedy="The model was converted wrongly or is of an unknown kind.",
            )
        return info

    def _map(self, info: TensorInfo) -> mmap.mmap:
        if not self._maps:
            raise ValueError(f"{self.path.name} is closed")
        return self._maps[info.shard]


def open_gguf(path: str | Path) -> GGUFFile:
    """Open a model file; opening any shard of a split model opens all of them.

    Raises:
        ModelFileError: a file is missing, unreadable, malformed or does not fit the other shards.
        UnsupportedError: a tensor has a type id in no known table.
    """
    path = Path(path)
    with contextlib.ExitStack() as opened:
        chosen = opened.enter_context(_map_file(path))
        maps, headers = [chosen], [read_header(chosen, path, 0)]
        paths = _shard_paths(path, headers[0])
        if len(paths) > 1:
            others = (shard for shard in paths if shard != path)
            by_path = {shard: opened.enter_context(_map_file(shard)) for shard in others}
            maps = [by_path.get(shard, chosen) for shard in paths]
            headers = [read_header(maps[i], paths[i], i) for i in range(len(paths))]
            _check_shards(paths, headers)
        opened.pop_all()
    return GGUFFile(path, headers, maps)


def _map_file(path: Path) -> mmap.mmap:
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise _unreadable(path, "something that is not a regular file")
        if status.st_size == 0:
            raise _unreadable(path, "an empty file")
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise _unreadable(path, reason or type(error).__name__) from None


def _unreadable(path: Path, found: str) -> ModelFileError:
    return ModelFileError(
        expected=f"a readable model file at {path}",
        found=found,
        remedy="Check the path and its permissions, or fetch the model with `slipstream pull`.",
    )


def _shard_paths(path: Path, header: Header) -> list[Path]:
    """Every shard in order, from the keys and the name of any one of them."""
    count = header.metadata.get("split.count", 1)
    if isinstance(count, int) and count in (0, 1):
        return [path]
    name = SHARD_NAME.fullmatch(path.name)
    shards = [] if name is None else _names_of_all(name["stem"], int(name["count"]))
    if not isinstance(count, int) or len(shards) != count or path.name not in shards:
        raise ModelFileError(
            expected="a file name NAME-00001-of-0000N.gguf where N is split.count",
            found=f"{clip(path.name)}, where split.count is {describe(count)}",
            remedy="Keep the names that the shards were published under.",
        )
    return [path.with_name(shard) for shard in shards]


def _names_of_all(stem: str, count: int) -> list[str]:
    return [f"{stem}-{number:05}-of-{count:05}.gguf" for number in range(1, count + 1)]


def _check_shards(paths: Sequence[Path], headers: Sequence[Header]) -> None:
    """Refuse shards that do not belong together."""
    names: set[str] = set()
    for index, header in enumerate(headers):
        _expect(paths[index], header, "split.count", len(paths))
        _expect(paths[index], header, "split.no", index)
        repeated = names.intersection(header.tensors)
        if repeated:
            found = f"{clip(min(repeated))} again in {paths[index].name}"
            raise ModelFileError("tensor names unique over all shards", found, DAMAGED)
        names.update(header.tensors)
    _expect(paths[0], headers[0], "split.tensors.count", len(names))


def _expect(path: Path, header: Header, key: str, value: int) -> None:
    found = header.metadata.get(key)
    if not isinstance(found, int) or found != value:
        raise ModelFileError(
            expected=f"{key} = {value} in {path.name}",
            found="no such key" if found is None else describe(found),
            remedy="Fetch all shards of one release again.",
        )
