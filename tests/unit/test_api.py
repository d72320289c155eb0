"""The Python API over a fake program: options, streaming, threads, async."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import slipstream
from builders import tiny_model
from fake_model import LETTERS, MakeModel, fake_models
from slipstream import Completion, Model
from slipstream.errors import (
    BackendError,
    ContextFullError,
    OptionError,
    TemplateError,
    UnsupportedError,
)
from slipstream.model_engines import MOST_ENGINES


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> MakeModel:
    return fake_models(monkeypatch)


def test_pieces_join_to_the_completion(make: MakeModel) -> None:
    model = make()
    pieces = list(model.generate("abc", max_tokens=20, temperature=1.0, seed=3))
    whole = model.complete("abc", max_tokens=20, temperature=1.0, seed=3, logprobs=1)
    assert "".join(piece.text for piece in pieces) == whole.text
    assert tuple(i for piece in pieces for i in piece.ids) == whole.ids
    assert whole.text == "".join(LETTERS[i] for i in whole.ids)
    assert [piece.finish_reason for piece in pieces] == [None] * 19 + ["length"]
    assert whole.stats["emitted"] == 20
    assert whole.stats["seed"] == 3
    assert all(logprob is not None and logprob < 0 for logprob in whole.logprobs)


def test_token_ids_are_used_as_they_are(make: MakeModel) -> None:
    model = make()
    assert model.complete([0, 1, 2]).ids == model.complete("abc").ids


def test_speculation_per_model_and_per_call(make: MakeModel) -> None:
    quick: dict[str, Any] = {"ngram_mod_n_match": 2, "ngram_mod_n_min": 1}
    plain = make().complete("abab", max_tokens=60)
    on = {"spec": "ngram-mod", "fixed": True, **quick}
    for model, call in [(make(**on), {}), (make(), on)]:
        drafted = model.complete("abab", max_tokens=60, **call)
        assert drafted.ids == plain.ids
        assert drafted.statistics.accepted > 0
        assert any(token.from_draft for token in drafted.tokens)
        off = model.complete("abab", max_tokens=60, spec="none", fixed=False, ngram_mod_n_match=24)
        assert off.statistics.drafted == 0


def test_forgetting_makes_drafters_cold(make: MakeModel) -> None:
    model = make(spec=("ngram-mod",), ngram_mod_n_match=3, ngram_mod_n_min=1, fixed=True)
    cold, warm = (model.complete("abcd", max_tokens=30) for _ in range(2))
    model.forget()
    again = model.complete("abcd", max_tokens=30)
    assert cold.ids == warm.ids == again.ids
    assert warm.statistics.accepted > cold.statistics.accepted
    assert again.statistics.rounds[3].drafted == cold.statistics.rounds[3].drafted
    assert again.statistics.accepted == cold.statistics.accepted


@pytest.mark.parametrize(
    ("keywords", "nearest"),
    [({"temprature": 1.0}, "temperature"), ({"ngram_mod_nmatch": 3}, "ngram_mod_n_match")],
)
def test_unknown_options_name_the_nearest(
    make: MakeModel, keywords: dict[str, Any], nearest: str
) -> None:
    with pytest.raises(OptionError, match=nearest):
        make().generate("abc", **keywords)


def test_options_are_refused_before_anything_runs(make: MakeModel) -> None:
    with pytest.raises(OptionError, match="Did you mean `threads`"):
        make(thread=2)
    with pytest.raises(OptionError, match="once"):
        make(spec="none", type="none")
    with pytest.raises(UnsupportedError, match="draft-eagle3"):
        make(spec="draft-eagle3")
    model = make()
    for keywords in ({"temperature": -1}, {"temp": 1, "temperature": 1}, {"spec": "ngram-simpel"}):
        with pytest.raises(OptionError):
            model.generate("abc", **keywords)
    with pytest.raises(UnsupportedError, match="medusa"):
        model.generate("abc", spec="medusa")


def test_errors_reach_the_caller(make: MakeModel) -> None:
    model = make(context=5)
    with pytest.raises(ContextFullError):
        model.complete("abcdef")
    with pytest.raises(TemplateError, match="base model"):
        model.chat([{"role": "user", "content": "abc"}])
    model.loaded.program.logits = lambda _: np.full(24, np.nan, np.float32)  # type: ignore[attr-defined]
    with pytest.raises(BackendError):
        model.complete("abc")


def test_closing_a_stream_cancels_its_request(make: MakeModel) -> None:
    model = make(parallel=1)
    stream = model.generate("abc", max_tokens=50)
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    [mailbox] = model.engines.mailboxes.values()
    assert mailbox.engine.scheduler.running == []
    assert model.complete("abc", max_tokens=3).statistics.emitted == 3
    assert model.loaded.program.memory.bytes() == 0


def test_streams_may_be_read_in_turns(make: MakeModel) -> None:
    model = make(parallel=2)
    expected = [model.complete(prompt, max_tokens=10).ids for prompt in ("abc", "wx")]
    streams = [model.generate(prompt, max_tokens=10) for prompt in ("abc", "wx")]
    found: list[list[int]] = [[], []]
    for pair in zip(*streams, strict=True):
        for ids, piece in zip(found, pair, strict=True):
            ids += piece.ids
    assert [tuple(ids) for ids in found] == expected


@pytest.mark.parametrize(
    "keywords",
    [
        {"spec": "ngram-mod", "n_max": 7},
        {"spec": "ngram-mod", "draft_model": "x"},
        {"spec": "none", "ngram_mod_n_match": 5},
        {"spec": "none,ngram-mod"},
    ],
)
def test_options_that_nothing_reads_are_refused(make: MakeModel, keywords: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match="Leave out"):
        make().generate("abc", **keywords)
    if keywords["spec"] != "none":
        with pytest.raises(OptionError, match="Leave out"):
            make(**keywords)


def test_threads_share_a_model(make: MakeModel) -> None:
    model = make(parallel=3)
    prompts = ["abc", "bcd", "cde", "def", "efg", "fgh"]
    expected = [make().complete(prompt, max_tokens=25).ids for prompt in prompts]
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda prompt: model.complete(prompt, max_tokens=25).ids, prompts))
    assert found == expected


def test_async_pieces_are_the_same(make: MakeModel) -> None:
    async def collect(model: Model) -> list[str]:
        return [piece.text async for piece in model.generate_async("abc", max_tokens=12)]

    assert asyncio.run(collect(make())) == [p.text for p in make().generate("abc", max_tokens=12)]


def test_a_cancelled_task_cancels_its_request(make: MakeModel) -> None:
    model = make()

    async def consume(first: asyncio.Event) -> None:
        async for _ in model.generate_async("abc", max_tokens=190):
            first.set()

    async def main() -> None:
        first = asyncio.Event()
        task = asyncio.create_task(consume(first))
        await asyncio.wait_for(first.wait(), 300)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert len(model.complete("abc", max_tokens=3).ids) == 3
    model.forget()
    assert model.loaded.program.memory.bytes() == 0


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Model:
    path = tiny_model(tmp_path_factory.mktemp("tiny") / "tiny.gguf", "llama")
    return Model(str(path), backend="reference", context=96)


def test_a_file_runs_on_the_reference_backend(tiny: Model) -> None:
    done = tiny.complete("hello hello hello", max_tokens=12)
    assert isinstance(done, Completion)
    assert len(done.ids) == 12
    assert done.statistics.prompt_tokens > 3
    assert tiny.complete("hello hello hello", max_tokens=12).ids == done.ids


def test_a_context_beyond_the_model_is_refused(tmp_path: Path) -> None:
    path = tiny_model(tmp_path / "tiny.gguf", "llama", context=64)
    with pytest.raises(OptionError, match="at most 64"):
        Model(str(path), backend="reference", context=65)


def test_the_public_names_are_all_there_and_lazy() -> None:
    assert slipstream.__all__ == sorted(slipstream.__all__)
    for name in slipstream.__all__:
        assert getattr(slipstream, name).__name__ == name
    with pytest.raises(AttributeError, match="Modle"):
        _ = slipstream.Modle
    code = "import sys, slipstream; print(any(m in sys.modules for m in ('numpy', 'msgspec')))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout == "False\n"


def test_engines_used_longest_ago_are_given_up(make: MakeModel) -> None:
    model = make()
    for match in range(2, 2 + MOST_ENGINES + 3):
        model.complete("abc", max_tokens=2, spec="ngram-mod", ngram_mod_n_match=match)
    kept = [options.ngram_mod_n_match for options, _ in model.engines.mailboxes]
    assert kept == list(range(5, 2 + MOST_ENGINES + 3))


def test_a_listener_that_fails_costs_nobody_a_token(
    make: MakeModel, caplog: pytest.LogCaptureFixture
) -> None:
    model = make(parallel=2)
    plain = [model.complete(text, max_tokens=12).ids for text in ("abc", "abd")]
    calls = []

    def fail(*told: object) -> None:
        calls.append(told)
        raise ValueError("no")

    model.on_decision = fail
    streams = [model.generate(text, max_tokens=12) for text in ("abc", "abd")]
    pieces = list(zip(*streams, strict=False))
    got = [[*chain.from_iterable(piece.ids for piece in own)] for own in zip(*pieces, strict=True)]
    rest = [[*chain.from_iterable(piece.ids for piece in stream)] for stream in streams]
    assert [tuple(a + b) for a, b in zip(got, rest, strict=True)] == plain
    assert len(calls) == 1
    assert "on_decision failed" in caplog.text
