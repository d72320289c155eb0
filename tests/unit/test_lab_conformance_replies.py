"""Reading a reply for the contract suite, and comparing two."""

from __future__ import annotations

import json
from typing import Any

import pytest

from slipstream.lab.client.exchange import RawReply
from slipstream.lab.conformance.asking import answered
from slipstream.lab.conformance.comparing import (
    differ,
    differ_in_logprobs,
    gap_at,
    parting,
)
from slipstream.lab.conformance.outcomes import ContractError, RefusedError
from slipstream.lab.conformance.output_checks import checked_entries
from slipstream.lab.conformance.replies import Reply, reply_of

REQUEST: dict[str, Any] = {"path": "/v1/chat/completions", "body": {}}


def raw(
    body: bytes, kind: str = "application/json", status: int = 200, ended: str = "closed"
) -> RawReply:
    head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\n\r\n".encode()
    return RawReply(1.0, ((1.5, head), (2.0, body)), ended, 3.0)


def events(*values: Any) -> bytes:
    lines = [value if isinstance(value, str) else json.dumps(value) for value in values]
    return "".join(f"data: {line}\n\n" for line in lines).encode()


def piece(text: str, **more: Any) -> dict[str, Any]:
    return {"id": "a", "choices": [{"delta": {"content": text}, **more}]}


def streamed(*values: Any) -> Reply:
    return reply_of(raw(events(*values), "text/event-stream"), REQUEST, 5.0)


def test_a_stream_is_put_together() -> None:
    entry = {"token": "b", "logprob": -0.5}
    reply = streamed(
        piece("", logprobs=None),
        {"id": "a", "choices": [{"delta": {"reasoning_content": "hm "}}]},
        piece("a"),
        piece("b", logprobs={"content": [entry]}),
        {"id": "a", "choices": [{"delta": {}, "finish_reason": "stop"}]},
        {"id": "a", "choices": [], "usage": {"completion_tokens": 3}, "timings": {"draft_n": 2}},
        "[DONE]",
    )
    assert (reply.text, reply.pieces, reply.finish_reason) == ("hm ab", 3, "stop")
    assert reply.reasoned
    assert (reply.output_tokens, reply.drafted, reply.accepted) == (3, 2, 0)
    assert (reply.entries, reply.done, sorted(reply.ids)) == ((entry,), True, ["a"])
    assert (reply.first_s, reply.last_s) == (1.0, 1.0)
    assert answered(reply) is reply


def test_what_a_server_does_not_say_is_unknown() -> None:
    reply = reply_of(raw(b'{"choices": [{"message": {"content": "x"}}]}'), REQUEST, 5.0)
    assert (reply.text, reply.finish_reason, reply.output_tokens) == ("x", "", None)
    assert (reply.drafted, reply.accepted, reply.cached_tokens, reply.entries) == (None,) * 4


@pytest.mark.parametrize(
    ("values", "found"),
    [
        (("{",), "no JSON object"),
        (("[1]",), "no JSON object"),
        (({"error": {"message": "boom"}},), "an error in the stream"),
        ((piece("a"), "[DONE]", piece("b")), r"chunks after \[DONE\]"),
    ],
)
def test_streams_that_are_none(values: tuple[Any, ...], found: str) -> None:
    with pytest.raises(ContractError, match=found):
        streamed(*values)


@pytest.mark.parametrize(
    ("ended", "found"),
    [("timeout", "no end of the reply within 5 s"), ("too long", "without end")],
)
def test_replies_without_end(ended: str, found: str) -> None:
    with pytest.raises(ContractError, match=found):
        reply_of(raw(b'{"choices": []}', ended=ended), REQUEST, 5.0)


def test_nothing_but_a_connection() -> None:
    with pytest.raises(ContractError, match="no reply"):
        reply_of(RawReply(1.0, (), "closed", 2.0), REQUEST, 5.0)
    with pytest.raises(ContractError, match="broken reply"):
        reply_of(RawReply(1.0, ((1.5, b"hello\r\n\r\n"),), "closed", 2.0), REQUEST, 5.0)
    cut = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"
    with pytest.raises(ContractError, match="ends early"):
        reply_of(RawReply(1.0, ((1.5, cut),), "closed", 2.0), REQUEST, 5.0)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        *((status, RefusedError) for status in (400, 422, 501)),
        *((status, ContractError) for status in (401, 404, 429, 500)),
    ],
)
def test_only_some_statuses_are_refusals(status: int, kind: type[ContractError]) -> None:
    body = b'{"error": {"message": "why", "type": "x"}}'
    with pytest.raises(ContractError, match=f"HTTP {status}: why") as caught:
        answered(reply_of(raw(body, status=status), REQUEST, 5.0))
    assert type(caught.value) is kind


