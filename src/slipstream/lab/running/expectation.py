"""What a run would take: requests, time, disk and memory, from its manifest alone.

The figures are rough and say what they rest on. Time is that of a decoder that reads every weight
once per token at this machine's rate; drafting may be faster, which is what the run is to find out,
and blocks that a busy machine repeats take theirs again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from slipstream.catalog import entries
from slipstream.errors import SlipstreamError
from slipstream.lab.contract.manifest import UNKNOWN, Manifest, PromptIdentity
from slipstream.lab.freezing.identity import TARGET, absent_program, draft_role
from slipstream.lab.planning.plan_checks import PAIRING_PARTS
from slipstream.lab.running.tools import is_here

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
ELSEWHERE: Final = "a server runs elsewhere, whose speed and memory nothing here tells"


class PlannedBlock(Protocol):
    """What ``lab.scheduling.schedule`` plans: a fresh process, a warm-up, a pass over prompts."""

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
        blocks, requests: that run if every stage is unlocked and what is missing here has come;
            ``locked`` blocks are known not to.
        time_s: if every output is as long as it may be; None = nothing tells, see ``basis``.
        memory_bytes: peak of one process, None where nothing tells; without keys and values where
            ``weights_alone``, as no file tells their size.
        basis: what the figures rest on, or why there are none.
        missing: programs and files that the run needs and that are not here.
        caution: why the time may be far off; empty = nothing is known to speak against it.
    """

    blocks: int
    locked: int
    requests: int
    time_s: float | None
    disk_bytes: int
    memory_bytes: int | None
    basis: str
    missing: tuple[str, ...] = ()
    weights_alone: bool = False
    caution: str = ""


def expected(
    manifest: Manifest,
    blocks: Iterable[PlannedBlock],
    *,
    read_bytes_per_s: float,
    cache_bytes: Mapping[str, int | None],
    caution: str = "",
) -> Expectation:
    """
    Args:
        blocks: of ``lab.scheduling.schedule``.
        read_bytes_per_s: how fast this machine reads weights.
        cache_bytes: role -> bytes of keys and values per position.
        caution: of the rate.
    """
    reasons = _lasting(manifest)
    planned = [block for block in blocks if block.prompts]  # what a row probe asks shows later
    run = [block for block in planned if (block.runtime, block.condition) not in reasons]
    prompts = {prompt.id: prompt for prompt in manifest.prompts}
    ids = (name for block in run for name in (*block.warm_up, *block.prompts))
    requests = [prompts[name] for name in ids if name in prompts]
    why = _timeless(manifest)
    written = sum(REQUEST_BYTES + TOKEN_BYTES * prompt.max_tokens for prompt in requests)
    return Expectation(
        blocks=len(run),
        locked=len(planned) - len(run),
        requests=len(requests),
        time_s=None if why else _time_s(manifest, run, requests, read_bytes_per_s),
        disk_bytes=written + len(run) * BLOCK_BYTES,
        memory_bytes=_memory(manifest, run, cache_bytes),
        basis=why
        or f"every output as long as it may be, {read_bytes_per_s / 1e9:.1f} GB/s of weights "
        f"read, {START_S:g} s per start; {_guessed(requests)}neither drafting nor repeated blocks "
        "counted",
        missing=tuple(_missing(manifest)),
        weights_alone=cache_bytes.get(TARGET) is None,
        caution="" if why else caution,
    )


def _time_s(
    manifest: Manifest,
    run: Sequence[PlannedBlock],
    requests: Sequence[PromptIdentity],
    rate: float,
) -> float:
    weights = artifact_sizes(manifest).get(TARGET, 0)
    per_token_s = weights / rate + TOKEN_S
    running = {n for n, r in manifest.plan.runtimes.items() if r.kind == "openai"}
    starts = sum(block.runtime not in running for block in run)
    seconds = sum(_request_s(prompt, per_token_s) for prompt in requests)
    return seconds + starts * (START_S + weights / LOAD_BYTES_PER_S)


def _guessed(requests: Sequence[PromptIdentity]) -> str:
    unknown = any(not isinstance(prompt.tokens, int) for prompt in requests)
    return f"prompts of unknown length taken as {UNKNOWN_PROMPT_TOKENS} tokens, " if unknown else ""


