"""The engine process's end of the socket: never waits while there is work, loses nothing."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from slipstream.server.channel import Channel
from slipstream.server.wire import (
    Cancel,
    Framing,
    FromWorker,
    Load,
    StepFrame,
    Stop,
    WireEvent,
    framed,
)

TICK_S = 0.2


@pytest.fixture
def ends() -> Iterator[tuple[Channel, socket.socket]]:
    ours, theirs = socket.socketpair()
    channel = Channel(ours)
    yield channel, theirs
    channel.close()
    theirs.close()


def step(number: int, text: str = "") -> StepFrame:
    return StepFrame(events=(WireEvent(number, (), text),), load=Load())


def read_all(end: socket.socket, count: int) -> list[StepFrame]:
    framing = Framing(FromWorker)
    found: list[StepFrame] = []
    while len(found) < count:
        found += framing.feed(end.recv(1 << 16))
    return found


def test_frames_come_in_order(ends: tuple[Channel, socket.socket]) -> None:
    channel, theirs = ends
    assert channel.receive() == []
    theirs.sendall(framed(Cancel(request=1)) + framed(Stop()))
    assert channel.receive(None) == [Cancel(request=1), Stop()]


def test_a_wait_ends_at_its_time_or_when_woken(ends: tuple[Channel, socket.socket]) -> None:
    channel, _ = ends
    begin = time.monotonic()
    assert channel.receive(TICK_S) == []
    assert time.monotonic() - begin >= TICK_S * 0.9
    threading.Timer(TICK_S, channel.wake).start()
    assert channel.receive(60.0) == []
    assert time.monotonic() - begin < 30


def test_many_wakes_are_one(ends: tuple[Channel, socket.socket]) -> None:
    channel, _ = ends
    for _ in range(3000):
        channel.wake()
    assert channel.receive(None) == []
    begin = time.monotonic()
    channel.receive(TICK_S)
    assert time.monotonic() - begin >= TICK_S * 0.9


def test_a_reader_that_sleeps_costs_no_wait_and_no_frame(
    ends: tuple[Channel, socket.socket],
) -> None:
    channel, theirs = ends
    sent = [step(number, "x" * 10_000) for number in range(2000)]
    begin = time.monotonic()
    for frame in sent:
        channel.send(frame)
    assert time.monotonic() - begin < 30  # 20 MB of which the socket takes one
    found: list[StepFrame] = []
    reader = threading.Thread(target=lambda: found.extend(read_all(theirs, len(sent))))
    reader.start()
    while reader.is_alive():
        channel.receive(0.01)
    assert found == sent


def test_beyond_its_bound_it_waits_for_the_reader() -> None:
    ours, theirs = socket.socketpair()
    channel = Channel(ours, most_unsent=100_000)
    sent = [step(number, "x" * 10_000) for number in range(1000)]
    done = threading.Event()

    def send() -> None:
        for frame in sent:
            channel.send(frame)
        channel.flush(60.0)
        done.set()

    sender = threading.Thread(target=send)
    sender.start()
    assert not done.wait(TICK_S)
    assert read_all(theirs, len(sent)) == sent
    sender.join()
    channel.close()
    theirs.close()


def test_the_end_of_the_other_process_is_noticed() -> None:
    ours, theirs = socket.socketpair()
    channel = Channel(ours)
    theirs.close()
    assert channel.receive(None) == []
    assert channel.closed
    channel.send(step(1))
    channel.flush(1.0)
    assert channel.receive(None) == []
    channel.close()


def test_it_is_noticed_while_sending_too() -> None:
    ours, theirs = socket.socketpair()
    channel = Channel(ours)
    theirs.close()
    for _ in range(10):
        channel.send(step(1, "x" * 100_000))
    assert channel.closed
    channel.close()


def test_a_flush_does_not_wait_for_ever(ends: tuple[Channel, socket.socket]) -> None:
    channel, _ = ends
    for number in range(500):
        channel.send(step(number, "x" * 10_000))
    begin = time.monotonic()
    channel.flush(TICK_S)
    assert time.monotonic() - begin < 30
