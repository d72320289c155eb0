"""``--trace`` and ``slipstream trace``, chat on what drafters learned, an installed drafter."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from test_verbs import workload

from builders import tiny_model
from conftest import Command
from plugin_packages import install
from slipstream.engine.prefix_cache import SHORTEST
from slipstream.engine.trace_file import read_trace
from slipstream.engine.trace_format import End

DRAFTING = [
    *("--spec", "ngram-mod", "--ngram-mod-n-match", "2"),
    *("--ngram-mod-n-min", "1", "--ngram-mod-n-max", "8"),
]
LONG = ["-p", "hello", "-n", "48", "--ignore-eos"]


def last_json(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    record = json.loads(done.stdout.splitlines()[-1])
    assert isinstance(record, dict)
    return record


def traced(slipstream: Command, tiny: Path, path: Path, *backend: str) -> dict[str, Any]:
    done = slipstream("run", tiny, *backend, *LONG, *DRAFTING, "--trace", path, "--json")
    assert done.returncode == 0, done.stderr
    return last_json(done)


def test_run_traces_and_trace_recomputes(
    slipstream: Command, tiny: Path, backend: Sequence[str], tmp_path: Path
) -> None:
    path = tmp_path / "t.jsonl"
    run = traced(slipstream, tiny, path, *backend)
    done = slipstream("trace", path, "--policy", "off", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    record = last_json(done)
    assert record["equal"] is True
    assert record["model"] == str(tiny)
    [request] = record["requests"]
    for name in ("emitted", "drafted", "tested", "accepted", "target_passes", "acceptance_at"):
        assert request["recomputed"][name] == run["stats"][name], name
    assert record["conditions"][0]["replay"]["rounds"] > 0
    assert "every recorded summary equals its rounds" in done.stdout
    assert "policy off, ngram-mod, cold:" in done.stdout
    table = done.stdout.replace(str(tiny), "tiny").splitlines()[:-1]
    assert "ngram-mod" in done.stdout
    assert all(line.isprintable() for line in table)


def test_a_tampered_trace_is_exit_1(slipstream: Command, tiny: Path, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    traced(slipstream, tiny, path, "--backend", "reference")
    lines = path.read_text().splitlines()
    end = json.loads(lines[-1])
    end["summary"]["accepted"] += 1
    path.write_text("\n".join([*lines[:-1], json.dumps(end), ""]))
    done = slipstream("trace", path)
    assert done.returncode == 1
    assert "NOT EQUAL" in done.stdout
    assert "accepted: recorded" in done.stdout
    path.write_text("\n".join([*lines[:-1], ""]))
    assert slipstream("trace", path).returncode == 1
    path.write_text("\n".join(lines))
    done = slipstream("trace", path)
    assert done.returncode == 2
    assert "ends before its end" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "part", "code"),
    [
        (["trace"], "FILE", 2),
        (["trace", "absent"], "absent", 2),
        (["trace", "MODEL"], "line 1", 2),
        (["trace", "absent", "--policy", "best"], "`best`", 2),
        (["run", "MODEL", "a", "--trace", "MODEL"], "holds something else", 2),
        (["run", "MODEL", "a", "--trace", "absent/t.jsonl"], "absent/t.jsonl", 1),
    ],
)
def test_mistakes(
    slipstream: Command, tiny: Path, arguments: list[str], part: str, code: int
) -> None:
    size = tiny.stat().st_size
    done = slipstream(*(str(tiny) if word == "MODEL" else word for word in arguments))
    assert done.returncode == code, done.stderr
    assert done.stderr.startswith("error: expected ")
    assert "Traceback" not in done.stderr
    assert part in done.stderr
    assert tiny.stat().st_size == size


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_disk_loses_no_output(slipstream: Command, tiny: Path) -> None:
    arguments = ["run", tiny, "--backend", "reference", "-p", "hello", "-n", "5", "--ignore-eos"]
    plain = last_json(slipstream(*arguments, "--json"))
    done = slipstream(*arguments, "--json", "--trace", "/dev/full")
    assert done.returncode == 1
    assert last_json(done)["ids"] == plain["ids"]
    assert "error: expected a trace file that can be written" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_killed_run_leaves_whole_lines(slipstream: Command, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    lasting = tiny_model(tmp_path / "lasting.gguf", "llama", context=1 << 17)
    arguments = ["run", lasting, "--backend", "reference", "-p", "hello", "-n", "-1"]
    run = slipstream.start(
        *arguments, "--ignore-eos", "--trace", path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and (not path.exists() or path.stat().st_size < 4000):
        time.sleep(0.02)
    os.kill(run.pid, signal.SIGKILL)
    run.communicate(timeout=300)
    assert path.read_bytes().endswith(b"\n")
    done = slipstream("trace", path)
    assert done.returncode == 1
    assert "no summary to compare" in done.stdout
    assert "1 requests" in done.stdout


def test_chat_shows_and_forgets_what_drafters_learned(
    slipstream: Command, chatty: Path, tmp_path: Path
) -> None:
    path = tmp_path / "t.jsonl"
    done = slipstream(
        *("chat", chatty, "--backend", "reference", "-n", "12", "--ignore-eos", *DRAFTING),
        *("--trace", path, "--json"),
        stdin="/remembered\nhello\n/remembered\n/clear\nhello\n/forget\n/remembered\n/clear\nhello\n",
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("drafters remember nothing") == 2
    assert done.stderr.count("ngram-mod, session : ") == 1
    replies = last_json(done)["replies"]
    assert [reply["stats"]["warm"] for reply in replies] == [False, True, False]
    assert [reply["stats"]["reused_tokens"] > 0 for reply in replies] == [False, True, False]
    assert done.stderr.count("warm: ") == 1
    assert replies[0]["ids"] == replies[1]["ids"] == replies[2]["ids"]
    shown = slipstream("trace", path)
    assert shown.returncode == 0
    assert shown.stdout.count("  cold ") == 2
    assert shown.stdout.count("  warm ") == 1
    assert "ngram-mod, cold" in shown.stdout
    assert "ngram-mod, warm" in shown.stdout


def test_sharing_between_sessions_is_said(slipstream: Command, tiny: Path) -> None:
    arguments = ["run", tiny, "--backend", "reference", *LONG, *DRAFTING]
    assert "draft_scope=all" in slipstream(*arguments, "--draft-scope", "all").stderr
    assert "draft_scope" not in slipstream(*arguments).stderr


def test_an_installed_drafter(slipstream: Command, tiny: Path, tmp_path: Path) -> None:
    install(tmp_path, "good-drafter", {"repeat": "good_drafter:create"})
    install(tmp_path, "bad-drafter", {"sad": "bad_drafter:create"}, source="import absent_thing")
    paths = os.pathsep.join([str(tmp_path), slipstream.environment["PYTHONPATH"]])
    arguments = ["run", tiny, "--backend", "reference", *LONG, "--json"]
    plain = last_json(slipstream(*arguments))
    done = slipstream(*arguments, "--spec", "repeat,ngram-mod", PYTHONPATH=paths)
    assert done.returncode == 0, done.stderr
    found = last_json(done)
    assert found["ids"] == plain["ids"]
    assert found["stats"]["drafters"] == ["ngram-mod", "repeat"]
    for name, part in (("sad", "bad-drafter"), ("repaet", "repeat (good-drafter)")):
        done = slipstream(*arguments, "--spec", name, PYTHONPATH=paths)
        assert done.returncode == 2
        assert part in done.stderr, done.stderr
        assert "Traceback" not in done.stderr


def test_bench_speculate_traces_every_condition(
    slipstream: Command, tiny: Path, tmp_path: Path
) -> None:
    workload(tmp_path, "prose", "a prose prompt that would be worth keeping")
    path = tmp_path / "t.jsonl"
    done = slipstream(
        *("bench", "speculate", tiny, "--backend", "reference", "--workloads", tmp_path),
        *("--strata", "prose", "--trace", path, "--warm"),
    )
    assert done.returncode == 0, done.stderr
    ends = [record for record in read_trace(path) if isinstance(record, End)]
    assert max(end.summary["prompt_tokens"] for end in ends) > SHORTEST
    assert not any(end.summary["reused_tokens"] for end in ends), "a prompt was not computed"
    shown = slipstream("trace", path, "--json")
    assert shown.returncode == 0, shown.stdout
    names = [condition["name"] for condition in last_json(shown)["conditions"]]
    assert {"none", "suffix"} <= set(names)
