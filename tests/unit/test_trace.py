"""The trace format: what is written, what is refused, what a failure of the disk costs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake_model import MakeModel, fake_models
from slipstream.engine import trace_file
from slipstream.engine.trace_file import TraceFile, read_trace
from slipstream.engine.trace_format import (
    MOST_LINE_BYTES,
    VERSION,
    Asked,
    End,
    EngineRecord,
    Header,
    Record,
    RoundRecord,
    decode,
    encode,
)
from slipstream.engine.tracing import recorded_decision
from slipstream.errors import OperationError, OptionError, TraceError
from traces import a_round

MOD: dict[str, Any] = {"spec": "ngram-mod", "ngram_mod_n_match": 2, "ngram_mod_n_min": 1}


RECORDS: list[Record] = [
    Header(version=VERSION, model="m", sha256="0" * 64, threads=2, options={"context": 64}),
    EngineRecord(engine=0, drafters=("a",), verifier="matching", options={"type": ["a"]}),
    a_round(),
    a_round(step=3, context=7, reasons={"too long": 2}),
    End(engine=0, sequence=0, finish_reason="length", summary={"emitted": 4}, reasons={"x": 1}),
]


def written(path: Path, records: list[Record]) -> Path:
    file = TraceFile(path)
    for record in records:
        file.write(record)
    return path


def test_records_survive_the_file(tmp_path: Path) -> None:
    path = written(tmp_path / "t.jsonl", RECORDS)
    assert list(read_trace(path)) == RECORDS
    lines = path.read_bytes().splitlines()
    assert [json.loads(line)["kind"] for line in lines] == [
        *("header", "engine", "round", "round", "end")
    ]


def test_every_line_is_whole_at_once(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    file = TraceFile(path)
    for count, record in enumerate(RECORDS, 1):
        file.write(record)
        assert list(read_trace(path)) == RECORDS[:count]


def test_an_earlier_trace_is_replaced_at_the_first_record(tmp_path: Path) -> None:
    path = written(tmp_path / "t.jsonl", RECORDS)
    file = TraceFile(path)
    assert len(list(read_trace(path))) == len(RECORDS)
    file.write(RECORDS[0])
    assert list(read_trace(path)) == RECORDS[:1]


def test_another_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF and more")
    with pytest.raises(OptionError, match="holds something else"):
        TraceFile(path)
    assert path.read_bytes() == b"GGUF and more"
    path.write_bytes(b"")
    written(path, RECORDS[:1])


@pytest.mark.parametrize("name", [".", "absent/t.jsonl"])
def test_a_file_that_cannot_be_made(tmp_path: Path, name: str) -> None:
    with pytest.raises(OperationError, match="trace file"):
        TraceFile(tmp_path / name)


def test_a_full_disk_leaves_whole_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.jsonl"
    file = TraceFile(path)
    file.write(RECORDS[0])
    real = os.write

    def short(descriptor: int, data: bytes) -> int:
        if len(data) > 10:
            return real(descriptor, data[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(trace_file.os, "write", short)
    with pytest.raises(OperationError, match=r"t\.jsonl: No space left"):
        file.write(RECORDS[1])
    assert list(read_trace(path)) == RECORDS[:1]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_device_will_do(tmp_path: Path) -> None:
    TraceFile("/dev/null").write(RECORDS[0])
    with pytest.raises(OperationError, match="/dev/full"):
        TraceFile("/dev/full").write(RECORDS[0])
    assert not list(tmp_path.iterdir())


# reading


def line_of(record: Record, change: Callable[[dict[str, Any]], object]) -> bytes:
    value = json.loads(encode(record))
    change(value)
    return json.dumps(value).encode() + b"\n"


BAD_LINES: dict[str, bytes] = {
    "no JSON": b"nonsense\n",
    "no object": b"3\n",
    "no kind": b"{}\n",
    "another kind": b'{"kind":"other"}\n',
    "not UTF-8": b'{"kind":"header","version":1,"model":"\xff"}\n',
    "deep": b'{"kind":"header","version":1,"model":"m","options":' + b'{"a":' * 100_000 + b"\n",
    "an unknown key": line_of(a_round(), lambda v: v.update(more=1)),
    "an unknown key of a proposal": line_of(a_round(), lambda v: v["asked"][0].update(more=1)),
    "a missing key": line_of(a_round(), lambda v: v.pop("tested")),
    "a text for a number": line_of(a_round(), lambda v: v.update(tested="2")),
    "a negative count": line_of(a_round(), lambda v: v.update(tested=-1)),
    "a huge number": line_of(a_round(), lambda v: v.update(context=1 << 70)),
    "negative seconds": line_of(a_round(), lambda v: v.update(draft_s=-1.0)),
    "no seconds": line_of(a_round(), lambda v: v.update(draft_s=None)),
    "a probability above 1": line_of(
        a_round(), lambda v: v["asked"][0].update(probabilities=[0.5, 0.5, 1.5])
    ),
    "an estimate too few": line_of(a_round(), lambda v: v["asked"][0].update(probabilities=[0.5])),
    "a parent after its child": line_of(a_round(), lambda v: v.update(parents=[-1, 1, -1])),
    "a parent too few": line_of(a_round(), lambda v: v.update(parents=[-1, 0])),
    "a method too few": line_of(a_round(), lambda v: v.update(methods=["a"])),
    "siblings alike": line_of(a_round(), lambda v: v.update(tokens=[7, 8, 7])),
    "a path that is none": line_of(a_round(), lambda v: v.update(path=[1], sampled=[8, 3])),
    "a path outside": line_of(a_round(), lambda v: v.update(path=[3], sampled=[8, 3])),
    "other tokens than the path's": line_of(a_round(), lambda v: v.update(sampled=[8, 3])),
    "no token": line_of(a_round(), lambda v: v.update(sampled=[])),
    "a drafter that was not chosen": line_of(a_round(), lambda v: v.update(drafters=["b"])),
    "too many drafters": line_of(a_round(), lambda v: v.update(drafters=["a"] * 65)),
    "tokens to come below 0": line_of(a_round(), lambda v: v.update(coming=-1)),
    "too many nodes": line_of(
        a_round(), lambda v: v["asked"][0].update(tokens=[1] * 5000, parents=[-1] * 5000)
    ),
}


@pytest.mark.parametrize("kind", BAD_LINES)
def test_a_malformed_line_is_named(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(encode(RECORDS[0]) + encode(RECORDS[1]) + BAD_LINES[kind])
    with pytest.raises(TraceError, match="line 3") as caught:
        list(read_trace(path))
    assert len(str(caught.value)) < 600


def test_a_truncated_last_line_is_an_error(tmp_path: Path) -> None:
    path = written(tmp_path / "t.jsonl", RECORDS)
    whole = path.read_bytes()
    last = whole.rindex(b"\n", 0, -1) + 1
    for size in (last + 1, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(TraceError, match="line 5 ends before its end"):
            list(read_trace(path))
    path.write_bytes(whole[:last])
    assert len(list(read_trace(path))) == 4


def test_an_endless_line_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    with path.open("wb") as stream:
        stream.truncate(100 * MOST_LINE_BYTES)
    with pytest.raises(TraceError, match="line 1 is longer"):
        list(read_trace(path))


@pytest.mark.parametrize(
    ("records", "part"),
    [
        ([], "an empty file"),
        (RECORDS[1:], "one header"),
        ([RECORDS[0], RECORDS[0]], "one header"),
        ([RECORDS[0], RECORDS[2]], "a round of engine 0"),
        ([RECORDS[0], RECORDS[4]], "an end of engine 0"),
        ([Header(version=VERSION + 1, model="m")], f"format {VERSION + 1}"),
    ],
)
def test_records_out_of_place(tmp_path: Path, records: list[Record], part: str) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(b"".join(map(encode, records)))
    with pytest.raises(TraceError, match=part):
        list(read_trace(path))


def test_names_that_the_engine_has_not_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    for record in (a_round(methods=("a", "a", "b")), a_round(asked=(Asked(method="b", cap=1),))):
        path.write_bytes(b"".join(map(encode, [*RECORDS[:2], record])))
        with pytest.raises(TraceError, match="line 3: 'b'"):
            list(read_trace(path))


def test_what_a_request_chose_is_told_where_it_is_not_all(tmp_path: Path) -> None:
    end = RECORDS[-1]
    assert isinstance(end, End)
    for record in (a_round(), end):
        assert not {"drafters", "coming", "private"} & set(json.loads(encode(record)))
    whole = EngineRecord(engine=0, drafters=("a", "b"))
    some = [
        a_round(drafters=("a",), coming=90),
        a_round(drafters=(), asked=(), tokens=(), parents=(), methods=(), path=(), sampled=(3,)),
        msgspec.structs.replace(end, drafters=("a",), private=True),
    ]
    path = written(tmp_path / "t.jsonl", [RECORDS[0], whole, *some])
    assert list(read_trace(path))[2:] == some
    assert recorded_decision(some[0]).room.methods == ("a",)
    assert recorded_decision(some[0]).room.tokens == 90
    assert recorded_decision(a_round()).room.methods is None
    written(path, [RECORDS[0], whole, a_round(drafters=("a", "c"))])
    with pytest.raises(TraceError, match="line 3: 'c'"):
        list(read_trace(path))


def test_summaries_without_end_are_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path / "t.jsonl", RECORDS)
    monkeypatch.setattr(trace_file, "MOST_KEPT_BYTES", 300)
    with pytest.raises(TraceError, match="at most 300 bytes"):
        list(read_trace(path))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    for path in (tmp_path / "absent", tmp_path):
        with pytest.raises(TraceError, match="readable"):
            list(read_trace(path))


@given(st.binary(max_size=200))
def test_any_bytes_are_a_record_or_an_error(data: bytes) -> None:
    try:
        decode(data, 1)
    except TraceError:
        return
    assert data.endswith(b"\n")


# tracing a model


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> MakeModel:
    return fake_models(monkeypatch)


def test_a_model_traces_every_round(make: MakeModel, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    model = make(trace=path, **MOD)
    done = model.complete("abcd", max_tokens=30)
    other = model.complete("abcd", max_tokens=30, spec="none", ngram_mod_n_match=24)
    records = list(read_trace(path))
    header = records[0]
    assert isinstance(header, Header)
    assert (header.model, header.options["parallel"]) == ("fake", 1)
    engines = [record for record in records if isinstance(record, EngineRecord)]
    assert [engine.drafters for engine in engines] == [("ngram-mod",), ()]
    assert engines[0].options["ngram_mod_n_match"] == 2
    ends = [record for record in records if isinstance(record, End)]
    assert [end.summary["accepted"] for end in ends] == [
        done.statistics.accepted,
        other.statistics.accepted,
    ]
    for number, completion in enumerate((done, other)):
        rounds = [r for r in records if isinstance(r, RoundRecord) and r.sequence == number]
        assert [r.prompt for r in rounds] == [True] + [False] * (len(rounds) - 1)
        tokens = [t for r in rounds for t in r.sampled][: len(completion.ids)]
        assert tuple(tokens) == completion.ids
        for record, made in zip(rounds, completion.statistics.rounds, strict=True):
            assert (len(record.tokens), record.tested, len(record.path)) == (
                made.drafted,
                made.tested,
                made.accepted,
            )
            assert record.verify_s == made.elapsed_s


def test_a_function_gets_the_same_records(make: MakeModel, tmp_path: Path) -> None:
    got: list[Record] = []
    make(trace=got.append, **MOD).complete("abcd", max_tokens=10)
    make(trace=tmp_path / "t.jsonl", **MOD).complete("abcd", max_tokens=10)
    kept = list(read_trace(tmp_path / "t.jsonl"))
    assert [type(record) for record in got] == [type(record) for record in kept]


def test_tracing_changes_no_output(make: MakeModel) -> None:
    plain = make(**MOD).complete("abcd", max_tokens=60, temperature=1.0, seed=5)
    traced = make(trace=lambda _: None, **MOD).complete(
        "abcd", max_tokens=60, temperature=1.0, seed=5
    )
    assert traced.ids == plain.ids


@pytest.mark.parametrize("problem", [OperationError("a", "full", "c"), ValueError("full")])
def test_a_trace_that_fails_loses_no_output(
    make: MakeModel, caplog: pytest.LogCaptureFixture, problem: Exception
) -> None:
    calls = []

    def sink(record: Record) -> None:
        calls.append(record)
        if len(calls) == 4:
            raise problem

    model = make(trace=sink, **MOD)
    done = model.complete("abcd", max_tokens=30)
    assert done.ids == make().complete("abcd", max_tokens=30).ids
    assert len(calls) == 4
    assert "full" in str(model.trace_failure)
    assert isinstance(model.trace_failure, OperationError)
    [logged] = caplog.records
    assert "the trace ends here" in logged.getMessage()


def test_a_cancelled_request_has_an_end(make: MakeModel) -> None:
    got: list[Record] = []
    model = make(trace=got.append, **MOD)
    stream = model.generate("abcd", max_tokens=60)
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    assert isinstance(got[-1], End)
    assert got[-1].finish_reason == "cancelled"
