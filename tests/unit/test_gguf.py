"""Reading sound GGUF files: values, tensors, shards, getters, views."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import Tensor, Typed, f32_tensor, random_tensor, tiny_model, write_gguf
from slipstream.errors import ModelFileError, UnsupportedError
from slipstream.gguf import GGUFFile, StringArray, open_gguf

MODELS = ("smollm2-135m", "gemma-3-270m", "qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b")

EVERY_VALUE: dict[str, Any] = {
    "u8": Typed("u8", 255),
    "i8": Typed("i8", -128),
    "u16": Typed("u16", 65535),
    "i16": Typed("i16", -32768),
    "u32": Typed("u32", 2**32 - 1),
    "i32": Typed("i32", -(2**31)),
    "u64": Typed("u64", 2**64 - 1),
    "i64": Typed("i64", -(2**63)),
    "f32": Typed("f32", 0.5),
    "f64": Typed("f64", 0.1),
    "bool": True,
    "string": "naïve 🙂",
    "empty": "",
    "numbers": Typed("i16", [-1, 2, 3]),
    "doubles": Typed("f64", [0.1, 0.2]),
    "flags": [True, False],
    "words": ["", "a", "ß"],
    "nested": [[1, 2], [3], ["x"]],
    "none": [],
}


def tensors() -> dict[str, Tensor]:
    rng = np.random.default_rng(7)
    return {
        "one": random_tensor("q8_0", 3, 64, rng),
        "two": f32_tensor(rng.normal(size=5)),
        "three": random_tensor("q4_k", 2, 256, rng),
        "four": f32_tensor(rng.normal(size=(2, 3, 4, 5))),
    }


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    return write_gguf(tmp_path / "sample.gguf", EVERY_VALUE, tensors())


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("alignment", [1, 8, 32, 64, 4096])
def test_tensors_come_back(tmp_path: Path, version: int, alignment: int) -> None:
    path = write_gguf(
        tmp_path / "a.gguf", EVERY_VALUE, tensors(), version=version, alignment=alignment
    )
    with open_gguf(path) as file:
        assert file.version == version
        assert list(file.tensors) == list(tensors())
        for name, tensor in tensors().items():
            info = file.tensors[name]
            assert (info.shape, info.type_id) == (tensor.shape, tensor.type_id)
            assert info.offset % alignment == 0
            assert info.nbytes == len(tensor.data)
            assert file.data(name).tobytes() == tensor.data


def test_every_value_type(sample: Path) -> None:
    with open_gguf(str(sample)) as file:
        found = {key: plain(value) for key, value in file.metadata.items()}
    expected = {key: getattr(value, "value", value) for key, value in EVERY_VALUE.items()}
    assert found == expected


def plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    return [plain(item) for item in value] if isinstance(value, StringArray | tuple) else value


@given(
    st.dictionaries(
        st.text(max_size=20).filter(lambda key: not key.startswith(("general.", "split."))),
        st.one_of(
            st.integers(-(2**63), 2**64 - 1),
            st.floats(width=32, allow_nan=False),
            st.booleans(),
            st.text(max_size=40),
            st.lists(st.text(max_size=5), min_size=1),
            st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1),
            st.lists(st.lists(st.booleans(), min_size=1), min_size=1),
        ),
    )
)
@settings(deadline=None, max_examples=60)
def test_random_metadata_comes_back(
    tmp_path_factory: pytest.TempPathFactory, metadata: dict[str, Any]
) -> None:
    path = write_gguf(tmp_path_factory.getbasetemp() / "metadata.gguf", metadata, {})
    with open_gguf(path) as file:
        assert {key: plain(value) for key, value in file.metadata.items()} == metadata


def test_data_is_a_read_only_view_of_the_map(sample: Path) -> None:
    with open_gguf(sample) as file:
        view = file.data("one")
        assert view.ndim == 1
        assert not view.flags.writeable
        assert not view.flags.owndata
        assert np.shares_memory(view, file.data("one"))


def test_a_view_outlives_close(sample: Path) -> None:
    file = open_gguf(sample)
    view = file.data("one")
    file.close()
    file.close()
    assert view.tobytes() == tensors()["one"].data
    with pytest.raises(ValueError, match="closed"):
        file.data("one")
    assert list(file.get_string_array("words")) == ["", "a", "ß"]


def resident_bytes(path: Path) -> int:
    """Resident bytes of the mapping of ``path``, from the kernel's own account."""
    lines = Path("/proc/self/smaps").read_text().splitlines()
    start = next(i for i, line in enumerate(lines) if line.endswith(str(path)))
    line = next(line for line in lines[start:] if line.startswith("Rss:"))
    return int(line.split()[1]) * 1024


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="needs Linux's /proc")
def test_release_drops_the_pages_of_one_tensor(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    weights = {name: random_tensor("f16", 1024, 1024, rng) for name in ("a", "b")}
    path = write_gguf(tmp_path / "release.gguf", {}, weights)
    with open_gguf(path) as file:
        for name in weights:
            file.data(name).sum()
        before = resident_bytes(path)
        file.release("a")
        after = resident_bytes(path)
        assert before >= 2 * 2**21
        assert 2**21 <= after <= before - 2**21 + 2**14
        assert file.data("a").tobytes() == weights["a"].data


def test_prefetch_changes_nothing_and_knows_its_tensors(sample: Path) -> None:
    with open_gguf(sample) as file:
        before = file.data("two").tobytes()
        file.prefetch("two")
        assert file.data("two").tobytes() == before
        with pytest.raises(ModelFileError):
            file.prefetch("absent")


def test_release_of_less_than_a_page_does_nothing(sample: Path) -> None:
    with open_gguf(sample) as file:
        file.release("two")
        assert file.data("two").tobytes() == tensors()["two"].data


def test_getters(sample: Path) -> None:
    with open_gguf(sample) as file:
        assert file.get_int("u64") == 2**64 - 1
        assert file.get_float("f32") == 0.5
        assert file.get_bool("bool") is True
        assert file.get_string("string") == "naïve 🙂"
        assert file.get_int_array("numbers").tolist() == [-1, 2, 3]
        assert file.get_float_array("doubles").dtype == np.float32
        assert file.get_bool_array("flags").tolist() == [True, False]
        assert file.get_string_array("words")[1:] == ("a", "ß")
        assert file.get_int("absent", 3) == 3
        assert file.get_string("absent", default=None) is None


@pytest.mark.parametrize(
    ("getter", "key"),
    [
        ("get_int", "bool"),
        ("get_int", "f32"),
        ("get_int", "absent"),
        ("get_float", "u8"),
        ("get_bool", "u8"),
        ("get_string", "words"),
        ("get_string", "nested"),
        ("get_int_array", "doubles"),
        ("get_int_array", "flags"),
        ("get_float_array", "numbers"),
        ("get_bool_array", "numbers"),
        ("get_string_array", "string"),
    ],
)
def test_getters_name_key_expected_and_found(sample: Path, getter: str, key: str) -> None:
    with open_gguf(sample) as file, pytest.raises(ModelFileError) as caught:
        getattr(file, getter)(key)
    assert repr(key) in caught.value.expected
    assert "sample.gguf" in caught.value.found


def test_a_default_does_not_hide_a_wrong_type(sample: Path) -> None:
    with open_gguf(sample) as file, pytest.raises(ModelFileError, match="True"):
        file.get_int("bool", default=4)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_floats_that_are_not_finite_are_refused(tmp_path: Path, value: float) -> None:
    path = write_gguf(tmp_path / "f.gguf", {"x": value, "xs": [1.0, float("nan")]}, {})
    with open_gguf(path) as file:
        with pytest.raises(ModelFileError, match="finite"):
            file.get_float("x")
        with pytest.raises(ModelFileError, match="NaN"):
            file.get_float_array("xs")


def test_integers_beyond_64_signed_bits_are_refused(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "i.gguf", {"x": Typed("u64", [1, 2**63])}, {})
    with open_gguf(path) as file, pytest.raises(ModelFileError, match="uint64"):
        file.get_int_array("x")


def test_unsupported_types_are_listed_but_not_used(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "t.gguf", {}, {"odd": Tensor(16, (256, 2), bytes(132))})
    with open_gguf(path) as file:
        assert file.tensors["odd"].nbytes == 132
        with pytest.raises(UnsupportedError, match=r"'odd'.*q4_k.*iq2_xxs \(id 16\)"):
            file.data("odd")


def test_an_absent_tensor_is_named(sample: Path) -> None:
    with open_gguf(sample) as file, pytest.raises(ModelFileError, match="'nowhere'"):
        file.data("nowhere")


def assert_same_as_gguf_package(file: GGUFFile, path: Path) -> None:
    reader = gguf.GGUFReader(str(path))
    found = [(t.name, t.shape, t.type_id, t.offset, t.nbytes) for t in file.tensors.values()]
    expected = [
        (t.name, tuple(map(int, t.shape)), int(t.tensor_type), t.data_offset, t.n_bytes)
        for t in reader.tensors
    ]
    assert found == expected
    assert list(file.metadata) == [key for key in reader.fields if not key.startswith("GGUF.")]
    for key, value in file.metadata.items():
        assert plain(value) == reader.fields[key].contents()


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3", "gemma3"])
def test_tiny_models_read_as_the_gguf_package_reads_them(tmp_path: Path, architecture: str) -> None:
    path = tiny_model(tmp_path / "tiny.gguf", architecture)
    with open_gguf(path) as file:
        assert_same_as_gguf_package(file, path)


@pytest.mark.model
@pytest.mark.slow
def test_a_real_model_reads_as_the_gguf_package_reads_it(
    model_path: Callable[[str], Path],
) -> None:
    path = model_path("smollm2-135m")
    with open_gguf(path) as file:
        assert_same_as_gguf_package(file, path)


@pytest.mark.model
@pytest.mark.parametrize("name", MODELS)
def test_real_models_open_fast(model_path: Callable[[str], Path], name: str) -> None:
    path = model_path(name)
    seconds = []  # of this process: other programs may be busy
    for _ in range(5):
        start = time.process_time()
        with open_gguf(path) as file:
            seconds.append(time.process_time() - start)
            assert file.tensors["token_embd.weight"].shape[1] == len(
                file.get_string_array("tokenizer.ggml.tokens")
            )
    assert min(seconds) <= 0.1
