"""Reusing prompts never changes an output: every drafter, ending and pressure on memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draft_models import fake_draft_simple
from drafters_for_tests import HostileDrafter, MalformedDrafter, ScriptedDrafter
from engines import Output, check_counts, drain, fake_engine, joined, named_drafters, run
from fake_program import FakeMemory, FakeProgram
from prefix_runs import BASE, CACHES, ask, with_cache
from slipstream.drafters.base import Drafter
from slipstream.engine.controller import DoublingController
from slipstream.engine.engine import Engine
from slipstream.engine.prefix_cache import SHORTEST, PrefixCache
from slipstream.engine.sequence import Request
from slipstream.memory.base import PAGE_POSITIONS
from slipstream.options import SamplingOptions, SpeculationOptions
from slipstream.sampling import default_primitives

VOCABULARY = 24
PRIMITIVES = default_primitives()  # those of NumPy give the same tokens, much slower
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
OPENINGS = {
    "a": [[*BASE, 1], [*BASE[:120], 2, 3], BASE[:30]],
    "b": [[*BASE, 1]],
}
"""First prompts per session; those of one session begin alike."""
QUESTIONS = ([5, 6, 7], [8] * 20)


def test_a_request_that_wants_nothing_reused_leaves_nothing() -> None:
    engine = with_cache(fake_engine(context=2000, parallel=2))
    assert engine.prefixes is not None
    options = SamplingOptions(max_tokens=9)

    def asked(*reuse: bool) -> list[Output]:
        ids = [engine.submit(Request(BASE, options, session="a", reuse=one)) for one in reuse]
        events = drain(engine)
        return [joined(events, identity) for identity in ids]

    outputs = asked(False, False)
    assert len(engine.prefixes) == 0
    outputs += [*asked(True), *asked(False), *asked(True)]
    counts = [output.statistics.reused_tokens for output in outputs]
    assert counts == [0, 0, 0, 0, len(BASE) - 1]
    assert outputs[3].statistics.not_reused == "its request wants nothing reused"
    assert all(output.visible() == outputs[0].visible() for output in outputs)


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
    return talk(
        fake_engine(program=FakeProgram(VOCABULARY), primitives=PRIMITIVES),
        logprobs=2,
        **SAMPLINGS[sampling],
    )


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
        fake_engine(
            drafter, program, parallel=parallel, controller=controller, primitives=PRIMITIVES
        ),
        kind,
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
