"""Reused keys are bit-equal to computed ones: tiny models of every architecture, and real ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from builders import tiny_model
from drafters_for_tests import HostileDrafter
from engines import Output, check_counts, drafters_of, drain, joined, named_drafters
from slipstream.drafters.base import Drafter
from slipstream.engine.controller import DoublingController
from slipstream.engine.engine import Engine
from slipstream.engine.prefix_cache import WAIT, PrefixCache, agreement
from slipstream.engine.sequence import Request
from slipstream.loading import LoadedModel, load_model
from slipstream.options import EngineOptions, ModelOptions, SamplingOptions, SpeculationOptions
from slipstream.verify.matching import Matching

pytestmark = pytest.mark.native

PARALLEL = 3
CACHES: dict[str, tuple[int, int | None]] = {"on": (8, None), "one page": (1, 1)}
SAMPLINGS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "0.8": {"temperature": 0.8, "seed": 1234, "top_p": 0.95, "repetition_penalty": 1.05},
}
DRAFTERS: dict[str, Callable[[int, list[list[int]]], Drafter | Sequence[Drafter] | None]] = {
    "none": lambda _, __: None,
    "suffix": lambda _, __: named_drafters(["suffix"], SpeculationOptions(suffix_p_min=0.0)),
    "hostile": lambda vocabulary, truth: HostileDrafter(vocabulary, 5, truth),
}


@dataclass(frozen=True)
class Subject:
    """A loaded model and the beginnings of conversations, some of them alike."""

    loaded: LoadedModel
    openings: list[list[int]]
    questions: list[list[int]]
    length: int

    @contextmanager
    def engine(self, drafter: Drafter | Sequence[Drafter] | None, kind: str) -> Iterator[Engine]:
        """Afterwards every page is free again."""
        prefixes = None
        if kind != "off":
            prefixes = PrefixCache(self.loaded.memory, *CACHES[kind])
        yield Engine(
            self.loaded.program,
            self.loaded.tokenizer,
            drafters=drafters_of(drafter),
            verifier=Matching(),
            context=self.loaded.context,
            options=EngineOptions(parallel=PARALLEL, step_time_limit_s=10.0),
            controller=DoublingController(first=8, most=10),
            prefixes=prefixes,
        )
        if prefixes is not None:
            prefixes.forget()
        assert self.loaded.memory.bytes() == 0

    def talk(
        self, drafter: Drafter | Sequence[Drafter] | None, kind: str, sampling: str
    ) -> list[Output]:
        """Every opening, then every question after the output before; all outputs."""
        given = {"seed": 1, "max_tokens": self.length, "logprobs": 1, "ignore_eos": True}
        options = SamplingOptions(**{**given, **SAMPLINGS[sampling]})
        said: list[Output] = []
        with self.engine(drafter, kind) as engine:
            prompts = self.openings
            for question in ([], *self.questions):
                if question:
                    turns = zip(prompts, said[-len(prompts) :], strict=True)
                    prompts = [[*prompt, *output.ids, *question] for prompt, output in turns]
                ids = [engine.submit(Request(prompt, options)) for prompt in prompts]
                events = drain(engine)
                said += [joined(events, identity) for identity in ids]
        return said

    def one_by_one(self, kind: str) -> list[Output]:
        """The openings, each after the end of the one before."""
        options = SamplingOptions(max_tokens=self.length, ignore_eos=True, seed=1)
        said: list[Output] = []
        with self.engine(None, kind) as engine:
            for prompt in self.openings:
                identity = engine.submit(Request(prompt, options))
                said.append(joined(drain(engine), identity))
        return said

    def check(self, name: str, sampling: str, kind: str) -> list[int]:
        """Equality with an engine that computes every prompt; returns what was reused."""
        plain = self.talk(None, "off", sampling)
        assert not any(output.statistics.reused_tokens for output in plain)
        truth = self.texts(plain)
        drafter = DRAFTERS[name](self.loaded.graph.vocabulary, truth)
        found = self.talk(drafter, kind, sampling)
        for expected, output in zip(plain, found, strict=True):
            assert output.visible() == expected.visible()
            check_counts(output)
        if name == "hostile":
            assert sum(output.statistics.accepted for output in found) > 0
        return [output.statistics.reused_tokens for output in found]

    def texts(self, plain: Sequence[Output]) -> list[list[int]]:
        """The whole conversations."""
        texts = self.openings
        for turn, question in enumerate((*self.questions, [])):
            outputs = plain[turn * len(texts) : (turn + 1) * len(texts)]
            pairs = zip(texts, outputs, strict=True)
            texts = [[*text, *output.ids, *question] for text, output in pairs]
        return texts


def subject(
    model: str, context: int, openings: Sequence[str], questions: Sequence[str], length: int
) -> Subject:
    loaded = load_model(
        ModelOptions(model=model, context=context), EngineOptions(parallel=PARALLEL)
    )
    encode = loaded.tokenizer.encode
    return Subject(loaded, [encode(t) for t in openings], [encode(t) for t in questions], length)


# a page of keys has 64 positions and the window of tiny gemma3 has 16; in the third turn 10 pages
# are kept, and the three that start together copy one each
TINY_OPENINGS = ("0123456789" * 10 + "a", "0123456789" * 10 + "b", "0123456789" * 4, "x y " * 25)
TINY_QUESTIONS = ("and?", "to be or not")


@pytest.fixture(scope="module", params=["llama", "qwen2", "qwen3", "gemma3"])
def tiny(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Subject:
    path = tmp_path_factory.mktemp("tiny") / f"{request.param}.gguf"
    return subject(str(tiny_model(path, request.param)), 320, TINY_OPENINGS, TINY_QUESTIONS, 24)


@pytest.mark.parametrize("kind", CACHES)
@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("name", DRAFTERS)
def test_tiny_models(tiny: Subject, name: str, sampling: str, kind: str) -> None:
    counts = tiny.check(name, sampling, kind)
    assert any(counts)
    if kind == "on":
        lengths = [len(opening) for opening in tiny.openings]
        for turn in (1, 2):  # the conversation so far, but for the newest token
            later = counts[turn * len(lengths) : (turn + 1) * len(lengths)]
            assert all(count >= length for count, length in zip(later, lengths, strict=True))


def test_a_full_memory_gives_way(tmp_path: Path) -> None:
    """Contexts that fill the memory again and again: nobody fails for what is kept."""
    path = tiny_model(tmp_path / "gemma3.gguf", "gemma3")
    full = subject(str(path), 192, [f"{n} 0123456789" * 8 for n in range(9)], [], -1)
    plain = full.talk(None, "off", "greedy")
    for _ in range(2):
        found = full.talk(None, "on", "greedy")
        assert [output.visible() for output in found] == [output.visible() for output in plain]
        assert {output.finish_reason for output in found} == {"length"}


STORY = (
    "The harbour master kept two books. In the first he wrote the ships that came and what they "
    "carried: timber from the north, salt, oranges in crates, once a piano. In the second he "
    "wrote what the captains told him while they waited for the tide. "
)
REAL_OPENINGS = (
    STORY * 2 + "Summarise the text.",
    STORY * 2 + "Which cargo is named last?",
    "def fibonacci(n):\n    if n < 2:\n        return n\n",
)
REAL_QUESTIONS = ("\nWhy?", "\nAgain, in other words:")


@pytest.fixture(scope="module", params=["smollm2-135m", "gemma-3-270m"])
def real(request: pytest.FixtureRequest, model_path: Callable[[str], Path]) -> Subject:
    path = str(model_path(request.param))
    return subject(path, 1024, REAL_OPENINGS, REAL_QUESTIONS, 12)


@pytest.mark.model
@pytest.mark.slow
@pytest.mark.parametrize("kind", CACHES)
@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("name", ["none", "suffix"])
def test_models_of_the_catalogue(real: Subject, name: str, sampling: str, kind: str) -> None:
    counts = real.check(name, sampling, kind)
    if kind == "one page":
        assert any(counts)
        return
    common = agreement(*real.openings[:2])  # of the second prompt and one that is being computed
    assert common > 100
    assert common - WAIT < counts[1] <= common
    assert all(count > 20 for count in counts[len(real.openings) :])


@pytest.mark.model
@pytest.mark.slow
def test_a_text_longer_than_the_window(model_path: Callable[[str], Path]) -> None:
    """The layers with a window have given up its beginning; what is left decides what is reused."""
    loaded = load_model(
        ModelOptions(model=str(model_path("gemma-3-270m")), context=1024),
        EngineOptions(parallel=PARALLEL),
    )
    long = loaded.tokenizer.encode(STORY * 20)[:800]
    tail = loaded.tokenizer.encode("\nWhy?")
    assert Subject(loaded, [[*long, *tail]], [tail], 8).check("none", "greedy", "on")[1] > 800
    prompts = [long, [*long[:780], *tail], [*long[:200], *tail]]
    apart = Subject(loaded, prompts, [], 8)
    plain, found = apart.one_by_one("off"), apart.one_by_one("on")
    assert [output.visible() for output in found] == [output.visible() for output in plain]
    assert [output.statistics.reused_tokens for output in found] == [0, 780, 0]
