"""The lab's client against servers that tell the truth, and against each that does not."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lying_runtime import running
from slipstream.errors import OptionError, PeerRuntimeError
from slipstream.lab.client.client import Answer, Prompt, ask, ask_now, fetch, ids_digest, send
from slipstream.lab.contract.records import RequestRecord
from slipstream.lab.contract.runtimes import Endpoint

PROMPT = Prompt(messages=({"role": "user", "content": "Count."},), ids=tuple(range(100, 112)))
TOKENS = 48
SAMPLING: dict[str, Any] = {"max_tokens": TOKENS, "seed": 7}


@pytest.fixture(scope="module")
def honest() -> Iterator[str]:
    with running() as url:
        yield url


def answered(url: str, dialect: str = "llama", timeout_s: float = 20.0, **more: Any) -> Answer:
    endpoint = Endpoint(url=url, dialect=dialect)
    return ask_now(endpoint, PROMPT, {**SAMPLING, **more}, timeout_s=timeout_s)


def lied_to(*lies: str, dialect: str = "llama", timeout_s: float = 20.0, **facts: Any) -> Answer:
    flags = ("--spec-type", "ngram-mod")
    with running(*lies, flags=flags, **facts) as url:
        return answered(url, dialect, timeout_s)


def found(answer: Answer) -> list[str]:
    """Names of the findings."""
    return [text.partition(":")[0] for text in answer.diagnostics]


def test_an_honest_answer(honest: str) -> None:
    answer = answered(honest)
    assert answer.error == ""
    assert found(answer) == []
    assert len(answer.ids) == TOKENS
    assert answer.text == "".join(f" w{token}" for token in answer.ids)
    assert (answer.output_tokens, answer.prompt_tokens) == (TOKENS, len(PROMPT.ids))
    assert answer.finish_reason == "limit"
    assert (answer.counts.drafted, answer.counts.source) == (0, "request")


def test_every_token_has_a_time(honest: str) -> None:
    answer = answered(honest)
    assert len(answer.token_times_s) == TOKENS
    assert list(answer.token_times_s) == sorted(answer.token_times_s)
    assert answer.ttft_s is not None
    assert answer.total_s is not None
    assert 0 < answer.ttft_s < answer.token_times_s[-1] <= answer.total_s


def test_the_fields_make_a_record(honest: str) -> None:
    answer = answered(honest)
    origin_s = answer.sent_s - 5.0
    record = RequestRecord(
        run="r", block=0, index=0, runtime="x", condition="none", stratum="chat", prompt="p",
        **answer.fields(origin_s),
    )  # fmt: skip
    assert record.sent_s == pytest.approx(5.0)
    assert record.first_s == pytest.approx(5.0 + record.token_times_s[0])
    assert record.ids_sha256 == ids_digest(answer.ids)
    assert json.loads(answer.output())["ids"] == list(answer.ids)


def test_the_same_request_has_the_same_output_drafting_or_not(honest: str) -> None:
    assert lied_to().ids == answered(honest).ids


def test_openai_dialect(honest: str) -> None:
    plain, chat = answered(honest), answered(honest, "openai")
    assert chat.error == ""
    assert chat.text
    assert chat.text != plain.text  # messages are another prompt than ids here
    assert chat.ids == ()
    assert chat.output_tokens == TOKENS
    assert len(chat.token_times_s) == TOKENS
    assert chat.finish_reason == "length"


@pytest.mark.parametrize("dialect", ["llama", "openai"])
def test_logprobs_give_the_gap_of_the_two_best(honest: str, dialect: str) -> None:
    answer = answered(honest, dialect, logprobs=2)
    assert len(answer.gaps) == TOKENS
    assert answer.gaps[0] == pytest.approx(0.5)


def test_an_endpoint_may_add_to_every_body(honest: str) -> None:
    endpoint = Endpoint(url=honest, dialect="openai", model="m", extra={"return_token_ids": True})
    answer = ask_now(endpoint, PROMPT, SAMPLING, timeout_s=20.0)
    assert len(answer.ids) == TOKENS


def test_several_at_once_are_read_afterwards(honest: str) -> None:
    endpoint = Endpoint(url=honest, dialect="llama")

    async def many() -> list[Answer]:
        work = (send(endpoint, PROMPT, SAMPLING, timeout_s=20.0) for _ in range(4))
        return [sent.answer() for sent in await asyncio.gather(*work)]

    answers = asyncio.run(many())
    assert {answer.ids for answer in answers} == {answers[0].ids}


LIES: list[tuple[str, Callable[[Answer], bool]]] = [
    ("wrong-counts", lambda a: "counts-disagree" in found(a)),
    ("wrong-drafts", lambda a: any("draft tokens accepted of" in text for text in a.diagnostics)),
    ("cached", lambda a: found(a) == ["reused-prompt"]),
    ("other-temperature", lambda a: found(a) == ["flag-ignored"]),
    ("garbage", lambda a: a.error.startswith("broken reply")),
    ("huge-line", lambda a: a.error.startswith("broken reply: an event of more than")),
    ("torn", lambda a: a.error.startswith("the reply ended early, after 5 tokens")),
    ("http-500", lambda a: a.error == "HTTP 500: a fault"),
    ("error-event", lambda a: a.error == "error event: a fault in the middle"),
    ("endless", lambda a: a.error.startswith("endless stream")),
]


@pytest.mark.parametrize(("lie", "caught"), LIES, ids=[lie for lie, _ in LIES])
def test_a_lie_is_caught(lie: str, caught: Callable[[Answer], bool]) -> None:
    answer = lied_to(lie)
    assert caught(answer), (answer.error, answer.diagnostics)
    assert (answer.total_s is None) == bool(answer.error)
    assert not answer.timed_out


def test_an_honest_drafter_is_counted_and_nothing_is_found() -> None:
    answer = lied_to()
    assert found(answer) == []
    assert answer.counts.drafted == TOKENS // 3 * 4
    assert answer.counts.accepted == TOKENS // 3 * 2


def test_a_stall_is_told_with_its_place() -> None:
    answer = lied_to("stall", stall_s=2.5)
    assert [text for text in answer.diagnostics if "before token 11" in text]
    assert found(answer) == ["stalled"]


@pytest.mark.parametrize("lie", ["stall", "endless-pings"])
def test_a_timeout_is_a_record(lie: str) -> None:
    begun = time.perf_counter()
    answer = lied_to(lie, timeout_s=0.8, stall_s=30.0)
    assert answer.timed_out
    assert answer.error.startswith("timeout: no end within 0.8 s")
    assert answer.total_s is None
    assert time.perf_counter() - begun < 15
    tokens = 10 if lie == "stall" else 0
    assert len(answer.token_times_s) == tokens


def test_a_crash_ends_the_answer_and_the_next_finds_nobody() -> None:
    with running("crash") as url:
        answers = [answered(url) for _ in range(7)]
        time.sleep(0.3)  # its socket is closed a moment after the last reply breaks off
        answers.append(answered(url))
    assert [bool(answer.error) for answer in answers] == [False] * 6 + [True] * 2
    assert answers[-1].error.startswith("no connection")
    assert not any(answer.timed_out for answer in answers)


def test_a_divergence_shows_in_the_ids(honest: str) -> None:
    straight, bent = answered(honest).ids, lied_to("diverge").ids
    assert straight[:40] == bent[:40]
    assert straight[40] != bent[40]


@pytest.mark.parametrize(
    ("prompt", "dialect", "sampling"),
    [
        (Prompt(), "llama", {}),
        (Prompt(), "openai", {}),
        (PROMPT, "other", {}),
        (PROMPT, "llama", {"grammar": 'start: "a"'}),
        (PROMPT, "llama", {"temprature": 1.0}),
    ],
)
def test_what_cannot_be_asked_is_an_error(
    prompt: Prompt, dialect: str, sampling: dict[str, Any]
) -> None:
    with pytest.raises(OptionError):
        asyncio.run(ask(Endpoint("http://127.0.0.1:1", dialect), prompt, sampling, timeout_s=1.0))


def test_fetch_gives_status_and_body_or_an_error(honest: str) -> None:
    assert fetch(honest, "/health").json() == {"status": "ok"}
    assert fetch(honest, "/nowhere").status == 404
    with pytest.raises(PeerRuntimeError, match="no connection"):
        fetch("http://127.0.0.1:1", "/health")
    with pytest.raises(PeerRuntimeError, match="beginning"):
        fetch(honest, "/metrics", most_bytes=20)


def test_fetch_may_be_called_within_an_event_loop(honest: str) -> None:
    async def inside() -> int:
        return fetch(honest, "/health").status

    assert asyncio.run(inside()) == 200
