"""Opening files that should be refused: a small sample to damage, and the bounds that hold."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from builders import Tensor, Typed
from slipstream.errors import ModelFileError, SlipstreamError
from slipstream.gguf import StringArray, open_gguf

METADATA: dict[str, Any] = {
    "general.architecture": "llama",
    "a.number": 5,
    "a.float": 0.5,
    "a.bool": True,
    "a.strings": ["one", "two", "three"],
    "a.numbers": Typed("i64", [1, 2, 3]),
    "a.nested": [[1], [2, 3], ["x"]],
}
Q8 = Tensor(8, (32, 2), bytes(68))
TENSORS = {"first": Q8, "second": Tensor(0, (4, 2), bytes(32)), "third": Q8}


@contextmanager
def bounded(seconds: float = 1.0, mebibytes: float = 4.0) -> Iterator[None]:
    """Fail when the block takes longer or allocates more than this."""
    tracemalloc.start()
    start = time.process_time()  # of this process: other programs may be busy
    try:
        yield
        elapsed, peak = time.process_time() - start, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert elapsed <= seconds
    assert peak <= mebibytes * 2**20


def refused(path: Path, *parts: str) -> str:
    """Open a hostile file within bounds and return the error, which must mention ``parts``."""
    with bounded(), pytest.raises(ModelFileError) as caught:
        open_gguf(path)
    message = str(caught.value)
    assert all(part in message for part in parts), message
    assert len(message) < 1000
    return message


def use_everything(path: Path) -> None:
    """Open a file and touch all it offers; only an error of ours may stop that."""
    try:
        with open_gguf(path) as file:
            for value in file.metadata.values():
                if isinstance(value, StringArray):
                    list(value)
            for name in file.tensors:
                file.data(name)[-1:].sum()
                file.release(name)
    except SlipstreamError as error:
        shown = str(error)
    else:
        shown = ""
    assert len(shown) < 1000


def open_header_end(path: Path) -> int:
    with open_gguf(path) as file:
        return min(info.offset for info in file.tensors.values())
