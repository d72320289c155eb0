"""A draft model from the command line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from builders import tiny_model
from conftest import Command


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with another vocabulary."""
    return tiny_model(tmp_path_factory.mktemp("other") / "other.gguf", "llama", tokenizer="spm")


def test_run_with_a_draft_model(
    slipstream: Command, tiny: Path, other: Path, backend: Sequence[str]
) -> None:
    arguments = ["run", tiny, *backend, "-p", "hello", "-n", "24", "--ignore-eos", "--json"]
    plain = json.loads(slipstream(*arguments).stdout.splitlines()[-1])
    drafting = [
        "--spec",
        "draft-simple",
        "--draft-model",
        tiny,
        "--draft-branches",
        "1",
        "--spec-fixed",
    ]
    done = slipstream(*arguments, *drafting)
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout.splitlines()[-1])
    assert record["ids"] == plain["ids"]
    assert record["stats"]["accepted"] > 10
    assert record["draft_model"]["name"] == str(tiny)
    assert f"draft model {tiny}: the target's weights, " in done.stderr
    assert "draft-simple: drafted " in done.stderr
    refused = slipstream(*arguments, "--spec", "draft-simple", "--draft-model", other)
    assert refused.returncode == 2
    assert "vocabulary: tokenizer type gpt2" in refused.stderr
    assert "Traceback" not in refused.stderr
    fallback = ["--spec", "draft-simple", "--draft-model", other, "--draft-fallback"]
    done = slipstream(*arguments, *fallback)
    record = json.loads(done.stdout.splitlines()[-1])
    assert record["ids"] == plain["ids"]
    assert record["draft_model"] is None
    assert "draft model not used: expected" in done.stderr
    assert "drafts not verified: 1 (draft-simple failed: expected" in done.stderr


def test_a_draft_model_that_nothing_reads_is_refused(slipstream: Command, tiny: Path) -> None:
    arguments = ["run", tiny, "--backend", "reference", "-p", "hello"]
    for flags in (["--draft-model", tiny], ["--draft-model", tiny, "--spec", "ngram-mod"]):
        done = slipstream(*arguments, *flags)
        assert done.returncode == 2
        assert "`--draft-model` with a method that reads it" in done.stderr
    done = slipstream(*arguments, "--spec", "draft-simple")
    assert done.returncode == 2
    assert "no `draft_model`" in done.stderr
