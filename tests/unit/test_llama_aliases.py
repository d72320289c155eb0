"""llama-server's command lines for ``slipstream serve``."""

from __future__ import annotations

import argparse
from typing import Any

import pytest

from slipstream.cli.flags import add_flags, options
from slipstream.cli.llama_aliases import add_aliases, settle
from slipstream.cli.llama_flags import (
    IDLE_SWITCHES,
    IDLE_VALUES,
    NEUTRAL,
    REFUSED_SWITCHES,
    REFUSED_VALUES,
)
from slipstream.cli.parser import Parser
from slipstream.errors import OptionError, UnsupportedError
from slipstream.options import EngineOptions, ModelOptions, SamplingOptions, SpeculationOptions
from slipstream.server_options import ServerOptions

DEFAULTS = {"parallel": 4, "max_tokens": -1}
PLAIN = "-m target.gguf --host 127.0.0.1 --port 8081 -c 2048 -np 2 -t 3 --metrics"
NGRAM = (
    f"{PLAIN} --spec-type ngram-mod --spec-ngram-mod-n-match 24 "
    "--spec-ngram-mod-n-min 48 --spec-ngram-mod-n-max 64"
)
DRAFT = f"{PLAIN} --spec-type draft-simple -md draft.gguf --spec-draft-n-max 3"


def parsed(line: str) -> tuple[argparse.Namespace, list[str]]:
    parser = Parser("slipstream serve", "A test.")
    structs = (ServerOptions, ModelOptions, EngineOptions, SamplingOptions, SpeculationOptions)
    add_flags(parser, *structs, defaults=DEFAULTS)
    add_aliases(parser)
    arguments = parser.parse(line.split())
    return arguments, settle(arguments, DEFAULTS)


def read(line: str, struct: type[Any]) -> Any:
    return options(struct, parsed(line)[0])


def test_the_plain_line() -> None:
    assert read(PLAIN, ModelOptions) == ModelOptions(model="target.gguf", context=2048, threads=3)
    assert read(PLAIN, EngineOptions).parallel == 2
    server = read(PLAIN, ServerOptions)
    assert (server.host, server.port, server.metrics) == ("127.0.0.1", 8081, True)
    assert read(PLAIN, SpeculationOptions) == SpeculationOptions()
    assert parsed(PLAIN)[1] == []


def test_the_line_with_ngram_mod() -> None:
    speculation = read(NGRAM, SpeculationOptions)
    assert speculation.type == ("ngram-mod",)
    assert (
        speculation.ngram_mod_n_match,
        speculation.ngram_mod_n_min,
        speculation.ngram_mod_n_max,
    ) == (24, 48, 64)
    assert parsed(NGRAM)[1] == []


@pytest.mark.parametrize("flag", ["-md", "--spec-draft-model", "--model-draft"])
def test_the_line_with_a_draft_model(flag: str) -> None:
    speculation = read(DRAFT.replace("-md", flag), SpeculationOptions)
    assert speculation.type == ("draft-simple",)
    assert speculation.draft_model == "draft.gguf"
    assert speculation.n_max == 3


def test_limits_of_drafts() -> None:
    line = f"{DRAFT} --spec-draft-n-min 1 --spec-draft-p-min 0.5"
    speculation = read(line, SpeculationOptions)
    assert (speculation.n_min, speculation.p_min) == (1, 0.5)


def test_our_own_line_is_as_before() -> None:
    line = "target.gguf --parallel 3 --spec suffix"
    assert read(line, ModelOptions) == ModelOptions(model="target.gguf")
    assert read(line, EngineOptions).parallel == 3
    assert read("target.gguf", EngineOptions) == EngineOptions(parallel=4)


def test_the_model_is_named_once() -> None:
    assert read("-m a.gguf a.gguf", ModelOptions).model == "a.gguf"
    for line in ("-m a.gguf b.gguf", "--port 1"):
        with pytest.raises(OptionError, match="one MODEL"):
            parsed(line)


def test_values_for_unset() -> None:
    line = "-m a.gguf -c 0 -t -1 -np -1 -s -1 -n -1"
    assert read(line, ModelOptions) == ModelOptions(model="a.gguf")
    assert read(line, EngineOptions) == EngineOptions(parallel=4)
    sampling = read(line, SamplingOptions)
    assert (sampling.seed, sampling.max_tokens) == (None, -1)


def test_other_short_names() -> None:
    line = "-m a.gguf -ub 256 -s 5 -a mine -r END -r STOP --spec-default"
    assert read(line, EngineOptions).prefill_chunk == 256
    sampling = read(line, SamplingOptions)
    assert (sampling.seed, sampling.stop) == (5, ("END", "STOP"))
    assert read(line, ServerOptions).alias == "mine"
    assert read(line, SpeculationOptions).type == ("ngram-mod",)


def test_flags_without_effect_are_told_in_one_line() -> None:
    line = "-m a.gguf -ngl 99 -fa on -b 512 --jinja --no-webui --cont-batching --prio -1"
    _, notes = parsed(line)
    flags = "-ngl, -fa, -b, --jinja, --no-webui, --cont-batching, --prio"
    assert notes == [f"{flags}: without effect here"]


@pytest.mark.parametrize("names", [*IDLE_SWITCHES, *IDLE_VALUES])
def test_every_flag_without_effect_is_taken(names: tuple[str, ...]) -> None:
    value = " 1" if names in IDLE_VALUES else ""
    for name in names:
        assert name in parsed(f"-m a.gguf {name}{value}")[1][0]


@pytest.mark.parametrize("value", ["", " on", " off", " auto"])
def test_flash_attention_with_and_without_a_value(value: str) -> None:
    assert parsed(f"-m a.gguf -fa{value}")[1] == ["-fa: without effect here"]


def test_flash_attention_takes_no_model() -> None:
    with pytest.raises(OptionError, match="on, off or auto"):
        parsed("-fa a.gguf")


@pytest.mark.parametrize("names", [*REFUSED_SWITCHES, *REFUSED_VALUES])
def test_what_would_change_the_server_is_refused(names: tuple[str, ...]) -> None:
    value = " 1" if names in REFUSED_VALUES else ""
    for name in names:
        with pytest.raises(UnsupportedError) as caught:
            parsed(f"-m a.gguf {name}{value}")
        assert caught.value.found == f"`{name}`"


@pytest.mark.parametrize(("names", "values"), NEUTRAL.items())
def test_samplers_that_are_not_here_may_be_off(
    names: tuple[str, ...], values: tuple[str, ...]
) -> None:
    for name in names:
        assert parsed(f"-m a.gguf {name} {values[0]}")[1] == []
        with pytest.raises(UnsupportedError, match=f"`{name}` to be left out"):
            parsed(f"-m a.gguf {name} 0.37")


def test_an_unknown_flag_names_the_nearest() -> None:
    with pytest.raises(OptionError, match="--spec-draft-n-max"):
        parsed("-m a.gguf --spec-draft-nmax 3")


def test_help_lists_our_spellings_alone() -> None:
    parser = Parser("slipstream serve", "A test.")
    add_flags(parser, ModelOptions, EngineOptions)
    before = parser.format_help()
    add_aliases(parser)
    assert "--no-webui" not in parser.format_help()
    assert len(parser.format_help()) < len(before) + 20
