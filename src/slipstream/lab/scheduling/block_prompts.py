"""Which prompts a block asks, from the manifest alone."""

from __future__ import annotations

from typing import Final

from slipstream.lab.contract.manifest import Manifest, PromptIdentity

SWEEP_KIND: Final = "repetitive"
_TRIAL_PROMPTS: Final = 3


def strata(manifest: Manifest) -> tuple[str, ...]:
    """Of the measured prompts, in the manifest's order."""
    return tuple(dict.fromkeys(p.stratum for p in manifest.prompts if not p.warm_up))


def sweep_strata(manifest: Manifest) -> tuple[str, ...]:
    """The repetitive ones, on which alone a sweep runs."""
    alike = {p.stratum for p in manifest.prompts if SWEEP_KIND in (p.kind, p.stratum)}
    return tuple(s for s in strata(manifest) if s in alike)


def prompts_of(manifest: Manifest, stratum: str) -> tuple[str, ...]:
    return tuple(p.id for p in manifest.prompts if p.stratum == stratum and not p.warm_up)


def warm_ups(manifest: Manifest, stratum: str) -> tuple[str, ...]:
    """Ids of the requests before a block: the stratum's own first, begun again where too few.

    A cold run has none: it measures the first request of a process.
    """
    rules = manifest.plan.rules
    ready = [p for p in manifest.prompts if p.warm_up]
    if manifest.observation.cold or not ready:
        return ()

    def foreign(prompt: PromptIdentity) -> bool:
        return prompt.stratum != stratum

    ordered = [p.id for p in sorted(ready, key=foreign)]
    return tuple(ordered[i % len(ordered)] for i in range(rules.warm_up))


def trial_prompts(manifest: Manifest) -> tuple[str, ...]:
    """The shortest way to several prompts of different kinds: the first of each stratum."""
    columns = [prompts_of(manifest, stratum) for stratum in strata(manifest)]
    rows = (
        ids[i] for i in range(max(map(len, columns), default=0)) for ids in columns if i < len(ids)
    )
    return tuple(rows)[:_TRIAL_PROMPTS]


def isolation_prompts(manifest: Manifest) -> tuple[str, ...]:
    """What one tenant asks after another: texts that repeat nothing of themselves.

    A drafter finds little in them alone, and nearly everything where it knows another's answer.
    """
    ranks = {kind: rank for rank, kind in enumerate(("prose", "chat", "reasoning"))}
    last = len(ranks)
    ready = [p for p in manifest.prompts if not p.warm_up]
    ready.sort(key=lambda p: min(ranks.get(p.kind, last), ranks.get(p.stratum, last)))
    return tuple(p.id for p in ready[:_TRIAL_PROMPTS])
