"""Streams of one model with other speculation options share the places of its memory."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from fake_model import MakeModel, fake_models
from fake_program import FakeProgram
from slipstream import Model


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> MakeModel:
    return fake_models(monkeypatch)


OTHER: dict[str, Any] = {"spec": "ngram-mod", "ngram_mod_n_match": 2, "ngram_mod_n_min": 1}


def limited(model: Model) -> Model:
    """Memory for one whole context, as a real memory with ``parallel=1`` has."""
    program = model.loaded.program
    assert isinstance(program, FakeProgram)
    program.tokens.positions = 64
    return model


@pytest.mark.parametrize("second", [{}, OTHER], ids=["same options", "other options"])
def test_two_streams_share_one_place(make: MakeModel, second: dict[str, Any]) -> None:
    """The first is half read when the second needs the place: it is run on, and kept."""
    expected = [make().complete(prompt, max_tokens=40).ids for prompt in ("abc", "abab")]
    model = limited(make(parallel=1, context=64))
    one = model.generate("abc", max_tokens=40)
    first = next(one)
    two = list(model.generate("abab", max_tokens=40, **second))
    assert tuple(i for piece in two for i in piece.ids) == expected[1]
    assert tuple(i for piece in (first, *one) for i in piece.ids) == expected[0]
    model.forget()
    assert model.loaded.program.memory.bytes() == 0
    assert model.engines.room.open == []
    assert model.engines.room.places.free == 1


def test_streams_with_other_options_may_be_read_in_turns(make: MakeModel) -> None:
    model = limited(make(parallel=1, context=64))
    plain = [model.complete("abab", max_tokens=40).ids for _ in range(2)]
    streams = [model.generate("abab", max_tokens=40, **options) for options in ({}, OTHER)]
    found: list[list[int]] = [[], []]
    for _ in range(40):
        for ids, stream in zip(found, streams, strict=True):
            ids += (i for piece in [next(stream, None)] if piece for i in piece.ids)
    assert [tuple(ids) for ids in found] == plain


def test_closing_a_stream_frees_its_place_for_other_options(make: MakeModel) -> None:
    model = limited(make(parallel=1, context=64))
    one = model.generate("abc", max_tokens=60)
    two = model.generate("abab", max_tokens=40, **OTHER)
    next(one)
    one.close()  # type: ignore[attr-defined]
    next(two)
    two.close()  # type: ignore[attr-defined]
    model.forget()
    assert model.loaded.program.memory.bytes() == 0
    assert model.engines.room.places.free == 1
    assert len(model.complete("abc", max_tokens=60).ids) == 60


def test_threads_with_different_options_wait_for_a_place(make: MakeModel) -> None:
    model = limited(make(parallel=1, context=64))
    prompts = ["abc", "bcd", "abab", "def"]
    expected = [make().complete(prompt, max_tokens=50).ids for prompt in prompts]
    work = [(prompt, options) for prompt in prompts for options in ({}, OTHER)]
    with ThreadPoolExecutor(len(work)) as pool:
        runs = [pool.submit(model.complete, p, max_tokens=50, **options) for p, options in work]
        found = [run.result(timeout=300).ids for run in runs]
    assert found == [ids for ids in expected for _ in range(2)]
    assert model.engines.room.places.free == 1


def test_forgetting_while_a_stream_runs(make: MakeModel) -> None:
    model = limited(make(parallel=1, context=64))
    one = model.generate("abab", max_tokens=40, **OTHER)
    first = next(one)
    model.forget()
    two = model.complete("abab", max_tokens=40, **OTHER)
    assert tuple(i for piece in (first, *one) for i in piece.ids) == two.ids
    assert model.engines.room.open == []
