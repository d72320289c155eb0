"""Replies as servers send them, read afterwards; each piece with its time."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from slipstream.lab.client.answer import Answer, Prompt
from slipstream.lab.client.answer_reading import read
from slipstream.lab.client.diagnoses import diagnose
from slipstream.lab.client.exchange import RawReply
from slipstream.lab.client.told import counts_of
from slipstream.lab.contract.records import REACHED, Counts
from slipstream.lab.running.outputs import output_of
from slipstream.lab.tasks.judgements import judge
from slipstream.measure.workload import WorkloadMessage, WorkloadPrompt
from slipstream.options import SamplingOptions

STREAM = "text/event-stream; charset=utf-8"


def reply(body: bytes, kind: str = STREAM, status: int = 200, ended: str = "closed") -> RawReply:
    head = f"HTTP/1.1 {status} X\r\n" + (f"Content-Type: {kind}\r\n" if kind else "") + "\r\n"
    return RawReply(1.0, ((2.0, head.encode()), (3.0, body)), ended, 4.0)


def stream(*events: dict[str, Any]) -> bytes:
    return b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)


def answered(raw: RawReply, dialect: str = "openai") -> Answer:
    return read(raw, dialect, 10.0)


@pytest.mark.parametrize(
    ("body", "kind", "said"),
    [
        (b"<html>\n\n<p>Hello\n\n</html>", "text/html", "but text/html: <html> <p>Hello </html>"),
        (b'{"error": {"message": "no such model"}}', "application/json", "no such model"),
        (b'{"choices": []}', "Application/JSON", "but Application/JSON"),
        (b"x" * (1 << 20), "text/plain", "but text/plain: xxx"),
        (b"[" * (1 << 20), "application/json", "but application/json: [[["),
        (b"", "text/html", "but text/html"),
    ],
)
def test_a_reply_that_is_no_stream_says_what_it_is(body: bytes, kind: str, said: str) -> None:
    answer = answered(reply(body, kind))
    assert answer.error.startswith("no stream of events but ")
    assert said in answer.error
    assert len(answer.error) < 500
    assert (answer.total_s, answer.text) == (None, "")


def test_a_stream_without_a_type_is_read() -> None:
    end = {"choices": [{"delta": {"content": "a"}, "finish_reason": "stop"}]}
    answer = answered(reply(stream(end), kind=""))
    assert (answer.error, answer.text, answer.total_s) == ("", "a", 2.0)


def delta(**delta: Any) -> dict[str, Any]:
    return {"choices": [{"delta": delta, "finish_reason": delta.pop("finish", None)}]}


def called(*arguments: str) -> Answer:
    """An answer whose one call's arguments came in these pieces."""
    first = {"index": 0, "id": "1", "function": {"name": "look", "arguments": ""}}
    rest = [{"index": 0, "function": {"arguments": piece}} for piece in arguments]
    pieces = [delta(tool_calls=[piece]) for piece in (first, *rest)]
    return answered(reply(stream(*pieces, delta(finish="tool_calls"))))


def test_calls_that_a_server_keeps_apart_are_judged() -> None:
    tool = {
        "name": "look",
        "parameters": {
            "type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"],
        },
    }  # fmt: skip
    prompt = WorkloadPrompt(
        id="p", stratum="chat", messages=(WorkloadMessage("user", "?"),), max_tokens=4,
        source="", licence="", sha256="", judgement="tools", tools=(tool,),
    )  # fmt: skip
    for answer, fits in ((called('{"at"', ': "x"}'), True), (called('{"on": "x"}'), False)):
        assert (answer.text, answer.error) == ("", "")
        text = output_of(answer).judged_text
        assert judge(prompt, text, text, answer.finish_reason) == {"exact": True, "tools": fits}


def test_other_calls_are_another_output() -> None:
    one, other = called('{"at": 1}'), called('{"at": 2}')
    assert one.whole_text != other.whole_text
    assert output_of(one).whole_text == one.whole_text
    assert one.fields()["text_sha256"] != other.fields()["text_sha256"]


@pytest.mark.parametrize(
    "event",
    [
        {"choices": 3},
        {"choices": [3]},
        {"choices": [{"delta": [], "finish_reason": {}}]},
        {"choices": [{"delta": {"content": 3, "tool_calls": [{"index": -1, "function": 3}]}}]},
        {"usage": [], "timings": {"predicted_n": -1, "draft_n": "x", "queue_ms": True}},
        {
            "choices": [
                {"delta": {}, "logprobs": {"content": [{"top_logprobs": [{"logprob": "x"}]}]}}
            ]
        },
        {"choices": [{"delta": {"content": "a"}, "token_ids": ["x", -1, 1.5, True]}]},
    ],
)
def test_values_of_another_type_are_left_out(event: dict[str, Any]) -> None:
    end = {"choices": [{"delta": {}, "finish_reason": "stop"}]}
    answer = answered(reply(stream(event, end)))
    assert (answer.error, answer.ids) == ("", ())
    assert answer.output_tokens is None


