"""Flags made from option structs."""

from __future__ import annotations

import argparse

import msgspec
import pytest

from slipstream.cli.flags import add_flags, options
from slipstream.cli.parser import Parser
from slipstream.drafters import implemented
from slipstream.errors import OptionError
from slipstream.options import (
    EngineOptions,
    ModelOptions,
    SamplingOptions,
    SpeculationOptions,
    describe,
)

STRUCTS = (ModelOptions, EngineOptions, SamplingOptions, SpeculationOptions)


def parser() -> Parser:
    made = Parser("slipstream test", "A test.")
    add_flags(made, *STRUCTS)
    return made


def every_struct(words: list[str]) -> list[msgspec.Struct]:
    values = parser().parse(words)
    return [options(struct, values) for struct in STRUCTS]


@pytest.mark.parametrize("struct", STRUCTS)
def test_every_option_has_a_flag_under_its_own_name(struct: type[msgspec.Struct]) -> None:
    known = parser()._option_string_actions
    for option in describe(struct):
        name = "spec" if option.name == "type" else option.name.replace("_", "-")
        assert option.required or f"--{name}" in known


def test_defaults_are_those_of_the_structs() -> None:
    values = parser().parse(["some.gguf"])
    assert options(ModelOptions, values) == ModelOptions(model="some.gguf")
    assert options(SamplingOptions, values) == SamplingOptions()
    assert options(SpeculationOptions, values) == SpeculationOptions()


def test_values_become_the_type_of_the_option() -> None:
    words = "m.gguf -n 7 --temp 0.5 --top-k 4 --seed 9 --ignore-eos --stop a,b --stop c"
    values = parser().parse([*words.split(), "--logit-bias", "3=-1.5", "--logit-bias", "4=2"])
    sampling = options(SamplingOptions, values)
    assert sampling == SamplingOptions(
        max_tokens=7,
        temperature=0.5,
        top_k=4,
        seed=9,
        ignore_eos=True,
        stop=("a,b", "c"),
        logit_bias={3: -1.5, 4: 2.0},
    )


@pytest.mark.parametrize(
    "words",
    [
        ["m", "--spec", "ngram-simple,ngram-mod"],
        ["m", "--spec", "ngram-simple", "--spec", "ngram-mod"],
        ["--spec-type", "ngram-simple,ngram-mod", "m"],
    ],
)
def test_methods_in_one_flag_or_in_two(words: list[str]) -> None:
    chosen = options(SpeculationOptions, parser().parse(words))
    assert chosen.type == ("ngram-simple", "ngram-mod")


@pytest.mark.parametrize("spelling", ["-c", "--context", "--ctx-size", "--n-ctx"])
def test_other_spellings(spelling: str) -> None:
    assert options(ModelOptions, parser().parse(["m", spelling, "64"])).context == 64


@pytest.mark.parametrize(
    ("words", "expected", "found"),
    [
        (["-n", "x"], "`--max-tokens` to be a whole number", "'x'"),
        (["-n", "-2"], "`--max-tokens`", "-2"),
        (["--temp", "warm"], "`--temperature` to be a number", "'warm'"),
        (["--spec", "nom"], "`--spec` some of none", "`nom`"),
        (["--backend", "gpu"], "`--backend` one of cpu, reference", "`gpu`"),
        (["--logit-bias", "3"], "`--logit-bias`", "3"),
        (["--ngram-mod-n-min", "65"], "`--ngram-mod-n-min` at most `--ngram-mod-n-max`", "65"),
    ],
)
def test_errors_name_the_flag(words: list[str], expected: str, found: str) -> None:
    with pytest.raises(OptionError) as caught:
        every_struct(["m", *words])
    assert expected in caught.value.expected
    assert found in caught.value.found
    assert "_" not in caught.value.remedy


