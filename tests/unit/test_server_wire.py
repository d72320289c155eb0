"""Frames between the two processes, however the socket cuts them, and errors in them."""

from __future__ import annotations

import struct
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream import errors
from slipstream.errors import BackendError, OperationError, OverloadedError, SlipstreamError
from slipstream.options import SamplingOptions
from slipstream.server.refusals import BusyError
from slipstream.server.wire import (
    MOST_FRAME_BYTES,
    Answer,
    Ask,
    Cancel,
    Failed,
    Framing,
    FromWorker,
    Load,
    Progress,
    Ready,
    Slot,
    Speculation,
    StepFrame,
    Stop,
    Submit,
    ToWorker,
    WireError,
    WireEvent,
    WireToken,
    framed,
)
from slipstream.server.wire_errors import MOST_CHARACTERS, error_of, fault, told

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
COUNT = st.integers(0, 1 << 40)
NUMBERS = st.floats(allow_nan=False)

SUBMITS = st.builds(
    Submit,
    request=COUNT,
    prompt=st.lists(st.integers(0, 1 << 20), max_size=8),
    sampling=st.builds(
        SamplingOptions,
        temperature=st.floats(0, 2),
        seed=st.none() | st.integers(0, 2**63 - 1),
        stop=st.lists(TEXT.filter(bool), max_size=2).map(tuple),
        logit_bias=st.dictionaries(st.integers(0, 99), st.floats(-100, 100), max_size=2),
        json_schema=st.none() | st.just('{"type": "object"}'),
    ),
    choice=COUNT,
    session=TEXT,
    speculation=st.none()
    | st.builds(
        Speculation,
        methods=st.none() | st.just(()) | st.just(("suffix", "ngram-mod")),
        n_max=st.none() | COUNT,
        scope=st.sampled_from([None, "request", "all"]),
    ),
    deadline_s=st.none() | st.floats(0, 10),
)
TO_WORKER = SUBMITS | st.builds(Cancel, request=COUNT) | st.just(Stop())
TO_WORKER |= st.builds(Ask, number=COUNT, what=TEXT, session=st.none() | TEXT)

ERRORS = st.builds(WireError, kind=TEXT, expected=TEXT, found=TEXT, remedy=TEXT)
TOKENS = st.builds(
    WireToken,
    st.integers(0, 9),
    TEXT,
    st.booleans(),
    st.none() | NUMBERS,
    st.lists(st.tuples(COUNT, NUMBERS), max_size=3).map(tuple),
)
EVENTS = st.builds(
    WireEvent,
    request=COUNT,
    tokens=st.lists(TOKENS, max_size=3).map(tuple),
    text=TEXT,
    drafted=COUNT,
    finish_reason=st.none() | st.just("stop"),
    error=st.none() | ERRORS,
    summary=st.none() | st.dictionaries(TEXT, COUNT | TEXT | st.none(), max_size=2),
)
FROM_WORKER = st.builds(
    StepFrame,
    events=st.lists(EVENTS, max_size=3).map(tuple),
    load=st.builds(Load, running=COUNT, step_s=NUMBERS),
    started=st.lists(st.builds(Slot, COUNT, COUNT, NUMBERS), max_size=2).map(tuple),
)
FROM_WORKER |= st.builds(Answer, number=COUNT, value=st.dictionaries(TEXT, COUNT, max_size=2))
FROM_WORKER |= st.builds(Progress, done=COUNT, total=COUNT) | st.builds(Failed, error=ERRORS)
FROM_WORKER |= st.just(Ready(facts={"a": 1}, methods={}, speculation=Speculation()))


def cut(data: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({place % (len(data) + 1) for place in places})
    return [data[start:stop] for start, stop in zip([0, *ends], [*ends, len(data)], strict=True)]


@pytest.mark.parametrize(("kind", "frames"), [(ToWorker, TO_WORKER), (FromWorker, FROM_WORKER)])
def test_frames_survive_any_cut(kind: Any, frames: st.SearchStrategy[Any]) -> None:
    @given(st.lists(frames, max_size=4), st.lists(st.integers(0, 1 << 20), max_size=12))
    def survive(sent: list[Any], places: list[int]) -> None:
        framing = Framing(kind)
        got = []
        for part in cut(b"".join(map(framed, sent)), places):
            got += framing.feed(part)
        assert got == sent

    survive()


def test_an_incomplete_frame_waits() -> None:
    data = framed(Cancel(request=5))
    framing = Framing(ToWorker)
    assert framing.feed(data[:-1]) == []
    assert framing.feed(data[-1:]) == [Cancel(request=5)]


def test_a_frame_beyond_all_measure_is_refused_at_its_length() -> None:
    with pytest.raises(ValueError, match="a frame of"):
        Framing(ToWorker).feed(struct.pack(">I", MOST_FRAME_BYTES + 1))


@pytest.mark.parametrize("data", [b"\xc1", b"", msgspec.msgpack.encode({"type": "other"})])
def test_what_is_no_frame_of_ours_is_an_error(data: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        Framing(ToWorker).feed(struct.pack(">I", len(data)) + data)


KINDS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, SlipstreamError)
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_error_crosses_the_wire(kind: type[SlipstreamError]) -> None:
    again = error_of(told(kind("this", "that", "Do something.")))
    assert type(again) is kind
    assert str(again) == "expected this; found that. Do something."


def test_an_error_of_the_server_crosses_as_its_base() -> None:
    assert type(error_of(told(BusyError("a", "b", "c", 7)))) is OverloadedError


def test_an_unknown_error_is_an_operations() -> None:
    for kind in ("Unheard", "SlipstreamError_", "annotations", "__doc__"):
        wire = WireError(kind=kind, expected="a", found="b", remedy="c")
        assert type(error_of(wire)) is OperationError


def test_texts_of_errors_are_bounded_and_valid() -> None:
    wire = told(BackendError("x" * (MOST_CHARACTERS + 5), "a\ud800b", "c"))
    assert len(wire.expected) == MOST_CHARACTERS
    assert wire.found == "a?b"
    msgspec.msgpack.encode(wire)


def test_a_fault_says_what_was_raised() -> None:
    assert "ZeroDivisionError: oh" in str(fault(ZeroDivisionError("oh")))
