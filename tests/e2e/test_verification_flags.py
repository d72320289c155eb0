"""Verification rules on the command line: what is said of the output, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from conftest import Command

DRAFTING = (
    *("--spec", "ngram-mod", "--ngram-mod-n-match", "2"),
    *("--ngram-mod-n-min", "1", "--ngram-mod-n-max", "8"),
)
RUN = ("-p", "hello", "-n", "40", "--ignore-eos", "--backend", "reference")
DRAWN = ("--temp", "1", "--seed", "7")
INVALID = "INVALID OUTPUT"


def record(slipstream: Command, *arguments: str | Path) -> tuple[dict[str, Any], str]:
    """The JSON of a verb, and its stderr."""
    done = slipstream(*arguments, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    parsed = json.loads(done.stdout.splitlines()[-1])
    assert isinstance(parsed, dict)
    return parsed, done.stderr


def test_matching_is_the_default_and_needs_no_words(slipstream: Command, tiny: Path) -> None:
    found, printed = record(slipstream, "run", tiny, *RUN, *DRAWN, *DRAFTING)
    stats = found["stats"]
    assert (stats["verification"], stats["lossless"], stats["seed_exact"]) == (
        "matching",
        True,
        True,
    )
    assert "verification" not in printed
    assert "output_valid" not in found


def test_rejection_says_that_the_seeds_output_is_another(slipstream: Command, tiny: Path) -> None:
    # fixed: with rejection the tokens of a seed depend on what is verified, and that on the clock
    flags = (*RUN, *DRAWN, *DRAFTING, "--spec-draft-sampling", "probabilistic", "--spec-fixed")
    found, printed = record(slipstream, "run", tiny, *flags)
    stats = found["stats"]
    assert (stats["verification"], stats["lossless"], stats["seed_exact"]) == (
        "rejection",
        True,
        False,
    )
    assert "it is not plain decoding's output of seed 7" in printed
    again, _ = record(slipstream, "run", tiny, *flags)
    assert again["ids"] == found["ids"]


def test_greedy_output_is_plain_decodings_also_with_rejection(
    slipstream: Command, tiny: Path
) -> None:
    plain, _ = record(slipstream, "run", tiny, *RUN)
    flags = (*RUN, *DRAFTING, "--spec-draft-sampling", "probabilistic")
    found, printed = record(slipstream, "run", tiny, *flags)
    assert found["ids"] == plain["ids"]
    assert found["stats"]["seed_exact"] is True
    assert "seed" not in printed


@pytest.mark.parametrize(
    "flags", [("--spec-synth-len", "9"), ("--spec-synth-rates", ",".join(["1"] * 8))]
)
def test_synthetic_acceptance_is_loud(
    slipstream: Command, tiny: Path, flags: tuple[str, str]
) -> None:
    fixed = "--spec-fixed"  # else what is verified depends on the time of passes
    found, printed = record(slipstream, "run", tiny, *RUN, *DRAFTING, *flags, fixed)
    assert found["output_valid"] is found["stats"]["output_valid"] is False
    assert found["stats"]["verification"] == "synthetic"
    assert found["stats"]["accepted"] == found["stats"]["tested"] > 0
    assert printed.count(INVALID) == 2
    assert printed.index(INVALID) < printed.index("prompt + 40 tokens")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ((*DRAFTING, "--synth-len", "2", "--synth-rates", "1"), "`--synth-rates` or `--synth-len`"),
        ((*DRAFTING, "--synth-len", "9.5"), "`--synth-len` from 1 to 9"),
        ((*DRAFTING, "--synth-len", "0.5"), "`--synth-len` to be a number at least 1"),
        ((*DRAFTING, "--synth-rates", "0.5,0.6"), "8 `--synth-rates`"),
        (("--synth-len", "2"), "`--synth-len` with a method that reads it"),
        (("--draft-sampling", "probabilistic"), "`--draft-sampling` with a method"),
        ((*DRAFTING, "--draft-sampling", "greeedy"), "Did you mean `greedy`"),
    ],
)
def test_mistakes(slipstream: Command, tiny: Path, flags: tuple[str, ...], message: str) -> None:
    done = slipstream("run", tiny, *RUN, *flags)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_benchmark_says_that_outputs_are_not_compared(slipstream: Command, tiny: Path) -> None:
    workloads = Path(__file__).parents[2] / "workloads"
    few = ("--workloads", workloads, "--strata", "chat", "--prompts", "1", "--limit", "8")
    flags = (*DRAFTING, "--spec-synth-len", "2", "--json")
    done = slipstream("bench", "speculate", tiny, *flags, *few)
    assert done.returncode == 0, done.stderr
    assert "THE OUTPUT IS INVALID" in done.stdout
    assert json.loads(done.stdout.splitlines()[-1])["valid"] is False
