"""What a model file is, by plan, catalogue and file; whether a draft model belongs to a target."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from builders import Tensor, TinyModel, Typed, tiny_model, write_gguf, write_shards
from slipstream import catalog, catalog_entries
from slipstream.catalog_entries import CatalogEntry
from slipstream.errors import ModelFileError
from slipstream.fetch.sources import HubFile
from slipstream.gguf import open_gguf
from slipstream.lab.contract.manifest import Pairing
from slipstream.lab.contract.plan import Artifact
from slipstream.lab.freezing import identity
from slipstream.lab.freezing.identity import (
    absent_artifact,
    artifact_identity,
    draft_role,
    file_digest,
)
from slipstream.lab.freezing.model_facts import FILE_TYPES, read_facts
from slipstream.lab.freezing.pairing import pair

TEMPLATE = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}{% endfor %}"
TALK = [[{"role": "user", "content": "Hello"}]]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIPSTREAM_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def model(tmp_path: Path) -> Callable[..., Path]:
    def make(name: str = "target", architecture: str = "qwen2", **extra: Any) -> Path:
        keys = {"tokenizer.chat_template": TEMPLATE, **extra}
        return tiny_model(tmp_path / f"{name}.gguf", architecture, extra=keys)

    return make


def test_facts_of_a_file(model: Callable[..., Path]) -> None:
    path = model(
        **{
            "general.file_type": 7,
            "general.quantized_by": "some\none",
            "general.license": "mit",
            "general.organization": "lab",
        }
    )
    facts = read_facts(path)
    assert facts.architecture == "qwen2"
    assert facts.quantisation == "Q8_0"
    assert facts.weight_types[0] == "q8_0"
    assert set(facts.weight_types) == {"q8_0", "f32"}
    assert facts.converter == "some one (general.quantized_by of the file)"
    assert facts.licence == "mit (general.license of the file)"
    assert facts.trained_by == "lab (general.organization of the file)"
    assert facts.template_sha256 == hashlib.sha256(TEMPLATE.encode()).hexdigest()
    assert facts.terms == facts.source == "unknown"
    assert facts.cache_bytes == 2 * 2 * 2 * (16 + 16)  # bytes, layers, heads, widths


def test_what_a_file_does_not_tell_is_unknown(model: Callable[..., Path]) -> None:
    facts = read_facts(model(**{"tokenizer.chat_template": None}))
    assert facts.quantisation == facts.converter == facts.licence == "unknown"
    assert facts.template_sha256 == "unknown"


@pytest.mark.parametrize("value", [True, "Q4_K_M", 1024 + 15])
def test_a_file_type_is_never_guessed(model: Callable[..., Path], value: object) -> None:
    assert "Q4" not in read_facts(model(**{"general.file_type": value})).quantisation


def test_file_types_are_those_of_the_specification() -> None:
    gguf = pytest.importorskip("gguf")
    for value, name in FILE_TYPES.items():
        told = gguf.LlamaFileType(value).name
        assert told.removeprefix("MOSTLY_").removeprefix("ALL_") == name


def test_the_tokenizers_digest_sees_every_key(model: Callable[..., Path]) -> None:
    first = read_facts(model("a")).tokenizer_sha256
    assert read_facts(model("b")).tokenizer_sha256 == first
    assert (
        read_facts(model("c", **{"tokenizer.ggml.add_bos_token": True})).tokenizer_sha256 != first
    )
    assert read_facts(model("d", **{"tokenizer.ggml.eos_token_id": 1})).tokenizer_sha256 != first
    types = TinyModel("qwen2").metadata()["tokenizer.ggml.token_type"].value
    other = Typed("i32", [*types[:-1], 4])
    assert read_facts(model("e", **{"tokenizer.ggml.token_type": other})).tokenizer_sha256 != first


def test_plan_before_catalogue_before_file(
    model: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = model(**{"general.license": "of the file", "general.author": "someone"})
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    bare = artifact_identity("target", Artifact(model=str(path)))
    assert (bare.sha256, bare.bytes) == (digest, path.stat().st_size)
    assert bare.licence.startswith("of the file")
    assert bare.revision == "unknown"
    entry = CatalogEntry(
        name="tiny",
        description="",
        size_bytes=path.stat().st_size,
        sha256=digest,
        revision="abc",
        licence="Apache-2.0",
        terms="https://example.org",
        sources=(HubFile("owner/repo", "tiny.gguf", "abc"),),
    )
    monkeypatch.setattr(catalog, "ENTRIES", (entry,))
    monkeypatch.setattr(catalog_entries, "ENTRIES", (entry,))
    known = artifact_identity("target", Artifact(model=str(path)))
    assert (known.licence, known.revision) == ("Apache-2.0", "abc")
    assert "owner/repo:tiny.gguf@abc" in known.source
    told = artifact_identity("target", Artifact(model=str(path), licence="mine", revision="r"))
    assert (told.licence, told.revision, told.terms) == ("mine", "r", "https://example.org")
    assert known.file == "target.gguf"
    assert str(path.parent) not in repr(known)


def test_a_file_that_is_not_here() -> None:
    with pytest.raises(ModelFileError):
        artifact_identity("target", Artifact(model="absent.gguf"))
    planned = absent_artifact(draft_role("d"), Artifact(model="x/absent.gguf", licence="MIT"))
    assert (planned.role, planned.file, planned.licence) == ("draft:d", "absent.gguf", "MIT")
    assert planned.sha256 == "unknown"


def test_the_digest_of_a_split_model(tmp_path: Path) -> None:
    tensors = [{"a": Tensor(0, (1,), b"\0\0\0\0")}, {"b": Tensor(0, (1,), b"\0\0\0\1")}]
    paths = write_shards(tmp_path, "m", {"general.architecture": "llama"}, tensors)
    digest, size = file_digest(paths[1])
    assert digest == file_digest(paths[0])[0]
    assert size == sum(path.stat().st_size for path in paths)
    changed = bytearray(paths[1].read_bytes())
    changed[-1] ^= 1
    paths[1].write_bytes(bytes(changed))
    assert file_digest(paths[0])[0] != digest


def test_digests_are_remembered(
    model: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = model()
    digest = file_digest(path)
    monkeypatch.setattr("slipstream.cache.sha256_of", lambda *_: pytest.fail("read again"))
    assert identity.file_digest(path) == digest


def paired(
    target: Path,
    draft: Path,
    *,
    methods: tuple[str, ...] = ("draft-simple",),
    kinds: tuple[str, ...] = ("slipstream",),
    talk: Any = (),
    **named: str,
) -> Pairing:
    with open_gguf(target) as ours, open_gguf(draft) as theirs:
        artifact = Artifact(model=str(draft), pairing=named)
        return pair("d", ours, theirs, artifact, methods=methods, kinds=kinds, conversations=talk)


def test_two_files_of_a_family(model: Callable[..., Path]) -> None:
    found = paired(model("a"), model("b"))
    assert found.confirmed
    assert found.draft == "d"
    assert "SHA-256" in found.tokenizer
    assert "qwen2" in found.architecture


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("tokenizer.ggml.pre", "llama-bpe"),
        ("tokenizer.ggml.add_bos_token", True),
    ],
)
def test_another_tokenizer(model: Callable[..., Path], key: str, value: object) -> None:
    found = paired(model("a"), model("b", **{key: value}), tokenizer="https://example.org")
    assert not found.confirmed
    assert key in found.tokenizer


def test_a_boundary_that_no_prompt_gets_does_not_matter(model: Callable[..., Path]) -> None:
    found = paired(model("a"), model("b", **{"tokenizer.ggml.bos_token_id": 0}))
    assert found.tokenizer.startswith("confirmed: equal tokenizer.ggml.model")


def test_one_token_with_another_text(model: Callable[..., Path]) -> None:
    tokens = list(TinyModel("qwen2").metadata()["tokenizer.ggml.tokens"])
    tokens[7] = "another"
    found = paired(model("a"), model("b", **{"tokenizer.ggml.tokens": tokens}))
    assert "1 ids have another text, the first is id 7" in found.vocabulary
    assert not found.confirmed


@pytest.mark.parametrize(("kind", "confirmed"), [("slipstream", True), ("llama-server", False)])
def test_sizes_that_llama_cpp_refuses(
    tmp_path: Path, model: Callable[..., Path], kind: str, confirmed: bool
) -> None:
    whole = len(TinyModel("qwen2").metadata()["tokenizer.ggml.tokens"])
    keys = {"tokenizer.chat_template": TEMPLATE}
    larger = tiny_model(tmp_path / "l.gguf", "qwen2", vocabulary=whole + 200, extra=keys)
    found = paired(larger, model("b"), kinds=(kind,))
    assert found.vocabulary.startswith("confirmed: ") == confirmed


def test_templates_that_differ_as_texts(model: Callable[..., Path]) -> None:
    other = model("b", **{"tokenizer.chat_template": TEMPLATE + "{# a note #}"})
    target = model("a")
    assert "write the run's 1 prompts alike" in paired(target, other, talk=TALK).template
    assert not paired(target, other).confirmed
    changed = model("c", **{"tokenizer.chat_template": TEMPLATE.replace("role", "content")})
    assert "1 of 1 of the run's prompts" in paired(target, changed, talk=TALK).template
    named = paired(target, changed, talk=TALK, template="https://example.org/card")
    assert named.template.startswith("confirmed: https://example.org/card (named by the plan")


def test_a_hostile_template_is_no_crash(model: Callable[..., Path]) -> None:
    bomb = model("b", **{"tokenizer.chat_template": "{% for i in range(10**9) %}x{% endfor %}"})
    assert "rendering the prompts failed" in paired(model("a"), bomb, talk=TALK).template


def test_a_draft_without_a_template_needs_a_source(model: Callable[..., Path]) -> None:
    base = model("b", **{"tokenizer.chat_template": None})
    assert not paired(model("a"), base).confirmed
    assert paired(model("a"), base, template="its card").confirmed


def test_an_architecture_that_no_program_of_ours_runs(model: Callable[..., Path]) -> None:
    draft = model("b", **{"general.architecture": "rwkv"})
    assert not paired(model("a"), draft).architecture.startswith("confirmed")
    assert paired(model("a"), draft, kinds=("llama-server",)).architecture.startswith("confirmed")


def head(path: Path, ids: list[int], **extra: Any) -> Path:
    metadata = {"general.architecture": "eagle3", "eagle3.target_hidden_size": 64, **extra}
    data = np.array(ids, "<i8").tobytes()
    return write_gguf(path, metadata, {"d2t": Tensor(27, (len(ids),), data)})


def test_a_trained_head(tmp_path: Path, model: Callable[..., Path]) -> None:
    target, draft = model("a"), head(tmp_path / "h.gguf", [5, 9, 11])
    found = paired(target, draft, methods=("draft-eagle3",))
    assert found.vocabulary == "confirmed: tensor d2t maps 3 draft ids to different target ids"
    assert "no file names the target" in found.architecture
    assert not found.confirmed
    named: dict[str, Any] = dict.fromkeys(("tokenizer", "template", "architecture"), "its card")
    assert paired(target, draft, methods=("draft-eagle3",), **named).confirmed


@pytest.mark.parametrize("ids", [[5, 5], [-1, 4], [4, 10**6]])
def test_a_map_that_leads_nowhere(
    tmp_path: Path, model: Callable[..., Path], ids: list[int]
) -> None:
    draft = head(tmp_path / "h.gguf", ids)
    found = paired(model("a"), draft, methods=("draft-eagle3",), vocabulary="its card")
    assert "d2t names ids" in found.vocabulary


def test_a_head_of_another_target(tmp_path: Path, model: Callable[..., Path]) -> None:
    draft = head(tmp_path / "h.gguf", [5], **{"eagle3.target_hidden_size": Typed("u32", 4096)})
    found = paired(model("a"), draft, methods=("draft-eagle3",), architecture="its card")
    assert found.architecture == (
        "eagle3.target_hidden_size is 4096, the target's hidden states have 64"
    )


@pytest.mark.parametrize("method", ["draft-dflash", "draft-mtp", "draft-simple"])
def test_a_head_under_another_method(
    tmp_path: Path, model: Callable[..., Path], method: str
) -> None:
    draft = head(tmp_path / "h.gguf", [5])
    found = paired(model("a"), draft, methods=(method,), architecture="its card")
    assert not found.architecture.startswith("confirmed")
