"""Prompts that a ``Model`` reuses: over engines, threads and sessions, and how to switch it off."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from drafters_for_tests import TestDrafter
from fake_model import MakeModel, fake_models
from fake_program import FakeProgram
from slipstream import Completion, Model
from slipstream.cli.statistics import statistics_lines
from slipstream.errors import BackendError, OptionError
from slipstream.options import EngineOptions
from slipstream.pieces import Piece

LETTERS = "abcdefghijklmnopqrst"
PROMPT = LETTERS + LETTERS[::-1] + "abc"
OTHER: dict[str, Any] = {"spec": "ngram-mod", "ngram_mod_n_match": 2, "ngram_mod_n_min": 1}


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> MakeModel:
    return fake_models(monkeypatch)


def lines_of(done: Completion) -> list[str]:
    piece = Piece("", done.tokens, finish_reason=done.finish_reason, statistics=done.statistics)
    return statistics_lines(piece, drawn=False)


def reused(model: Model, prompt: str, **keywords: Any) -> int:
    done = model.complete(prompt, max_tokens=5, **keywords)
    assert done.statistics.warm or not done.statistics.reused_tokens
    return done.statistics.reused_tokens


def test_a_later_call_goes_on_where_an_earlier_one_was(make: MakeModel) -> None:
    model = make()
    first = model.complete(PROMPT, max_tokens=20)
    question = PROMPT + first.text + "aaa"
    second = model.complete(question, max_tokens=20)
    assert second.ids == make(prefix_cache=0).complete(question, max_tokens=20).ids
    # the newest token of an output is not in memory
    assert second.statistics.reused_tokens == len(PROMPT) + 20 - 1
    shown = lines_of(second)
    assert shown[0].startswith(f"{len(question)} prompt (62 reused) + 20 tokens")
    assert shown[1].startswith("warm: ")
    assert lines_of(first)[0].startswith(f"{len(PROMPT)} prompt + 20 tokens")


def test_engines_of_one_model_share_what_is_kept(make: MakeModel) -> None:
    model = make(parallel=2)
    counts = [reused(model, PROMPT), reused(model, PROMPT, **OTHER), reused(model, PROMPT)]
    assert counts == [0, len(PROMPT) - 1, len(PROMPT) - 1]
    assert [reused(model, PROMPT, session=name) for name in "aba"] == [0, 0, len(PROMPT) - 1]


def test_it_can_be_switched_off(make: MakeModel) -> None:
    model = make(prefix_cache=0)
    assert [reused(model, PROMPT) for _ in range(2)] == [0, 0]
    assert model.loaded.program.memory.bytes() == 0
    assert model.loaded.program.memory.reclaim is None
    assert EngineOptions().prefix_cache == 8
    with pytest.raises(OptionError, match="prefix_cache"):
        make(prefix_cache=-1)


def test_as_many_are_kept_as_wanted(make: MakeModel) -> None:
    model = make(prefix_cache=2)
    prompts = [letter + PROMPT for letter in "bcd"]
    assert [reused(model, prompt) for prompt in prompts] == [0, 0, 0]
    assert model.engines.prefixes is not None
    assert len(model.engines.prefixes) == 2
    assert reused(model, prompts[0]) == 0


def test_forgetting_makes_a_session_cold(make: MakeModel) -> None:
    model = make(**OTHER)
    for session in "ab":
        assert reused(model, PROMPT, session=session) == 0
    model.forget("a")
    assert [reused(model, PROMPT, session=name) for name in "ab"] == [0, len(PROMPT) - 1]
    model.forget()
    assert model.loaded.program.memory.bytes() == 0
    assert [reused(model, PROMPT, session=name) for name in "ab"] == [0, 0]


class Stubborn(TestDrafter):
    """Cannot forget."""

    name = "stubborn"

    def forget(self, scope: str | None) -> None:
        del scope
        raise BackendError("a drafter that forgets", "not this one", "Leave it out.")


def test_a_drafter_that_does_not_forget_keeps_no_prompt(make: MakeModel) -> None:
    """Nor in the other engines, whose requests still run."""
    model = make(parallel=2)
    stubborn = model.generate(PROMPT, max_tokens=30, session="a", drafters=[Stubborn()])
    other = model.generate(PROMPT, max_tokens=30, session="a", **OTHER)
    next(stubborn), next(other)
    with pytest.raises(BackendError, match="forgets"):
        model.forget("a")
    list(stubborn), list(other)
    assert model.loaded.program.memory.bytes() == 0
    assert reused(model, PROMPT, session="a") == 0


def test_threads_and_sessions_over_little_memory(make: MakeModel) -> None:
    """Room for what runs: what is kept gives way, whichever engine needs it."""
    prompts = [PROMPT, PROMPT[:30], PROMPT[5:], PROMPT + "abc"]
    work = [
        (prompt, {"session": session, **options})
        for prompt in prompts
        for session in "ab"
        for options in ({}, OTHER)
    ]
    expected = [make(prefix_cache=0).complete(p, max_tokens=40).ids for p, _ in work]
    model = make(parallel=2, context=100)
    program = model.loaded.program
    assert isinstance(program, FakeProgram)
    program.tokens.positions = 2 * 100
    with ThreadPoolExecutor(6) as pool:
        runs = [pool.submit(model.complete, p, max_tokens=40, **options) for p, options in work]
        found = [run.result(timeout=300) for run in runs]
    assert [done.ids for done in found] == expected
    assert any(done.statistics.reused_tokens for done in found)
    assert model.engines.room.places.free == 2
