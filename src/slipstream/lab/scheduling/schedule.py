"""Every block of a run in its order, from the manifest alone: the same list at each resume.

Within a rung of the ladder and a stratum, ``none`` and its conditions lie in mirrored rounds
(A B B A for two of them), so that a linear drift of the machine adds the same to each. Blocks keep
their numbers whether or not the ladder lets them run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from slipstream.lab.contract.manifest import Manifest, MethodIdentity
from slipstream.lab.contract.plan import SAME
from slipstream.lab.scheduling import arrivals
from slipstream.lab.scheduling.block_prompts import (
    isolation_prompts,
    prompts_of,
    strata,
    sweep_strata,
    trial_prompts,
    warm_ups,
)
from slipstream.measure.interleave import mirrored_order

Kind = Literal["measured", "trial", "logits", "paths", "rollback", "isolation"]
"""What a block is for; all but ``measured`` leave records that no figure is made of."""

NONE: Final = "none"
PATHS: Final = "paths"
MIX: Final = "mix"
"""The stratum of a block whose requests come from several."""
STAGES: Final = ("none", "ngram", "ngram-sweep", "draft-simple", "trained", "slots", "sampler")
DRAFTING: Final = ("ngram", "ngram-sweep", "draft-simple", "trained")
WITH_MODEL: Final = ("draft-simple", "trained")


@dataclass(frozen=True)
class Block:
    """A fresh process, warm-up requests and one pass over ``prompts``.

    Attributes:
        number: its place in the run, from 0.
        stratum: ``mix`` where the plan mixes several.
        stage: rung of the ladder that it belongs to.
        sampling: ``greedy`` or ``sampler``.
        repeat: round of its series. Of an isolation probe: 0 = the last tenant alone, 1 = after
            the others. ``baseline``: the block of ``none`` of the same round and runtime; None for
            ``none`` itself and for blocks that no figure is made of.
    """

    runtime: str
    condition: str
    stratum: str
    stage: str
    kind: Kind = "measured"
    sampling: str = "greedy"
    slots: int = 1
    repeat: int = 0
    baseline: int | None = None
    prompts: tuple[str, ...] = ()
    warm_up: tuple[str, ...] = ()
    number: int = -1

    @property
    def record_stage(self) -> str:
        """``stage`` of the block's records: how it samples, or what else it is for."""
        return self.sampling if self.kind == "measured" else self.kind


def blocks(manifest: Manifest) -> tuple[Block, ...]:
    """The whole run: every rung, then the rollback; what is locked is passed over when it comes."""
    found = [
        *_first_rung(manifest),
        *_logits(manifest),
        *(b for stage in DRAFTING for b in _drafting_rung(manifest, stage)),
        *_slots_rung(manifest),
        *_sampler_rung(manifest),
        *_isolation(manifest),
        *_rollback(manifest),
    ]
    return tuple(_paired([replace(b, number=i) for i, b in enumerate(found)]))


def concurrencies(manifest: Manifest) -> tuple[int, ...]:
    """1, and the slots asked for where there are more; a cold run has one request a process."""
    slots = manifest.plan.arrivals.slots
    return (1, slots) if slots > 1 and not manifest.observation.cold else (1,)


def method_of(manifest: Manifest, runtime: str, condition: str) -> MethodIdentity | None:
    """What a condition is in a runtime; None = it has no such condition."""
    for method in manifest.methods:
        if method.condition == condition and method.runtime in ("", runtime):
            return method
    return None


def conditions_of(manifest: Manifest, stages: Iterable[str]) -> tuple[str, ...]:
    wanted = set(stages)
    return tuple(
        dict.fromkeys(
            m.condition for m in manifest.methods if m.stage in wanted and m.condition != NONE
        )
    )


def runtimes_of(manifest: Manifest) -> tuple[str, ...]:
    return tuple(runtime.name for runtime in manifest.runtimes)


def studied(manifest: Manifest) -> tuple[str, ...]:
    """Runtimes that draft; one that is kept for a rollback beside others does not."""
    every = runtimes_of(manifest)
    others = tuple(name for name in every if name != manifest.plan.rollback)
    return others or every


def _first_rung(manifest: Manifest) -> Iterator[Block]:
    """``none`` over every stratum; with nothing to compare, as often as the plan repeats."""
    alone = not conditions_of(manifest, DRAFTING)
    times = manifest.plan.rules.repeats if alone else 1
    for stratum in strata(manifest):
        yield from _series(manifest, "none", stratum, (NONE,), times, kept=True)


def _logits(manifest: Manifest) -> Iterator[Block]:
    """The baseline's two best log-probabilities, in a pass of its own that is not timed."""
    if conditions_of(manifest, DRAFTING):
        for runtime in studied(manifest):
            for stratum in strata(manifest):
                yield _block(manifest, runtime, NONE, stratum, "none", kind="logits")


