"""Help texts in two layouts, and command lines that do not agree with them."""

from __future__ import annotations

import argparse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lying_replies import help_text
from slipstream.lab.freezing.help_text import Help

LLAMA = help_text(frozenset())


def argparse_help() -> str:
    parser = argparse.ArgumentParser("x", formatter_class=lambda prog: _wide(prog))
    parser.add_argument("-c", "--context", metavar="N", help="positions (also --ctx-size, --n-ctx)")
    parser.add_argument("--kv-type", choices=["f16", "q8_0"], help="how they are kept [f16]")
    parser.add_argument("--metrics", action="store_true", help="offer them")
    parser.add_argument("--n-max", metavar="N", help="most tokens [8] (also --spec-draft-n-max)")
    return parser.format_help()


def _wide(prog: str) -> argparse.HelpFormatter:
    return argparse.HelpFormatter(prog, width=200)


def test_flags_of_llama_server() -> None:
    found = Help(LLAMA)
    context = found.flags["-c"]
    assert context is found.flags["--ctx-size"]
    assert (context.value, context.default) == ("N", "0, 0 = loaded from model")
    assert found.flags["--no-webui"].value == ""
    assert found.flags["-ctk"].choices == ("f32", "f16", "q8_0")
    assert found.default("--cache-ram") == "8192, 0 - disable"
    assert found.default("--spec-draft-model") == "unused"
    assert "draft-simple" in found.flags["--spec-type"].choices
    assert found.default("--spec-type") == "none"
    assert "4: trace" in found.flags["-lv"].text


IK = """\
  --draft-max, --draft, --draft-n N
                                  number of tokens to draft (default: 16)
  --spec-type Name [none | ngram - cache | ngram - simple | ngram - mod]
                                  type to use when no draft model is provided (default: 0)

  -m,    --model FNAME            model path (default: models)
         --port PORT              port to listen (default: 8080)
         --log-format {text,json}
                                  log output format (default: json)

export-lora:

  -m,    --model                  model path from which to load (default '')
"""


def test_flags_of_ik_llama() -> None:
    found = Help(IK)
    assert found.flags["--spec-type"].choices == (
        "none",
        "ngram-cache",
        "ngram-simple",
        "ngram-mod",
    )
    assert found.flags["--log-format"].choices == ("text", "json")
    assert found.flags["--draft-n"].value == "N"
    assert found.default("--port") == "8080"
    assert found.faults(["-m", "x.gguf"]) == ()
    assert found.faults(["--spec-type", "ngram-simple", "--draft-max", "4"]) == ()
    assert found.faults(["--spec-type", "draft-simple"])


def test_a_removed_flag_is_none() -> None:
    found = Help(LLAMA)
    assert found.flags["--draft-max"].removed
    assert not found.has("--draft-max")
    assert found.first("--draft-max", "--spec-draft-n-max") == "--spec-draft-n-max"
    assert found.first("--draft-max", "--nowhere") is None


def test_flags_of_argparse() -> None:
    found = Help(argparse_help())
    assert found.flags["--n-ctx"] is found.flags["-c"]
    assert found.flags["--kv-type"].choices == ("f16", "q8_0")
    assert found.default("--kv-type") == "f16"
    assert found.default("--spec-draft-n-max") == "8"
    assert found.flags["--metrics"].value == ""
    assert found.faults(["--metrics", "-c", "3", "--n-max=4"]) == ()


def test_a_command_line_that_agrees() -> None:
    words = ["-c", "512", "-np", "-1", "--metrics", "--spec-type", "ngram-mod,draft-simple"]
    assert Help(LLAMA).faults([*words, "-ctk", "q8_0", "--no-ui"]) == ()


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["--ctx-sise", "3"], "its help has no `--ctx-sise` (nearest: `--ctx-size`)"),
        (["--metrics", "x"], "`x` belongs to no flag"),
        (["-c"], "`-c` lacks its value"),
        (["-c", "--metrics"], "`-c` lacks its value"),
        (["--spec-type", "suffix"], "`--spec-type` may not be `suffix`"),
        (["--spec-type", "none,suffix"], "`--spec-type` may not be `suffix`"),
        (["-ctk", "q9_0"], "`-ctk` may not be `q9_0`"),
        (["--draft-max", "3"], "its help says of `--draft-max`: the argument has been removed"),
    ],
)
def test_a_command_line_that_does_not(words: list[str], fault: str) -> None:
    assert Help(LLAMA).faults(words)[0].startswith(fault)


@given(st.text(alphabet="-ab ,N\n<|>()[]defult:", max_size=300), st.lists(st.text(max_size=8)))
def test_any_text_is_read(text: str, words: list[str]) -> None:
    Help(text).faults(words)
