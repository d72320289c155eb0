"""What a user sees of a run, and the time that is left."""

from __future__ import annotations

import io
import time

import pytest
from rich.console import Console
from rich.progress import Progress as RichProgress
from rich.progress import TextColumn

from lab_world import SIMPLE, manifest_of, plan_of
from slipstream.lab.contract.records import BlockRecord, Line
from slipstream.lab.running import progress
from slipstream.lab.running.progress import (
    Bar,
    Lines,
    duration,
    printable,
    shown,
    time_left_s,
    told_if_long,
)
from slipstream.lab.scheduling.schedule import Block, blocks


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "unknown time"),
        (0.4, "0 s"),
        (59.4, "59 s"),
        (61, "1 min"),
        (3599, "1 h 0 min"),
        (4800, "1 h 20 min"),
    ],
)
def test_duration(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_a_long_wait_is_told_and_a_short_one_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    with told_if_long(Lines(stream), "waiting for it"):
        pass
    monkeypatch.setattr(progress, "LONG_S", 0.01)
    with told_if_long(Lines(stream), "waiting for another"):
        limit = time.monotonic() + 10
        while not stream.getvalue() and time.monotonic() < limit:
            time.sleep(0.01)
    assert stream.getvalue() == "note: waiting for another\n"


def _record(block: Block, elapsed_s: float) -> BlockRecord:
    return BlockRecord(
        run="test-run",
        block=block.number,
        runtime=block.runtime,
        condition=block.condition,
        stratum=block.stratum,
        slots=block.slots,
        began="",
        elapsed_s=elapsed_s,
        outcome="ok",
    )


def test_time_left_is_that_of_blocks_alike() -> None:
    found = blocks(manifest_of(plan_of(SIMPLE)))
    none = next(b for b in found if (b.condition, b.stratum) == ("none", "prose"))
    simple = next(b for b in found if (b.condition, b.stratum) == ("ngram-simple", "prose"))
    other = next(b for b in found if (b.condition, b.stratum) == ("none", "repetitive"))
    lines: list[Line] = [_record(none, 10.0), _record(none, 12.0)]
    assert time_left_s([none, none], lines) == pytest.approx(22.0)
    assert time_left_s([simple], lines) == pytest.approx(11.0)
    assert time_left_s([other], lines) == pytest.approx(11.0)
    assert time_left_s([simple], [*lines, _record(simple, 4.0)]) == pytest.approx(4.0)
    assert time_left_s([none], []) is None
    assert time_left_s([], lines) == 0.0


def test_plain_lines_are_not_many() -> None:
    stream, now = io.StringIO(), [0.0]
    lines = Lines(stream, lambda: now[0])
    lines.block("fake none, prose", 3, 40, 4800.0)
    for done in range(100):
        now[0] += 0.5
        lines.request(done, 100)
    lines.note("drifted")
    told = stream.getvalue().splitlines()
    assert told[0] == "block 4 of 40: fake none, prose (1 h 20 min left)"
    assert told[-1] == "note: drifted"
    assert len(told) == 2 + 5


def test_a_server_cannot_drive_the_terminal() -> None:
    stream = io.StringIO()
    Lines(stream).note("bad \x1b[2J\r\n\x07 name")
    assert stream.getvalue().count("\n") == 1
    assert "\x1b" not in stream.getvalue()
    assert printable("naïve 😀") == "naïve 😀"


def test_a_pipe_gets_plain_lines() -> None:
    stream = io.StringIO()
    with shown(stream) as progress:
        assert isinstance(progress, Lines)


def test_a_terminal_gets_a_bar() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    with shown(Terminal()) as progress:
        assert isinstance(progress, Bar)
        progress.block("fake none, prose", 1, 4, None)
        progress.request(1, 3)
        progress.note("[bold]drifted[/bold]")


def test_the_bar_tells_label_requests_and_time() -> None:
    stream = io.StringIO()
    column = TextColumn(
        "{task.description}|{task.fields[requests]}|{task.fields[left]}", markup=False
    )
    console = Console(file=stream, force_terminal=True, width=100)
    with RichProgress(column, console=console, auto_refresh=False) as rich:
        bar = Bar(rich)
        bar.block("fake [none], prose", 1, 4, 90.0)
        bar.request(2, 3)
        bar.note("[bold]drifted[/bold]")
        rich.refresh()
    text = stream.getvalue()
    assert "fake [none], prose|2/3|2 min left" in text
    assert "note: [bold]drifted[/bold]" in text
