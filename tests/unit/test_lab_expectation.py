"""What a run would take, from its manifest alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from slipstream.cli.lab_manifest_lines import expectation_lines, manifest_lines
from slipstream.cli.lab_request_lines import request_lines
from slipstream.lab.contract.manifest import (
    ArtifactIdentity,
    Hardware,
    Manifest,
    MethodIdentity,
    Observation,
    Pairing,
    PromptIdentity,
    RuntimeIdentity,
)
from slipstream.lab.contract.plan import Arrivals, Artifact, Plan, RuntimePlan, SamplingPlan
from slipstream.lab.observation.reading_rate import ReadingRate, reading_rate
from slipstream.lab.running.expectation import (
    BLOCK_BYTES,
    ELSEWHERE,
    LOAD_BYTES_PER_S,
    PROGRAM_BYTES,
    REQUEST_BYTES,
    START_S,
    TOKEN_BYTES,
    TOKEN_S,
    Expectation,
    expected,
    why_not_run,
)


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
            ArtifactIdentity(role="target", file="m.gguf", bytes=1_000_000_000, sha256=SHA),
            ArtifactIdentity(role="draft:small", file="d.gguf", bytes=100_000_000, sha256=SHA),
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
SHA = "ab" * 32
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
    assert found.time_s is not None
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
    longer, told = expectation([Block()], prompts=unknown), expectation([Block()])
    assert longer.time_s is not None
    assert told.time_s is not None
    assert longer.time_s > told.time_s
    assert "unknown length taken as 300 tokens" in longer.basis


def rate_of(looks: list[float], loads: list[float | None]) -> ReadingRate:
    rates, shares = iter(looks), iter(loads)
    return reading_rate(1, look=lambda: next(rates), watch=lambda: next(shares))


def test_the_rate_of_this_machine() -> None:
    assert 1e8 < reading_rate().bytes_per_s < 1e12
    assert 1e8 < reading_rate(1).bytes_per_s < 1e12


def test_the_best_of_several_looks() -> None:
    found = rate_of([20e9, 24e9, 25e9, 23e9, 22e9], [0.0, 0.9, 0.1, 0.0, None])
    assert (found.bytes_per_s, found.slowest, found.other_load) == (25e9, 20e9, 0.05)
    assert found.caution == ""
    assert rate_of([20e9] * 5, [None] * 5).caution == ""


def test_a_rate_of_a_busy_machine_says_so() -> None:
    busy = rate_of([5e9, 4.8e9, 4.9e9, 5e9, 5e9], [0.7] * 5)
    assert "other programs kept 70% of the processors busy" in busy.caution
    uneven = rate_of([4.8e9, 25e9, 9e9, 5e9, 6e9], [None] * 5)
    assert "its probes read between 4.8 and 25.0 GB/s" in uneven.caution
    told = expected(
        manifest(),
        [Block()],
        read_bytes_per_s=busy.bytes_per_s,
        cache_bytes=CACHE,
        caution=busy.caution,
    )
    assert "busy machine" in "\n".join(expectation_lines(told, Path()))


def absent(model: str, **facts: Any) -> dict[str, Any]:
    """A plan whose program and target are not here; its draft needs a pairing."""
    files = (
        ArtifactIdentity(role="target", file="m"),
        ArtifactIdentity(role="draft:small", file="d"),
    )
    plan = Plan(
        name="study",
        target=Artifact(model=model),
        drafts={"small": Artifact(model="d.gguf")},
        runtimes={"own": RuntimePlan(kind="llama-server", binary="bin/server")},
        context=1000,
    )
    methods = tuple(
        msgspec.structs.replace(m, not_run="`own` is not here") for m in manifest().methods
    )
    return {"plan": plan, "artifacts": files, "methods": methods, **facts}


def test_what_is_not_here_is_named_and_estimated() -> None:
    unpaired = (Pairing(draft="small", **dict.fromkeys(PARTS, "the files cannot be compared")),)
    given = absent("qwen2.5-coder-1.5b", pairings=unpaired)
    found = expected(
        manifest(**given), [Block(), Block("d")], read_bytes_per_s=1e10, cache_bytes={}
    )
    assert (found.blocks, found.locked, found.requests) == (2, 0, 4)
    assert found.missing == (
        "the program of `own`, bin/server",
        "the model file of target, qwen2.5-coder-1.5b",
        "the model file of draft:small, d.gguf",
    )
    assert found.time_s is not None
    assert found.time_s > 4 * 100 * 1_117_320_768 / 1e10
    assert found.memory_bytes == 1_117_320_768 + PROGRAM_BYTES
    text = "\n".join(expectation_lines(found, Path()))
    assert "once that is here: 4 requests in 2 blocks" in text
    assert "and keys and values" in text


def test_what_nothing_tells_is_unknown_and_never_0() -> None:
    found = expected(
        manifest(**absent("mine.gguf")), [Block()], read_bytes_per_s=1e10, cache_bytes={}
    )
    assert (found.requests, found.time_s, found.memory_bytes) == (2, None, None)
    text = "\n".join(expectation_lines(found, Path()))
    assert "time: unknown, the target's file is not here" in text
    assert "memory: unknown" in text


def test_a_pairing_that_is_refuted_does_not_wait_for_the_program() -> None:
    here = manifest()
    waiting = tuple(msgspec.structs.replace(m, not_run="`own` is not here") for m in here.methods)
    refuted = (Pairing(draft="small", **dict.fromkeys(PARTS, "the files contradict it")),)
    found = expectation([Block(), Block("d")], methods=waiting, pairings=refuted)
    assert (found.blocks, found.locked) == (1, 1)


def test_a_server_elsewhere_and_one_that_cannot_run() -> None:
    elsewhere = msgspec.structs.replace(
        manifest().plan, runtimes={"own": RuntimePlan(kind="openai", url="http://192.0.2.1:80")}
    )
    found = expectation([Block()], plan=elsewhere)
    assert (found.time_s, found.memory_bytes, found.basis) == (None, None, ELSEWHERE)
    no_flag = tuple(msgspec.structs.replace(m, not_run="no such flag") for m in manifest().methods)
    none = expectation([Block()], methods=no_flag)
    assert (none.requests, none.locked) == (0, 1)
    (line,) = expectation_lines(none, Path())
    assert "no request" in line


def test_requests_are_listed_with_their_order() -> None:
    made = manifest()
    text = "\n".join(request_lines(made))
    assert "  chat: (chat/warm 50>100), 1 50>100" in text.replace("(warm", "(chat/warm")
    assert "temperature 0, seed 1 to 1 in that order, stop none" in text
    assert "1. none: chat, once: none; 1 block" in text
    assert "draft-simple: trial" in text
    assert "draft-simple: chat, 5 rounds each: none, d; 10 blocks" in text
    assert max(map(len, text.splitlines())) <= 100
    assert "\N{NO-BREAK SPACE}" not in text  # it is for the eye, and to be copied


def test_requests_of_a_plan_with_a_sampler_and_slots() -> None:
    plan = msgspec.structs.replace(
        manifest().plan,
        sampling=SamplingPlan(stop=("\n\n",), sampler={"temperature": 0.7}),
        arrivals=Arrivals(kind="poisson", slots=4, rate_per_s=2.5, mix={"chat": 1.0}),
    )
    text = " ".join(" ".join(request_lines(manifest(plan=plan))).split())
    assert 'stop "\\n\\n"; then temperature 0.7' in text
    assert "1 at a time, then 4; at random, 2.5 a second; mix chat 1.0" in text
    assert "slots, 4 at a time: mix, 5 rounds each: none, d; 10 blocks" in text
    assert "sampler, 4 at a time, your sampler" in text


def test_lines_for_a_user(tmp_path: Path) -> None:
    text = "\n".join(manifest_lines(manifest()))
    assert "target: m.gguf, 1,000.0 MB, SHA-256 abababababababab" in text
    assert "pairing of small, tokenizer: confirmed: both files" in text
    assert "runs when unlocked" in text
    lines = "\n".join(expectation_lines(expectation([Block()]), tmp_path))
    assert "2 requests in 1 blocks" in lines
    assert "are free" in lines
