"""Option structs: defaults, aliases, bounds, messages."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from slipstream.errors import OptionError
from slipstream.options import (
    METHODS,
    EngineOptions,
    ModelOptions,
    OptionInfo,
    SamplingOptions,
    SpeculationOptions,
    describe,
    from_mapping,
    require_used,
)

STRUCTS: list[type[msgspec.Struct]] = [
    ModelOptions,
    EngineOptions,
    SamplingOptions,
    SpeculationOptions,
]


@pytest.mark.parametrize("struct", STRUCTS, ids=lambda struct: struct.__name__)
def test_every_option_has_help_and_a_type_the_command_line_knows(
    struct: type[msgspec.Struct],
) -> None:
    for option in describe(struct):
        assert option.help, option.name
        assert option.type in {int, float, str, bool, tuple, dict}, option.name
        if option.type in {int, float}:
            assert option.minimum is not None, option.name


def test_names_and_aliases_are_unique_over_all_structs() -> None:
    names = [
        name
        for struct in STRUCTS
        for option in describe(struct)
        for name in (option.name, *option.aliases)
    ]
    assert len(names) == len(set(names))


def test_defaults_are_exactness_first() -> None:
    sampling = SamplingOptions()
    assert (sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p) == (0, 0, 1, 0)
    assert sampling.repetition_penalty == 1
    assert (sampling.frequency_penalty, sampling.presence_penalty) == (0, 0)
    assert (sampling.max_tokens, sampling.seed, sampling.stop) == (128, None, ())
    assert SpeculationOptions().type == ("none",)
    assert EngineOptions().step_time_limit_s == 0.25


def test_defaults_of_llama_cpp_are_kept() -> None:
    speculation = SpeculationOptions()
    assert (speculation.n_max, speculation.n_min, speculation.p_min) == (None, 0, 0.0)
    assert SpeculationOptions(fixed=True).longest == 3
    assert (speculation.longest, SpeculationOptions(n_max=5).longest) == (8, 5)
    assert SpeculationOptions(n_min=9).longest == 9
    assert speculation.ngram_mod_n_match == 24
    assert (speculation.ngram_mod_n_min, speculation.ngram_mod_n_max) == (48, 64)
    assert (speculation.ngram_simple_size_n, speculation.ngram_simple_size_m) == (12, 48)


def test_spellings_of_llama_cpp_are_aliases() -> None:
    speculation = from_mapping(
        SpeculationOptions,
        {
            "--spec-type": "ngram-mod, ngram-simple",
            "spec_draft_n_max": 8,
            "spec-ngram-mod-n-match": 16,
            "spec_ngram_simple_size_m": 24,
        },
    )
    assert speculation == SpeculationOptions(
        type=("ngram-mod", "ngram-simple"), n_max=8, ngram_mod_n_match=16, ngram_simple_size_m=24
    )
    sampling = from_mapping(
        SamplingOptions, {"temp": 1, "n_predict": 5, "repeat_penalty": 1.1, "repeat_last_n": -1}
    )
    assert sampling == SamplingOptions(
        temperature=1.0, max_tokens=5, repetition_penalty=1.1, penalty_window=-1
    )


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        ("none", ("none",)),
        ("none,none", ("none",)),
        (["suffix", "suffix", "ngram-mod"], ("suffix", "ngram-mod")),
    ],
)
def test_a_repeated_method_counts_once(types: Any, expected: tuple[str, ...]) -> None:
    assert from_mapping(SpeculationOptions, {"type": types}).type == expected


@pytest.mark.parametrize("types", ["none,ngram-mod", "ngram-mod,none", ["suffix", "none"]])
def test_none_beside_other_methods_is_refused(types: Any) -> None:
    with pytest.raises(OptionError, match="Leave out `none`"):
        from_mapping(SpeculationOptions, {"type": types})


@pytest.mark.parametrize("keywords", [{"isa": "avx512"}, {"threads": 7}])
def test_the_reference_backend_refuses_what_it_cannot_honour(keywords: dict[str, Any]) -> None:
    ModelOptions(model="m", **keywords)
    with pytest.raises(OptionError, match=f"no `{next(iter(keywords))}` with `backend`"):
        ModelOptions(model="m", backend="reference", **keywords)


@pytest.mark.parametrize("option", describe(SpeculationOptions), ids=lambda option: option.name)
def test_every_speculation_option_is_read_by_some_method(option: OptionInfo) -> None:
    readers = []
    for method in METHODS:
        try:
            require_used(SpeculationOptions(type=(method,)), [option.name])  # type: ignore[arg-type]
        except OptionError:
            continue
        readers.append(method)
    assert readers
    assert ("none" in readers) == (option.name == "type")
    if option.name.startswith(("ngram_", "suffix_")):
        [owner] = [m for m in METHODS if option.name.startswith(m.replace("-", "_") + "_")]
        assert set(readers) == ({owner, "auto"} if owner == "suffix" else {owner})


@pytest.mark.parametrize(
    ("struct", "key", "nearest"),
    [
        (SamplingOptions, "temprature", "temperature"),
        (SamplingOptions, "max_token", "max_tokens"),
        (SpeculationOptions, "--spec-draft-n-maxx", "spec_draft_n_max"),
        (SpeculationOptions, "ngram_mod_match", "ngram_mod_n_match"),
        (EngineOptions, "paralel", "parallel"),
        (ModelOptions, "thread", "threads"),
    ],
)
def test_an_unknown_key_names_the_nearest(
    struct: type[msgspec.Struct], key: str, nearest: str
) -> None:
    with pytest.raises(OptionError) as raised:
        from_mapping(struct, {"model": "x", key: 1} if struct is ModelOptions else {key: 1})
    assert raised.value.found == f"`{key}`"
    assert f"`{nearest}`" in raised.value.remedy


BAD_SAMPLING: list[tuple[str, Any]] = [
    ("max_tokens", 10**30),
    ("top_k", 2**63),
    ("logit_bias", {10**30: 1.0}),
    ("temperature", -0.1),
    ("temperature", math.nan),
    ("temperature", math.inf),
    ("temperature", "1"),
    ("top_k", True),
    ("top_k", 1.5),
    ("top_p", -0.01),
    ("top_p", 1.01),
    ("min_p", 2),
    ("repetition_penalty", 0),
    ("penalty_window", -2),
    ("logit_bias", {"x": 1}),
    ("logit_bias", {1: 101}),
    ("logit_bias", {-1: 1}),
    ("seed", -1),
    ("seed", 2**64),
    ("stop", [""]),
    ("stop", [1]),
    ("stop", ["x"] * 65),
    ("max_tokens", -2),
    ("max_tokens", None),
    ("logprobs", 101),
    ("ignore_eos", 1),
]


@pytest.mark.parametrize(("name", "value"), BAD_SAMPLING)
def test_values_out_of_type_or_bounds(name: str, value: Any) -> None:
    with pytest.raises(OptionError, match=f"`{name}` to be"):
        from_mapping(SamplingOptions, {name: value})
    with pytest.raises(OptionError, match=f"`{name}` to be"):
        SamplingOptions(**{name: value})


def test_messages_state_bounds_and_choices() -> None:
    with pytest.raises(OptionError, match="a number at least 0 and at most 1; found 2"):
        from_mapping(SamplingOptions, {"top_p": 2})
    with pytest.raises(OptionError, match="a number above 0 and at most 100; found 0"):
        from_mapping(SamplingOptions, {"repetition_penalty": 0})
    with pytest.raises(OptionError, match=r"some of none, ngram-simple.*found \['ngram'\]"):
        from_mapping(SpeculationOptions, {"type": "ngram"})
    with pytest.raises(OptionError) as raised:
        from_mapping(SamplingOptions, {"temperature": "x" * 10_000})
    assert len(str(raised.value)) < 300


def test_the_same_option_twice() -> None:
    with pytest.raises(OptionError, match="`temp` and `temperature`"):
        from_mapping(SamplingOptions, {"temp": 1, "temperature": 1})


def test_a_missing_model() -> None:
    with pytest.raises(OptionError, match="`model`"):
        from_mapping(ModelOptions, {"threads": 2})


def test_a_least_length_above_the_greatest() -> None:
    with pytest.raises(OptionError, match=r"`ngram_mod_n_min` at most `ngram_mod_n_max` \(8\)"):
        from_mapping(SpeculationOptions, {"ngram_mod_n_max": 8})


def test_plain_python_values_get_their_declared_types() -> None:
    sampling = SamplingOptions(stop="a,b", logit_bias={5: 1})  # type: ignore[arg-type]
    assert sampling.stop == ("a,b",)
    assert sampling.logit_bias == {5: 1.0}
    assert from_mapping(SamplingOptions, {"logit_bias": {"5": -100}}).logit_bias == {5: -100.0}


def test_structs_survive_json() -> None:
    options = SpeculationOptions(type=("ngram-mod",), fixed=True)
    encoded = msgspec.json.encode(options)
    assert from_mapping(SpeculationOptions, msgspec.json.decode(encoded)) == options


def test_structs_are_frozen() -> None:
    with pytest.raises(AttributeError):
        SamplingOptions().temperature = 1.0  # type: ignore[misc]


def test_choices_are_the_design_names() -> None:
    [types] = [option for option in describe(SpeculationOptions) if option.name == "type"]
    assert types.choices == METHODS
    assert {"none", "ngram-simple", "ngram-mod", "draft-simple", "suffix", "auto"} <= set(METHODS)


def test_precision_is_a8_unless_named() -> None:
    assert ModelOptions(model="m").precision == "a8"
    assert from_mapping(ModelOptions, {"model": "m", "precision": "a16"}).precision == "a16"
    with pytest.raises(OptionError) as caught:
        from_mapping(ModelOptions, {"model": "m", "precision": "a32"})
    assert caught.value.expected == "`precision` to be one of a8, a16"
    with pytest.raises(OptionError, match="float32"):
        ModelOptions(model="m", backend="reference", precision="a16")
