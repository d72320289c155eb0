"""The options of a server, and its default methods."""

from __future__ import annotations

from typing import Any

import pytest

from slipstream.cli.flags import add_flags, options
from slipstream.cli.parser import Parser
from slipstream.errors import OptionError
from slipstream.options import (
    METHODS,
    EngineOptions,
    ModelOptions,
    SamplingOptions,
    SpeculationOptions,
    describe,
    from_mapping,
)
from slipstream.server.offers import default_speculation, method_table, offered
from slipstream.server.wire import Speculation
from slipstream.server_options import CHARACTERS_PER_POSITION, ServerOptions
from slipstream.speculation_options import read_by

FREE = ("suffix", "ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache")
STRUCTS = (ServerOptions, ModelOptions, EngineOptions, SamplingOptions, SpeculationOptions)


def test_safe_by_default() -> None:
    server = ServerOptions()
    assert server.host == "127.0.0.1"
    assert not server.allow_public
    assert server.cors_origins == ()
    assert not server.metrics


@pytest.mark.parametrize(
    "keywords",
    [
        {"port": 65536},
        {"port": -1},
        {"host": ""},
        {"queue": -1},
        {"body_limit_bytes": 10},
        {"body_timeout_s": 0},
        {"deadline_s": 0},
        {"prompt_limit": 0},
        {"grace_s": -1},
        {"cors_origins": ("localhost",)},
    ],
)
def test_out_of_range(keywords: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        ServerOptions(**keywords)


def test_an_unknown_option_names_the_nearest() -> None:
    with pytest.raises(OptionError, match="Did you mean `host`"):
        from_mapping(ServerOptions, {"hots": "x"})


def test_names_are_unique_over_all_structs() -> None:
    names = [
        name
        for struct in STRUCTS
        for option in describe(struct)
        for name in (option.name, *option.aliases)
    ]
    assert len(names) == len(set(names))


def test_the_longest_prompt() -> None:
    assert ServerOptions().longest_prompt(100) == 100 * CHARACTERS_PER_POSITION
    assert ServerOptions(prompt_limit=7).longest_prompt(100) == 7


def parsed(*words: str) -> SpeculationOptions:
    parser = Parser("slipstream test", "A test.")
    add_flags(parser, *STRUCTS)
    return options(SpeculationOptions, parser.parse(["m", *words]), others=METHODS)


def test_a_server_reads_the_options_of_every_method() -> None:
    chosen = parsed("--spec-ngram-mod-n-match", "12", "--suffix-n-max", "9")
    assert chosen.type == ("none",)
    assert (chosen.ngram_mod_n_match, chosen.suffix_n_max) == (12, 9)


def test_everything_that_needs_no_model_is_offered() -> None:
    assert set(offered(SpeculationOptions())) == set(FREE)
    with_model = offered(SpeculationOptions(draft_model="x"))
    assert set(with_model) == {*FREE, "draft-simple"}
    assert with_model[-1] == "draft-simple"


def test_what_a_request_gets_by_default() -> None:
    assert default_speculation(SpeculationOptions()) == Speculation(methods=(), scope="session")
    drafting = SpeculationOptions(type=("auto",), draft_scope="request")
    assert default_speculation(drafting) == Speculation(methods=("suffix",), scope="request")
    both = SpeculationOptions(type=("auto",), draft_model="x")
    assert default_speculation(both).methods == ("suffix", "draft-simple")


def test_every_method_is_told_with_parameters_or_a_reason() -> None:
    table = method_table(SpeculationOptions(ngram_mod_n_match=7), FREE, None)
    assert set(table) == set(METHODS) - {"none", "auto"}
    for name, entry in table.items():
        assert entry["offered"] == (name in FREE)
        assert set(entry) == {"offered", "parameters" if name in FREE else "reason"}
    assert table["ngram-mod"]["parameters"] == {
        "ngram_mod_n_match": 7,
        "ngram_mod_n_min": 48,
        "ngram_mod_n_max": 64,
    }
    assert "--draft-model" in table["draft-simple"]["reason"]


def test_the_draft_models_parameters_are_those_in_effect() -> None:
    table = method_table(SpeculationOptions(draft_model="x"), [*FREE, "draft-simple"], None)
    parameters = table["draft-simple"]["parameters"]
    assert parameters["n_max"] == SpeculationOptions().longest
    assert parameters["draft_model"] == "x"
    assert "suffix_n_max" not in parameters


def test_options_by_method() -> None:
    assert read_by("none") == ()
    assert "ngram_map_k_size_n" in read_by("ngram-map-k")
    assert "ngram_map_k_size_n" not in read_by("ngram-map-k4v")
    assert "draft_model" in read_by("draft-simple")
    assert "draft_scope" not in read_by("suffix")
