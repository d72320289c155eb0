"""Grammars of an output: masks, the sampler under them, drafts, refusals."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from fake_program import FakeProgram
from slipstream.constraint import Constraint, masked
from slipstream.drafters.base import Distribution, Draft
from slipstream.engine.drafts import admitted
from slipstream.errors import GrammarError
from slipstream.options import SamplingOptions
from slipstream.sampling import NumpyPrimitives, Primitives, Sampled, SamplerState
from slipstream.structured import Grammars
from structured_for_tests import (
    CASES,
    FIXED,
    PERSON,
    VOCABULARY,
    JsonTokenizer,
    constraint_of,
    decode,
    json_tokenizer,
    sampler,
)


@pytest.mark.parametrize("name", CASES)
def test_documents_are_valid_and_hold_what_the_schema_says(name: str) -> None:
    schema, holds = CASES[name]
    pristine = constraint_of(json_schema=schema)
    finished = 0
    for seed in range(25):
        state = sampler(pristine.fork(), seed)
        tokens = decode(state)
        if tokens[-1] in json_tokenizer().end_ids:
            finished += 1
            assert state.constraint is not None
            assert state.constraint.finished
            assert holds(json.loads(json_tokenizer().text(tokens)))
    assert finished > 5


def test_a_regular_expression_and_a_grammar_span_the_output() -> None:
    for options, whole in (
        ({"regex": "[a-c]{2,4}"}, "[a-c]{2,4}"),
        (
            {"grammar": 'start: "name" (", " NUMBER)+ "."\nNUMBER: /[0-9]{1,3}/'},
            r"name(, \d{1,3})+\.",
        ),
    ):
        pristine = constraint_of(**options)
        for seed in range(20):
            tokens = decode(sampler(pristine.fork(), seed))
            if tokens[-1] in (0, 1):
                assert re.fullmatch(whole, json_tokenizer().text(tokens))


OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"temperature": 0.0},
    {"temperature": 1e-30},
    {"top_k": 3},
    {"top_p": 0.3},
    {"min_p": 0.5},
    {"repetition_penalty": 2.0, "presence_penalty": 5.0, "logit_bias": {0: 100.0, 30: 100.0}},
)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_shortcuts_give_what_masking_would(options: dict[str, Any]) -> None:
    for schema in (PERSON, FIXED):
        for seed in range(4):
            quick = sampler(constraint_of(json_schema=schema), seed, **options)
            slow = sampler(constraint_of(json_schema=schema), seed, **options)
            slow.shortcuts = False
            tokens = decode(quick, 80)
            assert tokens == decode(slow, 80)
            assert quick.index == slow.index == len(tokens)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_masked_id_is_never_drawn(options: dict[str, Any]) -> None:
    constraint = constraint_of(json_schema=PERSON)
    state = sampler(constraint, 1, **options)
    program, tokens = FakeProgram(VOCABULARY), [5]
    for _ in range(40):
        row = program.logits(tokens)
        row[0] = 60.0  # an end token, wherever it is not allowed
        mask = constraint.mask()
        assert mask.any()
        probabilities = state.distribution(row)
        assert probabilities.sum() == pytest.approx(1.0)
        assert not probabilities[~mask].any()
        drawn = state.sample(row).token
        assert mask[drawn]
        if drawn in (0, 1):
            assert constraint.may_stop
            return
        state.advance(drawn)
        tokens.append(drawn)


@pytest.mark.native
def test_native_primitives_draw_the_same_under_masks() -> None:
    from slipstream.native_sampling import NativePrimitives

    rng = np.random.default_rng(0)

    def draw(primitives: Primitives, options: dict[str, Any]) -> list[Sampled]:
        drawn = []
        settings = SamplingOptions(**{"temperature": 1.0, **options})
        state = SamplerState(settings, [], 3, primitives, constraint_of(json_schema=PERSON))
        for row in rows:
            drawn.append(state.sample(row))
            if drawn[-1].token in (0, 1):
                break
            state.advance(drawn[-1].token)
        return drawn

    rows = [rng.normal(0, 3, VOCABULARY).astype(np.float32) for _ in range(60)]
    for options in OPTIONS:
        assert draw(NativePrimitives("portable"), options) == draw(NumpyPrimitives(), options)


def test_log_probabilities_are_of_the_raw_logits() -> None:
    row = FakeProgram(VOCABULARY).logits([5])
    free = sampler(None, 1, temperature=0.0, logprobs=VOCABULARY)
    bound = sampler(constraint_of(json_schema=PERSON), 1, temperature=0.0, logprobs=VOCABULARY)
    assert free.sample(row).top == bound.sample(row).top
    drawn = bound.sample(row)
    assert drawn.token == json_tokenizer().pieces.index(
        b"{"
    ) or drawn.token == json_tokenizer().pieces.index(b'{"')
    assert drawn.logprob == dict(drawn.top)[drawn.token]


def brute_mask(constraint: Constraint) -> list[int]:
    """Ids whose text alone the grammar admits, one by one; end ids left out."""
    return [t for t in range(2, VOCABULARY) if constraint.admitted([t], [-1])]


def test_a_mask_holds_what_each_token_alone_may_do() -> None:
    """Where text is dictated, the mask holds the one way of cutting it of several."""
    compared = 0
    for seed in range(6):
        constraint = constraint_of(json_schema=PERSON)
        state = sampler(constraint, seed)
        program, tokens = FakeProgram(VOCABULARY), [5]
        for _ in range(50):
            allowed = np.flatnonzero(constraint.mask()).tolist()
            ends = [token for token in allowed if token in (0, 1)]
            assert ends == ([0, 1] if constraint.may_stop else [])
            ordinary = [token for token in allowed if token not in (0, 1)]
            if constraint.only() is None:
                assert ordinary == brute_mask(constraint)
                compared += 1
            else:
                assert set(ordinary) <= set(brute_mask(constraint))
            tokens.append(state.sample(program.logits(tokens)).token)
            if tokens[-1] in (0, 1):
                break
            state.advance(tokens[-1])
    assert compared > 50


def take(constraint: Constraint, text: str) -> None:
    for token in json_tokenizer().encode(text):
        constraint.advance(token)


def test_end_tokens_are_allowed_where_the_output_may_end() -> None:
    constraint = constraint_of(regex="[a-c]{2,3}")
    for text, may_stop, only_ends in (
        ("", False, False),
        ("a", False, False),
        ("b", True, False),
        ("c", True, True),
    ):
        take(constraint, text)
        mask = constraint.mask()
        assert (bool(mask[0]), bool(mask[1])) == (may_stop, may_stop)
        assert constraint.may_stop == may_stop
        assert (not mask[2:].any()) == only_ends
        assert not constraint.finished
    constraint.advance(1)
    assert constraint.finished
    assert np.flatnonzero(constraint.mask()).tolist() == [0, 1]
    assert constraint.forced(9) == []
    with pytest.raises(GrammarError):
        constraint.advance(5)


def test_a_mask_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="read-only"):
        constraint_of(json_schema=PERSON).mask()[0] = True


def test_forks_part() -> None:
    first = constraint_of(json_schema=PERSON)
    take(first, '{"name": "')
    second = first.fork()
    before = first.mask().copy()
    take(second, 'ab", "age": 10, "tags": []}')
    assert second.may_stop
    assert np.array_equal(first.mask(), before)
    take(first, 'ab", "age": 10, "tags": []}')
    assert np.array_equal(first.mask(), second.mask())


def test_a_mask_does_not_depend_on_what_was_asked_before() -> None:
    text = json_tokenizer().encode('{"name":"ab", "age": 13, "tags": ["red", "green"]}')
    asked, silent = constraint_of(json_schema=PERSON), constraint_of(json_schema=PERSON)
    for token in text:
        asked.forced(10)
        asked.mask()
        asked.admitted([5, 6, 7], [-1, -1, 0])
        asked.admitted(text[:3], [-1, 0, 1])
        assert np.array_equal(asked.fork().mask(), silent.fork().mask())
        asked.advance(token)
        silent.advance(token)


def test_a_token_that_the_grammar_forbids_is_an_error() -> None:
    constraint = constraint_of(json_schema=PERSON)
    with pytest.raises(GrammarError):
        take(constraint, "age")


def tree_of(random: np.random.Generator, nodes: int) -> tuple[list[int], list[int]]:
    tokens: list[int] = []
    parents: list[int] = []
    used: set[tuple[int, int]] = set()
    favourites = json_tokenizer().encode('{"name": "ab", "age": 1')
    for _ in range(nodes):
        parent = int(random.integers(-1, len(tokens)))
        token = int(random.choice(favourites))
        if (parent, token) not in used:
            used.add((parent, token))
            tokens.append(token)
            parents.append(parent)
    return tokens, parents


def test_admitted_nodes_are_those_that_can_be_taken_one_by_one() -> None:
    random, kept = np.random.default_rng(4), 0
    for text in ("", '{"', '{"name": "', '{"name": "a", "age": 1'):
        for _ in range(30):
            constraint = constraint_of(json_schema=PERSON)
            take(constraint, text)
            tokens, parents = tree_of(random, 30)
            states: dict[int, Constraint] = {-1: constraint}
            expected = []
            for node, (token, parent) in enumerate(zip(tokens, parents, strict=True)):
                if parent in states and states[parent].admitted([token], [-1]):
                    states[node] = states[parent].fork()
                    states[node].advance(token)
                    expected.append(node)
            assert constraint.admitted(tokens, parents) == expected
            kept += len(expected)
    assert kept > 100


def test_forced_tokens_are_those_that_follow() -> None:
    constraint = constraint_of(json_schema=FIXED)
    forced = constraint.forced(1000)
    assert json.loads(json_tokenizer().text(forced)) == FIXED["const"]
    assert constraint.forced(3) == forced[:3]
    for token in forced:
        assert constraint.only() == token
        constraint.advance(token)
    assert constraint.may_stop


def test_masked_rows_of_other_sizes() -> None:
    mask = np.array([False, True, False, True])
    wide = masked(np.arange(6, dtype=np.float32), mask)
    assert np.flatnonzero(np.isfinite(wide)).tolist() == [1, 3]
    assert np.flatnonzero(np.isfinite(masked(np.zeros(3, np.float32), mask))).tolist() == [1]
    with pytest.raises(GrammarError):
        masked(np.zeros(1, np.float32), mask)


def test_one_end_token_is_taken_undrawn() -> None:
    tokenizer = JsonTokenizer()
    tokenizer.end_ids = frozenset({0})
    constraint = Grammars(tokenizer).constraint(SamplingOptions(regex="abc"))
    assert constraint is not None
    for token in constraint.forced(9):
        constraint.advance(token)
    assert constraint.only() == 0


def ids_of(texts: Sequence[str]) -> list[int]:
    return [json_tokenizer().pieces.index(text.encode()) for text in texts]


def test_the_first_token_of_an_object() -> None:
    mask = constraint_of(json_schema=PERSON).mask()
    assert set(np.flatnonzero(mask)) == set(ids_of(["{", '{"']))


def test_drawn_nodes_stay_in_a_draft_and_guesses_are_cut() -> None:
    """Rejection sampling must see that a drawn node is rejected."""
    good, bad = ids_of(["{", "age"])
    drawn = Distribution(np.array([bad]), np.array([1.0]))
    constraint = constraint_of(json_schema=PERSON)
    guessed = Draft((bad, good), (-1, -1))
    assert admitted(guessed, constraint)[0].tokens == (good,)
    tree = Draft((bad, good, bad), (-1, -1, 0), distributions=(drawn, None, None))
    found, reason = admitted(tree, constraint)
    assert (found.tokens, found.parents) == ((bad, good), (-1, -1))
    assert reason == "the grammar forbids a drafted token"
    assert admitted(guessed, None) == (guessed, None)
