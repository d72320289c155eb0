"""Speculation never changes the output, and its counts conserve: every drafter, every ending."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from draft_models import fake_draft_simple
from drafters_for_tests import HostileDrafter, MalformedDrafter, ScriptedDrafter
from engines import Output, check_counts, fake_engine, named_drafters, run
from fake_program import FakeProgram, FakeTokenizer
from slipstream.drafters.base import Drafter
from slipstream.engine.controller import DoublingController
from slipstream.options import SpeculationOptions

VOCABULARY = 24
PROMPTS = [[1, 2, 3, 4, 5], [7], [5, 6, 7, 5, 6, 7, 5, 6], list(range(20)) * 4]
LENGTH = 32
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
    "ngram-simple": lambda _: named_drafters(["ngram-simple"], NGRAMS),
    "ngram-mod": lambda _: named_drafters(["ngram-mod"], NGRAMS),
    "suffix": lambda _: named_drafters(["suffix"], SpeculationOptions(suffix_p_min=0.0)),
    "both n-grams": lambda _: named_drafters(["ngram-mod", "ngram-simple"], NGRAMS),
    "ngram-map-k": lambda _: named_drafters(["ngram-map-k"], NGRAMS),
    "ngram-map-k4v": lambda _: named_drafters(["ngram-map-k4v"], NGRAMS),
    "ngram-cache": lambda _: named_drafters(["ngram-cache"], NGRAMS),
    "draft-simple": lambda _: fake_draft_simple(FakeProgram(VOCABULARY, 2), n_max=5),
    "draft-simple, chains": lambda _: fake_draft_simple(
        FakeProgram(VOCABULARY, 2), n_max=7, n_min=2, p_min=0.2, draft_branches=1
    ),
    "draft-simple, smaller": lambda _: fake_draft_simple(
        FakeProgram(VOCABULARY - 5, 1), draft_context=20, draft_window=9, draft_branches=3
    ),
    "scripted": ScriptedDrafter,
    "scripted, wrong at 3": lambda truth: ScriptedDrafter(truth, wrong_at=3),
    "hostile chains": lambda _: HostileDrafter(VOCABULARY, 11, trees=False),
    "hostile trees": lambda _: HostileDrafter(VOCABULARY, 12),
    "trees with the truth": lambda truth: HostileDrafter(VOCABULARY, 13, truth),
    "malformed": lambda _: MalformedDrafter(VOCABULARY),
}
SAMPLINGS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "0.8": {"temperature": 0.8, "seed": 42},
    "greedy, penalties": {
        "repetition_penalty": 1.3,
        "frequency_penalty": 0.4,
        "presence_penalty": 0.2,
        "penalty_window": 16,
    },
    "0.8, penalties and filters": {
        "temperature": 0.8,
        "seed": 43,
        "repetition_penalty": 1.2,
        "presence_penalty": 0.5,
        "top_k": 10,
        "top_p": 0.9,
        "min_p": 0.02,
        "logit_bias": {3: 2.0},
    },
}


def outputs_of(
    drafter: Drafter | Sequence[Drafter] | None,
    sampling: dict[str, Any],
    order: int | None = None,
    **engine: Any,
) -> list[Output]:
    built = fake_engine(drafter, FakeProgram(VOCABULARY, order), parallel=3, **engine)
    return run(built, *PROMPTS, max_tokens=LENGTH, logprobs=2, **sampling)


@cache
def plain_outputs(sampling: str, order: int | None) -> list[Output]:
    return outputs_of(None, SAMPLINGS[sampling], order)


def truth_of(outputs: Sequence[Output]) -> list[list[int]]:
    return [[*prompt, *output.ids] for prompt, output in zip(PROMPTS, outputs, strict=True)]


@pytest.mark.parametrize("fixed", [False, True], ids=["adaptive", "fixed"])
@pytest.mark.parametrize("order", [None, 2], ids=["whole history", "last two"])
@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("name", DRAFTERS)
def test_output_equals_plain_decoding(
    name: str, sampling: str, order: int | None, fixed: bool
) -> None:
    plain = plain_outputs(sampling, order)
    drafter = DRAFTERS[name](truth_of(plain))
    controller = DoublingController(fixed=fixed)
    drafted = outputs_of(drafter, SAMPLINGS[sampling], order, controller=controller)
    for expected, found in zip(plain, drafted, strict=True):
        assert found.visible() == expected.visible()
        check_counts(found)
    if name in ("scripted", "trees with the truth"):
        assert sum(output.statistics.accepted for output in drafted) > LENGTH


def test_draft_models_accept_something() -> None:
    for name in ("draft-simple", "draft-simple, chains"):
        for sampling in SAMPLINGS.values():
            drafted = outputs_of(DRAFTERS[name]([]), sampling, order=2)
            assert sum(output.statistics.accepted for output in drafted) > LENGTH, name


def test_ngrams_accept_something_where_text_repeats() -> None:
    for name in (name for name in DRAFTERS if "ngram" in name or "n-gram" in name):
        drafted = outputs_of(DRAFTERS[name]([]), {}, order=2)
        assert sum(output.statistics.accepted for output in drafted) > 0, name


def ending(
    drafter: Drafter | None,
    tokenizer: FakeTokenizer,
    order: int | None = None,
    *,
    context: int = 256,
    **sampling: Any,
) -> Output:
    engine = fake_engine(
        drafter,
        FakeProgram(VOCABULARY, order),
        tokenizer,
        context=context,
        controller=DoublingController(first=15),
    )
    [output] = run(engine, PROMPTS[0], logprobs=1, **sampling)
    return output


def check_ending(tokenizer: FakeTokenizer, truth: list[int], **options: Any) -> Output:
    """The same ending with drafts whose accepted runs begin at every offset."""
    plain = ending(None, tokenizer, **options)
    for run_length in (1, 2, 5, 15):
        drafter = ScriptedDrafter([truth], length=run_length)
        found = ending(drafter, tokenizer, **options)
        assert found.visible() == plain.visible()
        check_counts(found)
    return plain


def truth(**sampling: Any) -> list[int]:
    plain = ending(None, FakeTokenizer(), max_tokens=40, **sampling)
    return [*PROMPTS[0], *plain.ids]


SEEDED = [{}, {"temperature": 0.8, "seed": 9}]


@pytest.mark.parametrize("sampling", SEEDED, ids=["greedy", "0.8"])
def test_max_tokens_at_every_offset(sampling: dict[str, Any]) -> None:
    known = truth(**sampling)
    for limit in range(1, 20):
        plain = check_ending(FakeTokenizer(), known, max_tokens=limit, **sampling)
        assert (len(plain.ids), plain.finish_reason) == (limit, "length")


def test_the_context_end_at_every_offset() -> None:
    known = truth()
    for context in range(6, 24):
        plain = check_ending(FakeTokenizer(), known, max_tokens=-1, context=context)
        assert (len(plain.ids), plain.finish_reason) == (context - 5, "length")


@pytest.mark.parametrize("sampling", SEEDED, ids=["greedy", "0.8"])
def test_end_tokens_at_every_offset(sampling: dict[str, Any]) -> None:
    known = truth(**sampling)
    output = known[5:]
    for offset in range(20):
        end = output[offset]
        tokenizer = FakeTokenizer(end_ids=frozenset({end}))
        plain = check_ending(tokenizer, known, max_tokens=40, **sampling)
        assert plain.ids == output[: output.index(end) + 1]
        assert plain.finish_reason == "stop"


@pytest.mark.parametrize("sampling", SEEDED, ids=["greedy", "0.8"])
@pytest.mark.parametrize("size", [1, 2, 5])
def test_stop_strings_at_every_offset(size: int, sampling: dict[str, Any]) -> None:
    known = truth(**sampling)
    pieces = FakeTokenizer().pieces
    text = b"".join(pieces[token] for token in known[5:]).decode()
    for place in range(24):
        stop = text[place : place + size]
        plain = check_ending(FakeTokenizer(), known, max_tokens=40, stop=(stop,), **sampling)
        assert plain.text == text[: text.index(stop)]
        assert plain.finish_reason == "stop"


def test_stop_strings_inside_characters_of_several_tokens() -> None:
    euro = "€".encode()
    halves = [[euro[:1], euro[1:2], euro[2:], b"a", "é".encode()][i % 5] for i in range(24)]
    pieces = [half if half in (b"a", "é".encode()) else b"." + euro for half in halves]
    known = truth()
    text = b"".join(pieces[token] for token in known[5:]).decode()
    for place in range(12):
        for size in (1, 2, 4):
            stop = text[place : place + size]
            plain = check_ending(FakeTokenizer(pieces), known, max_tokens=40, stop=("zz", stop))
            assert plain.text == text[: text.index(stop)]


def test_discarded_tokens_are_counted_where_a_stop_cuts_a_run() -> None:
    known = truth()
    tokenizer = FakeTokenizer()
    stop = tokenizer.pieces[known[5 + 4]].decode()
    found = ending(ScriptedDrafter([known]), tokenizer, max_tokens=40, stop=(stop,))
    statistics = found.statistics
    assert statistics.discarded > 0
    assert statistics.emitted == len(found.ids) <= 5
    check_counts(found)


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(
    prompts=st.lists(
        st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=70), min_size=1, max_size=5
    ),
    parallel=st.integers(1, 4),
    drafter_seed=st.integers(0, 1000),
    truthful=st.booleans(),
    temperature=st.sampled_from([0.0, 0.7, 1.5]),
    presence=st.sampled_from([0.0, 0.7]),
    order=st.sampled_from([None, 1, 2]),
    first=st.integers(1, 40),
    ends=st.frozensets(st.integers(0, VOCABULARY - 1), max_size=1),
)
def test_anything_goes(
    prompts: list[list[int]],
    parallel: int,
    drafter_seed: int,
    truthful: bool,
    temperature: float,
    presence: float,
    order: int | None,
    first: int,
    ends: frozenset[int],
) -> None:
    def decode(drafter: Drafter | None, width: int) -> list[Output]:
        engine = fake_engine(
            drafter,
            FakeProgram(VOCABULARY, order),
            FakeTokenizer(end_ids=ends),
            context=90,
            parallel=width,
            controller=DoublingController(first=first, most=40),
        )
        sampling = {"temperature": temperature, "presence_penalty": presence, "seed": 5}
        return run(engine, *prompts, max_tokens=25, **sampling)

    plain = decode(None, 1)
    known = [[*p, *output.ids] for p, output in zip(prompts, plain, strict=True)]
    drafter = HostileDrafter(VOCABULARY, drafter_seed, known if truthful else ())
    for expected, found in zip(plain, decode(drafter, parallel), strict=True):
        assert found.visible() == expected.visible()
        check_counts(found)
