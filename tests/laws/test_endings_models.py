"""Every ending at every offset inside an accepted run, of a real file on the native backend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from builders import tiny_model
from drafters_for_tests import ScriptedDrafter
from engines import Output, check_counts, drafters_of, run
from slipstream.drafters.base import Drafter
from slipstream.engine.controller import DoublingController
from slipstream.engine.engine import Engine
from slipstream.engine.text import Detokenizer, StreamDecoder
from slipstream.loading import LoadedModel, load_model
from slipstream.options import EngineOptions, ModelOptions
from slipstream.verify.matching import Matching

pytestmark = pytest.mark.native

TEXT = "to be or not to be, "
LENGTH = 24
OFFSETS = 12
RUNS = (1, 3, 12)  # an accepted run begins at every offset modulo one of them
SEEDED: Mapping[str, Mapping[str, Any]] = {"greedy": {}, "0.8": {"temperature": 0.8, "seed": 9}}


@dataclass(frozen=True)
class OtherEnds:
    """A tokenizer with other end-of-generation ids."""

    tokenizer: Detokenizer
    end_ids: frozenset[int]

    def stream(self) -> StreamDecoder:
        return self.tokenizer.stream()


class Subject:
    """A loaded model and its undrafted continuation of ``TEXT``, per sampling."""

    def __init__(self, loaded: LoadedModel) -> None:
        self.loaded = loaded
        self.prompt = loaded.tokenizer.encode(TEXT)
        self.plain = {name: self.decode(None, max_tokens=LENGTH, **s) for name, s in SAMPLED}

    def decode(
        self,
        drafter: Drafter | Sequence[Drafter] | None,
        ends: frozenset[int] = frozenset(),
        **sampling: Any,
    ) -> Output:
        engine = Engine(
            self.loaded.program,
            OtherEnds(self.loaded.tokenizer, ends),
            drafters=drafters_of(drafter),
            verifier=Matching(),
            context=self.loaded.context,
            options=EngineOptions(step_time_limit_s=10.0),  # a busy machine cuts no drafts
            controller=DoublingController(first=15),
        )
        [output] = run(engine, self.prompt, logprobs=1, **sampling)
        return output

    def check(self, name: str, ends: frozenset[int] = frozenset(), **options: Any) -> Output:
        """An ending without drafts, and with drafts of several lengths: alike to the user."""
        sampling = {"max_tokens": LENGTH, **SEEDED[name], **options}
        plain = self.decode(None, ends, **sampling)
        truth = [*self.prompt, *self.plain[name].ids]
        accepted = 0
        for length in RUNS:
            found = self.decode(ScriptedDrafter([truth], length=length), ends, **sampling)
            assert found.visible() == plain.visible()
            check_counts(found)
            accepted += found.statistics.accepted
        assert accepted > 0 or len(plain.ids) <= 2
        return plain


SAMPLED = tuple(SEEDED.items())


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    """Its weights are such that outputs hardly repeat, so that offsets differ."""
    path = tmp_path_factory.mktemp("tiny") / "tiny.gguf"
    tiny_model(path, "llama", deviation=0.3, seed=2, tied=False)
    loaded = load_model(ModelOptions(model=str(path), context=128), EngineOptions())
    subject = Subject(loaded)
    for name in SEEDED:
        assert len(set(subject.plain[name].ids[:OFFSETS])) >= OFFSETS - 2
    return subject


@pytest.mark.parametrize("name", SEEDED)
def test_max_tokens(subject: Subject, name: str) -> None:
    for limit in range(1, OFFSETS + 1):
        plain = subject.check(name, max_tokens=limit)
        assert plain.ids == subject.plain[name].ids[:limit]
        assert plain.finish_reason == "length"


@pytest.mark.parametrize("name", SEEDED)
def test_end_tokens(subject: Subject, name: str) -> None:
    ids = subject.plain[name].ids
    for end in ids[:OFFSETS]:
        plain = subject.check(name, frozenset({end}))
        assert plain.ids == ids[: ids.index(end) + 1]
        assert plain.finish_reason == "stop"


@pytest.mark.parametrize("name", SEEDED)
@pytest.mark.parametrize("size", [1, 3])
def test_stop_strings(subject: Subject, name: str, size: int) -> None:
    text = subject.plain[name].text
    assert len(text) > OFFSETS + size
    ends = set()
    for place in range(OFFSETS):
        stop = text[place : place + size]
        plain = subject.check(name, stop=(stop,))
        assert plain.text == text[: text.index(stop)]
        assert plain.finish_reason == "stop"
        ends.add(len(plain.text))
    assert len(ends) >= OFFSETS // 3 * size - size
