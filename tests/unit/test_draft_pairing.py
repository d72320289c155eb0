"""A draft model beside a target: vocabularies, loading once, falling back, the reduced head."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from builders import tiny_model
from draft_models import RecordingProgram, draft_simple
from engines import check_counts, run
from slipstream import Model
from slipstream.backends.base import Step
from slipstream.cli.statistics import draft_lines
from slipstream.drafters.resources import DraftModel
from slipstream.engine.controller import DoublingController
from slipstream.engine.engine import Engine
from slipstream.errors import OptionError, PairingError
from slipstream.loading import LoadedModel, load_draft_model, load_model
from slipstream.options import EngineOptions, ModelOptions, SpeculationOptions
from slipstream.verify.matching import Matching
from vocabularies import bpe_vocabulary

TEXTS = ["a", "to be or not to be, " * 3, "0123456789" * 3]
DRAFT = {"tensor_type": "f32", "layers": 1, "seed": 7}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pairs")


@pytest.fixture(scope="module")
def path(folder: Path) -> Path:
    return tiny_model(folder / "target.gguf", "llama")


@pytest.fixture(scope="module", params=["reference", pytest.param("cpu", marks=pytest.mark.native)])
def target(request: pytest.FixtureRequest, path: Path) -> LoadedModel:
    options = ModelOptions(model=str(path), backend=request.param, context=256)
    return load_model(options, EngineOptions(parallel=3))


def swapped(first: int, second: int) -> dict[str, Any]:
    tokens = list(bpe_vocabulary()["tokenizer.ggml.tokens"])
    tokens[first], tokens[second] = tokens[second], tokens[first]
    return {"tokenizer.ggml.tokens": tokens}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"extra": swapped(39, 41)}, r"id 39 = '\$', id 41 = '&'; found id 39 = '&', id 41 = '\$'"),
        ({"tokenizer": "spm"}, "tokenizer type gpt2; found llama"),
        ({"extra": {"tokenizer.ggml.add_bos_token": True}}, "add_bos False; found True"),
        ({"extra": {"tokenizer.ggml.add_eos_token": True}}, "add_eos False; found True"),
    ],
)
def test_another_vocabulary_is_refused_by_name(
    target: LoadedModel, folder: Path, options: dict[str, Any], message: str
) -> None:
    draft = tiny_model(folder / "other.gguf", "llama", **DRAFT, **options)
    with pytest.raises(PairingError, match=message):
        load_draft_model(str(draft), target)


def test_boundary_tokens_must_agree_where_prompts_get_them(folder: Path) -> None:
    adding = {"tokenizer.ggml.add_bos_token": True}
    target = load_model(
        ModelOptions(
            model=str(tiny_model(folder / "adds.gguf", "llama", extra=adding)), backend="reference"
        ),
        EngineOptions(),
    )
    other = {**adding, "tokenizer.ggml.bos_token_id": 0}
    draft = tiny_model(folder / "other_bos.gguf", "llama", **DRAFT, extra=other)
    with pytest.raises(PairingError, match="BOS id 1; found 0"):
        load_draft_model(str(draft), target)


def test_vocabularies_of_different_sizes_fit_where_both_have_an_id(
    target: LoadedModel, folder: Path
) -> None:
    size = target.graph.vocabulary + 300
    draft = tiny_model(folder / "larger.gguf", "llama", **DRAFT, vocabulary=size)
    model = load_draft_model(str(draft), target)
    assert (model.vocabulary, model.drafted) == (size, size)
    check_output(target, model)
    options = ModelOptions(model=str(draft), context=256, backend=target.backend.name)  # type: ignore[arg-type]
    larger = load_model(options, EngineOptions(parallel=3))
    check_output(larger, load_draft_model(str(target.path), larger))


def engine_of(target: LoadedModel, drafters: Any) -> Engine:
    return Engine(
        target.program,
        target.tokenizer,
        drafters=drafters,
        verifier=Matching(),
        context=target.context,
        options=EngineOptions(parallel=3),
        controller=DoublingController(first=8, most=10),
        primitives=target.primitives,
    )


def check_output(target: LoadedModel, model: DraftModel, **options: Any) -> tuple[int, int]:
    """Equality with plain decoding, greedy and seeded; returns drafted and accepted."""
    prompts = [target.tokenizer.encode(text) for text in TEXTS]
    drafted = accepted = 0
    for sampling in ({}, {"temperature": 0.8, "top_p": 0.9}):
        drafter = draft_simple(model, target.graph.vocabulary, target.context, **options)
        plain = run(engine_of(target, ()), *prompts, max_tokens=24, ignore_eos=True, **sampling)
        found = run(
            engine_of(target, [drafter]), *prompts, max_tokens=24, ignore_eos=True, **sampling
        )
        for expected, output in zip(plain, found, strict=True):
            check_counts(output)
            assert output.visible() == expected.visible()
            assert not output.statistics.rejected_drafts
            drafted += output.statistics.drafted
            accepted += output.statistics.accepted
        assert drafter.memory.bytes() == 0
    return drafted, accepted


def test_weights_left_in_a_file_of_its_own_are_not_called_the_target_s(folder: Path) -> None:
    paths = [tiny_model(folder / f"own{seed}.gguf", "llama", seed=seed) for seed in (0, 1)]
    options = ModelOptions(model=str(paths[0]), backend="reference")
    model = load_draft_model(str(paths[1]), load_model(options, EngineOptions()))
    assert model.resident_bytes == 0
    assert "the target's" not in draft_lines(model)[0]


@pytest.mark.parametrize("branches", [1, 4])
def test_the_target_drafts_for_itself_with_its_own_weights(
    target: LoadedModel, path: Path, branches: int
) -> None:
    model = load_draft_model(str(path), target)
    assert model.resident_bytes == 0
    assert "the target's weights" in draft_lines(model)[0]
    drafted, accepted = check_output(target, model, n_max=6, draft_branches=branches)
    assert drafted > 60
    if branches == 1:
        exact = target.backend.name == "cpu"
        assert accepted == drafted if exact else accepted > 0.9 * drafted


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
def test_another_model_drafts(target: LoadedModel, folder: Path, architecture: str) -> None:
    path = tiny_model(folder / f"{architecture}.gguf", architecture, **DRAFT, pre="smollm")
    drafted, _ = check_output(target, load_draft_model(str(path), target), n_max=4)
    assert drafted > 20


@pytest.mark.native
def test_a_sliding_window_model_drafts_past_its_window(folder: Path) -> None:
    path = tiny_model(folder / "gemma3.gguf", "gemma3")
    target = load_model(ModelOptions(model=str(path), context=512), EngineOptions(parallel=3))
    model = load_draft_model(str(path), target)
    prompts = [target.tokenizer.encode("to be or not " * 12)]
    plain = run(engine_of(target, ()), *prompts, max_tokens=150, ignore_eos=True)
    drafter = draft_simple(
        model, target.graph.vocabulary, 512, n_max=70, draft_branches=2, draft_context=200
    )
    found = run(engine_of(target, [drafter]), *prompts, max_tokens=150, ignore_eos=True)
    assert [o.visible() for o in found] == [o.visible() for o in plain]
    assert found[0].statistics.accepted > 50
    assert not found[0].statistics.rejected_drafts


@pytest.mark.native
@pytest.mark.parametrize("architecture", ["llama", "gemma3"])
@pytest.mark.parametrize("tied", [True, False])
def test_a_reduced_head_gives_the_same_logits(folder: Path, tied: bool, architecture: str) -> None:
    extra = {"gemma3.final_logit_softcapping": 1.5} if architecture == "gemma3" else {}
    path = tiny_model(folder / "head.gguf", architecture, tied=tied, extra=extra)
    target = load_model(ModelOptions(model=str(path)), EngineOptions())
    rows = []
    for count in (None, 100, 10_000):
        model = load_draft_model(str(path), target, count)
        program = model.compile(64, 1)
        handle = program.memory.open()
        tokens, parents, last = (np.array(x, np.int32) for x in ([5, 200, 7], [-1, 0, 1], [2]))
        step = Step(tokens, np.full(3, handle, np.int32), parents, last)
        rows.append(program.run(step).logits)
        assert (model.resident_bytes == 0) == (count != 100) == model.shared
    assert rows[1].shape == (1, 100)
    np.testing.assert_array_equal(rows[0][:, :100], rows[1])
    np.testing.assert_array_equal(rows[0], rows[2])


def test_drafting_over_frequent_ids_only(target: LoadedModel, path: Path) -> None:
    model = load_draft_model(str(path), target, 200)
    assert (model.drafted, model.vocabulary) == (200, target.graph.vocabulary)
    recorded = RecordingProgram(model.compile(300, 3))
    drafted, _ = check_output(target, model, n_max=4)
    assert drafted > 20
    assert recorded.graph.vocabulary == 200


def model_of(path: Path, draft: Path, **options: Any) -> Model:
    return Model(str(path), context=128, draft_model=str(draft), **options)


@pytest.mark.native
def test_a_model_loads_its_draft_model_once(
    path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads: list[str] = []

    def load(name: str, *rest: Any) -> DraftModel:
        loads.append(name)
        return load_draft_model(name, *rest)

    monkeypatch.setattr("slipstream.draft_models.load_draft_model", load)
    draft = tiny_model(folder / "draft.gguf", "llama", **DRAFT)
    model = model_of(path, draft, spec="draft-simple")
    assert len(loads) == 1
    plain = model.complete("hello", max_tokens=12, spec="none")
    for n_max in (2, 3):
        model.forget()
        assert model.complete("hello", max_tokens=12, n_max=n_max).ids == plain.ids
    assert len(loads) == 1
    lazy = model_of(path, draft)
    assert lazy.complete("hello", max_tokens=12, spec="ngram-mod").ids == plain.ids
    assert len(loads) == 1
    assert lazy.complete("hello", max_tokens=12, spec="draft-simple").ids == plain.ids
    assert len(loads) == 2


@pytest.mark.native
def test_a_mismatch_is_an_error_unless_the_user_goes_on_without(path: Path, folder: Path) -> None:
    draft = tiny_model(folder / "misfit.gguf", "llama", **DRAFT, extra=swapped(39, 41))
    with pytest.raises(PairingError, match="id 39"):
        model_of(path, draft, spec="draft-simple")
    model = model_of(path, draft)
    with pytest.raises(PairingError, match="id 39"):
        model.generate("hello", spec="draft-simple")
    found = model.complete("hello", max_tokens=8, spec="draft-simple", draft_fallback=True)
    assert found.ids == model.complete("hello", max_tokens=8).ids
    [reason] = found.statistics.rejected_drafts
    assert "id 39 = '$'" in reason
    assert found.statistics.never_fired == ("draft-simple",)


@pytest.mark.native
def test_options_that_do_not_fit_are_refused_before_any_prompt(path: Path) -> None:
    with pytest.raises(OptionError, match="draft_model"):
        Model(str(path), spec="draft-simple")
    with pytest.raises(OptionError, match="`draft_model` with a method that reads it"):
        model_of(path, path, spec="ngram-mod")
    with pytest.raises(OptionError, match="`draft_context` of at most 512"):
        model_of(path, path, spec="draft-simple", draft_context=513)
    model = Model(str(path), context=64)
    with pytest.raises(OptionError, match="draft_model"):
        model.generate("hello", spec="draft-simple")
    assert SpeculationOptions().draft_window == 512
