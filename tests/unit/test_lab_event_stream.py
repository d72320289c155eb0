"""Replies cut anywhere, and replies that are none."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.errors import OptionError
from slipstream.lab.client import event_stream
from slipstream.lab.client.event_stream import (
    MOST_EVENT_BYTES,
    BrokenReplyError,
    TimedBytes,
    events,
    payload_of,
)
from slipstream.lab.client.exchange import RawReply, request_bytes
from slipstream.lab.contract.address import Address, address_of

BODY = b'data: {"a": 1}\n\n: ping\n\ndata: {"b": 2}\n\ndata: [DONE]\n\n'
HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-Other: 1\r\n\r\n"


def chunked(body: bytes, size: int) -> bytes:
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in [*parts, b""])


def raw(data: bytes, cuts: list[int] | None = None, ended: str = "closed") -> RawReply:
    """The bytes cut at these places; part i came at second i."""
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts or [])})
    pairs = pairwise(places)
    parts = tuple((float(at), data[a:b]) for at, (a, b) in enumerate(pairs))
    return RawReply(0.0, parts, ended, 99.0)


@given(st.lists(st.integers(0, 500), max_size=30), st.integers(1, 20))
def test_cuts_and_chunks_change_nothing_but_times(cuts: list[int], size: int) -> None:
    payload = payload_of(raw(HEAD + chunked(BODY, size), cuts))
    found = list(events(payload.parts))
    assert (payload.status, payload.whole) == (200, True)
    assert payload.body == BODY
    assert [event.data for event in found] == [b'{"a": 1}', b'{"b": 2}', b"[DONE]"]
    assert [event.at_s for event in found] == sorted(event.at_s for event in found)


@given(st.lists(st.integers(0, 200), max_size=20))
def test_lines_may_end_in_two_bytes_however_they_are_cut(cuts: list[int]) -> None:
    body = BODY.replace(b"\n", b"\r\n")
    parts = payload_of(raw(b"HTTP/1.1 200 OK\r\n\r\n" + body, cuts)).parts
    assert [event.data for event in events(parts)] == [b'{"a": 1}', b'{"b": 2}', b"[DONE]"]


def test_more_events_than_any_answer_has_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "MOST_EVENTS", 100)
    assert list(events([TimedBytes(0.0, b"data: a\n\n" * 100)]))
    for piece in (b"data: a\n\n", b": ping\n\n", b"\n\n"):
        with pytest.raises(BrokenReplyError, match="more than 100 events"):
            list(events([TimedBytes(0.0, piece * 101)]))


def test_an_event_came_when_its_last_byte_did() -> None:
    data = HEAD + chunked(BODY, 1 << 20)
    end = data.index(b'{"b": 2}\n') + len(b'{"b": 2}\n')
    found = list(events(payload_of(raw(data, [len(HEAD) + 9, end])).parts))
    assert [event.at_s for event in found] == [1.0, 2.0, 2.0]


@pytest.mark.parametrize("cut", range(len(HEAD) + 1, len(HEAD) + 60, 7))
def test_half_a_reply_is_not_whole(cut: int) -> None:
    assert not payload_of(raw((HEAD + chunked(BODY, 10))[:cut])).whole


def test_a_counted_body() -> None:
    head = b"HTTP/1.1 503 Busy\r\ncontent-length: 5\r\n\r\n"
    assert payload_of(raw(head + b"12345")).whole
    short = payload_of(raw(head + b"1234"))
    assert (short.status, short.whole, short.body) == (503, False, b"1234")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"HTTP/1.1 200 OK\r\n",
        b"SSH-2.0-x\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        HEAD + b"xyz\r\nhello\r\n",
        HEAD + b"\r\nhello\r\n",
        HEAD + b"f" * 16 + b"\r\n",
        HEAD + b"1" * 300,
    ],
)
def test_what_is_no_http_is_broken(data: bytes) -> None:
    with pytest.raises(BrokenReplyError):
        payload_of(raw(data))


@pytest.mark.parametrize(
    ("parts", "found"),
    [
        ([b"data: {}\n\ndata: {"], "ends within"),
        ([b"data: " + b"x" * (MOST_EVENT_BYTES + 1)], "more than"),
        ([b"data: " + b"x" * (MOST_EVENT_BYTES + 1) + b"\n\n"], "more than"),
    ],
)
def test_an_event_without_end_is_broken(parts: list[bytes], found: str) -> None:
    with pytest.raises(BrokenReplyError, match=found):
        list(events(TimedBytes(0.0, part) for part in parts))


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://127.0.0.1:8080", Address("127.0.0.1", 8080)),
        ("localhost:1234/", Address("localhost", 1234)),
        ("https://example.org/api/v1", Address("example.org", 443, True, "/api")),
        ("http://[::1]:99/v1/", Address("::1", 99)),
    ],
)
def test_addresses(url: str, address: Address) -> None:
    assert address_of(url) == address


@pytest.mark.parametrize("url", ["", "ftp://x", "http://", "http://a:b@c", "http://x:99999999"])
def test_no_addresses(url: str) -> None:
    with pytest.raises(OptionError):
        address_of(url)


def test_a_header_cannot_smuggle_another() -> None:
    with pytest.raises(OptionError):
        request_bytes(Address("x", 1), "/", None, {"Authorization": "a\r\nX: b"})


def test_a_request_asks_for_the_connection_to_be_closed() -> None:
    data = request_bytes(Address("::1", 1, prefix="/p"), "/x", {"a": 1}, {})
    assert data.startswith(b"POST /p/x HTTP/1.1\r\nHost: [::1]:1\r\nConnection: close\r\n")
    assert data.endswith(b'Content-Length: 8\r\n\r\n{"a": 1}')
