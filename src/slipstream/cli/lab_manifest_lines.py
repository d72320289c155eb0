"""A manifest and what its run would take, as lines of text."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from slipstream.cli.lab_request_lines import request_lines
from slipstream.cli.output import megabytes, table, wrapped

if TYPE_CHECKING:
    from slipstream.lab.contract.manifest import ArtifactIdentity, Manifest, RuntimeIdentity
    from slipstream.lab.running.expectation import Expectation

_DIGITS = 16  # of a digest, in a line


def manifest_lines(manifest: Manifest) -> Iterator[str]:
    """Who is measured, with which files, conditions and requests."""
    yield from map(wrapped, _identity_lines(manifest))
    yield ""
    yield _conditions(manifest)
    yield ""
    yield _requests(manifest)
    yield ""
    yield from request_lines(manifest)
    yield ""


def _identity_lines(manifest: Manifest) -> Iterator[str]:
    yield f"{manifest.run}: {manifest.plan.question.text}"
    yield f"manifest {manifest.digest}"
    yield from (_runtime_line(runtime) for runtime in manifest.runtimes)
    yield from (_artifact_line(artifact) for artifact in manifest.artifacts)
    for pairing in manifest.pairings:
        for part in ("tokenizer", "vocabulary", "template", "architecture"):
            yield f"pairing of {pairing.draft}, {part}: {getattr(pairing, part)}"
    hardware = manifest.hardware
    yield f"machine: {hardware.cpu}, {hardware.cores} cores, {hardware.system}"


def _runtime_line(runtime: RuntimeIdentity) -> str:
    facts = f"release {runtime.release}, commit {runtime.commit}, compiler {runtime.compiler}"
    return f"runtime {runtime.name}: {facts}, binary {runtime.binary_sha256[:_DIGITS]}"


def _artifact_line(artifact: ArtifactIdentity) -> str:
    size = megabytes(artifact.bytes) if artifact.bytes else "size unknown"
    identity = f"{artifact.file}, {size}, SHA-256 {artifact.sha256[:_DIGITS]}"
    return f"{artifact.role}: {identity}, {artifact.quantisation}, licence {artifact.licence}"


def _conditions(manifest: Manifest) -> str:
    from slipstream.lab.freezing.identity import absent_program
    from slipstream.lab.running.expectation import why_not_run

    reasons = why_not_run(manifest)
    rows = []
    for method in manifest.methods:
        reason = reasons.get((method.runtime, method.condition), "")
        waits = reason == absent_program(method.runtime)
        state = f"{'waits' if waits else 'not run'}: {reason}" if reason else "runs when unlocked"
        state = "runs" if method.stage == "none" and not reason else state
        names = (method.runtime, method.condition, method.stage, str(method.most_proposed))
        rows.append([*names, state])
    return table(["runtime", "condition", "stage", "most drafted", "state"], rows, text=5)


def _requests(manifest: Manifest) -> str:
    rows = []
    for name in dict.fromkeys(prompt.stratum for prompt in manifest.prompts):
        chosen = [prompt for prompt in manifest.prompts if prompt.stratum == name]
        measured = [prompt for prompt in chosen if not prompt.warm_up]
        tokens = [prompt.tokens for prompt in measured if isinstance(prompt.tokens, int)]
        longest = max(tokens, default=0) or "unknown"
        limit = max((prompt.max_tokens for prompt in measured), default=0)
        typical = sum(prompt.typical for prompt in measured) or "none"
        rows.append([name, len(measured), len(chosen) - len(measured), longest, limit, typical])
    header = ["workload", "prompts", "warm-ups", "longest prompt", "most output", "typical"]
    return table(header, rows)


def expectation_lines(expectation: Expectation, folder: Path) -> Iterator[str]:
    """What is missing, then requests, time, disk and memory, and what is free of the last two."""
    yield from (wrapped(f"not here: {text}") for text in expectation.missing)
    if not expectation.blocks:
        yield "expected: no request; every condition is known not to run, see its state above"
        return
    later = " once that is here" if expectation.missing else ""
    yield (
        f"expected{later}: {expectation.requests} requests in {expectation.blocks} blocks"
        + (f", {expectation.locked} more are known not to run" if expectation.locked else "")
    )
    if expectation.time_s is None:
        yield f"time: unknown, {expectation.basis}"
    else:
        yield wrapped(f"time: about {_duration(expectation.time_s)} ({expectation.basis})")
    if expectation.caution:
        yield wrapped(f"  {expectation.caution}")
    free = shutil.disk_usage(folder).free
    yield f"disk: about {megabytes(expectation.disk_bytes)}, {megabytes(free)} are free"
    yield _memory_line(expectation)


def _memory_line(expectation: Expectation) -> str:
    if expectation.memory_bytes is None:
        return f"memory: unknown, {expectation.basis}"
    size = megabytes(expectation.memory_bytes)
    if expectation.weights_alone:
        return f"memory: {size} and keys and values, whose size the file tells; {_free_memory()}"
    return f"memory: about {size} at most, {_free_memory()}"


def _free_memory() -> str:
    import psutil  # type: ignore[import-untyped,unused-ignore]

    return f"{megabytes(psutil.virtual_memory().available)} are free"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
