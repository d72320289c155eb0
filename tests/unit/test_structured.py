"""Grammars of an output: masks, the sampler under them, drafts, refusals."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pytest

from builders import bpe_vocabulary, spm_vocabulary, tiny_model
from fake_program import FakeProgram
from gguf_writer import Typed
from slipstream import Model
from slipstream.constraint import Constraint, masked
from slipstream.engine.sequence import Request
from slipstream.errors import GrammarError, OptionError, RequestError, UnsupportedError
from slipstream.gguf import open_gguf
from slipstream.options import SamplingOptions
from slipstream.sampling import NumpyPrimitives, Primitives, Sampled, SamplerState
from slipstream.structured import Grammars, TokenTable
from slipstream.tokenizer import Tokenizer, build_tokenizer
from structured_for_tests import (
    FIXED,
    PERSON,
    JsonTokenizer,
    constraint_of,
    json_engine,
    json_grammars,
    json_tokenizer,
)

VOCABULARY = json_tokenizer().vocabulary_size
Holds = Callable[[Any], bool]


def is_person(value: Any) -> bool:
    assert list(value) == ["name", "age", "tags"]
    assert isinstance(value["name"], str)
    assert len(value["name"]) <= 8
    assert type(value["age"]) is int
    assert 0 <= value["age"] <= 130
    return len(value["tags"]) <= 3 and set(value["tags"]) <= {"red", "green", "blue"}


CASES: dict[str, tuple[dict[str, Any], Holds]] = {
    "object": (PERSON, is_person),
    "nested": (
        {
            "type": "array",
            "minItems": 1,
            "maxItems": 2,
            "items": {"type": "array", "maxItems": 2, "items": PERSON},
        },
        lambda value: all(is_person(person) for row in value for person in row),
    ),
    "enum": (
        {"enum": ["red", 10, None, {"age": [True]}]},
        lambda v: v in ["red", 10, None, {"age": [True]}],
    ),
    "number": (
        {"type": "number", "minimum": -2.5, "maximum": 11},
        lambda value: -2.5 <= value <= 11,
    ),
    "string with escapes": (
        {"type": "string", "maxLength": 12},
        lambda value: isinstance(value, str) and len(value) <= 12,
    ),
    "pattern": (
        {"type": "string", "pattern": "^[a-cé😀]{2,4}$"},
        lambda value: re.fullmatch("[a-cé😀]{2,4}", value) is not None,
    ),
    "either": (
        {"anyOf": [{"type": "boolean"}, {"type": "integer", "maximum": 99, "minimum": 0}]},
        lambda value: isinstance(value, bool) or 0 <= value <= 99,
    ),
    "constant": (FIXED, lambda value: value == FIXED["const"]),
    "reference": (
        {
            "$defs": {"a": {"type": "array", "maxItems": 2, "items": {"$ref": "#/$defs/a"}}},
            "$ref": "#/$defs/a",
        },
        lambda value: isinstance(value, list),
    ),
}


def sampler(constraint: Constraint | None, seed: int, **options: Any) -> SamplerState:
    settings = SamplingOptions(**{"temperature": 1.0, **options})
    return SamplerState(settings, [], seed, NumpyPrimitives(), constraint)


def decode(state: SamplerState, most: int = 300) -> list[int]:
    """Tokens under the state, from random logits, an end token last unless there are too many."""
    program, tokens = FakeProgram(VOCABULARY), [5]
    while len(tokens) <= most:
        tokens.append(state.sample(program.logits(tokens)).token)
        state.advance(tokens[-1])
        if tokens[-1] in json_tokenizer().end_ids:
            break
    return tokens[1:]


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
def test_the_only_id_is_what_drawing_would_give(options: dict[str, Any]) -> None:
    for schema in (PERSON, FIXED):
        for seed in range(4):
            quick = sampler(constraint_of(json_schema=schema), seed, **options)
            slow = sampler(constraint_of(json_schema=schema), seed, **options)
            slow.take_forced = False
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


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"json_schema": "{"}, "no JSON"),
        ({"json_schema": "[]"}, "an array"),
        ({"json_schema": "3"}, "a number"),
        ({"json_schema": False}, "false"),
        ({"json_schema": '{"const": NaN}'}, "NaN"),
        ({"json_schema": '{"const": ' + "9" * 5000 + "}"}, "no JSON"),
        ({"json_schema": {"type": "strin"}}, "strin"),
        ({"json_schema": {"type": "string", "format": "no-such"}}, "no-such"),
        ({"json_schema": {"not": {"type": "string"}}}, "not"),
        ({"json_schema": {"x-guidance": {"lenient": True}, "not": {}}}, "not"),
        ({"json_schema": {"$ref": "https://example.com/schema.json"}}, ""),
        ({"json_schema": {"$ref": "#/$defs/none"}}, "none"),
        ({"json_schema": {"type": "string", "minLength": 5, "maxLength": 2}}, ""),
        ({"json_schema": {"enum": []}}, ""),
        ({"json_schema": '"\ud800"'}, "surrogate"),
        ({"regex": "("}, ""),
        ({"regex": "(?=a)"}, ""),
        ({"grammar": 'root ::= "a"'}, "GBNF"),
        ({"grammar": "  "}, "empty"),
        ({"grammar": "start: other"}, "other"),
        ({"grammar": "start: ("}, ""),
    ],
    ids=lambda value: str(value)[:40],
)
def test_refusals_name_the_fault(options: dict[str, Any], words: str) -> None:
    with pytest.raises(GrammarError) as caught:
        json_grammars().constraint(SamplingOptions(**options))
    assert words in str(caught.value)
    assert len(str(caught.value)) < 500


def deep(text: str, depth: int, inner: str, end: str) -> str:
    return text * depth + inner + end * depth


HOSTILE: dict[str, dict[str, Any]] = {
    "deep schema": {"json_schema": deep('{"items":', 10_000, "{}", "}")},
    "less deep schema": {"json_schema": deep('{"items":', 100, "{}", "}")},
    "large schema": {"json_schema": {"enum": [f"value {i}" for i in range(80_000)]}},
    "deep regular expression": {"regex": deep("(", 100_000, "a", ")")},
    "repeated repetition": {"regex": "((a{1,1000}){1,1000}){1,1000}"},
    "exponential automaton": {"regex": "(a|b)*a(a|b){400}c"},
    "deep grammar": {"grammar": "start: " + deep("(", 100_000, '"a"', ")")},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_grammars_are_refused_soon(name: str) -> None:
    start = perf_counter()
    with pytest.raises(GrammarError):
        decode(sampler(json_grammars().constraint(SamplingOptions(**HOSTILE[name])), 1))
    assert perf_counter() - start < 5


def test_options_that_contradict() -> None:
    with pytest.raises(OptionError, match="one grammar"):
        SamplingOptions(json_schema="{}", regex="a")
    with pytest.raises(OptionError, match="ignore_eos"):
        SamplingOptions(regex="a", ignore_eos=True)
    cyclic: dict[str, Any] = {}
    cyclic["a"] = cyclic
    for schema in ({"a": object()}, {"a": float("nan")}, cyclic):
        with pytest.raises(OptionError, match="json_schema"):
            SamplingOptions(json_schema=schema)  # type: ignore[arg-type]
    assert SamplingOptions(json_schema={"b": 1, "a": [None]}).json_schema == '{"b": 1, "a": [null]}'  # type: ignore[arg-type]


def test_a_request_must_carry_its_compiled_grammar() -> None:
    with pytest.raises(RequestError, match="regex"):
        json_engine().submit(Request([5], SamplingOptions(regex="a")))


def test_a_vocabulary_without_an_end_cannot_have_a_grammar() -> None:
    tokenizer = JsonTokenizer()
    tokenizer.end_ids = frozenset()
    with pytest.raises(UnsupportedError, match="end-of-generation"):
        Grammars(tokenizer).constraint(SamplingOptions(regex="a"))


def plain(vocabulary: dict[str, Any], **changes: Any) -> Tokenizer:
    values = {key: v.value if isinstance(v, Typed) else v for key, v in vocabulary.items()}
    return build_tokenizer(values | {f"tokenizer.ggml.{k}": v for k, v in changes.items()})


VOCABULARIES: dict[str, Callable[[], Tokenizer]] = {
    "bpe": lambda: plain(bpe_vocabulary()),
    "spm": lambda: plain(spm_vocabulary(600)),
    "spm, space before": lambda: plain(spm_vocabulary(), add_space_prefix=True),
}


def check_table(tokenizer: Tokenizer) -> None:
    """Bytes as llguidance has them, and the way texts are cut."""
    grammars = Grammars(tokenizer)
    known = grammars._read_vocabulary()
    assert known.vocab_size == tokenizer.vocabulary_size
    assert known.is_canonical
    for token in range(tokenizer.vocabulary_size):
        piece = tokenizer.token_bytes(token)
        if tokenizer.is_control(token):
            assert known.is_special_token(token)
        elif piece.startswith(b"\xff"):
            assert known.decode_bytes([token]) == b""
        else:
            assert known.decode_bytes([token]) == piece
    table = TokenTable(tokenizer)
    for text in (
        '{"name": "Ada", "age": 36}',
        "  indented\n\n\tlines ",
        "naïve café ☕",
        "a\u2581b",
    ):
        ids = table(text)
        assert b"".join(tokenizer.token_bytes(token) for token in ids) == text.encode()
    for text in ('{"name": "Ada", "age": 36}', "  indented\n\n\tlines ", "naïve café ☕"):
        assert table(text) == tokenizer.encode(text, add_special=False, continues=True)


def check_document(tokenizer: Tokenizer) -> None:
    """A document in any cutting passes, and its end tokens come after it."""
    text = '{"name": "Jé \\n😀", "age": 36, "tags": ["red"]}'
    grammars = Grammars(tokenizer)
    for ids in (
        tokenizer.encode(text, add_special=False),
        [t for c in text for t in tokenizer.encode(c, add_special=False, continues=True)],
    ):
        constraint = grammars.constraint(SamplingOptions(json_schema=PERSON))  # type: ignore[arg-type]
        assert constraint is not None
        assert constraint.admitted(ids, range(-1, len(ids) - 1)) == list(range(len(ids)))
        for token in ids:
            assert not constraint.mask()[sorted(tokenizer.end_ids)].any()
            constraint.advance(token)
        assert constraint.may_stop
        assert np.flatnonzero(constraint.mask()).tolist() == sorted(tokenizer.end_ids)


@pytest.mark.parametrize("name", VOCABULARIES)
def test_token_bytes_of_small_vocabularies(name: str) -> None:
    check_table(VOCABULARIES[name]())
    check_document(VOCABULARIES[name]())


@pytest.mark.model
@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["smollm2-135m", "gemma-3-270m", "qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b"]
)
def test_token_bytes_of_the_catalogue(name: str, model_path: Callable[[str], Path]) -> None:
    tokenizer = build_tokenizer(open_gguf(model_path(name)).metadata)
    check_table(tokenizer)
    check_document(tokenizer)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Model:
    path = tiny_model(tmp_path_factory.mktemp("tiny") / "tiny.gguf", "llama")
    return Model(str(path), backend="reference", context=256)


ANSWER = {
    "type": "object",
    "properties": {"answer": {"enum": ["yes", "no"]}},
    "required": ["answer"],
}


def test_the_python_interface(tiny: Model) -> None:
    for schema in (ANSWER, json.dumps(ANSWER)):
        done = tiny.complete("Is it? ", json_schema=schema, max_tokens=200, temperature=1.0, seed=2)
        assert json.loads(done.text)["answer"] in ("yes", "no")
        assert done.finish_reason == "stop"
        assert done.stats["complete"] is True
        assert done.ids[-1] in tiny.tokenizer.end_ids
    assert tiny.complete("Is it? ", regex="(yes|no)!", max_tokens=20).text in ("yes!", "no!")
    assert tiny.complete("x", grammar='start: "a" | "b"', max_tokens=9).text in ("a", "b")
    assert tiny.complete("x", max_tokens=3).stats["complete"] is None
    with pytest.raises(GrammarError):
        tiny.complete("x", json_schema={"type": "strin"})


def test_an_output_cut_short_says_so(tiny: Model) -> None:
    done = tiny.complete("x", json_schema=ANSWER, max_tokens=4)
    assert (done.finish_reason, done.stats["complete"]) == ("length", False)
    stopped = tiny.complete("x", json_schema=ANSWER, max_tokens=60, stop=["answer"])
    assert (stopped.finish_reason, stopped.stats["complete"]) == ("stop", False)
    whole = tiny.complete("x", regex="abc", max_tokens=3)
    if whole.text == "abc":
        assert (whole.finish_reason, whole.stats["complete"]) == ("length", True)


@pytest.mark.native
@pytest.mark.model
@pytest.mark.slow
def test_a_model_of_the_catalogue_writes_valid_documents(
    model_path: Callable[[str], Path],
) -> None:
    model = Model(str(model_path("smollm2-135m")), context=512)
    prompts = ("Describe a person as JSON: ", "Unicode, café, 日本: ")
    finished: list[str] = []
    for name, (schema, holds) in CASES.items():
        if name == "number":
            continue  # a small model adds digits until it is cut off
        for place, prompt in enumerate(prompts):
            done = model.complete(
                prompt, json_schema=schema, max_tokens=160, temperature=0.7 * place, seed=3
            )
            if done.finish_reason == "stop":
                assert holds(json.loads(done.text)), done.text
                finished.append(name)
            else:
                assert done.stats["complete"] in (True, False)
    assert len(set(finished)) >= len(CASES) - 2


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