@pytest.mark.parametrize(
    ("words", "expected", "found"),
    [
        ("--draft-model x --n-max 7 --spec ngram-mod", "`--draft-model` with", "`ngram-mod`"),
        ("--n-max 7 --spec ngram-mod", "`--n-max` with a method", "`ngram-mod`"),
        ("--n-max 3 --spec ngram-mod", "`--n-max` with a method", "`ngram-mod`"),
        ("--ngram-mod-n-match 5", "`--ngram-mod-n-match` with", "`none`"),
        ("--ngram-simple-size-n 5 --spec ngram-mod", "(ngram-simple)", "`ngram-mod`"),
        ("--fixed --spec none", "`--fixed` with", "`none`"),
        ("--spec none,ngram-mod", "`--spec` to be none or", "`none,ngram-mod`"),
        ("--backend reference --isa avx512 -t 7", "no `--isa` with `--backend`", "avx512"),
        ("--backend reference -t 7", "no `--threads` with `--backend`", "7"),
    ],
)
def test_what_would_be_ignored_is_refused(words: str, expected: str, found: str) -> None:
    with pytest.raises(OptionError) as caught:
        every_struct(["m", *words.split()])
    assert expected in caught.value.expected
    assert found in caught.value.found
    assert "Leave out" in caught.value.remedy


def test_options_of_any_chosen_method_are_taken() -> None:
    words = "m --spec ngram-mod,ngram-simple --ngram-mod-n-match 5 --ngram-simple-size-n 6 --fixed"
    chosen = options(SpeculationOptions, parser().parse(words.split()))
    assert (chosen.ngram_mod_n_match, chosen.ngram_simple_size_n, chosen.fixed) == (5, 6, True)


def test_the_nearest_method_is_named() -> None:
    with pytest.raises(OptionError) as caught:
        options(SpeculationOptions, parser().parse(["m", "--spec", "ngram-mood"]))
    assert caught.value.remedy == "Did you mean `ngram-mod`?"


def test_another_default_is_used_and_shown() -> None:
    made = Parser("slipstream test", "A test.")
    add_flags(made, SamplingOptions, defaults={"max_tokens": -1})
    assert options(SamplingOptions, made.parse([])).max_tokens == -1
    assert options(SamplingOptions, made.parse(["-n", "3"])).max_tokens == 3
    assert "[-1]" in made.format_help()


def test_unknown_and_surplus_arguments() -> None:
    with pytest.raises(OptionError) as caught:
        parser().parse(["m", "--tepm", "1"])
    assert caught.value.found == "`--tepm`"
    assert "`--temp`" in caught.value.remedy
    with pytest.raises(OptionError, match="no further argument"):
        parser().parse(["m", "n"])
    with pytest.raises(OptionError, match="MODEL"):
        parser().parse([])
    with pytest.raises(OptionError, match="--temp=VALUE"):
        parser().parse(["m", "--temp"])


def test_no_hidden_option_is_proposed_for_one_that_is_not_alike() -> None:
    made = parser()
    made.add_argument("--verbose", help=argparse.SUPPRESS)
    with pytest.raises(OptionError) as caught:
        made.parse(["m", "--bogus", "1"])
    assert "mean" not in caught.value.remedy
    with pytest.raises(OptionError) as caught:
        made.parse(["m", "--verbos", "1"])
    assert "`--verbose`" in caught.value.remedy


def test_abbreviations_are_refused() -> None:
    with pytest.raises(OptionError):
        parser().parse(["m", "--tempera", "1"])


def test_help_shows_each_option_once_with_its_default() -> None:
    text = parser().format_help()
    assert text.count("-n, --max-tokens N") == 1
    assert "[128]" in text
    assert "also --n-predict, --predict" in " ".join(text.split())


def test_help_names_every_drafting_method_and_which_values_are_files() -> None:
    text = parser().format_help()
    assert max(map(len, text.splitlines())) <= 100
    spec = text[text.index("--spec NAME") : text.index("--draft-model MODEL")]
    words = spec.replace(",", " ").replace(";", " ").split()
    assert set(implemented()) <= set(words)
    assert "--ngram-cache-static FILE" in text
    assert "--ngram-cache-dynamic FILE" in text
