"""What a run would take, from its manifest alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from slipstream.cli.lab_manifest_lines import expectation_lines, manifest_lines
from slipstream.lab.expectation import (
    BLOCK_BYTES,
    LOAD_BYTES_PER_S,
    PROGRAM_BYTES,
    REQUEST_BYTES,
    START_S,
    TOKEN_BYTES,
    TOKEN_S,
    Expectation,
    expected,
    read_rate,
    why_not_run,
)
from slipstream.lab.manifest import (
    ArtifactIdentity,
    Hardware,
    Manifest,
    MethodIdentity,
    Observation,
    Pairing,
    PromptIdentity,
    RuntimeIdentity,
)
from slipstream.lab.plan import Artifact, Plan, RuntimePlan


@dataclass(frozen=True)
class Block:
    condition: str = "none"
    runtime: str = "own"
    slots: int = 1
    prompts: tuple[str, ...] = ("chat/1",)
    warm_up: tuple[str, ...] = ("chat/warm",)


def manifest(**more: Any) -> Manifest:
    def prompt(name: str, **facts: Any) -> PromptIdentity:
        texts: dict[str, Any] = {
            "stratum": "chat",
            "task": "chat",
            "sha256": "",
            "licence": "",
            "source": "",
        }
        return PromptIdentity(id=name, max_tokens=100, tokens=50, **texts, **facts)

    draft = MethodIdentity(
        condition="d", stage="draft-simple", method="draft-simple", runtime="own", draft="small"
    )
    given: dict[str, Any] = {
        "run": "study-1",
        "created": "",
        "slipstream": "",
        "plan": Plan(
            name="study",
            target=Artifact(model="m"),
            runtimes={"own": RuntimePlan(kind="slipstream")},
            context=1000,
        ),
        "runtimes": (RuntimeIdentity(name="own", kind="slipstream"),),
        "artifacts": (
            ArtifactIdentity(role="target", file="m.gguf", bytes=1_000_000_000),
            ArtifactIdentity(role="draft:small", file="d.gguf", bytes=100_000_000),
        ),
        "pairings": (Pairing(draft="small", **dict.fromkeys(PARTS, "confirmed: both files")),),
        "methods": (
            MethodIdentity(condition="none", stage="none", method="none", runtime="own"),
            draft,
        ),
        "hardware": Hardware(),
        "prompts": (prompt("chat/warm", warm_up=True), prompt("chat/1", typical=True)),
        "observation": Observation(),
    }
    return Manifest(**{**given, **more})


PARTS = ("tokenizer", "vocabulary", "template", "architecture")
CACHE = {"target": 1000, "draft:small": 100}


def expectation(blocks: list[Block], **more: Any) -> Expectation:
    return expected(manifest(**more), blocks, read_bytes_per_s=1e10, cache_bytes=CACHE)


def test_time_and_disk_of_a_block() -> None:
    found = expectation([Block()])
    assert (found.blocks, found.locked, found.requests) == (1, 0, 2)
    a_token = 1e9 / 1e10 + TOKEN_S
    requests = 2 * a_token * (100 + 0.2 * 50)
    assert found.time_s == pytest.approx(requests + START_S + 1e9 / LOAD_BYTES_PER_S)
    assert found.disk_bytes == BLOCK_BYTES + 2 * (REQUEST_BYTES + 100 * TOKEN_BYTES)
    assert "10.0 GB/s" in found.basis


@pytest.mark.parametrize(
    ("weights", "read", "token_s"),
    [(97e6, 25.5e9, 0.0059), (392e6, 32.4e9, 0.0146), (980e6, 25.1e9, 0.0355)],
)
def test_a_token_takes_what_was_measured(weights: float, read: float, token_s: float) -> None:
    """Figures of docs/performance.md: three models on one quiet machine."""
    target = ArtifactIdentity(role="target", file="m.gguf", bytes=int(weights))
    found = expected(
        manifest(artifacts=(target,)), [Block()], read_bytes_per_s=read, cache_bytes=CACHE
    )
    seconds = found.time_s - START_S - weights / LOAD_BYTES_PER_S
    assert seconds / (2 * (100 + 0.2 * 50)) == pytest.approx(token_s, rel=0.25)


def test_memory_is_that_of_the_largest_process() -> None:
    plain = 1_000_000_000 + 1000 * 1000 + PROGRAM_BYTES
    assert expectation([Block()]).memory_bytes == plain
    drafting = plain + 100_000_000 + 1000 * 100
    assert expectation([Block(), Block("d")]).memory_bytes == drafting
    assert expectation([Block(slots=4)]).memory_bytes == plain + 3 * 1000 * 1000


def test_memory_of_a_file_that_is_not_here() -> None:
    absent = (ArtifactIdentity(role="target", file="m.gguf"),)
    assert expectation([Block()], artifacts=absent).memory_bytes is None


def test_a_condition_without_a_confirmed_pairing() -> None:
    pairing = Pairing(draft="small", tokenizer="confirmed: both files")
    found = expectation([Block(), Block("d"), Block("d")], pairings=(pairing,))
    assert (found.blocks, found.locked) == (1, 2)
    reason = why_not_run(manifest(pairings=(pairing,)))["own", "d"]
    assert "vocabulary: unknown" in reason
    assert "tokenizer" not in reason


def test_prompts_of_unknown_length_are_counted() -> None:
    known = manifest().prompts
    unknown = tuple(msgspec.structs.replace(p, tokens="unknown") for p in known)
    assert expectation([Block()], prompts=unknown).time_s > expectation([Block()]).time_s


def test_the_rate_of_this_machine() -> None:
    assert 1e8 < read_rate() < 1e12
    assert 1e8 < read_rate(1) < 1e12


def test_lines_for_a_user(tmp_path: Path) -> None:
    text = "\n".join(manifest_lines(manifest()))
    assert "target: m.gguf, 1,000.0 MB, SHA-256 unknown" in text
    assert "pairing of small, tokenizer: confirmed: both files" in text
    assert "runs when unlocked" in text
    lines = "\n".join(expectation_lines(expectation([Block()]), tmp_path))
    assert "2 requests in 1 blocks" in lines
    assert "are free" in lines