def test_texts_part_at_a_character() -> None:
    assert differ("abc", "abc") == ""
    assert differ("abxde", "abyde") == "from character 2 on: 'abxde' against 'abyde'"
    assert differ("ab", "abc").startswith("from character 2 on")
    assert differ([1], [2]) == "[1] against [2]"
    assert [parting("", "a"), parting("a", "a")] == [0, 1]


def test_logprobs_may_differ_by_rounding() -> None:
    here = [("a", -0.5), ("b", -1.0)]
    assert differ_in_logprobs(here, [("a", -0.45), ("b", -1.0)]) == ""
    assert "at token 1 'b'" in differ_in_logprobs(here, [("a", -0.5), ("b", -1.2)])
    assert "at token 1: 'b' against 'c'" in differ_in_logprobs(here, [("a", -0.5), ("c", -1.0)])
    assert differ_in_logprobs(here, here[:1]) == "2 tokens against 1"


def test_the_gap_is_that_of_the_token_that_holds_the_character() -> None:
    tops = [{"logprob": -0.1}, {"logprob": -2.1}, {"logprob": None}]
    entries: list[dict[str, Any]] = [
        {"token": "ab", "top_logprobs": [{"logprob": -1.0}]},
        {"token": "cd", "top_logprobs": tops},
    ]
    assert gap_at(entries, 1) is None
    assert gap_at(entries, 2) == gap_at(entries, 3) == pytest.approx(2.0)
    assert gap_at(entries, 4) is None


def entry(token: str, logprob: Any = -0.1, **more: Any) -> dict[str, Any]:
    tops = [{"logprob": -0.1}, {"logprob": -3.0}, {"logprob": -4.0}]
    return {"token": token, "logprob": logprob, "top_logprobs": tops, **more}


def answer(
    *entries: dict[str, Any], text: str = "ab", tokens: int = 2, end: str = "length"
) -> Reply:
    usage = {"completion_tokens": tokens}
    return Reply(REQUEST, 200, text=text, entries=entries, finishes=(end,), usage=usage)


def test_entries_that_are_the_output() -> None:
    assert checked_entries(answer(entry("a"), entry("b"))) == [("a", -0.1), ("b", -0.1)]
    assert checked_entries(answer(entry("a"), entry("b"), tokens=3, end="stop"))
    in_bytes = [entry("\ufffd", bytes=[0xC3]), entry("\ufffd", bytes=[0xA9])]
    assert checked_entries(answer(*in_bytes, text="é"))


def test_marks_of_reasoning_are_tokens_and_no_text() -> None:
    message = {"reasoning_content": "a", "content": "b"}
    logprobs = {"content": [entry(text) for text in ("<think>", "a", "</think>", "b")]}
    choice = {"message": message, "finish_reason": "length", "logprobs": logprobs}
    body = {"choices": [choice], "usage": {"completion_tokens": 4}}
    reply = reply_of(raw(json.dumps(body).encode()), REQUEST, 5.0)
    assert (reply.text, len(checked_entries(reply))) == ("ab", 4)


@pytest.mark.parametrize(
    ("reply", "found"),
    [
        (answer(entry("a")), "log-probabilities of 1 tokens, 2 were output"),
        (answer(entry("a"), entry("b"), tokens=3), "2 tokens, 3 were output"),
        (answer(entry("a"), entry("x")), "another output, from character 1 on"),
        (answer(entry("a"), entry("b", None)), "token 1 has no log-probability"),
        (answer(entry("a"), entry("b", True)), "token 1 has no log-probability"),
        (answer(entry("a"), entry("b", 0.5)), "token 1 has no log-probability"),
        (answer(entry("a"), entry("b", top_logprobs=[])), "has 0 of 3"),
        (
            answer(entry("a"), entry("b", top_logprobs=[*entry("b")["top_logprobs"], {}])),
            "has 3 of 3",
        ),
        (answer(entry("a"), entry("b", -2.0)), "another is likelier"),
        (
            answer(entry("a", -0.0, top_logprobs=[{"logprob": 0.0}] * 3), entry("b")),
            "no distribution",
        ),
        (Reply(REQUEST, 200, text="ab", finishes=("length",)), "no `logprobs.content`"),
    ],
)
def test_entries_that_are_not(reply: Reply, found: str) -> None:
    with pytest.raises(ContractError, match=found):
        checked_entries(reply)
