"""Reusing prompts never changes an output: every drafter, ending and pressure on memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draft_models import fake_draft_simple
from drafters_for_tests import HostileDrafter, MalformedDrafter, ScriptedDrafter, TestDrafter
from engines import Output, check_counts, drain, fake_engine, joined, named_drafters, run
from fake_program import FakeMemory, FakeProgram
from slipstream.backends.base import Outputs, Step
from slipstream.drafters.base import Drafter, DrafterNeeds
from slipstream.engine.controller import DoublingController
from slipstream.engine.engine import Engine
from slipstream.engine.prefix_cache import SHORTEST, PrefixCache
from slipstream.engine.sequence import Request
from slipstream.memory.base import PAGE_POSITIONS
from slipstream.options import SamplingOptions, SpeculationOptions

VOCABULARY = 24
LENGTH = 20
NGRAMS = SpeculationOptions(
    ngram_simple_size_n=2,
    ngram_simple_size_m=6,
    ngram_mod_n_match=2,
    ngram_mod_n_min=1,
    ngram_mod_n_max=9,
    ngram_map_k_size_n=2,
    ngram_map_k_size_m=6,
    ngram_map_k4v_size_n=2,
    ngram_map_k4v_size_m=6,
)
DrafterFactory = Callable[[Sequence[Sequence[int]]], Drafter | Sequence[Drafter]]
DRAFTERS: dict[str, DrafterFactory] = {
    "none": lambda _: (),
    **{
        name: lambda _, name=name: named_drafters([name], NGRAMS)  # type: ignore[misc]
        for name in ("ngram-simple", "ngram-mod", "ngram-map-k", "ngram-map-k4v", "ngram-cache")
    },
    "suffix": lambda _: named_drafters(["suffix"], SpeculationOptions(suffix_p_min=0.0)),
    "draft-simple": lambda _: fake_draft_simple(FakeProgram(VOCABULARY, 2), n_max=5),
    "draft-simple, smaller": lambda _: fake_draft_simple(
        FakeProgram(VOCABULARY - 5, 1), draft_context=20, draft_window=9, draft_branches=3
    ),
    "scripted": ScriptedDrafter,
    "scripted, wrong at 3": lambda truth: ScriptedDrafter(truth, wrong_at=3),
    "hostile": lambda truth: HostileDrafter(VOCABULARY, 13, truth),
    "malformed": lambda _: MalformedDrafter(VOCABULARY),
}
SAMPLINGS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "0.8": {"temperature": 0.8, "seed": 42},
    "0.8, penalties": {"temperature": 0.8, "seed": 43, "repetition_penalty": 1.3, "top_k": 10},
}
CACHES: dict[str, tuple[int, int | None]] = {
    "on": (8, None),
    "one entry": (1, None),
    "one page": (1, 1),
    "running ones only": (0, None),
}
"""Entries and pages."""

BASE = [(7 * i * i + 3 * i) % VOCABULARY for i in range(140)]
OPENINGS = {
    "a": [[*BASE, 1], [*BASE[:120], 2, 3], BASE[:30]],
    "b": [[*BASE, 1]],
}
"""First prompts per session; those of one session begin alike."""
QUESTIONS = ([5, 6, 7], [8] * 20)


def with_cache(engine: Engine, kind: str) -> Engine:
    if kind != "off":
        engine.prefixes = PrefixCache(engine.program.memory, *CACHES[kind])
    return engine


def ask(engine: Engine, prompts: dict[str, list[list[int]]], **sampling: Any) -> list[Output]:
    """All at once, in order of the sessions."""
    options = SamplingOptions(**{"seed": 1, "max_tokens": LENGTH, **sampling})
    ids = [
        engine.submit(Request(prompt, options, session=session))
        for session, own in prompts.items()
        for prompt in own
    ]
    events = drain(engine)
    return [joined(events, identity) for identity in ids]


def talk(engine: Engine, **sampling: Any) -> list[list[Output]]:
    """Three turns of several conversations: each prompt goes on from the output before."""
    prompts, turns = OPENINGS, []
    for question in ((), *QUESTIONS):
        if turns:
            outputs = iter(turns[-1])
            prompts = {
                session: [[*prompt, *next(outputs).ids, *question] for prompt in own]
                for session, own in prompts.items()
            }
        turns.append(ask(engine, prompts, **sampling))
    return turns


@cache
def plain(sampling: str) -> list[list[Output]]:
    return talk(fake_engine(program=FakeProgram(VOCABULARY)), logprobs=2, **SAMPLINGS[sampling])


def truth_of(turns: Sequence[Sequence[Output]]) -> list[list[int]]:
    texts = [prompt for own in OPENINGS.values() for prompt in own]
    for question, outputs in zip((*QUESTIONS, ()), turns, strict=True):
        texts = [[*t, *o.ids, *question] for t, o in zip(texts, outputs, strict=True)]
    return texts


@pytest.mark.parametrize("parallel", [1, 3])
@pytest.mark.parametrize("kind", CACHES)
@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("name", DRAFTERS)
def test_output_equals_that_without_reuse(
    name: str, sampling: str, kind: str, parallel: int
) -> None:
    expected = plain(sampling)
    drafter = DRAFTERS[name](truth_of(expected))
    controller = DoublingController(fixed=True)
    program = FakeProgram(VOCABULARY)
    engine = with_cache(
        fake_engine(drafter, program, parallel=parallel, controller=controller), kind
    )
    turns = talk(engine, logprobs=2, **SAMPLINGS[sampling])
    counts = []
    for before, after in zip(expected, turns, strict=True):
        for wanted, found in zip(before, after, strict=True):
            assert found.visible() == wanted.visible()
            check_counts(found)
            counts.append(found.statistics.reused_tokens)
            assert found.statistics.reused_tokens < found.statistics.prompt_tokens
            assert found.statistics.warm or not found.statistics.reused_tokens
    check_reuse(kind, parallel, counts)
    assert engine.prefixes is not None
    engine.prefixes.forget()
    assert program.tokens.committed == {}


def check_reuse(kind: str, parallel: int, counts: Sequence[int]) -> None:
    if kind == "on":
        assert all(count >= len(BASE) for count in (*counts[4:6], counts[7]))
    elif kind == "one page":
        ended = [count for count in counts if parallel == 1 and count]
        assert all(count <= PAGE_POSITIONS for count in ended)
    elif kind == "running ones only" and parallel == 1:
        assert not any(counts)
    if kind != "running ones only" or parallel > 1:
        assert any(counts)
    assert counts[3] == 0, "another session's prompt was used"


def test_a_session_is_not_told_from_times_but_from_what_it_reuses() -> None:
    """The same prompt in session after session, beside each other and one after the other."""
    engine = with_cache(fake_engine(parallel=3), "on")
    for names in (("a", "b", "c"), ("d", "e", ""), ("a ", "A", "b\n")):
        outputs = ask(engine, {name: [[*BASE, 1]] for name in names})
        assert [output.statistics.reused_tokens for output in outputs] == [0, 0, 0]
        assert [output.statistics.warm for output in outputs] == [False] * 3
    [again] = ask(engine, {"b": [[*BASE, 1]]})
    assert again.statistics.reused_tokens == len(BASE)
    assert again.statistics.warm
    assert again.statistics.summary()["reused_tokens"] == len(BASE)


def test_what_a_session_erased_is_gone() -> None:
    engine = with_cache(fake_engine(parallel=2), "on")

    def reused(session: str) -> int:
        [output] = ask(engine, {session: [[*BASE, 1]]})
        return output.statistics.reused_tokens

    assert [reused(name) for name in "aabb"] == [0, 140, 0, 140]
    engine.forget("a")
    assert [reused(name) for name in "ab"] == [0, 140]
    engine.forget()
    assert [reused(name) for name in "ab"] == [0, 0]


@pytest.mark.parametrize("session", ["a", None])
@pytest.mark.parametrize("steps", [1, 9])
def test_erasure_while_a_request_runs(session: str | None, steps: int) -> None:
    """In the middle of its prompt or of its output."""
    engine = with_cache(fake_engine(parallel=2), "on")
    options = SamplingOptions(max_tokens=30, seed=1)
    first = engine.submit(Request([*BASE, 1], options, session="a"))
    events = [event for _ in range(steps) for event in engine.step()]
    engine.forget(session)
    beside = engine.submit(Request([*BASE, 1], options, session="a"))
    events += drain(engine)
    assert joined(events, beside).statistics.reused_tokens == 0
    assert joined(events, beside).ids == joined(events, first).ids
    engine.forget("a")
    assert engine.program.memory.bytes() == 0
    [later] = ask(engine, {"a": [[*BASE, 1]]})
    assert later.statistics.reused_tokens == 0


@pytest.mark.parametrize("parallel", [1, 2, 5])
def test_choices_of_one_prompt_compute_it_once(parallel: int) -> None:
    prompt, choices = BASE * 3, 5
    options = SamplingOptions(temperature=1.0, seed=7, max_tokens=6)

    def outputs(engine: Engine) -> list[list[int]]:
        ids = [engine.submit(Request(prompt, options, choice)) for choice in range(choices)]
        events = drain(engine)
        return [joined(events, identity).ids for identity in ids]

    program = FakeProgram()
    engine = with_cache(fake_engine(program=program, context=1000, parallel=parallel), "on")
    assert outputs(engine) == outputs(fake_engine(context=1000, parallel=parallel))
    rows = sum(len(step.sequences) for step in program.steps)
    assert rows == len(prompt) + (choices - 1) + choices * 5


def test_a_later_prompt_waits_for_what_an_earlier_one_computes() -> None:
    program = FakeProgram()
    engine = with_cache(fake_engine(program=program, context=2000, parallel=3), "on")
    prompts = [[*BASE * 4, 1, 2, 3], [*BASE * 2, 4, 5, 6, 7], BASE[:20]]
    outputs = ask(engine, {"a": prompts})
    assert [output.ids for output in outputs] == [
        run(fake_engine(context=2000), prompt, max_tokens=LENGTH)[0].ids for prompt in prompts
    ]
    assert [output.statistics.reused_tokens for output in outputs[:2]] == [0, 2 * len(BASE)]
    # 20 tokens are no reason to wait, and when the last one starts nobody has them
    assert outputs[2].statistics.reused_tokens == 0
    prompt_rows = sum(len(step.sequences) for step in program.steps) - 3 * (LENGTH - 1)
    assert prompt_rows == 4 * len(BASE) + 3 + 4 + 20


@pytest.mark.parametrize("steps", [1, 2, 3, 8])
def test_who_waits_goes_on_when_the_other_is_cancelled(steps: int) -> None:
    """What was computed of the prompt until then is kept."""
    program = FakeProgram()
    engine = with_cache(fake_engine(program=program, context=2000, parallel=2), "on")
    prompt = BASE * 4
    options = SamplingOptions(max_tokens=8, seed=1)
    first, second = (engine.submit(Request(prompt, options, session="a")) for _ in range(2))
    events = [event for _ in range(steps) for event in engine.step()]
    done = sum(len(step.sequences) for step in program.steps)
    engine.cancel(first)
    events += drain(engine)
    [expected] = run(fake_engine(context=2000), prompt, max_tokens=8)
    found = joined(events, second)
    assert found.ids == expected.ids
    assert joined(events, first).finish_reason == "cancelled"
    if done < len(prompt):
        assert found.statistics.reused_tokens == done
    else:
        assert found.statistics.reused_tokens == len(prompt) - 1


def test_who_waits_may_be_cancelled() -> None:
    engine = with_cache(fake_engine(context=2000, parallel=2), "on")
    options = SamplingOptions(max_tokens=8, seed=1)
    first, second = (
        engine.submit(Request(BASE * 4, options, session="a")) for _ in range(2)
    )
    events = engine.step()
    engine.cancel(second)
    events += drain(engine)
    assert joined(events, second).tokens == ()
    assert len(joined(events, first).tokens) == 8
    assert engine.scheduler.places.free == 2


class Breaking(FakeProgram):
    """Its third step fails."""

    def run(self, step: Step) -> Outputs:
        outputs = super().run(step)
        rows = outputs.logits
        return Outputs(np.full_like(rows, np.nan) if len(self.steps) == 3 else rows, {}, 0.001)


def test_what_failed_is_not_kept() -> None:
    engine = with_cache(fake_engine(program=Breaking(order=None), parallel=1), "on")
    options = SamplingOptions(max_tokens=8, seed=1)
    request = engine.submit(Request(BASE[:20], options, session="a"))
    assert joined(drain(engine), request).finish_reason == "error"
    assert engine.program.memory.bytes() == 0


class Reader(TestDrafter):
    """Wants hidden states or logits of every row."""

    def __init__(self, needs: DrafterNeeds) -> None:
        super().__init__()
        self.needs = needs


def test_a_drafter_that_reads_the_prompt_gets_all_of_it() -> None:
    reader = Reader(DrafterNeeds(logits=True))
    engine = with_cache(fake_engine(reader, parallel=2), "on")
    for _ in range(2):
        for output in ask(engine, {"a": [[*BASE, 1], [*BASE, 2]]}):
            assert output.statistics.reused_tokens == 0
            assert output.statistics.not_reused == "test reads the whole prompt"
            assert output.statistics.summary()["not_reused"]
    assert all(positions[:141] == list(range(141)) for positions in reader.positions.values())


def test_other_drafters_see_the_rest() -> None:
    drafter = TestDrafter()
    engine = with_cache(fake_engine(drafter, parallel=1), "on")
    outputs = ask(engine, {"a": [[*BASE, 1], [*BASE, 2]]})
    assert [positions[0] for positions in drafter.positions.values()] == [0, 140]
    assert [output.statistics.not_reused for output in outputs] == ["", ""]


@pytest.mark.parametrize("parallel", [1, 2, 4])
def test_running_sequences_never_lack_memory_for_kept_ones(parallel: int) -> None:
    """Memory for as many whole contexts as run, and requests that fill them again and again."""
    context = 200
    program = FakeProgram(VOCABULARY, memory=FakeMemory(parallel * context))
    engine = with_cache(fake_engine(program=program, context=context, parallel=parallel), "on")
    prompts = {
        name: [[*BASE[:start], 1, *BASE[start : start + 50]] for start in range(0, 120, 20)]
        for name in "abc"
    }
    for limit in (10, -1):
        outputs = ask(engine, prompts, max_tokens=limit)
        apart = ask(fake_engine(context=context), prompts, max_tokens=limit)
        assert [output.visible() for output in outputs] == [output.visible() for output in apart]
    assert any(output.statistics.reused_tokens for output in outputs)


@given(
    seed=st.integers(0, 1000),
    parallel=st.integers(1, 4),
    entries=st.integers(0, 3),
    pages=st.none() | st.integers(0, 4),
    cuts=st.lists(st.tuples(st.integers(0, 140), st.integers(1, 70)), min_size=1, max_size=7),
    cancelled=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 6)), max_size=4),
    forgotten=st.none() | st.integers(0, 12),
    roomy=st.booleans(),
)
def test_anything_goes(
    seed: int,
    parallel: int,
    entries: int,
    pages: int | None,
    cuts: list[tuple[int, int]],
    cancelled: list[tuple[int, int]],
    forgotten: int | None,
    roomy: bool,
) -> None:
    prompts = [[*BASE[:cut], *BASE[::-1][:more]] for cut, more in cuts]
    options = SamplingOptions(max_tokens=15, temperature=0.7, seed=5)
    expected = [run(fake_engine(), p, max_tokens=15, temperature=0.7, seed=5)[0] for p in prompts]
    truth = [[*p, *output.ids] for p, output in zip(prompts, expected, strict=True)]
    memory = FakeMemory(1 << 20 if roomy else parallel * 256)
    engine = fake_engine(
        HostileDrafter(VOCABULARY, seed, truth),
        FakeProgram(memory=memory),
        parallel=parallel,
        controller=DoublingController(first=8, most=20),
    )
    engine.prefixes = PrefixCache(memory, entries, pages)
    ids = [
        engine.submit(Request(prompt, options, session="ab"[place % 2]))
        for place, prompt in enumerate(prompts)
    ]
    events = []
    for step in range(13):
        events += engine.step()
        for when, place in cancelled:
            if when == step and place < len(ids):
                engine.cancel(ids[place])
        if step == forgotten:
            engine.forget("a")
    events += drain(engine)
    for identity, wanted in zip(ids, expected, strict=True):
        found = joined(events, identity)
        check_counts(found)
        if found.finish_reason == "cancelled":
            assert found.ids == wanted.ids[: len(found.ids)]
        else:
            assert found.visible() == wanted.visible()
        count = found.statistics.reused_tokens
        assert count == 0 or count >= SHORTEST
    engine.forget()
    assert memory.committed == {}
    assert engine.scheduler.places.free == parallel
