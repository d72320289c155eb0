"""The event loop's end of the socket, against a worker played by the test."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from engine_peer import DEATH, Peer, event, settled, step
from slipstream.errors import BackendError, OptionError, SlipstreamError
from slipstream.options import SamplingOptions
from slipstream.server.link import Link
from slipstream.server.wire import (
    Answer,
    Ask,
    Cancel,
    Failed,
    Load,
    Slot,
    StepFrame,
    Stop,
    Submit,
    WireError,
    WireEvent,
)


class Watched:
    def __init__(self) -> None:
        self.told: list[Slot | Load] = []

    def started(self, slot: Slot) -> None:
        self.told.append(slot)

    def loaded(self, load: Load) -> None:
        self.told.append(load)


def linked(test: Callable[[Link, Peer], Awaitable[None]]) -> None:
    """Run a test over a link."""

    async def run() -> None:
        ours, theirs = socket.socketpair()
        peer = Peer(theirs)
        link = await Link.over(ours, lambda: DEATH)
        try:
            async with asyncio.timeout(60):
                await test(link, peer)
        finally:
            peer.close()
            await asyncio.wait([link.gone], timeout=60)

    asyncio.run(run())


def submit(number: int) -> Submit:
    return Submit(request=number, prompt=[1], sampling=SamplingOptions())


@pytest.mark.parametrize("cut", [1, 7, 1 << 20])
def test_events_go_to_whoever_ordered(cut: int) -> None:
    async def test(link: Link, peer: Peer) -> None:
        got: dict[int, list[str]] = {1: [], 2: []}
        for number, texts in got.items():
            link.submit(submit(number), lambda event, texts=texts: texts.append(event.text))
        assert (await peer.next()).request == 1
        assert (await peer.next()).request == 2
        await peer.send(
            step(event(2, "a"), event(1, "b")),
            step(event(1, "c", "stop"), event(9, "nobody's")),
            step(event(2, "d"), event(1, "after the last")),
            step(event(2, "e", "length")),
            cut=cut,
        )
        while got[2] != ["a", "d", "e"]:
            await asyncio.sleep(0.001)
        assert got[1] == ["b", "c"]

    linked(test)


def test_a_cancellation_is_sent_while_there_is_something_to_cancel() -> None:
    async def test(link: Link, peer: Peer) -> None:
        link.cancel(1)
        link.submit(submit(1), lambda _: None)
        link.cancel(1)
        assert isinstance(await peer.next(), Submit)
        assert await peer.next() == Cancel(request=1)
        await peer.send(step(event(1, finish="cancelled")))
        await settled()
        link.cancel(1)
        link.submit(submit(2), lambda _: None)
        assert isinstance(await peer.next(), Submit)

    linked(test)


def test_answers_go_to_whoever_asked() -> None:
    async def test(link: Link, peer: Peer) -> None:
        first = asyncio.ensure_future(link.ask("observed"))
        second = asyncio.ensure_future(link.ask("remembered", "s"))
        one, two = await peer.next(), await peer.next()
        assert one == Ask(number=one.number, what="observed")
        assert two == Ask(number=two.number, what="remembered", session="s")
        wrong = WireError(kind="OptionError", expected="a", found="b", remedy="c")
        await peer.send(
            Answer(number=two.number, error=wrong), Answer(number=one.number, value={"x": 1})
        )
        assert await first == {"x": 1}
        with pytest.raises(OptionError):
            await second
        await peer.send(Answer(number=99, value={}))
        await settled()

    linked(test)


def test_a_question_given_up_is_forgotten() -> None:
    async def test(link: Link, peer: Peer) -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(link.ask("observed"), 0.01)
        asked = await peer.next()
        await peer.send(Answer(number=asked.number, value={}))
        await settled()
        assert link.failure is None

    linked(test)


def test_the_watcher_hears_of_places_before_events() -> None:
    async def test(link: Link, peer: Peer) -> None:
        watched = Watched()
        link.watcher = watched
        told: list[Any] = watched.told
        link.submit(submit(1), told.append)
        slot, load = Slot(1, 3, 0.5), Load(running=1)
        await peer.send(StepFrame(events=(event(1, "x"),), load=load, started=(slot,)))
        await settled()
        assert told == [slot, event(1, "x"), load]
        assert link.load == load

    linked(test)


async def ended(link: Link, got: list[WireEvent]) -> None:
    await asyncio.wait_for(asyncio.shield(link.gone), 60)
    assert [e.finish_reason for e in got] == ["error"]
    assert got[0].error is not None
    assert link.load == Load()
    assert isinstance(link.failure, SlipstreamError)
    with pytest.raises(SlipstreamError):
        link.submit(submit(2), got.append)
    with pytest.raises(SlipstreamError):
        await link.ask("observed")
    link.cancel(1)


def test_the_death_of_the_worker_ends_everything_with_an_error() -> None:
    async def test(link: Link, peer: Peer) -> None:
        got: list[WireEvent] = []
        link.submit(submit(1), got.append)
        asked = asyncio.ensure_future(link.ask("observed"))
        await peer.next()
        await peer.next()
        peer.close()
        with pytest.raises(BackendError):
            await asked
        await ended(link, got)
        assert got[0].error is not None
        assert got[0].error.kind == "BackendError"
        assert str(link.failure) == str(DEATH)

    linked(test)


def test_a_worker_that_says_why_it_ends() -> None:
    async def test(link: Link, peer: Peer) -> None:
        got: list[WireEvent] = []
        link.submit(submit(1), got.append)
        why = WireError(kind="OutOfMemoryError", expected="memory", found="none", remedy="Buy it.")
        await peer.send(Failed(error=why))
        await ended(link, got)
        assert got[0].error == why

    linked(test)


def test_a_worker_that_talks_nonsense() -> None:
    async def test(link: Link, peer: Peer) -> None:
        got: list[WireEvent] = []
        link.submit(submit(1), got.append)
        await peer.send_bytes(b"\xff" * 8)
        await ended(link, got)

    linked(test)


def test_stop_asks_and_waits() -> None:
    async def test(link: Link, peer: Peer) -> None:
        stopping = asyncio.ensure_future(link.stop(60))
        assert await peer.next() == Stop()
        assert not stopping.done()
        peer.close()
        await stopping

    linked(test)


def test_stop_does_not_wait_for_ever() -> None:
    async def test(link: Link, _: Peer) -> None:
        await link.stop(0.05)
        await asyncio.wait_for(asyncio.shield(link.gone), 60)
        assert link.failure is not None

    linked(test)


def test_a_failure_is_told_anew_each_time() -> None:
    async def test(link: Link, peer: Peer) -> None:
        peer.close()
        await asyncio.shield(link.gone)
        seen = []
        for _ in range(2):
            try:
                link.require_going_on()
            except BackendError as error:
                seen.append(error)
        assert seen[0] is not seen[1]

    linked(test)