def _timeless(manifest: Manifest) -> str:
    """Why no time can be told; empty = it can be."""
    if not all(map(is_here, manifest.plan.runtimes.values())):
        return ELSEWHERE
    if not artifact_sizes(manifest).get(TARGET):
        return "the target's file is not here, and no catalogue entry tells its size"
    return ""


def _missing(manifest: Manifest) -> Iterable[str]:
    """What must be here before the run, and is not."""
    plan, models = manifest.plan, _models(manifest)
    absent = {m.runtime for m in manifest.methods if m.not_run == absent_program(m.runtime)}
    for name in (name for name in plan.runtimes if name in absent):
        place = plan.runtimes[name].binary or plan.runtimes[name].python
        yield f"the program of `{name}`" + (f", {place}" if place else "")
    yield from (f"the model file of {role}, {models[role]}" for role in _unread(manifest))


def _unread(manifest: Manifest) -> tuple[str, ...]:
    """Roles of files that the run needs here and that are not; a server holds its own."""
    if all(runtime.kind == "openai" for runtime in manifest.plan.runtimes.values()):
        return ()
    return tuple(a.role for a in manifest.artifacts if a.sha256 == UNKNOWN)


def why_not_run(manifest: Manifest) -> dict[tuple[str, str], str]:
    """(runtime, condition) -> why it is not run, as far as that is known before the run."""
    unpaired = _unpaired(manifest)
    reasons = {
        (m.runtime, m.condition): m.not_run or unpaired.get(m.draft, "") for m in manifest.methods
    }
    return {key: reason for key, reason in reasons.items() if reason}


def _lasting(manifest: Manifest) -> dict[tuple[str, str], str]:
    """As ``why_not_run``, without what only waits for a program or a file to come."""
    unread = _unread(manifest)
    unpaired = {
        draft: reason
        for draft, reason in _unpaired(manifest).items()
        if TARGET not in unread and draft_role(draft) not in unread
    }
    reasons = {}
    for method in manifest.methods:
        own = "" if method.not_run == absent_program(method.runtime) else method.not_run
        reasons[method.runtime, method.condition] = own or unpaired.get(method.draft, "")
    return {key: reason for key, reason in reasons.items() if reason}


def _unpaired(manifest: Manifest) -> dict[str, str]:
    """Draft -> why its pairing is not confirmed."""
    found = {}
    for pairing in (p for p in manifest.pairings if not p.confirmed):
        told = {part: getattr(pairing, part) for part in PAIRING_PARTS}
        faults = [f"{k}: {v}" for k, v in told.items() if not v.startswith("confirmed: ")]
        found[pairing.draft] = f"pairing not confirmed, {'; '.join(faults)}"
    return found


def cache_sizes(manifest: Manifest) -> dict[str, int | None]:
    """Role -> bytes of keys and values per position, of the files that are here."""
    return {role: _cache_bytes(model) for role, model in _models(manifest).items()}


def artifact_sizes(manifest: Manifest) -> dict[str, int]:
    """Role -> bytes: of the file that is here, else of the catalogue's entry of that name."""
    catalogue = {entry.name: entry.size_bytes for entry in entries()}
    models = _models(manifest)
    found = {a.role: a.bytes or catalogue.get(models[a.role], 0) for a in manifest.artifacts}
    return {role: size for role, size in found.items() if size}


def _models(manifest: Manifest) -> dict[str, str]:
    """Role -> model as the plan names it."""
    plan = manifest.plan
    drafts = {draft_role(key): draft.model for key, draft in plan.drafts.items()}
    return {a.role: a.file for a in manifest.artifacts} | {TARGET: plan.target.model} | drafts


def _cache_bytes(model: str) -> int | None:
    from slipstream.catalog import locate
    from slipstream.gguf import open_gguf
    from slipstream.lab.freezing.model_facts import cache_bytes

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
    sizes = artifact_sizes(manifest)
    if not (sizes.get(TARGET) and blocks and all(map(is_here, manifest.plan.runtimes.values()))):
        return None
    largest = 0
    for runtime, condition, slots in {(b.runtime, b.condition, b.slots) for b in blocks}:
        method = methods.get((runtime, condition))
        roles = [TARGET, *([draft_role(method.draft)] if method and method.draft else [])]
        positions = manifest.plan.context * slots
        needs = (sizes.get(r, 0) + positions * (cache_bytes.get(r) or 0) for r in roles)
        largest = max(largest, sum(needs))
    return largest + PROGRAM_BYTES
