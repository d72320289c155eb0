"""Structured output of whole models, through the Python interface."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from builders import tiny_model
from slipstream import Model
from slipstream.errors import GrammarError
from structured_for_tests import CASES


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Model:
    path = tiny_model(tmp_path_factory.mktemp("tiny") / "tiny.gguf", "llama")
    return Model(str(path), backend="reference", context=256)


ANSWER = {
    "type": "object",
    "properties": {"answer": {"enum": ["yes", "no"]}},
    "required": ["answer"],
    "additionalProperties": False,
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
