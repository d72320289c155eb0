"""The cost controller on real programs: whatever it chooses, the output is that of plain decoding.

It decides by wall time, so nothing here asserts how much it drafts, but where its times are made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from builders import tiny_model
from drafters_for_tests import ScriptedDrafter
from engines import Output, check_counts, drain, joined
from slipstream.drafters import create
from slipstream.drafters.base import Drafter
from slipstream.drafters.resources import Resources
from slipstream.engine.cost_controller import CostController
from slipstream.engine.engine import Engine
from slipstream.engine.events import Event
from slipstream.engine.sequence import Request
from slipstream.engine.trace_format import VERSION, Header, Record, encode
from slipstream.engine.tracing import Tracing
from slipstream.loading import LoadedModel, load_draft_model, load_model
from slipstream.measure.traces import read_report
from slipstream.options import EngineOptions, ModelOptions, SamplingOptions, SpeculationOptions
from slipstream.verify.choice import verifier_for

pytestmark = pytest.mark.native

PARALLEL = 4
TEXTS = (
    "red green blue red green blue red green blue red",
    "def fibonacci(n):\n    if n < 2:\n        return n\n",
    "1, 2, 3, 4, 5, 6, 7, 8,",
    "The capital of France is",
)
MIXED = {"ngram_mod_n_match": 2, "ngram_mod_n_min": 1, "ngram_mod_n_max": 8}
SEEDED = {"temperature": 0.8, "seed": 7}


def primed() -> CostController:
    """Believes that rows cost little and has credit for trials, so it drafts early and often."""
    controller = CostController(credit=20.0)
    for _ in range(3):
        for rows in (1, 2, 4, 8, 16):
            controller.times.observe(rows, 0, 1.0 + 0.001 * rows, plain=rows == 1)
    return controller


@dataclass
class Target:
    """A model that may draft for itself."""

    loaded: LoadedModel
    name: str
    plain: dict[tuple[Any, ...], Output] = field(default_factory=dict)

    def drafters(self, options: SpeculationOptions) -> tuple[Drafter, ...]:
        model = self.loaded
        own = load_draft_model(self.name, model) if "draft-simple" in options.type else None
        resources = Resources(model.tokenizer, model.graph.vocabulary, model.context, PARALLEL, own)
        return create(options.type, options, resources)

    def engine(self, drafters: Sequence[Drafter] = (), **keywords: Any) -> Engine:
        options = SpeculationOptions(type=("suffix",), **keywords.pop("speculation", {}))
        return Engine(
            self.loaded.program,
            self.loaded.tokenizer,
            drafters=drafters,
            verifier=verifier_for(options),
            context=self.loaded.context,
            options=EngineOptions(parallel=PARALLEL, step_time_limit_s=10.0),
            primitives=self.loaded.primitives,
            **{"controller": primed(), **keywords},
        )

    def prompts(self, texts: Sequence[str] = TEXTS) -> list[list[int]]:
        return [self.loaded.tokenizer.encode(text) for text in texts]

    def alone(self, prompt: Sequence[int], **sampling: Any) -> Output:
        """Plain decoding of one prompt."""
        key = (*prompt, *sampling.items())
        if key not in self.plain:
            [self.plain[key]] = decode(self.engine(), [prompt], **sampling)
        return self.plain[key]

    def check(
        self, prompts: Sequence[Sequence[int]], sampling: dict[str, Any], **options: Any
    ) -> list[Output]:
        """All prompts at once are what each is alone."""
        speculation = SpeculationOptions(type=("suffix", "draft-simple"), **options)
        made = decode(self.engine(self.drafters(speculation)), prompts, **sampling)
        for prompt, found in zip(prompts, made, strict=True):
            assert found.visible() == self.alone(prompt, **sampling).visible(), prompt
            check_counts(found)
            assert not found.statistics.rejected_drafts
        assert self.loaded.memory.bytes() == 0
        return made


def decode(engine: Engine, prompts: Sequence[Sequence[int]], **sampling: Any) -> list[Output]:
    options = SamplingOptions(**{"seed": 1, "max_tokens": 24, **sampling})
    ids = [engine.submit(Request(prompt, options)) for prompt in prompts]
    events = drain(engine)
    return [joined(events, identity) for identity in ids]


def target(name: str, context: int = 256) -> Target:
    options = ModelOptions(model=name, context=context)
    return Target(load_model(options, EngineOptions(parallel=PARALLEL)), name)


@pytest.fixture(scope="module")
def smollm(model_path: Callable[[str], Path]) -> Target:
    return target(str(model_path("smollm2-135m")))


@pytest.fixture(scope="module", params=["llama", "gemma3"])
def tiny(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Target:
    """The window of gemma3 has 16 positions."""
    path = tmp_path_factory.mktemp("tiny") / f"{request.param}.gguf"
    return target(str(tiny_model(path, request.param)), 128)


BRANCHES = pytest.mark.parametrize("branches", [1, 4], ids=["chains", "trees"])
SAMPLINGS = pytest.mark.parametrize("sampling", [{}, SEEDED], ids=["greedy", "seeded"])


@SAMPLINGS
@BRANCHES
def test_tiny_models_that_draft_for_themselves(
    tiny: Target, branches: int, sampling: dict[str, Any]
) -> None:
    prompts = tiny.prompts(("a", "to be or not to be, " * 3, "x y " * 15))
    made = tiny.check(prompts, sampling, draft_branches=branches)
    assert sum(output.statistics.accepted for output in made) > 0


@pytest.mark.model
@SAMPLINGS
@BRANCHES
def test_a_model_that_drafts_for_itself_beside_suffixes(
    smollm: Target, branches: int, sampling: dict[str, Any]
) -> None:
    made = smollm.check(smollm.prompts(), sampling, draft_branches=branches)
    assert sum(output.statistics.accepted for output in made) > 0


@pytest.mark.model
@SAMPLINGS
def test_a_model_with_windows_drafts_for_itself(
    model_path: Callable[[str], Path], sampling: dict[str, Any]
) -> None:
    """Its windows have 512 positions; one prompt goes beyond."""
    gemma = target(str(model_path("gemma-3-270m")), 640)
    long = gemma.prompts((TEXTS[0] + " " + "one two three four five six. " * 80,))[0][:540]
    made = gemma.check([long, gemma.prompts()[2]], {**sampling, "max_tokens": 16})
    assert len(long) > 512
    assert sum(output.statistics.accepted for output in made) > 0


@SAMPLINGS
def test_the_context_ends_in_the_middle_of_a_draft(tiny: Target, sampling: dict[str, Any]) -> None:
    """With a drafter that knows what would come, and with one whose context is the smaller."""
    room = 6
    prompt = (tiny.prompts(("to be or not to be, " * 20,))[0] * 4)[: tiny.loaded.context - room]
    sampling = {**sampling, "max_tokens": 64, "ignore_eos": True}
    plain = tiny.alone(prompt, **sampling)
    assert plain.finish_reason == "length"
    assert len(plain.ids) < 10
    truth = [*prompt, *plain.ids, *range(20, 40)]
    [scripted] = decode(tiny.engine([ScriptedDrafter([truth])]), [prompt], **sampling)
    assert scripted.visible() == plain.visible()
    check_counts(scripted)
    assert scripted.statistics.accepted > 0
    tiny.check([prompt, prompt[:40]], sampling, draft_context=24, draft_window=12)


@pytest.mark.model
def test_mixed_methods_at_once_and_a_cancelled_one(smollm: Target) -> None:
    options = SpeculationOptions(type=("suffix", "draft-simple", "ngram-mod"), **MIXED)
    engine = smollm.engine(smollm.drafters(options))
    prompts, asked = smollm.prompts(), SamplingOptions(seed=1, max_tokens=32)
    ids = [engine.submit(Request(prompt, asked)) for prompt in prompts]
    events = [event for _ in range(4) for event in engine.step()]
    engine.cancel(ids[1])
    events += drain(engine)
    for place, (prompt, identity) in enumerate(zip(prompts, ids, strict=True)):
        output, plain = joined(events, identity), smollm.alone(prompt, max_tokens=32)
        check_counts(output)
        if place == 1:
            assert output.finish_reason == "cancelled"
            assert output.ids == plain.ids[: len(output.ids)]
        else:
            assert output.visible() == plain.visible()
    assert smollm.loaded.memory.bytes() == 0


@pytest.mark.model
def test_engines_of_different_methods_share_a_memory(smollm: Target) -> None:
    """A method for each of four sequences, in turns; one of them is cancelled halfway."""
    methods = ("none", "suffix", "draft-simple", "ngram-mod")
    options = [SpeculationOptions(type=(name,), **MIXED) for name in methods[1:]]
    engines = [smollm.engine(), *(smollm.engine(smollm.drafters(o)) for o in options)]
    prompts, asked = smollm.prompts(), SamplingOptions(seed=1, max_tokens=32)
    ids = [e.submit(Request(p, asked)) for e, p in zip(engines, prompts, strict=True)]
    events: list[list[Event]] = [[] for _ in engines]
    steps = 0
    while any(engine.busy for engine in engines):
        for engine, own in zip(engines, events, strict=True):
            own += engine.step() if engine.busy else []
        steps += 1
        if steps == 4:
            engines[2].cancel(ids[2])
    for place, prompt in enumerate(prompts):
        output = joined(events[place], ids[place])
        plain = smollm.alone(prompt, max_tokens=32)
        check_counts(output)
        assert (output.finish_reason == "cancelled") == (place == 2)
        if place == 2:
            assert output.ids == plain.ids[: len(output.ids)]
        else:
            assert output.visible() == plain.visible()
    assert smollm.loaded.memory.bytes() == 0


@pytest.mark.model
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_rejection_conserves_counts_and_its_trace_tells_them_again(
    smollm: Target, temperature: float, tmp_path: Path
) -> None:
    speculation: dict[str, Any] = {"draft_sampling": "probabilistic", "draft_branches": 2}
    records: list[Record] = []
    tracing = Tracing(records.append)
    tracing.header(Header(version=VERSION, model="smollm2-135m"))
    own = tracing.engine(["draft-simple"], "rejection", {})
    drafters = smollm.drafters(SpeculationOptions(type=("draft-simple",), **speculation))
    engine = smollm.engine(drafters, speculation=speculation, trace=own.round, ended=own.end)
    prompts = smollm.prompts()[:3]
    made = decode(engine, prompts, temperature=temperature)
    for prompt, output in zip(prompts, made, strict=True):
        check_counts(output)
        assert output.statistics.verification == "rejection"
        if temperature == 0.0:
            assert output.visible() == smollm.alone(prompt).visible()
    assert sum(output.statistics.accepted for output in made) > 0
    path = tmp_path / "trace.jsonl"
    path.write_bytes(b"".join(map(encode, records)))
    report = read_report(path)
    assert report.equal
    assert len(report.requests) == len(made)
    told = sum(request.accepted for request in report.requests.values())
    assert told == sum(output.statistics.accepted for output in made)
