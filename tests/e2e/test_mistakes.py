"""A user's mistake: one clear error, exit 2, never a traceback."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from builders import TinyModel, tiny_model, write_gguf
from conftest import Command


def refused(done: subprocess.CompletedProcess[str], *parts: str, code: int = 2) -> None:
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("error: expected "), done.stderr
    assert done.stderr.count("\n") <= 4
    assert "hint: " in done.stderr
    for part in parts:
        assert part in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["rnu"], "`slipstream run`"),
        (["bench", "row"], "`slipstream bench rows`"),
        (["--verson"], "--verson"),
        (["run"], "MODEL"),
        (["run", "MODEL"], "-p TEXT"),
        (["run", "MODEL", "-p", "a", "b"], "several"),
        (["run", "MODEL", "a", "b"], "`b`"),
        (["run", "MODEL", "a", "--sepc", "none"], "`--spec`"),
        (["run", "MODEL", "a", "--spec", "ngram-mood"], "`ngram-mod`"),
        (["run", "MODEL", "a", "--spec", "medusa"], "medusa"),
        (["run", "MODEL", "a", "--spec", "none,ngram-mod"], "`none`"),
        (["run", "MODEL", "a", "--spec", "ngram-mod", "--n-max", "7"], "`--n-max`"),
        (["run", "MODEL", "a", "--backend", "reference", "-t", "7"], "`--threads`"),
        (["run", "MODEL", "a", "-n", "many"], "--max-tokens"),
        (["run", "MODEL", "a", "--temp", "-1"], "--temperature"),
        (["run", "MODEL", "a", "--temp"], "--temp=VALUE"),
        (["run", "MODEL", "a", "--threads", "0"], "--threads"),
        (["run", "MODEL", "a", "--backend", "gpu"], "--backend"),
        (["run", "MODEL", "a", "--logit-bias", "x"], "--logit-bias"),
        (["run", "MODEL", "a", "-c", "100000", "--backend", "reference"], "4096"),
        (["run", "MODEL", "-f", "no-such-file"], "no-such-file"),
        (["run", "no-such-model.gguf", "a"], "no-such-model.gguf"),
        (["run", "smolm2-135m", "a"], "`smollm2-135m`"),
        (["run", "smollm2-135m", "a"], "slipstream pull smollm2-135m"),
        (["chat", "MODEL", "--backend", "reference"], "chat template"),
        (["inspect", "."], "directory"),
        (["pull", "no-such-name"], "no-such-name"),
        (["bench", "rows", "MODEL", "--rows", "0"], "--rows"),
        (["bench", "rows", "MODEL", "--rounds", "none"], "--rounds"),
        (["bench", "rows", "MODEL", "--backend", "reference", "--ops"], "`--ops`"),
        (["bench", "speculate", "MODEL", "--strata", "poetry"], "poetry"),
        (["bench", "speculate", "MODEL", "--spec", "none"], "`--spec none`"),
    ],
)
def test_mistake(slipstream: Command, tiny: Path, arguments: list[str], part: str) -> None:
    words = [str(tiny) if word == "MODEL" else word for word in arguments]
    refused(slipstream(*words), part)


@pytest.mark.native
@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--types", "q4_k,q9"], "`q9`"),
        (["--levels", "mmx"], "`--levels` among"),
        (["--shapes", "16"], "`--shapes`"),
        (["--shapes", "0x32"], "`0x32`"),
        (["--shapes", "99999x99999"], "2^30"),
        (["--types", "q4_k", "--shapes", "16x32"], "256"),
        (["--rows", "0"], "--rows"),
        (["--budget", "soon"], "--budget"),
        (["--threads", "0"], "--threads"),
    ],
)
def test_mistake_of_bench_ops(slipstream: Command, arguments: list[str], part: str) -> None:
    pytest.importorskip("slipstream._native")
    refused(slipstream("bench", "ops", *arguments), part)


@pytest.mark.native
@pytest.mark.parametrize("verb", ["run", "explain"])
@pytest.mark.parametrize(
    ("environment", "option", "parts"),
    [
        ("bogus", None, ("SLIPSTREAM_ISA", "portable", "'bogus'")),
        (None, "bogus", ("--isa", "portable", "'bogus'")),
        ("portable", "bogus", ("--isa", "'bogus'")),
        (None, "", ("--isa", "''")),
    ],
)
def test_levels_that_are_not_here(
    slipstream: Command,
    tiny: Path,
    verb: str,
    environment: str | None,
    option: str | None,
    parts: tuple[str, ...],
) -> None:
    pytest.importorskip("slipstream._native")
    words = ["-p", "a"] if verb == "run" else []
    words += [] if option is None else [f"--isa={option}"]
    variables = {} if environment is None else {"SLIPSTREAM_ISA": environment}
    refused(slipstream(verb, tiny, *words, **variables), *parts)


@pytest.mark.parametrize("verb", ["run", "explain"])
@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (("--precision", "a4"), ("`--precision` one of a8, a16", "`a4`")),
        (("--precision", ""), ("`--precision` one of a8, a16", "``")),
        (
            ("--precision", "a16", "--backend", "reference"),
            ("no `--precision` with `--backend` reference", "float32"),
        ),
    ],
)
def test_precisions_that_are_not_run(
    slipstream: Command, tiny: Path, verb: str, words: Sequence[str], parts: Sequence[str]
) -> None:
    prompt = ["-p", "a"] if verb == "run" else []
    refused(slipstream(verb, tiny, *prompt, *words), *parts)


@pytest.mark.native
def test_an_unknown_device_or_policy(slipstream: Command, tiny: Path) -> None:
    refused(slipstream("explain", tiny, "--device", "gpu"), "'gpu'", "cpu")
    refused(slipstream("explain", tiny, "--policy", "m5"), "'m5'", "cpu")


@pytest.mark.native
def test_a_level_that_the_processor_lacks(slipstream: Command, tiny: Path) -> None:
    native = pytest.importorskip("slipstream._native")
    if "avx512" in native.isa_levels():
        pytest.skip("this processor has AVX-512")
    refused(slipstream("explain", tiny, "--isa", "avx512"), "'avx512'", native.isa_levels()[-1])


@pytest.mark.native
def test_an_option_wins_over_the_environment(slipstream: Command, tiny: Path) -> None:
    pytest.importorskip("slipstream._native")
    arguments = ("run", tiny, "-p", "hi", "-n", "2", "--ignore-eos", "--json")
    done = slipstream(*arguments, "--isa", "portable", SLIPSTREAM_ISA="bogus")
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout.splitlines()[-1])
    assert record["isa"] == "portable"
    assert "asked for with --isa" in record["isa_reason"]


def test_the_reference_backend_has_no_levels(slipstream: Command, tiny: Path) -> None:
    arguments = ("run", tiny, "-p", "hi", "-n", "2", "--ignore-eos", "--backend", "reference")
    done = slipstream(*arguments, "--json", SLIPSTREAM_ISA="bogus")
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout.splitlines()[-1])
    assert record["isa"] == "numpy"
    assert record["exact"] is False
    assert "Attention" in record["varying_ops"]
    assert "exact: not guaranteed (" in done.stderr


def test_prompt_that_is_not_text(slipstream: Command, tiny: Path) -> None:
    refused(slipstream("run", tiny, "-", stdin=b"\xff\xfe"), "UTF-8")


def test_prompt_longer_than_the_context(slipstream: Command, tiny: Path) -> None:
    done = slipstream(
        *("run", tiny, "--backend", "reference", "-c", "16", "-"), stdin="x y z " * 40
    )
    refused(done, "at most 15 tokens")


@pytest.mark.parametrize("arguments", [["--help"], ["run", "MODEL", "-p", "hi", "-n", "2"]])
def test_output_without_room(slipstream: Command, tiny: Path, arguments: list[str]) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    words = [str(tiny) if word == "MODEL" else word for word in arguments]
    words += ["--backend", "reference"] if "run" in words else []
    with Path("/dev/full").open("wb") as full:
        process = slipstream.start(*words, stdout=full, stderr=subprocess.PIPE)
        error = process.communicate(timeout=300)[1].decode()
    assert process.returncode == 1
    assert error.startswith("error: expected output that can be written\n")


@pytest.mark.parametrize("arguments", [["--help"], ["chat", "MODEL"], ["run", "MODEL", "hi"]])
def test_closed_streams(slipstream: Command, chatty: Path, arguments: list[str]) -> None:
    words = [str(chatty) if word == "MODEL" else word for word in arguments]
    words += ["--backend", "reference", "-n", "2"] if len(words) > 1 else []
    closing = 'exec "$@" <&- >&-'
    done = subprocess.run(
        ["/bin/sh", "-c", closing, "sh", *slipstream.argv(*words)],
        env=slipstream.environment,
        stderr=subprocess.PIPE,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert b"Traceback" not in done.stderr


def another_vocabulary(path: Path) -> None:
    larger = TinyModel("llama", vocabulary=300).metadata()
    write_gguf(path, larger, TinyModel("llama").tensors())


def empty(path: Path) -> None:
    path.write_bytes(b"")


def text(path: Path) -> None:
    path.write_text("this is no model\n")


def half(path: Path) -> None:
    tiny_model(path, "llama")
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def header_only(path: Path) -> None:
    tiny_model(path, "llama")
    path.write_bytes(path.read_bytes()[:100])


def unknown_architecture(path: Path) -> None:
    tiny_model(path, "llama", extra={"general.architecture": "mamba"})


def no_width(path: Path) -> None:
    tiny_model(path, "llama", extra={"llama.embedding_length": None})


DAMAGES = [empty, text, half, header_only, unknown_architecture, no_width, another_vocabulary]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("verb", ["run", "bench rows"])
def test_damaged_file(
    slipstream: Command, tmp_path: Path, damage: Callable[[Path], None], verb: str
) -> None:
    path = tmp_path / "model.gguf"
    damage(path)
    tail = ["-p", "hi"] if verb == "run" else []
    refused(slipstream(*verb.split(), path, *tail, "--backend", "reference"))


def test_inspect_tells_why_a_file_does_not_run(slipstream: Command, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    unknown_architecture(path)
    done = slipstream("inspect", path)
    assert done.returncode == 0
    assert "does not run here" in done.stdout
    assert "mamba" in done.stdout


def test_a_file_cannot_drive_the_terminal(slipstream: Command, tmp_path: Path) -> None:
    path = tiny_model(tmp_path / "m.gguf", "llama", extra={"general.name": "\x1b]0;owned\x07"})
    done = slipstream("inspect", path)
    assert "owned" in done.stdout
    assert "\x1b" not in done.stdout
    assert "\x07" not in done.stdout


@pytest.mark.parametrize("answer", ["n", "", "what"])
def test_a_missing_model_is_offered_on_a_terminal(slipstream: Command, answer: str) -> None:
    ours, theirs = pty.openpty()
    process = slipstream.start(
        *("run", "smollm2-135m", "-p", "hi"), stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    shown = b""
    while b"[y/N]" not in shown:
        shown += os.read(ours, 4096)
    os.write(ours, answer.encode() + b"\n")
    assert process.wait(timeout=300) == 2
    os.close(ours)
    assert b"98.4 MB" in shown
    assert b"Apache-2.0" in shown