def _drafting_rung(manifest: Manifest, stage: str) -> Iterator[Block]:
    names = conditions_of(manifest, (stage,))
    if stage in WITH_MODEL:
        for runtime in studied(manifest):
            for name in names:
                first = _block(manifest, runtime, name, MIX, stage, kind="trial")
                yield replace(first, prompts=trial_prompts(manifest))
        if names:
            yield from _paths(manifest, stage)
    wanted = sweep_strata(manifest) if stage == "ngram-sweep" else strata(manifest)
    for stratum in wanted:
        if names:
            yield from _series(
                manifest, stage, stratum, (NONE, *names), manifest.plan.rules.repeats
            )
    if names and wanted:
        yield from _paths(manifest, stage)


def _paths(manifest: Manifest, stage: str) -> Iterator[Block]:
    """Where outputs parted since the last such block: the place once more, among many rows.

    What it asks follows from the records (``divergences.open_places``); where that is nothing, it
    is passed over. Only a runtime that takes token ids can be asked; builds that are compared
    differ in more than the rows.
    """
    plan = manifest.plan
    if plan.rules.comparison == "ids" and not plan.comparison.builds:
        for runtime in studied(manifest):
            if plan.runtimes[runtime].kind != "openai":
                yield Block(runtime, NONE, MIX, stage, PATHS)


def _slots_rung(manifest: Manifest) -> Iterator[Block]:
    """At the concurrency asked for: each stratum by itself, or the mix that the plan gives."""
    for slots in concurrencies(manifest)[1:]:
        yield from _loaded(manifest, "slots", slots, "greedy")
        if conditions_of(manifest, ("ngram", *WITH_MODEL)):
            yield from _paths(manifest, "slots")


def _sampler_rung(manifest: Manifest) -> Iterator[Block]:
    """The user's own sampler, at each concurrency that a verdict is given for."""
    if manifest.plan.sampling.sampler:
        for slots in concurrencies(manifest):
            yield from _loaded(manifest, "sampler", slots, "sampler")


def _loaded(manifest: Manifest, stage: str, slots: int, sampling: str) -> Iterator[Block]:
    plan = manifest.plan
    names = conditions_of(manifest, ("ngram", *WITH_MODEL))
    mixed = slots > 1 and (bool(plan.arrivals.mix) or plan.arrivals.kind == "recorded")
    for stratum in (MIX,) if mixed else strata(manifest):
        for block in _series(manifest, stage, stratum, (NONE, *names), plan.rules.repeats):
            ids = arrivals.mixed(manifest) if mixed else block.prompts
            yield replace(block, slots=slots, sampling=sampling, prompts=ids)


def _isolation(manifest: Manifest) -> Iterator[Block]:
    """The last tenant's requests in a process of its own, then after those of the others."""
    tenants = manifest.plan.tenants.names
    if len(tenants) < 2:
        return
    for runtime in studied(manifest):
        for name in conditions_of(manifest, ("ngram", *WITH_MODEL)):
            stage = method_of(manifest, runtime, name)
            for repeat in (0, 1):
                block = _block(manifest, runtime, name, MIX, stage.stage if stage else "ngram")
                ids = isolation_prompts(manifest)
                yield replace(
                    block, kind="isolation", repeat=repeat, prompts=ids, slots=len(tenants)
                )


def _rollback(manifest: Manifest) -> Iterator[Block]:
    """The kept previous build with ``none``, once over every stratum; else every runtime's own.

    A server that runs already cannot be started again.
    """
    kept = manifest.plan.rollback
    for runtime in runtimes_of(manifest) if kept in ("", SAME) else (kept,):
        if manifest.plan.runtimes[runtime].kind != "openai":
            for stratum in strata(manifest):
                yield _block(manifest, runtime, NONE, stratum, "none", kind="rollback")


def _series(
    manifest: Manifest,
    stage: str,
    stratum: str,
    names: Sequence[str],
    times: int,
    *,
    kept: bool = False,
) -> Iterator[Block]:
    """Mirrored rounds over every runtime and condition; builds share rounds, never a series.

    A condition lies beside ``none`` of its runtime; of builds to compare beside the other build's.

    Args:
        kept: with the build that is kept for a rollback alone.
    """
    runtimes = runtimes_of(manifest) if kept else studied(manifest)
    order = [(r, n) for r in runtimes for n in names]
    if manifest.plan.comparison.builds:
        order = [(r, n) for n in names for r in runtimes]
    pairs = {f"{r}\0{n}": (r, n) for r, n in order}
    for repeat, key in mirrored_order(list(pairs), times):
        runtime, name = pairs[key]
        yield replace(_block(manifest, runtime, name, stratum, stage), repeat=repeat)


def _block(
    manifest: Manifest,
    runtime: str,
    condition: str,
    stratum: str,
    stage: str,
    kind: Kind = "measured",
) -> Block:
    return Block(
        runtime,
        condition,
        stratum,
        stage,
        kind,
        prompts=prompts_of(manifest, stratum),
        warm_up=warm_ups(manifest, stratum),
    )


def _paired(found: Sequence[Block]) -> Iterator[Block]:
    """Each with its baseline: ``none`` of the same rung, stratum, runtime and round."""

    def series(block: Block) -> tuple[object, ...]:
        return (block.stage, block.stratum, block.slots, block.runtime, block.repeat)

    ours = {series(b): b.number for b in found if b.kind == "measured" and b.condition == NONE}
    for block in found:
        own = block.kind == "measured" and block.condition != NONE
        yield replace(block, baseline=ours.get(series(block))) if own else block
