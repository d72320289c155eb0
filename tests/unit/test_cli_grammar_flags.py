"""Flags that give a grammar: written out, or in a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from slipstream.cli.flags import add_flags, options
from slipstream.cli.parser import Parser
from slipstream.cli.text_files import schema_text
from slipstream.errors import OptionError, RequestError
from slipstream.options import SamplingOptions

SCHEMA = ' {"type": "integer"}'


def sampling(*words: str) -> SamplingOptions:
    made = Parser("slipstream test", "A test.")
    add_flags(made, SamplingOptions)
    return options(SamplingOptions, made.parse(words))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "schema.json").write_text(SCHEMA)
    (tmp_path / "grammar.lark").write_text('start: "a"\n')
    return tmp_path


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    "words",
    [
        ("--json-schema", "schema.json"),
        ("--json-schema", SCHEMA),
        ("-j", SCHEMA),
        ("-jf", "schema.json"),
        ("--json-schema-file", "schema.json"),
    ],
)
def test_spellings_of_a_schema(words: tuple[str, ...]) -> None:
    assert sampling(*words) == SamplingOptions(json_schema=SCHEMA)


@pytest.mark.usefixtures("folder")
def test_spellings_of_a_grammar() -> None:
    written = SamplingOptions(grammar='start: "a"\n')
    assert sampling("--grammar", 'start: "a"\n') == written
    assert sampling("--grammar-file", "grammar.lark") == written
    assert sampling("--regex", "a+").regex == "a+"
    assert sampling("--json-schema", "true").json_schema == "true"


def test_files_that_cannot_be_read(folder: Path) -> None:
    (folder / "bytes").write_bytes(b"\xff")
    (folder / "large").write_bytes(b" " * ((1 << 20) + 1))
    for words, part in (
        (("-jf", "none.json"), "none.json"),
        (("--json-schema", "none.json"), "none.json"),
        (("-jf", "bytes"), "UTF-8"),
        (("-jf", "large"), "1 MiB"),
        (("--grammar-file", "none.lark"), "none.lark"),
    ):
        with pytest.raises(RequestError, match=part):
            sampling(*words)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("-j", SCHEMA, "-jf", "schema.json"), "`--json-schema` or `--json-schema-file`"),
        (("-j", SCHEMA, "--regex", "a"), "one grammar"),
        (("--regex", "a", "--ignore-eos"), "`--ignore-eos`"),
        (("--regex", ""), "`--regex`"),
    ],
)
def test_contradictions(words: tuple[str, ...], part: str) -> None:
    with pytest.raises(OptionError, match=part):
        sampling(*words)


def test_an_empty_schema_is_no_file() -> None:
    with pytest.raises(RequestError, match="no text"):
        schema_text(" ", 100)
