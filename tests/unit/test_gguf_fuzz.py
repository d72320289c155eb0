"""Mutated GGUF headers, synthetic and real: only Slipstream's own errors may escape."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import Typed, gguf_bytes, tiny_model
from hostile import METADATA, TENSORS, open_header_end, use_everything
from slipstream.errors import ModelFileError
from slipstream.gguf import open_gguf


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz") / "m-00001-of-00001.gguf"


SMALL = gguf_bytes(METADATA | {"split.count": Typed("u16", 1)}, TENSORS)
INTERESTING = st.sampled_from(
    [0, 1, 2, 3, 9, 32, 127, 128, 255, 2**31, 2**32 - 1, 2**63, 2**64 - 1]
)


@given(
    edits=st.lists(
        st.tuples(st.integers(0, len(SMALL) - 8), st.sampled_from("BIQ"), INTERESTING), max_size=4
    ),
    length=st.integers(0, 2 * len(SMALL)),
)
@settings(deadline=None, max_examples=400)
def test_mutated_synthetic_headers(
    scratch: Path, edits: list[tuple[int, str, int]], length: int
) -> None:
    data = bytearray(SMALL)
    for position, code, value in edits:
        struct.pack_into(f"<{code}", data, position, value % 2 ** (8 * struct.calcsize(code)))
    scratch.write_bytes(data[:length])
    use_everything(scratch)


@given(st.binary(max_size=200))
@settings(deadline=None, max_examples=100)
def test_random_bytes_after_a_sound_start(scratch: Path, noise: bytes) -> None:
    scratch.write_bytes(SMALL[:24] + noise)
    use_everything(scratch)


def test_mutations_of_a_whole_tiny_model(scratch: Path) -> None:
    """Every byte of the tensor table, and a sample of the rest, set to an extreme."""
    data = tiny_model(scratch, "qwen2", layers=1).read_bytes()
    table = data.index(b"token_embd.weight") - 8
    end = open_header_end(scratch)
    with scratch.open("r+b", buffering=0) as file:
        for position in [*range(0, table, 97), *range(table, end)]:
            os.pwrite(file.fileno(), b"\xff" if data[position] == 0 else b"\0", position)
            use_everything(scratch)
            os.pwrite(file.fileno(), data[position : position + 1], position)


@pytest.fixture(scope="module")
def real_header(
    model_path: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, bytes]:
    """A sparse file with the header of a real model, as long as the model, and the header."""
    source = model_path("smollm2-135m")
    path = tmp_path_factory.mktemp("real") / "real.gguf"
    with source.open("rb") as file:
        header = file.read(open_header_end(source))
    path.write_bytes(header)
    os.truncate(path, source.stat().st_size)
    open_gguf(path).close()
    return path, header


@pytest.mark.model
@given(data=st.data())
@settings(deadline=None, max_examples=60)
def test_mutated_real_headers(real_header: tuple[Path, bytes], data: st.DataObject) -> None:
    path, header = real_header
    near_ends = st.integers(0, 2047) | st.integers(len(header) - 16384, len(header) - 8)
    places = st.lists(near_ends | st.integers(0, len(header) - 8), min_size=1, max_size=3)
    with path.open("r+b") as file:
        for position in data.draw(places):
            code, value = data.draw(st.sampled_from("BIQ")), data.draw(INTERESTING)
            file.seek(position)
            file.write(struct.pack(f"<{code}", value % 2 ** (8 * struct.calcsize(code))))
    try:
        use_everything(path)
    finally:
        with path.open("r+b") as file:
            file.write(header)


@pytest.mark.model
def test_sampled_truncation_of_a_real_header(
    real_header: tuple[Path, bytes], tmp_path: Path
) -> None:
    source, header = real_header
    path = tmp_path / "cut.gguf"
    for length in range(1, len(header), len(header) // 40):
        path.write_bytes(header[:length])
        with pytest.raises(ModelFileError, match=r"cut\.gguf"):
            open_gguf(path)
    path.write_bytes(header)
    size = source.stat().st_size
    for length in range(len(header), size, (size - len(header)) // 10):
        os.truncate(path, length)
        with pytest.raises(ModelFileError, match=r"inside the file"):
            open_gguf(path)