def test_phases_queue_and_paths_of_slipstream() -> None:
    timings = {
        "cache_n": 2, "prompt_n": 10, "predicted_n": 4, "draft_n": 6, "draft_n_accepted": 3,
        "verification_steps": 2, "queue_ms": 5.0, "verify_ms": 20.0, "draft_ms": 1.0,
        "kernel_paths": ["a", "b"], "predicted_per_second": 50.0, "prompt_per_second": 100.0,
    }  # fmt: skip
    last = {"content": "x", "tokens": [1], "stop": True, "stop_type": "eos", "timings": timings}
    answer = answered(reply(stream(last)), "llama")
    assert (answer.prompt_tokens, answer.reused_tokens, answer.output_tokens) == (12, 2, 4)
    assert (answer.counts.drafted, answer.counts.accepted, answer.counts.steps) == (6, 3, 2)
    assert (answer.queue_s, answer.kernel_paths) == (0.005, ("a", "b"))
    assert answer.phases == {"draft": 0.001, "verify": 0.02}
    assert (answer.decode_tok_s, answer.prompt_tok_s) == (50.0, 100.0)


@pytest.mark.parametrize(
    ("accepted", "reached", "told"),
    [
        ([2, 1], [2, 2, 1], ((2, 1, 0), (2, 2, 1))),
        ([], [3], ((0,), (3,))),
        ([], [], ((), ())),
        ([1, 1], [1], ((), ())),
        ([1, "x"], [1, 1], ((), ())),
        ([1], [1, -1], ((), ())),
        ([0] * 1025, [1] * 1025, ((), ())),
        (None, [1], ((0,), (1,))),
        ({"0": 1}, 5, ((), ())),
    ],
)
def test_positions_of_slipstream(accepted: Any, reached: Any, told: Any) -> None:
    """Of each position the drafts that reached it are told, so they are what it is counted of."""
    found = counts_of({"cache_n": 0, "draft_n": 6, "accepted_at": accepted, "reached_at": reached})
    assert (found.accepted_at, found.reached_at) == told
    assert found.denominator == (REACHED if told[1] else "")


def test_the_form_of_ik_llama() -> None:
    best = [{"tok_str": text, "prob": p} for text, p in (("a", 0.5), ("b", 0.25), ("c", 0.0))]
    probabilities = {"content": "a", "probs": best}
    piece = {"content": "a", "stop": False, "completion_probabilities": [probabilities]}
    last = {
        "content": "", "stop": True, "stopped_eos": False, "stopped_word": False,
        "stopped_limit": True, "completion_probabilities": [probabilities, probabilities],
        "timings": {"prompt_n": 3, "predicted_n": 2, "predicted_per_second": 20.0},
    }  # fmt: skip
    answer = answered(reply(stream(piece, piece, last)), "llama")
    assert (answer.error, answer.text, answer.finish_reason) == ("", "aa", "limit")
    assert [round(gap or 0.0, 9) for gap in answer.gaps] == [round(math.log(2), 9)] * 2
    assert (answer.output_tokens, answer.prompt_tokens, answer.ids) == (2, 3, ())
    assert answer.counts == Counts()  # it never tells, so it is not 0


def test_a_token_without_probabilities_keeps_its_place() -> None:
    best = [{"id": 1, "logprob": -0.5}, {"id": 2, "logprob": -1.5}]
    with_them = {"tokens": [1], "completion_probabilities": [{"top_logprobs": best}]}
    last = {"content": "", "tokens": [], "stop": True, "stop_type": "limit"}
    answer = answered(reply(stream({"tokens": [5]}, with_them, {"tokens": [6, 7]}, last)), "llama")
    assert answer.gaps == (None, 1.0, None, None)
    assert len(answer.ids) == len(answer.tops) == len(answer.token_times_s) == 4
    none = answered(reply(stream({"tokens": [5]}, last)), "llama")
    assert none.tops == ()


def test_what_a_stop_text_cut_off_may_have_been_accepted() -> None:
    timings = {"cache_n": 0, "predicted_n": 4, "draft_n": 8, "draft_n_accepted": 8}
    for reason, disagrees in (("word", False), ("eos", False), ("limit", True)):
        last = {"content": "x", "stop": True, "stop_type": reason, "timings": timings}
        answer = answered(reply(stream(last)), "llama")
        found = diagnose(answer, Prompt(text="x"), SamplingOptions())
        assert bool([text for text in found if "8 draft tokens accepted" in text]) == disagrees
