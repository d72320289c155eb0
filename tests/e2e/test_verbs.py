"""Every verb from end to end: what it prints, its JSON, its exit code."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from conftest import Command
from widths import too_wide

STATS = {
    *("prompt_tokens", "emitted", "target_passes", "verification_steps"),
    *("drafted", "tested", "accepted", "discarded", "ttft_s", "total_s", "decode_tok_s"),
}
DRAFTING = [
    *("--spec", "ngram-mod", "--ngram-mod-n-match", "2"),
    *("--ngram-mod-n-min", "1", "--ngram-mod-n-max", "8"),
    "--spec-fixed",  # what the default controller verifies depends on the time of passes
]

BACKEND = {"backend", "isa", "kv_type", "isa_reason", "precision", "exact", "varying_ops", "notes"}


def last_json(stdout: str) -> dict[str, Any]:
    record = json.loads(stdout.splitlines()[-1])
    assert isinstance(record, dict)
    return record


def run_json(slipstream: Command, *arguments: str | Path, **keywords: Any) -> dict[str, Any]:
    done = slipstream(*arguments, "--json", **keywords)
    assert done.returncode == 0, done.stderr
    return last_json(done.stdout)


def test_run_prints_text_then_statistics(
    slipstream: Command, tiny: Path, backend: Sequence[str]
) -> None:
    done = slipstream("run", tiny, *backend, "-p", "hello", "-n", "5", "--ignore-eos", "--json")
    assert done.returncode == 0, done.stderr
    record = last_json(done.stdout)
    assert set(record) == {"text", "ids", "finish_reason", "stats", *BACKEND}
    assert done.stdout.startswith(record["text"] + "\n")
    assert len(record["ids"]) == record["stats"]["emitted"] == 5
    assert record["finish_reason"] == "length"
    assert set(record["stats"]) >= STATS
    assert "prompt + 5 tokens in" in done.stderr


def test_speculation_keeps_the_text(
    slipstream: Command, tiny: Path, backend: Sequence[str]
) -> None:
    arguments = ["run", tiny, *backend, "-p", "hello", "-n", "48", "--ignore-eos"]
    plain = run_json(slipstream, *arguments)
    drafted = run_json(slipstream, *arguments, *DRAFTING)
    assert drafted["ids"] == plain["ids"]
    assert drafted["text"] == plain["text"]
    stats = drafted["stats"]
    assert stats["drafted"] >= stats["tested"] >= stats["accepted"] > 0
    assert stats["accepted"] + stats["target_passes"] == stats["emitted"] + stats["discarded"]
    assert stats["emitted"] == len(drafted["ids"])
    assert len(stats["rounds"]) == stats["target_passes"]
    for count in ("drafted", "tested", "accepted", "emitted", "discarded"):
        assert stats[count] == sum(r[count] for r in stats["rounds"]), count
    assert {r["method"] for r in stats["rounds"]} == {"none", "ngram-mod"}


def test_show_drafts_brackets_accepted_tokens(
    slipstream: Command, tiny: Path, backend: Sequence[str]
) -> None:
    arguments = ["run", tiny, *backend, "-p", "hello", "-n", "48", "--ignore-eos", *DRAFTING]
    done = slipstream(*arguments, "--show-drafts", "--json")
    record = last_json(done.stdout)
    shown = done.stdout[: -len(done.stdout.splitlines()[-1]) - 2]
    assert shown != record["text"]
    assert shown.count("[") - record["text"].count("[") > 0
    assert shown.replace("[", "").replace("]", "") == (
        record["text"].replace("[", "").replace("]", "")
    )
    assert "ngram-mod: drafted" in done.stderr


def test_a_drafter_that_never_fired_is_named(slipstream: Command, tiny: Path) -> None:
    done = slipstream(
        *("run", tiny, "--backend", "reference", "-p", "hello", "-n", "4", "--spec", "ngram-mod")
    )
    assert "ngram-mod: drafter never fired" in done.stderr


def test_a_drawn_seed_is_echoed_and_repeats(slipstream: Command, tiny: Path) -> None:
    arguments = ["run", tiny, "--backend", "reference", "-p", "hello", "-n", "12"]
    first = slipstream(*arguments, "--temp", "1.5", "--json")
    record = last_json(first.stdout)
    seed = record["stats"]["seed"]
    assert f"seed {seed} (drawn)" in first.stderr
    again = slipstream(*arguments, "--temp", "1.5", "--seed", str(seed), "--json")
    assert last_json(again.stdout)["ids"] == record["ids"]
    assert "drawn" not in again.stderr


def test_every_source_of_the_prompt(slipstream: Command, tiny: Path, tmp_path: Path) -> None:
    file = tmp_path / "prompt.txt"
    file.write_text("héllo\n", encoding="utf-8")
    tail = ["--backend", "reference", "-n", "3"]
    expected = run_json(slipstream, "run", tiny, "-p", "héllo", *tail)
    for source in (["héllo"], ["-f", str(file)]):
        assert run_json(slipstream, "run", tiny, *tail, *source)["ids"] == expected["ids"]
    for source in (["-"], ["-p", "-"], ["-f", "-"]):
        piped = run_json(slipstream, "run", tiny, *tail, *source, stdin="héllo\n")
        assert piped["ids"] == expected["ids"]


def test_stop_and_logprobs(slipstream: Command, tiny: Path) -> None:
    arguments = ["run", tiny, "--backend", "reference", "-p", "hello", "-n", "40", "--ignore-eos"]
    text = run_json(slipstream, *arguments)["text"]
    stop = next(letter for letter in text[1:] if letter.isprintable() and letter != "\ufffd")
    record = run_json(slipstream, *arguments, "--stop", stop, "--logprobs", "2")
    assert record["finish_reason"] == "stop"
    assert record["text"] == text[: text.index(stop)]
    assert len(record["logprobs"]) == len(record["ids"])
    assert all(len(entry["top"]) == 2 for entry in record["logprobs"])


def test_chat_answers_clears_and_ends(
    slipstream: Command, chatty: Path, backend: Sequence[str]
) -> None:
    done = slipstream(
        *("chat", chatty, *backend, "-n", "4", "--ignore-eos", "--system", "be brief", "--json"),
        stdin="hello\n\nhello\n/clear\nhello\n",
    )
    assert done.returncode == 0, done.stderr
    first, second, third = last_json(done.stdout)["replies"]
    assert first["ids"] == third["ids"]
    assert second["stats"]["prompt_tokens"] > first["stats"]["prompt_tokens"]


def test_chat_says_that_the_context_is_full(slipstream: Command, chatty: Path) -> None:
    done = slipstream(
        *("chat", chatty, "--backend", "reference", "-c", "64", "--json"),
        stdin="x" * 100 + "\nhi\n",
    )
    assert done.returncode == 0, done.stderr
    assert "at most 63 tokens" in done.stderr
    assert "/clear" in done.stderr
    assert len(last_json(done.stdout)["replies"]) == 1


def test_run_with_a_template(slipstream: Command, chatty: Path) -> None:
    tail = ["--backend", "reference", "-n", "3"]
    templated = run_json(slipstream, "run", chatty, "hello", "--template", *tail)
    plain = run_json(slipstream, "run", chatty, "<user>hello\n<assistant>", *tail)
    assert templated["ids"] == plain["ids"]


def test_inspect(slipstream: Command, tiny: Path) -> None:
    done = slipstream("inspect", tiny, "-c", "64", "--json")
    assert done.returncode == 0, done.stderr
    record = last_json(done.stdout)
    assert record["architecture"] == "llama"
    assert record["runs"] is True
    assert record["memory"]["context"] == 64
    assert record["drafters"]["ngram-mod"] == "offered"
    assert "chat template: none" in done.stdout


@pytest.mark.native
def test_explain(slipstream: Command, tiny: Path) -> None:
    pytest.importorskip("slipstream._native")
    done = slipstream("explain", tiny, "--observe", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    record = last_json(done.stdout)
    assert set(record) == {"model", *BACKEND, "policy", "rows", "observed", "huge_pages"}
    assert record["huge_pages"]["obtained_bytes"] <= record["huge_pages"]["asked_bytes"]
    assert record["exact"] is True
    assert record["isa_reason"]
    assert "exact: every op" in done.stdout
    assert all(row["kernel"] and row["reason"] and row["status"] for row in record["rows"])
    assert record["observed"]
    assert "observed as predicted" in done.stdout


@pytest.mark.native
def test_explain_one_row_class(slipstream: Command, tiny: Path) -> None:
    pytest.importorskip("slipstream._native")
    record = run_json(slipstream, "explain", tiny, "--rows", "5")
    assert {row["rows"] for row in record["rows"]} == {"2-8"}
    assert record["observed"] is None


def test_explain_the_reference_backend(slipstream: Command, tiny: Path) -> None:
    record = run_json(slipstream, "explain", tiny, "--backend", "reference", "--observe")
    assert record["rows"] == []
    assert record["observed"]
    assert {"Attention", "LinearGroup"} <= set(record["varying_ops"])


def test_bench_rows(slipstream: Command, tiny: Path, backend: Sequence[str]) -> None:
    record = run_json(slipstream, "bench", "rows", tiny, *backend, "--rows", "1,3", "--rounds", "2")
    assert {"model", "isa", "threads", "read_gb_s", "rows"} <= set(record)
    assert [row["rows"] for row in record["rows"]] == [1, 3]
    assert {"rows", "ms", "ratio", "weight_gb_s"} <= set(record["rows"][0])
    assert record["rows"][0]["ratio"] == 1.0


@pytest.mark.native
def test_bench_rows_ops_and_plot(slipstream: Command, tiny: Path, tmp_path: Path) -> None:
    pytest.importorskip("slipstream._native")
    page = tmp_path / "rows.html"
    options = ("--rows", "1,3", "--rounds", "2", "--depth", "4", "--ops", "--plot", page)
    done = slipstream("bench", "rows", tiny, *options, "--json")
    assert done.returncode == 0, done.stderr
    record = last_json(done.stdout)
    assert {"product", "attention", "row", "outside"} == {op["kind"] for op in record["ops"]}
    assert all([row["rows"] for row in op["rows"]] == [1, 3] for op in record["ops"])
    assert all(row["limit_ms"] > 0 for row in record["rows"])
    assert all(row["read_fraction"] > 0 for row in record["rows"])
    assert {"unsigned_int8", "signed_int8", "float32"} == set(record["peak_gmac_s"])
    assert "attention" in done.stdout
    assert "drift: " in done.stdout
    assert page.read_text().startswith("<!doctype html>")


@pytest.mark.parametrize("name", ["none/rows.html", "", "tiny.gguf", "folder.html"])
def test_bench_rows_refuses_a_page_before_it_measures(
    slipstream: Command, tiny: Path, backend: Sequence[str], tmp_path: Path, name: str
) -> None:
    (tmp_path / "folder.html").mkdir()
    page = tmp_path / name if name else ""
    options = ("--rows", "1", "--rounds", "1", "--depth", "1", "--plot", page)
    done = slipstream("bench", "rows", tiny, *backend, *options)
    assert done.returncode == 2
    assert "--plot" in done.stderr
    assert "ratio" not in done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.native
def test_bench_ops(slipstream: Command) -> None:
    pytest.importorskip("slipstream._native")
    options = ("--types", "q4_k,f16", "--shapes", "32x256", "--rows", "1,2", "--budget", "1")
    record = run_json(slipstream, "bench", "ops", *options, "--levels", "portable", "-t", "1")
    assert [(op["type"], op["rows"], op["isa"]) for op in record["ops"]] == [
        ("q4_k", 1, "portable"),
        ("q4_k", 2, "portable"),
        ("f16", 1, "portable"),
        ("f16", 2, "portable"),
    ]
    assert {"us", "gb_s", "gmac_s", "limit_us", "outputs", "inputs"} <= set(record["ops"][0])
    assert record["threads"] == 1
    assert set(record["peak_gmac_s"]) == {"portable"}


def test_bench_decode(slipstream: Command, tiny: Path, backend: Sequence[str]) -> None:
    record = run_json(
        slipstream,
        *("bench", "decode", tiny, *backend, "--prompt", "8", "--count", "4", "--rounds", "1"),
    )
    assert record["prefill_tok_s"] > 0
    assert record["decode_tok_s"] > 0


def workload(folder: Path, stratum: str, text: str) -> None:
    messages = [{"content": text, "role": "user"}]
    compact = json.dumps(messages, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    prompt = {
        "id": f"{stratum}/one",
        "stratum": stratum,
        "messages": messages,
        "max_tokens": 24,
        "source": "this test",
        "licence": "MIT",
        "sha256": hashlib.sha256(compact.encode()).hexdigest(),
    }
    (folder / f"{stratum}.jsonl").write_text(json.dumps(prompt) + "\n")


def test_bench_speculate(
    slipstream: Command, tiny: Path, backend: Sequence[str], tmp_path: Path
) -> None:
    for stratum in ("chat", "prose"):
        workload(tmp_path, stratum, f"a {stratum} prompt")
    done = slipstream(
        *("bench", "speculate", tiny, *backend, "--workloads", tmp_path),
        *("--strata", "chat,prose", "--json"),
    )
    assert done.returncode == 0, done.stderr
    record = last_json(done.stdout)
    assert [s["name"] for s in record["summaries"]] == ["chat", "prose", "all"]
    assert all(s["identical"] for s in record["summaries"])
    assert str(tiny) in done.stdout
    lines = done.stdout.replace(str(tiny), "smollm2-135m").splitlines()[:-1]
    assert not list(too_wide("\n".join(lines)))


def test_version_and_help(slipstream: Command) -> None:
    assert slipstream("--version").stdout.startswith("slipstream ")
    for flag in ("-h", "--help"):
        done = slipstream(flag)
        assert done.returncode == 0
        assert done.stdout.startswith("Usage: slipstream")
    nothing = slipstream()
    assert nothing.returncode == 2
    assert nothing.stderr.startswith("Usage: slipstream")


@pytest.mark.parametrize(
    "verb", ["pull", "run", "chat", "inspect", "explain", "trace", "bench rows", "bench ops"]
)
def test_help_of_a_verb_fits_the_terminal(slipstream: Command, verb: str) -> None:
    done = slipstream(*verb.split(), "--help")
    assert done.returncode == 0
    assert done.stdout.startswith(f"usage: slipstream {verb} [OPTIONS]")
    assert max(map(len, done.stdout.splitlines())) <= 100
