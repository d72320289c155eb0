"""Speculation never changes the output of a real program: tiny models of every architecture, and
twenty prompts on three models of the catalogue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from builders import tiny_model
from drafters_for_tests import HostileDrafter, ScriptedDrafter
from engines import Output, check_counts, drafters_of, named_drafters, run
from slipstream.drafters import create
from slipstream.drafters.base import Drafter
from slipstream.drafters.resources import DraftModel, Resources
from slipstream.engine.controller import DoublingController
from slipstream.engine.engine import Engine
from slipstream.loading import LoadedModel, load_draft_model, load_model
from slipstream.options import EngineOptions, ModelOptions, Precision, SpeculationOptions
from slipstream.verify.matching import Matching

pytestmark = pytest.mark.native

PARALLEL = 4
EAGER = SpeculationOptions(
    ngram_simple_size_n=2,
    ngram_simple_size_m=8,
    ngram_mod_n_match=2,
    ngram_mod_n_min=1,
    ngram_mod_n_max=12,
    ngram_map_k_size_n=2,
    ngram_map_k_size_m=8,
    ngram_map_k4v_size_n=2,
    ngram_map_k4v_size_m=8,
)
SAMPLINGS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "0.8": {"temperature": 0.8, "seed": 1},
    "0.8, penalty": {"temperature": 0.8, "seed": 1234, "top_p": 0.95, "repetition_penalty": 1.05},
}
DRAFTERS: dict[str, Callable[[int, list[list[int]]], Drafter | Sequence[Drafter]]] = {
    "ngram-simple": lambda _, __: named_drafters(["ngram-simple"], EAGER),
    "ngram-mod": lambda _, __: named_drafters(["ngram-mod"], EAGER),
    "ngram-map-k": lambda _, __: named_drafters(["ngram-map-k"], EAGER),
    "ngram-map-k4v": lambda _, __: named_drafters(["ngram-map-k4v"], EAGER),
    "ngram-cache": lambda _, __: named_drafters(["ngram-cache"], EAGER),
    "suffix": lambda _, __: named_drafters(["suffix"], SpeculationOptions(suffix_p_min=0.0)),
    "hostile": lambda vocabulary, truth: HostileDrafter(vocabulary, 5, truth),
    "hostile chains": lambda vocabulary, _: HostileDrafter(vocabulary, 6, trees=False),
    "scripted": lambda _, truth: ScriptedDrafter(truth),
}


@dataclass
class Subject:
    """A loaded model and what plain decoding, one request at a time, makes of its prompts."""

    loaded: LoadedModel
    prompts: list[list[int]]
    length: int
    step_time_limit_s: float = 10.0  # so that a busy machine cuts no drafts
    plain: dict[str, list[Output]] = field(default_factory=dict)

    def engine(self, drafter: Drafter | Sequence[Drafter] | None, parallel: int) -> Engine:
        return Engine(
            self.loaded.program,
            self.loaded.tokenizer,
            drafters=drafters_of(drafter),
            verifier=Matching(),
            context=self.loaded.context,
            options=EngineOptions(parallel=parallel, step_time_limit_s=self.step_time_limit_s),
            controller=DoublingController(first=8, most=10),
        )

    def decode(
        self, drafter: Drafter | Sequence[Drafter] | None, parallel: int, sampling: str
    ) -> list[Output]:
        engine = self.engine(drafter, parallel)
        options = SAMPLINGS[sampling]
        return run(engine, *self.prompts, max_tokens=self.length, logprobs=1, **options)

    def check(self, name: str, sampling: str) -> int:
        """Equality with plain decoding, several sequences in a step; returns accepted tokens."""
        if sampling not in self.plain:
            self.plain[sampling] = self.decode(None, 1, sampling)
        plain = self.plain[sampling]
        truth = [[*p, *output.ids] for p, output in zip(self.prompts, plain, strict=True)]
        drafter = DRAFTERS[name](self.loaded.graph.vocabulary, truth)
        drafted = self.decode(drafter, PARALLEL, sampling)
        for prompt, expected, found in zip(self.prompts, plain, drafted, strict=True):
            assert found.visible() == expected.visible(), prompt
            check_counts(found)
        if name in ("hostile", "scripted"):
            assert sum(output.statistics.accepted for output in drafted) > len(self.prompts)
        if name == "hostile chains":
            assert sum(output.statistics.tested for output in drafted) > len(self.prompts)
        assert self.loaded.memory.bytes() == 0
        return sum(output.statistics.accepted for output in drafted)


def subject(
    model: str, context: int, texts: Sequence[str], length: int, precision: Precision = "a8"
) -> Subject:
    options = ModelOptions(model=model, context=context, precision=precision)
    loaded = load_model(options, EngineOptions(parallel=PARALLEL))
    prompts = [loaded.tokenizer.encode(text) for text in texts]
    return Subject(loaded, prompts, length)


# a page of keys has 64 positions and the window of tiny gemma3 has 16
TINY_TEXTS = ("a", "to be or not to be, " * 3, "0123456789" * 6, "x y " * 35)


@pytest.fixture(scope="module", params=["llama", "qwen2", "qwen3", "gemma3"])
def tiny(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Subject:
    path = tmp_path_factory.mktemp("tiny") / f"{request.param}.gguf"
    return subject(str(tiny_model(path, request.param)), 256, TINY_TEXTS, 40)


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("name", DRAFTERS)
def test_tiny_models(tiny: Subject, name: str, sampling: str) -> None:
    tiny.check(name, sampling)


@pytest.fixture(scope="module")
def tiny_a16(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    path = tiny_model(tmp_path_factory.mktemp("tiny_a16") / "qwen2.gguf", "qwen2")
    return subject(str(path), 256, TINY_TEXTS, 40, "a16")


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("name", DRAFTERS)
def test_a_tiny_model_at_a16(tiny_a16: Subject, name: str, sampling: str) -> None:
    tiny_a16.check(name, sampling)
    kernels = tiny_a16.loaded.program.observed()
    assert any("-a16/" in path and path.endswith("rows_2_8") for path in kernels)
    assert not any(path.startswith("matmul/q8_0/") for path in kernels)


TEXTS = (
    "The capital of France is",
    "Once upon a time, in a village by the sea,",
    "def fibonacci(n):\n    if n < 2:\n        return n\n",
    "1, 2, 3, 4, 5, 6, 7, 8,",
    "red green blue red green blue red green blue red",
    '{"name": "Ada", "age": 36}\n{"name": "Alan", "age": 41}\n{"name":',
    "Q: What is 17 + 25?\nA:",
    "| city | country |\n|---|---|\n| Paris | France |\n| Rome | Italy |\n|",
    "The quick brown fox jumps over the lazy dog. The quick brown fox",
    "Die Katze sitzt auf der Matte, und der Hund",
    "SELECT name, age FROM people WHERE",
    "To make bread you need flour, water, salt and yeast. First,",
    "Dear Sir or Madam,\n\nI am writing to",
    "import numpy as np\n\ndef mean(values):",
    "日本の首都は東京です。フランスの首都は",
    "- apples\n- pears\n- plums\n-",
    "for i in range(10):\n    print(i)\nfor j in range(10):\n    print(",
    "She said: “I will go.” He said: “",
    "x = 1\ny = 2\nz = 3\nx = 1\ny = 2\nz =",
    "In physics, energy is the capacity to do work. In",
)


@pytest.fixture(scope="module", params=["smollm2-135m", "gemma-3-270m", "qwen2.5-coder-0.5b"])
def real(request: pytest.FixtureRequest, model_path: Callable[[str], Path]) -> Subject:
    return subject(str(model_path(request.param)), 256, TEXTS, 20)


@pytest.mark.model
@pytest.mark.slow
@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("name", DRAFTERS)
def test_models_of_the_catalogue(real: Subject, name: str, sampling: str) -> None:
    accepted = real.check(name, sampling)
    if name.startswith("ngram"):
        assert accepted > 0


class Pair(Subject):
    """A target and a draft model of the same family."""

    def drafters(self, draft_model: DraftModel, **options: Any) -> tuple[Drafter, ...]:
        resources = Resources(
            self.loaded.tokenizer,
            self.loaded.graph.vocabulary,
            self.loaded.context,
            PARALLEL,
            draft_model,
        )
        speculation = SpeculationOptions(type=("draft-simple",), **options)
        return create(speculation.type, speculation, resources)

    def check_draft_model(self, draft_model: DraftModel, sampling: str, **options: Any) -> float:
        """Equality with plain decoding, several sequences in a step; returns the acceptance."""
        if sampling not in self.plain:
            self.plain[sampling] = self.decode(None, 1, sampling)
        drafted = self.decode(self.drafters(draft_model, **options), PARALLEL, sampling)
        for prompt, expected, found in zip(
            self.prompts, self.plain[sampling], drafted, strict=True
        ):
            assert found.visible() == expected.visible(), prompt
            assert not found.statistics.rejected_drafts
            check_counts(found)
        accepted = sum(output.statistics.accepted for output in drafted)
        return accepted / sum(output.statistics.drafted for output in drafted)


@pytest.fixture(scope="module")
def pair(model_path: Callable[[str], Path]) -> Pair:
    made = subject(str(model_path("qwen2.5-coder-1.5b")), 256, TEXTS[:8], 16)
    return Pair(made.loaded, made.prompts, made.length)


@pytest.mark.model
@pytest.mark.slow
@pytest.mark.parametrize(
    ("sampling", "vocabulary"), [*((name, None) for name in SAMPLINGS), ("greedy", 50_000)]
)
def test_a_model_of_the_catalogue_drafts_for_another(
    pair: Pair, model_path: Callable[[str], Path], vocabulary: int | None, sampling: str
) -> None:
    path = str(model_path("qwen2.5-coder-0.5b"))
    draft_model = load_draft_model(path, pair.loaded, vocabulary)
    assert pair.check_draft_model(draft_model, sampling, n_max=5, draft_branches=1) > 0.4
    pair.check_draft_model(draft_model, sampling, n_max=4, draft_branches=4)
    pair.check_draft_model(draft_model, sampling, n_max=6, draft_context=24, draft_window=12)
