"""What a run would take: requests, time, disk and memory, from its manifest alone.

The figures are rough and say what they rest on. Time is that of a decoder that reads every weight
once per token at this machine's rate; drafting may be faster, which is what the run is to find out,
and blocks that a busy machine repeats take theirs again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from slipstream.errors import SlipstreamError
from slipstream.lab.identity import TARGET, draft_role
from slipstream.lab.manifest import Manifest, PromptIdentity

PROMPT_TOKEN_SHARE: Final = 0.2
"""What a token of a prompt costs beside one of an output: prompts are computed many at a time."""
TOKEN_S: Final = 0.002
"""What a token costs beside reading the weights, as measured on models of 0.1 to 1.5 GB."""
START_S: Final = 2.0
LOAD_BYTES_PER_S: Final = 1e9
REQUEST_BYTES: Final = 3_000
TOKEN_BYTES: Final = 30
BLOCK_BYTES: Final = 60_000
PROGRAM_BYTES: Final = 300 << 20
UNKNOWN_PROMPT_TOKENS: Final = 300
_PROBE_BYTES: Final = 64 << 20
_PROBES: Final = 5
_AFFINE: Final = hasattr(os, "sched_getaffinity")


class PlannedBlock(Protocol):
    """What ``lab.schedule`` plans: a fresh process, warm-up requests and a pass over prompts."""

    @property
    def runtime(self) -> str: ...
    @property
    def condition(self) -> str: ...
    @property
    def slots(self) -> int: ...
    @property
    def prompts(self) -> Sequence[str]: ...
    @property
    def warm_up(self) -> Sequence[str]: ...


@dataclass(frozen=True)
class Expectation:
    """
    Attributes:
        blocks, requests: that run if every stage is unlocked; ``locked`` blocks are known not to.
        time_s: if every output is as long as it may be.
        memory_bytes: peak of one process, None where no file tells.
        basis: what the figures rest on.
    """

    blocks: int
    locked: int
    requests: int
    time_s: float
    disk_bytes: int
    memory_bytes: int | None
    basis: str


def expected(
    manifest: Manifest,
    blocks: Iterable[PlannedBlock],
    *,
    read_bytes_per_s: float,
    cache_bytes: Mapping[str, int | None],
) -> Expectation:
    """
    Args:
        blocks: of ``lab.schedule``.
        read_bytes_per_s: how fast this machine reads weights.
        cache_bytes: role -> bytes of keys and values per position.
    """
    reasons = why_not_run(manifest)
    planned = [block for block in blocks if block.prompts]  # what a row probe asks shows later
    run = [block for block in planned if (block.runtime, block.condition) not in reasons]
    prompts = {prompt.id: prompt for prompt in manifest.prompts}
    ids = (name for block in run for name in (*block.warm_up, *block.prompts))
    requests = [prompts[name] for name in ids if name in prompts]
    weights = next((a.bytes for a in manifest.artifacts if a.role == TARGET), 0)
    per_token_s = weights / read_bytes_per_s + TOKEN_S
    seconds = sum(_request_s(prompt, per_token_s) for prompt in requests)
    starts = len(run) * (START_S + weights / LOAD_BYTES_PER_S)
    written = sum(REQUEST_BYTES + TOKEN_BYTES * prompt.max_tokens for prompt in requests)
    return Expectation(
        blocks=len(run),
        locked=len(planned) - len(run),
        requests=len(requests),
        time_s=seconds + starts,
        disk_bytes=written + len(run) * BLOCK_BYTES,
        memory_bytes=_memory(manifest, run, cache_bytes),
        basis=f"every output as long as it may be, {read_bytes_per_s / 1e9:.1f} GB/s of weights "
        f"read, {START_S:g} s per start; neither drafting nor repeated blocks counted",
    )


def why_not_run(manifest: Manifest) -> dict[tuple[str, str], str]:
    """(runtime, condition) -> why it is not run, as far as that is known before the run."""
    unpaired = {p.draft: p for p in manifest.pairings if not p.confirmed}
    found = {}
    for method in manifest.methods:
        reason = method.not_run
        if not reason and method.draft in unpaired:
            pairing = unpaired[method.draft]
            parts = ("tokenizer", "vocabulary", "template", "architecture")
            told = {part: getattr(pairing, part) for part in parts}
            faults = [f"{k}: {v}" for k, v in told.items() if not v.startswith("confirmed: ")]
            reason = f"pairing not confirmed, {'; '.join(faults)}"
        if reason:
            found[method.runtime, method.condition] = reason
    return found


def read_rate(threads: int = 0) -> float:
    """Bytes per second that the processors read of a large array: a rate to expect, no figure.

    Args:
        threads: at a time; 0 = one for each processor.
    """
    here = len(os.sched_getaffinity(0)) if _AFFINE else os.cpu_count() or 1
    count = threads or here
    parts = [np.ones(_PROBE_BYTES // 8) for _ in range(count)]
    best = float("inf")
    with ThreadPoolExecutor(count) as pool:
        for _ in range(_PROBES):
            start = time.perf_counter()
            list(pool.map(np.max, parts))
            best = min(best, time.perf_counter() - start)
    return count * _PROBE_BYTES / max(best, 1e-6)


def cache_sizes(manifest: Manifest) -> dict[str, int | None]:
    """Role -> bytes of keys and values per position, of the files that are here."""
    plan = manifest.plan
    models = {TARGET: plan.target.model}
    models |= {draft_role(key): draft.model for key, draft in plan.drafts.items()}
    return {role: _cache_bytes(model) for role, model in models.items()}


def _cache_bytes(model: str) -> int | None:
    from slipstream.catalog import locate
    from slipstream.gguf import open_gguf
    from slipstream.lab.model_facts import cache_bytes

    try:
        with open_gguf(locate(model)) as file:
            return cache_bytes(file.metadata)
    except SlipstreamError:
        return None


def _request_s(prompt: PromptIdentity, per_token: float) -> float:
    known = prompt.tokens if isinstance(prompt.tokens, int) else UNKNOWN_PROMPT_TOKENS
    return per_token * (prompt.max_tokens + PROMPT_TOKEN_SHARE * known)


def _memory(
    manifest: Manifest,
    blocks: Sequence[PlannedBlock],
    cache_bytes: Mapping[str, int | None],
) -> int | None:
    """Of the largest process: weights, keys and values of every slot, and the program itself."""
    methods = {(m.runtime, m.condition): m for m in manifest.methods}
    sizes = {artifact.role: artifact.bytes for artifact in manifest.artifacts}
    if not sizes.get(TARGET):
        return None
    largest = 0
    for runtime, condition, slots in {(b.runtime, b.condition, b.slots) for b in blocks}:
        method = methods.get((runtime, condition))
        roles = [TARGET, *([draft_role(method.draft)] if method and method.draft else [])]
        positions = manifest.plan.context * slots
        needs = (sizes.get(r, 0) + positions * (cache_bytes.get(r) or 0) for r in roles)
        largest = max(largest, sum(needs))
    return largest + PROGRAM_BYTES
