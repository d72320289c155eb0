"""Models split over several GGUF files, whole and damaged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from builders import Tensor, write_gguf, write_shards
from hostile import Q8, refused
from slipstream.gguf import open_gguf

SMALL = Tensor(0, (4,), bytes(range(16)))
LARGE = Tensor(8, (32, 2), bytes(range(68)))


def split_model(tmp_path: Path) -> list[Path]:
    """Three shards, the second without tensors."""
    groups: list[dict[str, Tensor]] = [{"a": SMALL}, {}, {"b": LARGE, "c": SMALL}]
    return write_shards(tmp_path, "model", {"general.name": "split"}, groups)


@pytest.mark.parametrize("index", [0, 1, 2])
def test_any_shard_opens_all(tmp_path: Path, index: int) -> None:
    with open_gguf(split_model(tmp_path)[index]) as file:
        assert file.get_string("general.name") == "split"
        assert {name: info.shard for name, info in file.tensors.items()} == {"a": 0, "b": 2, "c": 2}
        for name, tensor in {"a": SMALL, "b": LARGE, "c": SMALL}.items():
            assert file.data(name).tobytes() == tensor.data
            file.release(name)


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    paths = split_model(tmp_path)
    paths[1].unlink()
    refused(paths[2], "model-00002-of-00003.gguf")


def test_a_renamed_shard(tmp_path: Path) -> None:
    path = split_model(tmp_path)[0].rename(tmp_path / "other.gguf")
    refused(path, "split.count", "'other.gguf'")
    refused(path.rename(tmp_path / "model-00004-of-00003.gguf"), "split.count")
    refused(
        tmp_path.joinpath("model-00004-of-00003.gguf").rename(tmp_path / "m-00001-of-00002.gguf")
    )


def test_swapped_shards(tmp_path: Path) -> None:
    paths = split_model(tmp_path)
    second = paths[1].read_bytes()
    paths[1].write_bytes(paths[2].read_bytes())
    paths[2].write_bytes(second)
    refused(paths[0], "split.no = 1", "model-00002-of-00003.gguf")


def test_a_tensor_in_two_shards(tmp_path: Path) -> None:
    refused(write_shards(tmp_path, "m", {}, [{"a": Q8}, {"a": Q8}])[0], "unique", "'a'")


def test_a_wrong_total(tmp_path: Path) -> None:
    paths = write_shards(tmp_path, "m", {"split.tensors.count": 7}, [{"a": Q8}, {"b": Q8}])
    refused(paths[1], "split.tensors.count = 2", "7")


@pytest.mark.parametrize("count", [-1, 65535, 2**64 - 1, "3", 3.0, [3], [[3], [3]]])
def test_absurd_shard_counts(tmp_path: Path, count: Any) -> None:
    path = write_gguf(tmp_path / "m-00001-of-00003.gguf", {"split.count": count}, {})
    refused(path, "split.count")
