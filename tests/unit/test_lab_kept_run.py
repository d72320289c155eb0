"""Records belong to their manifest and are those that were written; else a reader is told."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from compare_world import Pair
from lab_records import Story, rolled_back
from lab_records import manifest as small_manifest
from lab_world import SIMPLE, World, runtimes_of, tools_of
from report_runs import TimedWorld, executed, write_manifest, write_records
from slipstream.cli.app import dispatch
from slipstream.cli.lab_gate import against
from slipstream.errors import OptionError, RequestError
from slipstream.lab.comparing.compare import read_comparison
from slipstream.lab.contract.manifest import Manifest
from slipstream.lab.contract.records import BlockRecord, FindingRecord, RequestRecord, RunRecord
from slipstream.lab.evidence.seals import Kept, broken, encoded, kept, sealed
from slipstream.lab.evidence.store import RECORDS, read_records
from slipstream.lab.freezing.freeze import MANIFEST, read_manifest
from slipstream.lab.judging.findings import CHANGED, UNTIED
from slipstream.lab.reporting.analysis import analysed, verdicts_of
from slipstream.lab.running.kept_run import read_run
from slipstream.lab.running.run import run

Line = dict[str, Any]


@pytest.fixture
def ran(tmp_path: Path) -> Path:
    executed(tmp_path, SIMPLE)
    return tmp_path


def gone_on(folder: Path) -> None:
    manifest, world = read_manifest(folder), World()
    run(folder, manifest, runtimes_of(manifest, world), tools=tools_of(manifest, world))


def lines_of(folder: Path) -> list[Line]:
    return [json.loads(line) for line in (folder / RECORDS).read_bytes().splitlines()]


def write(folder: Path, lines: list[Line]) -> None:
    raw = [json.dumps(x, separators=(",", ":"), ensure_ascii=False).encode() for x in lines]
    (folder / RECORDS).write_bytes(b"\n".join(raw) + b"\n")


def edit_manifest(folder: Path, change: Callable[[Line], object]) -> None:
    content = json.loads((folder / MANIFEST).read_bytes())
    change(content)
    (folder / MANIFEST).write_text(json.dumps(content, separators=(",", ":")))


def named(folder: Path, name: str) -> list[str]:
    return [x.text for x in read_run(folder)[1] if isinstance(x, FindingRecord) and x.name == name]


EDITS: dict[str, Callable[[Line], object]] = {
    "margin": lambda m: m["plan"]["rules"].update(margin=0),
    "confidence": lambda m: m["plan"]["rules"].update(confidence=0.5),
    "repeats": lambda m: m["plan"]["rules"].update(repeats=1),
    "questions": lambda m: m.update(questions={}),
    "created": lambda m: m.update(created="2020-01-01T00:00:00+00:00"),
    "prompts": lambda m: m.update(prompts=[]),
}


def test_a_run_begins_with_the_digest_of_its_manifest(ran: Path) -> None:
    manifest = read_manifest(ran)
    first = read_records(ran / RECORDS)[0]
    assert first == RunRecord(run=manifest.run, manifest_sha256=manifest.digest)
    assert not named(ran, UNTIED) + named(ran, CHANGED)


@pytest.mark.parametrize("name", EDITS)
def test_an_edited_manifest_is_an_error(ran: Path, name: str) -> None:
    edit_manifest(ran, EDITS[name])
    with pytest.raises(RequestError, match="the manifest that the run began with") as caught:
        read_run(ran)
    assert hashlib.sha256((ran / MANIFEST).read_bytes()).hexdigest() in caught.value.found
    for verb in ("report", "gate"):
        with pytest.raises(RequestError):
            dispatch(["lab", verb, str(ran)])


@pytest.mark.parametrize("name", ["questions", "created"])
def test_it_is_not_gone_on_with(ran: Path, name: str) -> None:
    edit_manifest(ran, EDITS[name])
    before = (ran / RECORDS).read_bytes()
    with pytest.raises(RequestError, match="the manifest that the run began with"):
        gone_on(ran)
    assert (ran / RECORDS).read_bytes() == before


def test_builds_are_not_compared_by_it(tmp_path: Path) -> None:
    pair = Pair()
    manifest = write_manifest(tmp_path, pair.manifest)
    pair.run(tmp_path)
    assert read_comparison(tmp_path).ended == "complete"
    write_manifest(tmp_path, msgspec.structs.replace(manifest, created="2020-01-01"))
    with pytest.raises(RequestError, match="the manifest that the run began with"):
        read_comparison(tmp_path)


@pytest.mark.parametrize("version", [0, 2, 99])
def test_an_unknown_version_of_the_manifest(ran: Path, version: int) -> None:
    edit_manifest(ran, lambda m: m.update(version=version, new_field=1))
    with pytest.raises(OptionError, match=rf"of version 1 .*{version}"):
        read_run(ran)


def test_an_unknown_format_of_the_records(ran: Path) -> None:
    lines = lines_of(ran)
    write(ran, [lines[0] | {"format": 2}, *lines[1:]])
    with pytest.raises(RequestError, match="of format 1"):
        read_run(ran)


def test_records_from_before_are_read_and_told(tmp_path: Path) -> None:
    write_manifest(tmp_path, small_manifest())
    write_records(tmp_path, [*Story().lines(5), *rolled_back()])
    manifest, lines = read_run(tmp_path)
    assert sum(isinstance(x, BlockRecord) for x in lines) == 11
    assert len(named(tmp_path, UNTIED)) == 1
    shown = analysed(manifest, lines).findings
    assert (shown[0].name, shown[0].effect) == (UNTIED, "note")


def test_records_from_before_are_gone_on_with(ran: Path) -> None:
    bare = ("requests", "requests_sha256", "seal")
    old = [{k: v for k, v in x.items() if k not in bare} for x in lines_of(ran)[1:]]
    write(ran, old[: len(old) // 2])
    gone_on(ran)
    assert named(ran, UNTIED)
    assert not named(ran, CHANGED)
    assert read_run(ran)[1][0].run == read_manifest(ran).run


def blocks(lines: list[Line], condition: str = "ngram-simple") -> list[Line]:
    return [x for x in lines if x["is"] == "block" and x["condition"] == condition]


def of_block(line: Line, block: Line) -> bool:
    return bool(line["is"] == "request" and line["block"] == block["block"])


def edited(lines: list[Line], which: Callable[[Line], bool], **values: Any) -> list[Line]:
    return [x | values if which(x) else x for x in lines]


def a_request(lines: list[Line]) -> Line:
    target = blocks(lines)[-1]
    return next(x for x in lines if of_block(x, target) and not x["warm_up"])


def test_nothing_is_told_of_whole_records(ran: Path) -> None:
    lines = lines_of(ran)
    write(ran, lines)
    assert read_run(ran)[1] == read_records(ran / RECORDS)


def missing(lines: list[Line]) -> list[Line]:
    return [x for x in lines if x != a_request(lines)]


def faster(lines: list[Line]) -> list[Line]:
    wanted = a_request(lines)
    return edited(lines, lambda x: x == wanted, total_s=wanted["total_s"] / 10)


def one_more(lines: list[Line]) -> list[Line]:
    return [*lines, a_request(lines) | {"index": 99}]


def another_copy(lines: list[Line]) -> list[Line]:
    return [*lines, a_request(lines) | {"total_s": 0.01}]


def no_seal(lines: list[Line]) -> list[Line]:
    last = blocks(lines)[-1]
    return edited(lines, lambda x: x == last, seal="", requests_sha256="", requests=None)


def disturbed(lines: list[Line]) -> list[Line]:
    last = blocks(lines)[-1]
    return edited(lines, lambda x: x == last, outcome="repeated")


def block_copy(lines: list[Line]) -> list[Line]:
    return [*lines, blocks(lines)[-1] | {"peak_rss_bytes": 1}]


DAMAGE = {
    "requests are missing": missing,
    "its requests were changed": faster,
    "requests and had": one_more,
    "requests were changed": another_copy,
    "no seal": no_seal,
    "its record was changed": disturbed,
    "record was changed": block_copy,
}


@pytest.mark.parametrize("why", DAMAGE)
def test_a_changed_block_is_named_and_counts_for_nothing(ran: Path, why: str) -> None:
    lines = lines_of(ran)
    last = blocks(lines)[-1]
    write(ran, DAMAGE[why](lines))
    [text] = named(ran, CHANGED)
    assert text.startswith("2 of " if why == "no seal" else "1 of ")
    assert f"block {last['block']} (ngram-simple" in text
    assert why in text
    manifest, left = read_run(ran)
    told = (x for x in left if isinstance(x, BlockRecord | RequestRecord))
    assert last["block"] not in {x.block for x in told}
    with pytest.raises(RequestError, match="changed blocks"):
        gone_on(ran)
    assert {v.word for v in verdicts_of(manifest, left)} == {"inconclusive"}
    assert analysed(manifest, left).findings[0].name == CHANGED
    assert analysed(manifest, left).progress.reason.startswith(CHANGED)


def test_every_other_request_taken_out(ran: Path) -> None:
    lines = lines_of(ran)
    left = [x for x in lines if not (x["is"] == "request" and not x["warm_up"] and x["index"] % 2)]
    assert len(left) < len(lines)
    write(ran, left)
    [text] = named(ran, CHANGED)
    assert "and " in text.rpartition(";")[2]


@pytest.mark.parametrize("kind", ["block", "observed", "run"])
def test_a_line_taken_out_before_a_block_shows(ran: Path, kind: str) -> None:
    lines = lines_of(ran)
    at = next(i for i, x in enumerate(lines) if x["is"] == kind)
    number = lines[at].get("block")
    write(
        ran,
        [
            x
            for i, x in enumerate(lines)
            if i != at and (number is None or number != x.get("block"))
        ],
    )
    [text] = named(ran, CHANGED)
    assert "something before it was taken out" in text


def test_lines_that_stand_twice_count_once(ran: Path) -> None:
    whole = read_run(ran)
    lines = lines_of(ran)
    write(ran, [copy for x in lines for copy in (x, x)])
    assert not named(ran, CHANGED)
    assert verdicts_of(*read_run(ran)) == verdicts_of(*whole)
    write(ran, [*lines, *lines])
    assert not named(ran, CHANGED)


def test_seals_are_over_bytes_so_an_older_lab_is_read() -> None:
    """Records that lack a field of this version, as one without it sealed them, are whole."""
    record = BlockRecord(
        run="r",
        block=0,
        runtime="a",
        condition="b",
        stratum="c",
        began="",
        elapsed_s=1,
        outcome="ok",
    )
    with_field, short = encoded(sealed([], record)), b'"probe_s":null,'
    assert short in with_field

    def decoded(raw: bytes) -> Kept:
        return kept(msgspec.json.decode(raw, type=BlockRecord), raw)

    assert broken([decoded(with_field)]) == {}
    assert broken([decoded(with_field.replace(short, b""))])
    empty = hashlib.sha256(b"").hexdigest()
    bare = {"requests": 0, "requests_sha256": empty, "seal": ""}
    older = encoded(msgspec.structs.replace(record, **bare)).replace(short, b"")
    seal = hashlib.sha256(hashlib.sha256(older.rstrip()).digest()).hexdigest()
    assert broken([decoded(older.replace(b'"seal":""', f'"seal":"{seal}"'.encode()))]) == {}


VALUES: list[tuple[str, Any]] = [
    ("total_s", -5),
    ("total_s", 1e300),
    ("token_times_s", [-1.0]),
    ("output_tokens", -1),
    ("verdict", "banana"),
    ("stage", "banana"),
    ("block", 10**18),
    ("block", -1),
    ("text_sha256", "x"),
]


@pytest.mark.parametrize(("field", "value"), VALUES)
def test_a_value_that_cannot_be_names_its_line(ran: Path, field: str, value: Any) -> None:
    lines = lines_of(ran)
    wanted = a_request(lines)
    write(ran, edited(lines, lambda x: x == wanted, **{field: value}))
    with pytest.raises(RequestError, match=f"line {lines.index(wanted) + 1} .*{field}"):
        read_run(ran)
    with pytest.raises(RequestError, match=f"line {lines.index(wanted) + 1} "):
        gone_on(ran)


@pytest.mark.parametrize(
    ("field", "value"),
    [("outcome", "banana"), ("elapsed_s", -1), ("probe_s", -1.0), ("seal", "1"), ("slots", -1)],
)
def test_of_a_block_too(ran: Path, field: str, value: Any) -> None:
    lines = lines_of(ran)
    wanted = blocks(lines)[0]
    write(ran, edited(lines, lambda x: x == wanted, **{field: value}))
    with pytest.raises(RequestError, match=f"line {lines.index(wanted) + 1} .*{field}"):
        read_run(ran)


@pytest.mark.parametrize("counts", [{"drafted": -1}, {"source": "banana"}, {"accepted_at": [-1]}])
def test_of_counts_too(ran: Path, counts: Line) -> None:
    lines = lines_of(ran)
    wanted = a_request(lines)
    write(ran, edited(lines, lambda x: x == wanted, counts=wanted["counts"] | counts))
    with pytest.raises(RequestError, match=f"line {lines.index(wanted) + 1} "):
        read_run(ran)


def test_a_block_beyond_the_plan_names_its_line(ran: Path) -> None:
    lines = lines_of(ran)
    write(ran, [*lines, a_request(lines) | {"block": 1000}])
    with pytest.raises(RequestError, match=rf"as the plan has them, in line {len(lines) + 1}"):
        read_run(ran)


def test_an_unknown_finding_names_its_line(ran: Path) -> None:
    lines = lines_of(ran)
    made = FindingRecord(run=read_manifest(ran).run, name="banana", text="x")
    write(ran, [*lines, msgspec.to_builtins(made)])
    with pytest.raises(RequestError, match=f"a known finding in line {len(lines) + 1}"):
        read_run(ran)


def test_a_gate_passes_no_changed_records(ran: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(ran, missing(lines_of(ran)))
    assert dispatch(["lab", "gate", str(ran), "--require", "not-reject"]) == 1
    assert CHANGED in capsys.readouterr().out


def test_a_report_begins_with_them(ran: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(ran, missing(lines_of(ran)))
    assert dispatch(["lab", "report", str(ran)]) == 0
    assert "records-changed" in capsys.readouterr().out
    text = (ran / "report.md").read_text()
    assert "interrupted: records-changed" in text
    assert "count for nothing" in text


def test_a_run_that_nothing_disturbed_is_judged_as_ever(tmp_path: Path) -> None:
    world = TimedWorld(seconds={"none": 1.0, "ngram-simple": 0.6})
    manifest: Manifest = executed(tmp_path, SIMPLE, world=world, rules={"repeats": 6})
    made = read_run(tmp_path)
    assert made == (manifest, read_records(tmp_path / RECORDS))


def test_what_is_left_supports_neither_word() -> None:
    slower = Story(seconds=lambda _turn, condition, _p: 1.0 if condition == "none" else 2.0)
    lines = [*slower.lines(8), *rolled_back()]
    found = FindingRecord(run=lines[0].run, name=CHANGED, text="1 of 17 blocks")
    assert [v.word for v in verdicts_of(small_manifest(), lines)] == ["reject"]
    [verdict] = verdicts_of(small_manifest(), [*lines, found])
    assert (verdict.word, verdict.reasons) == ("inconclusive", (f"{CHANGED}: 1 of 17 blocks",))
    assert against([verdict], "not-reject") == [verdict]
    [whole] = verdicts_of(small_manifest(), [*Story().lines(8), *rolled_back()])
    assert whole.word != "not run"
    assert CHANGED not in whole.findings
