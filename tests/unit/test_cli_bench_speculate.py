"""Which method ``bench speculate`` measures."""

from __future__ import annotations

from typing import Any

import pytest

from slipstream.cli import bench_speculate
from slipstream.cli.parser import Parser
from slipstream.errors import OptionError


def chosen(words: str) -> tuple[str, dict[str, Any]]:
    parser = Parser("slipstream bench speculate", "A test.")
    bench_speculate.configure(parser)
    return bench_speculate._method(parser.parse(["m", *words.split()]))


@pytest.mark.parametrize(
    ("words", "method", "sizes"),
    [
        ("", "ngram-simple", (4, 12)),
        ("--ngram-simple-size-n 6", "ngram-simple", (6, 12)),
        ("--ngram-simple-size-m 20", "ngram-simple", (4, 20)),
        ("--spec ngram-simple", "ngram-simple", (12, 48)),
        ("--spec ngram-simple --ngram-simple-size-n 6", "ngram-simple", (6, 48)),
        ("--spec ngram-mod", "ngram-mod", (12, 48)),
    ],
)
def test_defaults_stand_only_where_nothing_was_given(
    words: str, method: str, sizes: tuple[int, int]
) -> None:
    name, options = chosen(words)
    assert name == method
    assert options["type"] == (method,)
    assert (options["ngram_simple_size_n"], options["ngram_simple_size_m"]) == sizes


@pytest.mark.parametrize(
    "words", ["--spec none", "--spec none --ngram-simple-size-n 6", "--ngram-mod-n-match 5"]
)
def test_what_would_not_be_measured_is_refused(words: str) -> None:
    with pytest.raises(OptionError):
        chosen(words)
