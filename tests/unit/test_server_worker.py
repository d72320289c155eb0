"""The engine process: a real one, with a tiny model."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from builders import tiny_model
from engine_talk import BACKEND, PATIENCE_S, Talk, plan_of, talking
from slipstream import Model
from slipstream.errors import BackendError, ModelFileError, OptionError
from slipstream.server.engine_process import EngineProcess
from slipstream.server.wire import Cancel, Speculation, Stop

PROMPT = [40, 41, 42, 43]
LONG = {"ignore_eos": True, "max_tokens": 2000}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("tiny") / "tiny.gguf", "llama", context=4096)


@pytest.fixture(scope="module")
def talk(tiny: Path) -> Iterator[Talk]:
    with talking(plan_of(tiny, parallel=2, ngram_mod_n_match=3)) as shared:
        yield shared


@pytest.fixture(scope="module")
def model(tiny: Path) -> Model:
    return Model(str(tiny), backend=BACKEND)


def test_it_says_what_it_is(talk: Talk, tiny: Path) -> None:
    facts = talk.ready.facts
    assert facts["model"] == facts["path"] == str(tiny)
    assert facts["architecture"] == "llama"
    assert facts["context"] == 4096
    assert facts["parallel"] == 2
    assert facts["backend"] == BACKEND
    assert facts["weight_bytes"] > 0
    assert facts["vocabulary"] > 0
    assert facts["exact"] is True
    assert talk.ready.speculation == Speculation(methods=(), scope="session")
    mod = talk.ready.methods["ngram-mod"]
    assert mod["offered"]
    assert mod["parameters"]["ngram_mod_n_match"] == 3
    assert not talk.ready.methods["medusa"]["offered"]


OPTIONS: list[dict[str, Any]] = [
    {"max_tokens": 24},
    {"max_tokens": 24, "ignore_eos": True, "temperature": 1.0, "seed": 7},
    {"max_tokens": 12, "temperature": 0.8, "top_k": 20, "logprobs": 3, "ignore_eos": True},
    {"max_tokens": 24, "ignore_eos": True, "repetition_penalty": 1.3, "logit_bias": {44: 3.0}},
    {"max_tokens": 0},
    {"max_tokens": 1},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("methods", [(), ("ngram-mod", "suffix")], ids=str)
def test_its_outputs_are_those_of_the_model(
    talk: Talk, model: Model, options: dict[str, Any], methods: tuple[str, ...]
) -> None:
    keywords = {"seed": 1, **options}
    expected = model.complete(PROMPT, **keywords)
    number = talk.submit(PROMPT, speculation=Speculation(methods=methods), **keywords)
    [last] = talk.until(number)
    assert talk.ids(number) == list(expected.ids)
    assert talk.text(number) == expected.text
    assert last.finish_reason == expected.finish_reason
    tokens = [token for event in talk.events[number] for token in event.tokens]
    assert [token.logprob for token in tokens] == list(expected.logprobs)
    assert [token.top for token in tokens] == [token.top for token in expected.tokens]
    assert last.summary is not None
    assert last.summary["emitted"] == len(tokens)
    assert last.summary["prompt_tokens"] == len(PROMPT)
    assert last.summary["seed"] == keywords["seed"]
    assert "rounds" not in last.summary


def test_a_stop_string(talk: Talk, model: Model) -> None:
    whole = model.complete(PROMPT, max_tokens=40, ignore_eos=True).text
    stop = whole[len(whole) // 2 :][:3]
    number = talk.submit(PROMPT, max_tokens=40, ignore_eos=True, stop=(stop,))
    [last] = talk.until(number)
    assert (last.finish_reason, last.stop) == ("stop", stop)
    assert talk.text(number) == whole[: whole.index(stop)]


def test_choices_use_seeds_of_their_own(talk: Talk, model: Model) -> None:
    options: dict[str, Any] = {"max_tokens": 12, "temperature": 1.5, "ignore_eos": True}
    numbers = [talk.submit(PROMPT, seed=5, choice=choice, **options) for choice in range(3)]
    talk.until(*numbers)
    for choice, number in enumerate(numbers):
        assert talk.ids(number) == list(model.complete(PROMPT, seed=5 + choice, **options).ids)


def test_counts_of_steps_add_up(talk: Talk) -> None:
    number = talk.submit(
        PROMPT, speculation=Speculation(methods=("ngram-mod", "suffix")), session="counts", **LONG
    )
    [last] = talk.until(number)
    summary = last.summary
    assert summary is not None
    for name in ("drafted", "tested", "accepted"):
        assert sum(getattr(event, name) for event in talk.events[number]) == summary[name]
    accepted = sum(one["accepted"] for one in summary["by_method"].values())
    assert accepted == summary["accepted"] > 0
    assert summary["accepted"] + summary["target_passes"] == (
        summary["emitted"] + summary["discarded"]
    )
    times = summary["times"]
    assert set(times) == {*("queue_s", "prompt_s", "draft_s", "verify_s", "sample_s", "commit_s")}
    assert all(value >= 0 for value in times.values())
    assert times["verify_s"] > 0
    assert summary["observed"]


def test_places_and_the_queue(talk: Talk) -> None:
    numbers = [talk.submit(PROMPT, ignore_eos=True, max_tokens=60) for _ in range(4)]
    seen = len(talk.loads)
    talk.until(*numbers)
    slots = [talk.started[number] for number in numbers]
    assert all(slot.queue_s >= 0 for slot in slots)
    assert max(slots[2].queue_s, slots[3].queue_s) > max(slots[0].queue_s, slots[1].queue_s)
    loads = talk.loads[seen:]
    assert max(load.running for load in loads) == 2
    assert max(load.waiting for load in loads) >= 1
    assert all(load.memory_bytes <= load.memory_limit_bytes for load in loads)
    assert [load.steps for load in loads] == sorted(load.steps for load in loads)
    last = loads[-1]
    assert (last.running, last.waiting, last.prompt_tokens_left) == (0, 0, 0)
    assert last.rows >= last.steps > 0


def test_a_long_prompt_is_counted_down(talk: Talk) -> None:
    seen = len(talk.loads)
    number = talk.submit(PROMPT * 500, max_tokens=2)
    talk.until(number)
    left = [load.prompt_tokens_left for load in talk.loads[seen:]]
    assert left[-1] == 0
    assert talk.started[number].request == number


def test_cancelling(talk: Talk) -> None:
    first = talk.submit(PROMPT, **LONG)
    other = talk.submit(PROMPT, ignore_eos=True, max_tokens=200)
    talk.until_tokens(first, 3)
    talk.send(Cancel(request=first))
    talk.send(Cancel(request=first))
    talk.send(Cancel(request=999_999))
    cancelled, finished = talk.until(first, other)
    assert cancelled.finish_reason == "cancelled"
    assert len(talk.ids(first)) < 2000
    assert finished.finish_reason == "length"
    talk.send(Cancel(request=first))
    assert len(talk.ids(other)) == 200


@pytest.mark.parametrize(
    ("keywords", "kind"),
    [
        ({"prompt": []}, "RequestError"),
        ({"prompt": [1 << 30]}, "RequestError"),
        ({"prompt": PROMPT * 1024}, "ContextFullError"),
        ({"prompt": PROMPT, "logit_bias": {1 << 30: 1.0}}, "OptionError"),
        ({"prompt": PROMPT, "session": "x" * 1000}, "RequestError"),
        ({"prompt": PROMPT, "regex": "("}, "GrammarError"),
        ({"prompt": PROMPT, "json_schema": '{"type": 7}'}, "GrammarError"),
    ],
)
def test_a_request_at_fault_ends_with_an_error(
    talk: Talk, keywords: dict[str, Any], kind: str
) -> None:
    prompt = keywords.pop("prompt") if "prompt" in keywords else PROMPT
    number = talk.submit(prompt, **keywords)
    [last] = talk.until(number)
    assert last.finish_reason == "error"
    assert last.error is not None
    assert last.error.kind == kind
    assert number not in talk.started


def test_a_grammar_is_compiled_beside_the_loop(talk: Talk, model: Model) -> None:
    beside = talk.submit(PROMPT, **LONG)
    expected = model.complete(PROMPT, regex="[ab]{5,9}", max_tokens=20, seed=1)
    number = talk.submit(PROMPT, regex="[ab]{5,9}", max_tokens=20)
    talk.until(number)
    assert talk.text(number) == expected.text
    assert set(talk.text(number)) <= {"a", "b"}
    talk.send(Cancel(request=beside))
    talk.until(beside)


def test_cancelling_while_a_grammar_is_compiled(talk: Talk) -> None:
    slow = '{"not": {"pattern": "(a|b)*a(a|b){9}c"}}'
    number = talk.submit(PROMPT, json_schema=slow, max_tokens=20)
    talk.send(Cancel(request=number))
    [last] = talk.until(number)
    assert last.finish_reason in ("cancelled", "error")


def test_questions(talk: Talk) -> None:
    chosen = Speculation(methods=("ngram-mod", "suffix"))
    for session in ("mine", "theirs"):
        talk.until(talk.submit(PROMPT * 20, session=session, speculation=chosen, max_tokens=20))
    assert sum(talk.ask("observed").value.values()) > 0
    kept = talk.ask("remembered", "mine").value["drafters"]
    assert {scope for scopes in kept.values() for scope in scopes} == {"session mine"}
    every = talk.ask("remembered").value["drafters"]
    scopes = {scope for scopes in every.values() for scope in scopes}
    assert scopes >= {"session mine", "session theirs"}
    assert talk.ask("forget", "mine").error is None
    assert not talk.ask("remembered", "mine").value["drafters"]
    assert talk.ask("remembered", "theirs").value["drafters"]
    wrong = talk.ask("what?").error
    assert wrong is not None
    assert wrong.kind == "OptionError"


def test_signals_that_end_the_other_process_do_not_end_it(talk: Talk) -> None:
    number = talk.submit(PROMPT, ignore_eos=True, max_tokens=300)
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        talk.process.process.send_signal(name)
    assert talk.until(number)[0].finish_reason == "length"


def test_a_reader_that_sleeps_holds_up_nothing(talk: Talk) -> None:
    number = talk.submit(PROMPT, logprobs=20, **LONG)
    time.sleep(1.0)
    [last] = talk.until(number)
    assert last.finish_reason == "length"
    assert len(talk.ids(number)) == 2000


def ends(process: EngineProcess) -> int | None:
    process.wait(PATIENCE_S)
    return process.exit_code


def test_stop_cancels_and_ends(tiny: Path) -> None:
    with talking(plan_of(tiny, parallel=1)) as own:
        numbers = [own.submit(PROMPT, **LONG) for _ in range(2)]
        own.until_tokens(numbers[0], 3)
        own.send(Stop())
        assert [event.finish_reason for event in own.until(*numbers)] == ["cancelled"] * 2
        assert ends(own.process) == 0


def test_it_ends_with_the_other_process(tiny: Path) -> None:
    with talking(plan_of(tiny)) as own:
        number = own.submit(PROMPT, **LONG)
        own.until_tokens(number, 3)
        own.process.connection.close()
        assert ends(own.process) == 0


def test_its_death_is_noticed_and_explained(tiny: Path) -> None:
    with talking(plan_of(tiny)) as own:
        own.until_tokens(own.submit(PROMPT, **LONG), 3)
        own.process.process.kill()
        while own.take():
            pass
        assert ends(own.process) == -signal.SIGKILL
        assert "SIGKILL" in str(own.process.death())


def test_a_death_while_it_loads_is_explained(tiny: Path) -> None:
    with EngineProcess(plan_of(tiny)) as process:
        process.process.kill()
        with pytest.raises(BackendError, match="SIGKILL"):
            process.wait_until_ready()


def test_a_model_that_cannot_be_opened(tiny: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + bytes(60))
    for model, keywords, kind in (
        (broken, {}, ModelFileError),
        (tmp_path / "absent.gguf", {}, ModelFileError),
        (tiny, {"context": 1 << 20}, OptionError),
        (tiny, {"draft_model": str(broken)}, ModelFileError),
    ):
        with (
            EngineProcess(plan_of(model, **keywords)) as process,
            pytest.raises(kind),
        ):
            process.wait_until_ready()


def test_progress_while_it_loads(tiny: Path) -> None:
    told: list[tuple[int, int]] = []
    with EngineProcess(plan_of(tiny)) as process:
        process.wait_until_ready(lambda done, total: told.append((done, total)))
    assert told == sorted(told)
    assert told[-1][0] == told[-1][1] > 0


def test_the_models_own_file_drafts(tiny: Path) -> None:
    with talking(plan_of(tiny, draft_model=str(tiny), type=("draft-simple",), n_max=3)) as own:
        assert own.ready.methods["draft-simple"]["parameters"]["n_max"] == 3
        assert own.ready.speculation.methods == ("draft-simple",)
        number = own.submit(PROMPT, max_tokens=30, ignore_eos=True)
        [last] = own.until(number)
        assert last.summary is not None
        assert last.summary["emitted"] == 30
