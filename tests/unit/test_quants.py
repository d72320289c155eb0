"""NumPy dequantisers against the ``gguf`` package, bit by bit, and the checks around them."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from builders import TYPES_BY_NAME, random_blocks, random_tensor
from slipstream.errors import ModelFileError, UnsupportedError
from slipstream.gguf import open_gguf
from slipstream.quants import (
    OTHER_LAYOUTS,
    QUANT_TYPES,
    SCALE_FIELDS,
    QuantType,
    quant_type,
    type_layout,
    type_name,
)
from slipstream.quants.finite import SLICE_BLOCKS, check_finite_scales, find_nonfinite_scale

NAMES = sorted(TYPES_BY_NAME)
MODELS = ("smollm2-135m", "gemma-3-270m", "qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b")


def assert_same_bits(kind: QuantType, data: NDArray[np.uint8]) -> None:
    """``data``: uint8 ``[blocks * block_bytes]``."""
    found = kind.dequantize(data.reshape(-1, kind.block_bytes))
    oracle = gguf.quants.dequantize(
        data.reshape(1, -1), gguf.GGMLQuantizationType(kind.ggml_id)
    ).astype(np.float32)
    assert found.dtype == np.float32
    assert found.shape == (data.size // kind.block_bytes, kind.block_elements)
    np.testing.assert_array_equal(found.ravel().view(np.uint32), oracle.ravel().view(np.uint32))


def test_the_supported_types() -> None:
    expected = "f32 f16 bf16 q4_0 q4_1 q5_0 q5_1 q8_0 q2_k q3_k q4_k q5_k q6_k iq4_nl iq4_xs mxfp4"
    assert " ".join(kind.name for kind in QUANT_TYPES.values()) == expected
    assert all(type_id == kind.ggml_id for type_id, kind in QUANT_TYPES.items())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", [0, 1])
def test_random_blocks(name: str, seed: int) -> None:
    assert_same_bits(
        TYPES_BY_NAME[name], random_blocks(name, 3000, np.random.default_rng(seed)).ravel()
    )


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("fill", [0x00, 0x01, 0x3C, 0x80])
def test_constant_blocks(name: str, fill: int) -> None:
    kind = TYPES_BY_NAME[name]
    assert_same_bits(kind, np.full(4 * kind.block_bytes, fill, np.uint8))


@pytest.mark.parametrize("name", NAMES)
def test_no_and_one_block(name: str) -> None:
    kind = TYPES_BY_NAME[name]
    empty = kind.dequantize(np.empty((0, kind.block_bytes), np.uint8))
    assert empty.shape == (0, kind.block_elements)
    assert_same_bits(kind, random_blocks(name, 1, np.random.default_rng(3)).ravel())


@pytest.mark.parametrize("name", NAMES)
def test_misaligned_read_only_input(name: str) -> None:
    """Blocks of a mapped file start at any byte and cannot be written."""
    kind = TYPES_BY_NAME[name]
    blocks = random_blocks(name, 10, np.random.default_rng(4))
    shifted = np.frombuffer(b"\0" + blocks.tobytes(), np.uint8)[1:]
    found = kind.dequantize(shifted.reshape(-1, kind.block_bytes))
    np.testing.assert_array_equal(found, kind.dequantize(blocks))


@pytest.mark.parametrize("name", NAMES)
def test_rows(name: str) -> None:
    kind = TYPES_BY_NAME[name]
    tensor = random_tensor(name, 6, 512, np.random.default_rng(5))
    data = np.frombuffer(tensor.data, np.uint8)
    rows = kind.dequantize_rows(data, 6, 512)
    assert rows.shape == (6, 512)
    assert data.size == 6 * kind.row_bytes(512)
    alone = data[2 * kind.row_bytes(512) : 3 * kind.row_bytes(512)]
    np.testing.assert_array_equal(kind.dequantize_rows(alone, 1, 512)[0], rows[2])


@pytest.mark.parametrize("name", NAMES)
def test_random_tensors_look_like_weights(name: str) -> None:
    tensor = random_tensor(name, 64, 1024, np.random.default_rng(6))
    weights = TYPES_BY_NAME[name].dequantize_rows(np.frombuffer(tensor.data, np.uint8), 64, 1024)
    assert 0.05 <= weights.std() <= 0.1
    assert abs(weights.mean()) <= 0.01


@pytest.mark.model
@pytest.mark.parametrize("model", MODELS)
def test_real_tensors(model_path: Callable[[str], Path], model: str) -> None:
    """The head and the tail of every tensor of a model, 1,000 blocks of each."""
    with open_gguf(model_path(model)) as file:
        for name, info in file.tensors.items():
            kind = quant_type(info.type_id, name)
            size = min(info.nbytes, 1_000 * kind.block_bytes)
            assert_same_bits(kind, file.data(name)[:size])
            assert_same_bits(kind, file.data(name)[info.nbytes - size :])


@pytest.mark.model
def test_real_scales_are_finite(model_path: Callable[[str], Path]) -> None:
    with open_gguf(model_path("smollm2-135m")) as file:
        for name, info in file.tensors.items():
            check_finite_scales(name, quant_type(info.type_id, name), file.data(name))


NONFINITE = {
    1: (0xFD, 0xFE, 0xFF),
    2: (0x7C00, 0xFC00, 0x7E00, 0xFFFF),
    4: (0x7F800000, 0xFF800000, 0x7FC00000),
}


@pytest.mark.parametrize("name", NAMES)
def test_nonfinite_scales_are_found(name: str) -> None:
    kind = TYPES_BY_NAME[name]
    clean = random_blocks(name, 50, np.random.default_rng(8))
    assert find_nonfinite_scale(kind, clean.ravel()) is None
    for field in SCALE_FIELDS[kind.ggml_id]:
        patterns = (0x7F80, 0xFF80, 0x7FC0) if name == "bf16" else NONFINITE[field.width]
        for pattern in patterns:
            blocks = clean.copy()
            raw = np.frombuffer(pattern.to_bytes(field.width, "little"), np.uint8)
            blocks[[17, 31], field.offset : field.offset + field.width] = raw
            with np.errstate(invalid="ignore", over="ignore"):
                assert not np.isfinite(kind.dequantize(blocks)[17]).all()
            assert find_nonfinite_scale(kind, blocks.ravel()) == 17


@pytest.mark.parametrize("name", NAMES)
def test_every_nonfinite_weight_comes_from_a_scale_we_check(name: str) -> None:
    """Finite scale fields give finite weights, so the check covers every source of NaN."""
    blocks = random_blocks(name, 5000, np.random.default_rng(9))
    assert np.isfinite(TYPES_BY_NAME[name].dequantize(blocks)).all()


def test_nonfinite_scales_beyond_the_first_slice() -> None:
    kind = TYPES_BY_NAME["q8_0"]
    data = np.zeros((2 * SLICE_BLOCKS + 5, 34), np.uint8)
    data[SLICE_BLOCKS + 3, 1] = 0x7C
    with pytest.raises(ModelFileError, match=rf"'blk\.0\.x'.*block {SLICE_BLOCKS + 3} \(q8_0\)"):
        check_finite_scales("blk.0.x", kind, data.ravel())


def test_checking_scales_is_fast() -> None:
    data = np.zeros((2_000_000, 34), np.uint8).ravel()
    seconds = []  # of this process: other programs may be busy
    for _ in range(5):
        start = time.process_time()
        assert find_nonfinite_scale(TYPES_BY_NAME["q8_0"], data) is None
        seconds.append(time.process_time() - start)
    assert min(seconds) <= 0.5


def test_block_sizes_agree_with_the_gguf_package() -> None:
    """Except Q8_1, never stored in files: the package counts its two halves as two floats."""
    for type_id, sizes in gguf.GGML_QUANT_SIZES.items():
        layout = type_layout(int(type_id), "x")
        assert layout.name == type_id.name.lower()
        if layout.name != "q8_1":
            assert (layout.block_elements, layout.block_bytes) == sizes


def test_no_type_is_in_two_tables() -> None:
    assert not set(OTHER_LAYOUTS) & set(QUANT_TYPES)


@pytest.mark.parametrize(("type_id", "name"), [(16, "iq2_xxs"), (40, "nvfp4"), (99, "unknown")])
def test_unsupported_types_say_what_is_supported(type_id: int, name: str) -> None:
    assert type_name(type_id) == name
    with pytest.raises(UnsupportedError) as caught:
        quant_type(type_id, "blk.3.ffn_up.weight")
    assert "'blk.3.ffn_up.weight'" in caught.value.expected
    assert all(kind in caught.value.expected for kind in NAMES)
    assert caught.value.found == f"type {name} (id {type_id})"


def test_every_power_of_two_of_mxfp4() -> None:
    """The subnormal scales of 0 and 1 too; only those whose weights can overflow are refused."""
    kind = TYPES_BY_NAME["mxfp4"]
    blocks = np.repeat(np.arange(16, dtype=np.uint8) * 17, 256).reshape(16, 256, 1)
    powers = np.broadcast_to(np.arange(256, dtype=np.uint8)[:, None], (16, 256, 1))
    data = np.concatenate((powers, np.repeat(blocks, 16, -1)), -1).reshape(-1, 17)
    with np.errstate(over="ignore"):
        assert_same_bits(kind, data.ravel())
        finite = np.isfinite(kind.dequantize(data)).all(-1).reshape(16, 256).all(0)
    assert np.flatnonzero(~finite).tolist() == [253, 254, 255]
    refused = [e for e in range(256) if find_nonfinite_scale(kind, data[e]) is not None]
    assert refused == [252, 253, 254, 255]


def test_type_names() -> None:
    assert type_name(12) == "q4_k"
    assert quant_type(12, "x") is TYPES_BY_NAME["q4_k"]
