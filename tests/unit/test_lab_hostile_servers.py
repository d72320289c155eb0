"""Servers that mean harm: whatever they send, a record with a reason, in bounded memory."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator

import psutil
import pytest

from slipstream.errors import PeerRuntimeError
from slipstream.lab.client import exchange, told
from slipstream.lab.client.answer_reading import read
from slipstream.lab.client.client import Answer, Prompt, ask_now, fetch
from slipstream.lab.contract.runtimes import Endpoint
from slipstream.lab.runtimes import observing

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
CHUNKED = HEAD[:-2] + b"Transfer-Encoding: chunked\r\n\r\n"
PIECE = b'data: {"content": "a", "tokens": [1]}\n\n'
LAST = b'data: {"content": "", "stop": true, "stop_type": "limit", "tokens_predicted": 1}\n\n'
MEBIBYTE = 1 << 20
MOST_GROWTH = 400 * MEBIBYTE
"""Of this process while a reply of 64 MiB is kept and read."""

Speak = Callable[[socket.socket], None]


@contextlib.contextmanager
def speaking(speak: Speak) -> Iterator[str]:
    """A server that says this on every connection, after it took the request."""

    def serve(connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            connection.settimeout(20)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.recv(1 << 16)
            speak(connection)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listening.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def saying(*parts: bytes) -> Speak:
    def speak(connection: socket.socket) -> None:
        for part in parts:
            connection.sendall(part)

    return speak


def flooding(first: bytes, piece: bytes, gibibytes: float = 1.0) -> Speak:
    """One beginning, then the same piece up to a GiB."""
    times = int(gibibytes * (1 << 30) / len(piece))
    return lambda connection: saying(first, *itertools.repeat(piece, times))(connection)


def asked(speak: Speak, timeout_s: float = 15.0, dialect: str = "llama") -> Answer:
    prompt = Prompt(messages=({"role": "user", "content": "?"},), ids=(1, 2))
    with speaking(speak) as url:
        endpoint = Endpoint(url=url, dialect=dialect)
        return ask_now(endpoint, prompt, {"max_tokens": 8, "seed": 1}, timeout_s=timeout_s)


FLOODS = {
    "one line": flooding(HEAD + b'data: {"content": "', b"x" * MEBIBYTE),
    "one line in chunks": flooding(CHUNKED, b"100000\r\n" + b"x" * MEBIBYTE + b"\r\n"),
    "one chunk": flooding(CHUNKED + b"40000000\r\n", b"x" * MEBIBYTE),
    "a chunk's size": flooding(CHUNKED, b"1" * MEBIBYTE),
    "a head": flooding(b"HTTP/1.1 200 OK\r\nX: ", b"x" * MEBIBYTE),
    "heads": flooding(b"HTTP/1.1 200 OK\r\n", b"X-A: b\r\n" * (1 << 15)),
    "no head": flooding(b"", b"\x00" * MEBIBYTE),
    "line ends": flooding(HEAD, b"\n" * MEBIBYTE),
    "half line ends": flooding(HEAD, b"\r" * MEBIBYTE),
    "comments": flooding(HEAD, b": ping\n\n" * (1 << 15)),
    "empty events": flooding(HEAD, b"data:\n\n" * (1 << 15)),
    "tokens": flooding(HEAD, PIECE * (1 << 12)),
    "many ids": flooding(HEAD + b'data: {"content": "", "tokens": [1', b",1" * (1 << 19)),
    "brackets": flooding(HEAD + b"data: ", b"[" * MEBIBYTE),
    "empty lists": flooding(HEAD, b"data: {\"a\": [" + b"[]," * (1 << 20) + b"0]}\n\n"),
    "a page": flooding(HEAD.replace(b"event-stream", b"html"), b"<p>hello " * (1 << 16)),
    "an error": flooding(HEAD.replace(b"200", b"500"), b"[[],[],[],[]]" * (1 << 16)),
}  # fmt: skip


@pytest.mark.parametrize("name", list(FLOODS))
def test_a_gibibyte_is_cut_and_named(name: str) -> None:
    own = psutil.Process(os.getpid())
    before, begun = own.memory_info().rss, time.perf_counter()
    answer = asked(FLOODS[name])
    assert answer.error
    assert len(answer.error) < 600
    assert (answer.total_s, answer.timed_out) == (None, False)
    assert time.perf_counter() - begun < 20
    assert own.memory_info().rss - before < MOST_GROWTH


def test_a_byte_at_a_time_is_cut_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "MOST_PARTS", 200)

    def drip(connection: socket.socket) -> None:
        for _ in range(5000):
            connection.sendall(b"x")
            time.sleep(0.001)

    begun = time.perf_counter()
    assert "no head of a reply" in asked(drip).error
    assert time.perf_counter() - begun < 4


def test_many_small_pieces_are_read_in_linear_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "MOST_PARTS", 60_000)
    word = b'data: {"content": "' + b"x" * 300_000 + b'", "tokens": [1]}\n\n'
    raw = [(0.0, HEAD), *((0.1, word[at : at + 5]) for at in range(0, len(word), 5)), (0.2, LAST)]
    reply = exchange.RawReply(0.0, tuple(raw), "closed", 1.0)
    begun = time.perf_counter()
    assert len(read(reply, "llama", 1.0).text) == 300_000
    assert time.perf_counter() - begun < 2


@pytest.mark.parametrize(
    ("parts", "error"),
    [
        ((), "the reply ended early, before any token"),
        ((b"HTTP/1.1 200",), "broken reply: no head of a reply"),
        ((HEAD,), "the reply ended early, before any token"),
        ((HEAD, PIECE, PIECE), "the reply ended early, after 2 tokens"),
        ((HEAD, PIECE, b'data: {"con'), "broken reply: the stream ends within an event"),
        ((HEAD, b"data: <html>\n\n"), "broken reply: an event that is no JSON object"),
        ((HEAD, b"data: [1]\n\n"), "broken reply: an event that is no JSON object"),
        ((HEAD, b'data: {"content": "\xff"}\n\n'), "broken reply: an event that is no JSON object"),
        ((CHUNKED, b"-5\r\nabc\r\n"), "broken reply: no size of a chunk"),
        ((CHUNKED, b"zz\r\n"), "broken reply: no size of a chunk"),
        ((b"HTTP/1.1 \xb200 OK\r\n\r\n", PIECE), "broken reply: no status line"),
        ((b"HTTP/1.1 " + b"9" * 5000 + b" OK\r\n\r\n",), "broken reply: no status line"),
        ((b"SSH-2.0-OpenSSH\r\n\r\n",), "broken reply: no status line"),
        ((b"HTTP/1.1 302 Found\r\nLocation: http://x\r\n\r\n",), "HTTP 302: "),
        ((HEAD, b'data: {"error": []}\n\n'), "the reply ended early"),
        ((HEAD, b'data: {"error": {"message": 3}}\n\n'), "error event: "),
        ((HEAD, b'error: {"error": {"message": "bad"}}\n\n'), "error event: bad"),
    ],
)
def test_a_reply_that_is_none_is_named(parts: tuple[bytes, ...], error: str) -> None:
    answer = asked(saying(*parts))
    assert answer.error.startswith(error)
    assert answer.total_s is None


@pytest.mark.parametrize("length", [b"9" * 5000, b"\xb2", b"-1", b"1e3", b"99999999999999999999"])
def test_a_length_that_is_none_is_passed_over(length: bytes) -> None:
    head = HEAD[:-2] + b"Content-Length: " + length + b"\r\n\r\n"
    answer = asked(saying(head, PIECE, LAST))
    assert (answer.error, answer.ids) == ("", (1,))


def test_a_length_that_is_never_reached_ends_with_the_connection() -> None:
    head = HEAD[:-2] + b"Content-Length: 100000\r\n\r\n"
    answer = asked(saying(head, PIECE, LAST))
    assert answer.error == ""  # the stream's own end came
    assert asked(saying(head, PIECE)).error == "the reply ended early, after 1 tokens"


def test_a_connection_that_is_reset_in_the_middle() -> None:
    def reset(connection: socket.socket) -> None:
        connection.sendall(HEAD + PIECE)
        time.sleep(0.1)
        linger = b"\x01\x00\x00\x00\x00\x00\x00\x00"
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)

    answer = asked(reset)
    assert answer.error == "the reply ended early, after 1 tokens"
    assert len(answer.token_times_s) == 1


def test_silence_is_a_timeout() -> None:
    begun = time.perf_counter()
    answer = asked(lambda _: time.sleep(5), timeout_s=0.5)
    assert (answer.timed_out, answer.error[:8]) == (True, "timeout:")
    assert time.perf_counter() - begun < 3


NESTED = b"[" * 100_000 + b"]" * 100_000
JSON = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"


@pytest.mark.parametrize(
    "body",
    [
        NESTED,
        b"3",
        b"null",
        b"[1, 2]",
        b'{"default_generation_settings": 3, "slipstream": []}',
        b"",
    ],
)
def test_whatever_properties_are_they_are_read(body: bytes) -> None:
    with speaking(saying(JSON, body)) as url:
        endpoint = Endpoint(url=url, dialect="llama")
        props = observing.json_at(endpoint, "/props")
        assert observing.props_settings(told.mapping(props)) == {}
        assert observing.served_types(props) in (None, "none")


def test_metrics_of_a_gibibyte_are_none() -> None:
    own = psutil.Process(os.getpid())
    before = own.memory_info().rss
    with speaking(flooding(JSON, b"llamacpp:x 1\n" * (1 << 16))) as url:
        with pytest.raises(PeerRuntimeError, match="only its beginning"):
            fetch(url, "/metrics")
        assert observing.text_at(Endpoint(url=url, dialect="llama"), "/metrics") == ""
    assert own.memory_info().rss - before < MOST_GROWTH
