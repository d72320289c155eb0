"""benchmarks/server.py: timing, settings, bars, tables, and a run from end to end on fakes."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import servers
from builders import tiny_model

ROOT = Path(__file__).resolve().parents[2]
FAKE = ROOT / "tests" / "fake_slipstream.py"
LARGE, SMALL = "qwen2.5-coder-1.5b", "smollm2-135m"


@pytest.fixture(autouse=True)
def scripts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    monkeypatch.setattr(servers, "PROGRAM", [sys.executable, str(FAKE)])
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if str(ROOT / "benchmarks") in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def stops(process: psutil.Process) -> bool:
    """Whether it comes to a halt; the signal takes its time on a busy machine."""
    limit = time.monotonic() + 120
    while process.status() != psutil.STATUS_STOPPED:
        if time.monotonic() > limit:
            return False
        time.sleep(0.01)
    return True


def test_a_contestant_runs_only_while_it_is_asked() -> None:
    from contestants import Llama, Own

    for make in (
        lambda: Own("m", [], {"type": "none"}),
        lambda: Llama([sys.executable, str(FAKE), "-m", "m"]),
    ):
        with make() as contestant:
            process = psutil.Process(contestant._server.process.pid)  # type: ignore[attr-defined]
            assert stops(process)
            taken = contestant.stream([[1, 2], [3, 4], [1, 2]], 7)
            assert stops(process)
        assert not process.is_running()
        assert [stream.tokens for stream in taken] == [7, 7, 7]
        assert all(0 < stream.first_s < stream.whole_s for stream in taken)
        assert all(stream.tok_s > 0 for stream in taken)
        assert taken[0].text_sha256 == taken[2].text_sha256 != taken[1].text_sha256
        assert (taken[0].drafted, taken[0].accepted) == (4, 3)


def test_what_learns_over_requests_starts_anew() -> None:
    from contestants import Llama

    with Llama([sys.executable, str(FAKE)], fresh=True) as contestant:
        ports = set()
        for _ in range(2):
            contestant.stream([[1]], 2)
            ports.add(contestant._server.process.pid)
    assert len(ports) == 2


@pytest.mark.parametrize("fault", ["truncated", "error500"])
def test_a_stream_that_breaks_is_no_sample(fault: str) -> None:
    from contestants import Own
    from http_exchange import BrokenReplyError

    flags = ["--fault", fault, "--after", "0"]
    with Own("m", flags, {}) as contestant, pytest.raises(BrokenReplyError):
        [contestant.stream([[1]], 3) for _ in range(12)]


def test_the_settings_of_llama_server() -> None:
    from peer_grid import setting as drafting
    from server_grid import STREAMS, best, command, named, settings

    assert STREAMS == (1, 4, 8)
    for number in STREAMS:
        every = settings(number)
        assert len({s.name for s in every}) == len(every)
        assert {s.flash for s in every} == {"on", "off"}
        assert min(s.slots for s in every) == number
        assert all(named(number, s.name) == s for s in every)
    chosen = settings(4)[0]
    words = command("program", chosen, model="m", threads=2, context=1000)
    assert words[words.index("-c") + 1] == "4000"
    assert words[words.index("-np") + 1] == "4"
    with pytest.raises(ValueError, match="draft model"):
        command("p", chosen, model="m", threads=2, context=9, drafting=drafting("llama", "draft 7"))
    tried = {"a": {"failed": None, "tok_s": 2.0}, "b": {"failed": "x", "tok_s": 9.0}}
    assert best(tried) == "a"
    assert best({"b": tried["b"]}) is None


def sample(first: float, whole: float, tokens: int = 11, text: str = "t") -> dict[str, Any]:
    made = {"first_s": first, "whole_s": whole, "tokens": tokens, "text_sha256": text}
    return {**made, "drafted": None, "accepted": None, "tok_s": (tokens - 1) / (whole - first)}


def section(one: dict[str, Any], other: dict[str, Any], names: tuple[str, str]) -> dict[str, Any]:
    samples = {names[0]: [one] * 6, names[1]: [other] * 6}
    head = {"date": "2026-01-01", "commit": "abc", "tokens": 11, "best": "1 slots"}
    return {**head, "prompts": {"chat/a": {"task": "chat", "samples": samples}}}


def outcome(model: str, record: dict[str, Any], beginning: str) -> Any:
    from server_bars import outcomes

    (found,) = [bar for bar in outcomes(model, record) if bar.title.startswith(beginning)]
    return found


@pytest.mark.parametrize(
    ("first", "rate", "met"), [(1.04, 0.98, (True, True)), (1.06, 0.96, (False, False))]
)
def test_one_stream_is_judged_by_first_token_and_rate(
    first: float, rate: float, met: tuple[bool, bool]
) -> None:
    own, peer = sample(first, first + 1 / rate), sample(1.0, 2.0)
    record = {"single": section(own, peer, ("slipstream", "llama"))}
    found = [outcome(LARGE, record, f"1 stream: {kind}") for kind in ("time", "tokens")]
    assert [bar.figure for bar in found] == pytest.approx([first, rate])
    assert tuple(bar.met for bar in found) == met
    other = outcome("another", record, "1 stream: time")
    assert (other.met, other.wanted) == (None, "no bar")


@pytest.mark.parametrize(
    ("model", "ratio", "met"),
    [(LARGE, 1.02, True), (LARGE, 1.04, False), (SMALL, 1.09, True), (SMALL, 1.11, False)],
)
def test_overhead(model: str, ratio: float, met: bool) -> None:
    taken = section(sample(0.1, ratio), sample(0.1, 1.0), ("server", "engine"))
    found = outcome(model, {"overhead": taken}, "server / engine")
    assert (found.figure, found.met) == (pytest.approx(ratio), met)


def test_overhead_of_another_text_is_none() -> None:
    taken = section(sample(0.1, 0.9), sample(0.1, 1.0, text="u"), ("server", "engine"))
    found = outcome(LARGE, {"overhead": taken}, "server / engine")
    assert found.met is False
    assert "THE OUTPUT DIFFERS: chat/a" in found.note


@pytest.mark.parametrize(("number", "bar"), [("4", 2.3), ("8", 3.2)])
def test_streams_at_once(number: str, bar: float) -> None:
    def streams(ratio: float, rounds: int = 6) -> dict[str, Any]:
        taken = {"slipstream": [{"tok_s": ratio}] * rounds, "llama": [{"tok_s": 1.0}] * rounds}
        return {"streams": {"best": {number: "4 slots"}, "streams": {number: taken}}}

    assert outcome(LARGE, streams(bar + 0.01), f"{number} streams").met is True
    assert outcome(LARGE, streams(bar - 0.01), f"{number} streams").met is False
    few = outcome(LARGE, streams(9.0, rounds=5), f"{number} streams")
    assert (few.met, few.low) == (None, None)


def one_prompt(folder: Path, task: str, stratum: str) -> None:
    messages = [{"content": f"one two of {task}", "role": "user"}]
    compact = json.dumps(messages, separators=(",", ":"))
    line = {
        "id": f"{task}/one",
        "stratum": stratum,
        "task": task,
        "messages": messages,
        "max_tokens": 64,
        "source": "this test",
        "licence": "MIT",
        "sha256": hashlib.sha256(compact.encode()).hexdigest(),
    }
    (folder / f"{task}.jsonl").write_text(json.dumps(line) + "\n")


def fake_peer(folder: Path) -> Path:
    program = folder / "llama" / "bin" / "llama-server"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!{sys.executable}\n{FAKE.read_text()}")
    program.chmod(0o755)
    return folder


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Any:
    """Run the script; gives its last line and the record."""
    for task, stratum in {
        "code_edit": "repetitive",
        "chat": "chat",
        "prose": "prose",
        "reasoning": "reasoning",
    }.items():
        one_prompt(tmp_path, task, stratum)
    model, out = tiny_model(tmp_path / "tiny.gguf", "llama"), tmp_path / "record.json"
    peers = fake_peer(tmp_path / "peers")
    source = [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, source)))

    def run(*words: str) -> tuple[dict[str, Any], dict[str, Any]]:
        import server

        given = ["server.py", str(model), "--out", str(out), "--workloads", str(tmp_path)]
        given += ["--peers", str(peers), "--context", "256", "--backend", "reference", "--quick"]
        monkeypatch.setattr(sys, "argv", [*given, *words])
        server.main()
        last = json.loads(capsys.readouterr().out.splitlines()[-1])
        return last, json.loads(out.read_text())

    return run


def test_quick_run_from_end_to_end(measured: Any) -> None:
    last, record = measured()
    names = {"grid", "drafting", "single", "editing", "streams", "overhead"}
    assert set(last["seconds"]) == names
    kept = record["models"]["tiny"]["server"]
    assert set(kept) == names
    assert all(len(tried) == 2 for tried in kept["grid"]["streams"].values())
    assert set(kept["single"]["prompts"]) == {"chat/one", "code_edit/one", "prose/one"}
    for name, engines in (("single", ("slipstream", "llama")), ("overhead", ("engine", "server"))):
        for prompt in kept[name]["prompts"].values():
            assert all(len(prompt["samples"][engine]) == 2 for engine in engines)
    assert {n: len(taken["llama"]) for n, taken in kept["streams"]["streams"].items()} == {
        "4": 2,
        "8": 2,
    }
    # the fake says something else than the model, and that is seen
    assert last["bars"]["server / engine, time of a request"]["met"] is not True
    check_page(record)


def check_page(record: dict[str, Any]) -> None:
    from performance_page import page

    text = page([record])
    assert "#### Server" in text
    assert "QUICK: no figures" in text
    assert "4 streams: aggregate tokens/s / llama.cpp's" in text
    assert "THE OUTPUT DIFFERS" in text
    assert "| 8 | 8 slots, fa on, ub 128 |" in text


def test_what_was_measured_is_not_measured_again(measured: Any) -> None:
    _, before = measured("--only", "grid")
    _, after = measured("--only", "grid")
    tried = [r["models"]["tiny"]["server"]["grid"]["streams"] for r in (before, after)]
    assert tried[0] == tried[1]
    with pytest.raises(SystemExit, match="needs the record of drafting"):
        measured("--only", "editing")


def test_a_record_of_other_parameters_does_not_stand() -> None:
    from server_sections import _same

    earlier = {"tokens": 9, "rounds": 3, "best": "x", "prompts": {"chat/one": 1}}
    assert _same(earlier, tokens=9, rounds=3, best="x")
    assert not _same(earlier, tokens=9, rounds=3, best="y")
    assert not _same({}, tokens=9)


def test_a_missing_peer_is_said_before_anything_runs(measured: Any, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"build_peers\.sh --servers"):
        measured("--peers", str(tmp_path / "nothing"))
