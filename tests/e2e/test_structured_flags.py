"""Structured output from the command line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from conftest import Command

SCHEMA = {
    "type": "object",
    "properties": {"answer": {"enum": ["yes", "no"]}, "sure": {"type": "boolean"}},
    "required": ["answer", "sure"],
    "additionalProperties": False,
}


@pytest.fixture
def schema(tmp_path: Path) -> Path:
    path = tmp_path / "schema.json"
    path.write_text(json.dumps(SCHEMA))
    return path


def test_run_prints_a_document(
    slipstream: Command, tiny: Path, backend: Sequence[str], schema: Path
) -> None:
    asked = ("run", tiny, *backend, "-p", "Is it? ", "--temp", "1", "--seed", "3", "-n", "200")
    done = slipstream(*asked, "--json-schema", schema, "--json")
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout.splitlines()[-1])
    document = json.loads(record["text"])
    assert document["answer"] in ("yes", "no")
    assert isinstance(document["sure"], bool)
    assert record["finish_reason"] == "stop"
    assert record["stats"]["complete"] is True
    assert record["stats"]["drafters"] == []
    assert record["stats"]["drafted"] == 0
    again = slipstream(
        *asked, "-j", json.dumps(SCHEMA), "--spec", "suffix", "--spec-fixed", "--json"
    )
    assert "grammar,suffix: drafted" in again.stderr
    assert json.loads(again.stdout.splitlines()[-1])["ids"] == record["ids"]


def test_a_document_cut_short_is_said(slipstream: Command, tiny: Path, schema: Path) -> None:
    done = slipstream(*("run", tiny, "--backend", "reference", "-p", "a", "-n", "3"), "-jf", schema)
    assert done.returncode == 0, done.stderr
    assert "not a complete document: it ended early (length)" in done.stderr


def test_chat_replies_with_documents(slipstream: Command, chatty: Path) -> None:
    done = slipstream(
        *("chat", chatty, "--backend", "reference", "--regex", "yes|no", "--json"),
        stdin="Is it?\nReally?\n",
    )
    assert done.returncode == 0, done.stderr
    replies = json.loads(done.stdout.splitlines()[-1])["replies"]
    assert [reply["text"] in ("yes", "no") for reply in replies] == [True, True]


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["-j", '{"type": "strin"}'], "strin"),
        (["-j", "{"], "no JSON"),
        (["--regex", "("], "regular expression"),
        (["--grammar", 'root ::= "a"'], "GBNF"),
        (["-jf", "no-such-file"], "no-such-file"),
        (["--regex", "a", "--ignore-eos"], "--ignore-eos"),
    ],
)
def test_mistakes(slipstream: Command, tiny: Path, words: list[str], part: str) -> None:
    done = slipstream("run", tiny, "--backend", "reference", "-p", "a", *words)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert "error: expected " in done.stderr
    assert part in done.stderr


def test_a_trace_of_structured_output_is_read(
    slipstream: Command, tiny: Path, tmp_path: Path
) -> None:
    path = tmp_path / "t.jsonl"
    for method in ("auto", "none"):
        flags = ("--regex", "(abc){4}", "-n", "20", "--spec", method, "--trace", path)
        done = slipstream("run", tiny, "-p", "a", "--backend", "reference", *flags)
        assert done.returncode == 0, done.stderr
        shown = slipstream("trace", path)
        assert shown.returncode == 0, shown.stdout + shown.stderr
        assert ("grammar" in path.read_text()) == (method == "auto")
