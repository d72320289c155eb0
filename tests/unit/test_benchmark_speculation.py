"""benchmarks/speculation.py: servers of peers, bars, tables, and a run from end to end."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from builders import tiny_model
from slipstream.measure.workload import TASKS

ROOT = Path(__file__).resolve().parents[2]
FAKE = ROOT / "tests" / "fake_llama_server.py"


@pytest.fixture(autouse=True)
def scripts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if str(ROOT / "benchmarks") in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def fake(*flags: str) -> list[str]:
    return [sys.executable, str(FAKE), *flags]


def stops(process: psutil.Process) -> bool:
    """Whether it comes to a halt; the signal takes its time on a busy machine."""
    limit = time.monotonic() + 120
    while process.status() != psutil.STATUS_STOPPED:
        if time.monotonic() > limit:
            return False
        time.sleep(0.01)
    return True


def test_a_server_runs_only_while_it_is_asked() -> None:
    from server_worker import Server

    with Server("fake", fake()) as server:
        process = psutil.Process(server.process.pid)
        assert stops(process)
        answer = server.complete([5, 6, 7], 11)
        assert stops(process)
    assert not process.is_running()
    assert answer.text == "3 ids, 1"
    assert (answer.tokens, answer.drafted, answer.accepted) == (11, None, None)
    assert answer.decode_s == pytest.approx(0.1)
    assert answer.tok_s == pytest.approx(10 / 0.1)


def test_a_server_that_ends_says_why() -> None:
    from server_worker import Server, ServerEndedError

    with pytest.raises(ServerEndedError, match=r"unknown speculative type(.|\n)*exit code 1"):
        Server("fake", fake("--spec-type", "suffix"))
    with (
        Server("fake", fake()) as server,
        pytest.raises(ServerEndedError, match=r"a fault in the middle(.|\n)*did not answer"),
    ):
        server.complete([0], 1)


def test_the_grid_is_that_of_the_bars() -> None:
    from peer_grid import GRID, command, setting

    names = {peer: [s.name for s in settings] for peer, settings in GRID.items()}
    shared = [
        "plain",
        *(f"ngram-simple {n}x{m}" for n in (4, 6, 12) for m in (8, 15, 48)),
        *("ngram-mod 24/48/64", "ngram-mod 16/1/16"),
        *("draft 3", "draft 7", "draft 15"),
    ]
    assert names["llama"] == shared
    assert set(names["ik_llama"]) - set(shared) == {"suffix 16/1/3", "suffix 16/1/3 autotune"}
    limits = {"threads": 2, "context": 512}
    for peer in GRID:
        with pytest.raises(ValueError, match="draft model"):
            command(peer, "server", setting(peer, "draft 7"), model="m", draft=None, **limits)
        words = command(peer, "server", setting(peer, "draft 7"), model="m", draft="d", **limits)
        assert words[words.index("-t") + 1] == "2"
        assert words[-1] == "d"
        assert "7" in words
    mod = setting("llama", "ngram-mod 24/48/64").flags
    assert mod[mod.index("--spec-ngram-mod-n-min") + 1] == "48"
    ik = setting("ik_llama", "ngram-simple 6x48").flags
    assert ik[ik.index("--draft-max") + 1] == "48"


def sample(condition: str, number: int, decode_s: float, **changes: Any) -> dict[str, Any]:
    made = {"condition": condition, "round": number, "decode_s": decode_s, "emitted": 11}
    more = {"degenerate": None, "identical": True, "balance": -0.2, "drafted": 9, "accepted": 5}
    return {**made, **more, **changes}


def prompt(task: str, speed_up: float, rounds: int = 9, **changes: Any) -> dict[str, Any]:
    both = [("none", 1.0, {}), ("auto", 1 / speed_up, changes)]
    samples = [sample(name, n, s, **more) for n in range(rounds) for name, s, more in both]
    return {"task": task, "samples": samples}


def section(**prompts: Any) -> dict[str, Any]:
    head = {"date": "2026-01-01", "commit": "abc", "tokens": 256, "quick": False}
    return {**head, "conditions": {"none": {}, "auto": {}}, "prompts": prompts}


def outcome(record: dict[str, Any], title: str) -> Any:
    from speculation_bars import outcomes

    (found,) = [bar for bar in outcomes(record) if bar.title == title]
    return found


@pytest.mark.parametrize(
    ("speed_up", "rounds", "changes", "met"),
    [
        (1.0, 9, {"balance": 0.0}, True),
        (0.981, 9, {"balance": 0.009}, True),
        (0.97, 9, {"balance": 0.0}, False),
        (1.0, 9, {"balance": 0.011}, False),
        (1.0, 9, {"balance": None}, False),
        (1.0, 9, {"balance": 0.0, "identical": False}, False),
        (1.0, 5, {"balance": 0.0}, None),
    ],
)
def test_never_slower_is_judged_per_prompt(
    speed_up: float, rounds: int, changes: dict[str, Any], met: bool | None
) -> None:
    record = {"never_slower": section(a=prompt("prose", speed_up, rounds, **changes))}
    found = outcome(record, "never slower: a")
    assert found.met is met
    assert (found.low is None) == (rounds < 6)
    assert found.pairs == rounds


def test_a_low_bound_below_the_bar_is_a_miss() -> None:
    mixed = prompt("prose", 1.0, balance=0.0)
    for place in (1, 3, 5, 7):
        mixed["samples"][place]["decode_s"] = 1.1
    found = outcome({"never_slower": section(a=mixed)}, "never slower: a")
    assert found.figure == pytest.approx(1.0)
    assert found.low < 0.95
    assert found.met is False


def test_degenerate_prompts_are_named_and_left_out_of_speed_ups() -> None:
    looping = prompt("code_edit", 9.0)
    looping["samples"][0]["degenerate"] = "loop of 2 tokens"
    record = {"never_slower": section(a=prompt("code_edit", 2.6), b=looping)}
    found = outcome(record, "code_edit: auto / plain")
    assert (found.figure, found.met) == (pytest.approx(2.6), True)
    assert "left out b (loop of 2 tokens)" in found.note
    assert outcome(record, "never slower: b").met is True


def test_duels_and_the_best_setting() -> None:
    from speculation_sections import best_setting

    def tried(seconds: float, failed: str | None = None) -> dict[str, Any]:
        output = {"task": "code_edit", "tokens": 11, "decode_s": seconds}
        return {"failed": failed, "outputs": {"a": output}}

    settings = {"plain": tried(1.0), "draft 3": tried(0.5), "draft 7": tried(0.1, "ended")}
    assert best_setting(settings, "code_edit") == "draft 3"
    assert best_setting(settings, "csv_to_json") is None
    for name, rest in (("plain", 0.9), ("draft 3", 1.5)):
        more = {"task": "code_edit", "tokens": 11, "decode_s": rest}
        settings[name]["outputs"]["b"] = more
    settings["lucky"] = tried(0.2)  # of one prompt only: no finalist
    assert best_setting(settings, "code_edit") == "plain"
    rates = {"slipstream": [40.0] * 6, "llama": [20.0] * 6}
    task = {"best": {"llama": "draft 3"}, "prompts": {"a": rates}}
    found = outcome({"duel": {"tasks": {"code_edit": task}}}, "code_edit: auto / llama's best")
    assert (found.figure, found.met) == (pytest.approx(2.0), True)
    assert found.note == "its best: draft 3"
    looping = prompt("code_edit", 9.0)
    looping["samples"][0]["degenerate"] = "empty"
    both = {"duel": {"tasks": {"code_edit": task}}, "never_slower": section(a=looping)}
    found = outcome(both, "code_edit: auto / llama's best")
    assert found.figure is None
    assert "left out a (degenerate)" in found.note


def a_sitting(workloads: Path, **changes: Any) -> Any:
    from speculation_sections import Sitting

    settings: dict[str, Any] = {
        "model": "m",
        "draft": None,
        "servers": {},
        "workloads": workloads,
        "threads": 2,
        "context": 512,
        "backend": "reference",
        "tokens": 4,
        "prompts": 1,
        "rounds": 1,
        "set_rounds": 1,
        "duel_rounds": 1,
    }
    return Sitting(**{**settings, **changes})


def one_prompt(folder: Path, task: str, stratum: str) -> None:
    messages = [{"content": "one two one two one two", "role": "user"}]
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


def fake_peers(folder: Path) -> Path:
    for name in ("llama", "ik_llama"):
        program = folder / name / "bin" / "llama-server"
        program.parent.mkdir(parents=True)
        program.write_text(f"#!{sys.executable}\n{FAKE.read_text()}")
        program.chmod(0o755)
    return folder


def test_quick_run_from_end_to_end(tmp_path: Path) -> None:
    one_prompt(tmp_path, "code_edit", "repetitive")
    one_prompt(tmp_path, "prose", "prose")
    model, out = tiny_model(tmp_path / "tiny.gguf", "llama"), tmp_path / "record.json"
    command = [
        *(sys.executable, str(ROOT / "benchmarks" / "speculation.py"), str(model), "--quick"),
        *(
            "--backend",
            "reference",
            "--context",
            "512",
            "--workloads",
            str(tmp_path),
            "--out",
            str(out),
        ),
        *("--peers", str(fake_peers(tmp_path / "peers"))),
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=900)
    assert done.returncode == 0, done.stderr
    last = json.loads(done.stdout.splitlines()[-1])
    assert set(last["seconds"]) == {"never_slower", "sets", "grid", "duel"}
    record = json.loads(out.read_text())
    kept = record["models"]["tiny"]["speculation"]
    assert set(kept["never_slower"]["prompts"]) == {"code_edit/one", "prose/one"}
    samples = kept["never_slower"]["prompts"]["prose/one"]["samples"]
    assert [s["condition"] for s in samples] == ["none", "auto", "auto", "none"]
    assert all(s["identical"] for s in samples)
    assert all(s["emitted"] == 12 for s in samples)
    assert set(kept["grid"]["peers"]["llama"]) == {"plain", "ngram-simple 4x8"}
    duel = kept["duel"]["tasks"]["code_edit"]
    assert duel["best"] == dict.fromkeys(("llama", "ik_llama"), "ngram-simple 4x8")
    assert all(len(rates) == 1 for rates in duel["prompts"]["code_edit/one"].values())
    check_page(record)


def check_page(record: dict[str, Any]) -> None:
    from performance_page import page

    text = page([record])
    assert "#### Speculation" in text
    assert "QUICK: no figures" in text
    assert "| llama.cpp | ngram-simple 4x8 |" in text
    assert "75 % of 8 accepted" in text
    assert "never slower: prose/one" in text
    assert "too few pairs" in text


def test_missing_servers_are_said_before_anything_runs(tmp_path: Path) -> None:
    script, out = str(ROOT / "benchmarks" / "speculation.py"), str(tmp_path / "o.json")
    command = [sys.executable, script, "nothing.gguf", "--out", out, "--peers", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode != 0
    assert "build_peers.sh --servers" in done.stderr


def test_a_setting_that_a_build_lacks_is_recorded(tmp_path: Path) -> None:
    from peer_grid import setting
    from speculation_sections import _setting
    from speculation_tables import _remarks

    servers = {"ik_llama": str(fake_peers(tmp_path) / "ik_llama" / "bin" / "llama-server")}
    sitting = a_sitting(tmp_path, servers=servers)
    one_prompt(tmp_path, "code_edit", "repetitive")
    groups = sitting.read(["code_edit"])
    ids = {"code_edit/one": [1, 2]}
    chosen = setting("ik_llama", "suffix 16/1/3")
    record = _setting("ik_llama", chosen, sitting, groups, ids)
    assert _setting("ik_llama", chosen, sitting, groups, ids, record) == record
    assert record["outputs"] == {}
    assert "unknown speculative type" in record["failed"]
    assert _remarks(record, {}) == "not offered by this build"


def test_the_best_settings_of_the_first_prompts_are_tried_on_all(tmp_path: Path) -> None:
    from speculation_sections import grid

    servers = {"llama": str(fake_peers(tmp_path) / "llama" / "bin" / "llama-server")}
    for task, stratum in (("code_edit", "repetitive"), ("csv_to_json", "structured")):
        one_prompt(tmp_path, task, stratum)
        [line] = (tmp_path / f"{task}.jsonl").read_text().splitlines()
        twin = {**json.loads(line), "id": f"{task}/two"}
        (tmp_path / f"{task}.jsonl").write_text(f"{line}\n{json.dumps(twin)}\n")
    sitting = a_sitting(
        tmp_path, model=str(tiny_model(tmp_path / "tiny.gguf", "llama")), servers=servers, prompts=2
    )
    *_, record = grid(sitting, {})
    tried = record["peers"]["llama"]
    lengths = [len(setting["outputs"]) for setting in tried.values()]
    assert set(lengths) == {2, 4}
    assert lengths.count(4) <= 4
    assert len(tried["plain"]["outputs"]) == 4
    assert all("code_edit/one" in setting["outputs"] for setting in tried.values())
    for setting in tried.values():
        setting["outputs"]["code_edit/one"]["kept"] = True
    *_, again = grid(sitting, record)
    kept = [s["outputs"]["code_edit/one"].get("kept") for s in again["peers"]["llama"].values()]
    assert all(kept)


def test_prompts_that_were_measured_are_not_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import speculation_sections
    from speculation_sections import sets

    asked: list[str] = []

    class Worker:
        def __enter__(self) -> Worker:
            return self

        def __exit__(self, *_: object) -> None:
            return None

        def ask(self, **request: Any) -> dict[str, Any]:
            if request["op"] == "pairs":
                asked.append(request["prompt"]["id"])
            return {"samples": []}

    monkeypatch.setattr(speculation_sections, "own_worker", lambda _: Worker())
    for task in speculation_sections.SET_TASKS:
        one_prompt(tmp_path, task, TASKS[task])
    sitting = a_sitting(tmp_path, draft=str(tmp_path / "d.gguf"), set_rounds=2)
    stopped, whole = sets(sitting, {}), len(speculation_sections.SET_TASKS)
    record = next(stopped)
    assert set(record["conditions"]) == {"none", "draft-simple", "draft-simple chain"}
    assert record["conditions"]["draft-simple"]["draft_model"] == "d.gguf"
    *_, rest = sets(sitting, json.loads(json.dumps(record)))
    assert len(asked) == whole == len(rest["prompts"])
    *_, _ = sets(sitting, {**record, "rounds": 9})
    assert len(asked) == 2 * whole
