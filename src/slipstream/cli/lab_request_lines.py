"""The requests that a manifest fixes and the order of their blocks, as lines of text."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from slipstream.cli.lab_verdict_lines import width, wrapped

if TYPE_CHECKING:
    from slipstream.lab.contract.manifest import Manifest, PromptIdentity
    from slipstream.lab.scheduling.schedule import Block

_WIDEST = 100
_TIED = "\N{NO-BREAK SPACE}"  # a name and its figures stay on one line
_KINDS = {
    "trial": "trial, several prompts against `none`, untimed",
    "logits": "the two best log-probabilities of `none`, untimed",
    "paths": "where outputs parted, if any did: the place once more among many rows",
    "isolation": "the last tenant alone, then after the others",
    "rollback": "the way back, started once more",
}


def request_lines(manifest: Manifest) -> Iterator[str]:
    """Every prompt by its id with its tokens, how all are sampled, and in which order they come."""
    columns = min(width(), _WIDEST)
    yield "requests: prompt, its tokens > most of its output; warm-ups in (brackets)"
    for name, chosen in groupby(manifest.prompts, key=lambda prompt: prompt.stratum):
        text = f"{name}: {', '.join(_prompt(name, p) for p in chosen)}"
        yield wrapped(text, columns, "  ").replace(_TIED, " ")
    yield wrapped(f"sampling: {_sampling(manifest)}", columns)
    yield wrapped(f"arrivals: {_arrivals(manifest)}", columns)
    yield from _order_lines(manifest, columns)


def _prompt(stratum: str, prompt: PromptIdentity) -> str:
    own = prompt.id.removeprefix(f"{stratum}/").removeprefix("warm_up/")
    tokens = prompt.tokens if isinstance(prompt.tokens, int) else "?"
    text = f"{own}{_TIED}{tokens}>{prompt.max_tokens}"
    return f"({text})" if prompt.warm_up else text


def _sampling(manifest: Manifest) -> str:
    plan = manifest.plan.sampling
    seeds = [p.seed for p in manifest.prompts if not p.warm_up]
    seed = f"seed {min(seeds)} to {max(seeds)} in that order" if seeds else f"seed {plan.seed}"
    stop = ", ".join(json.dumps(text, ensure_ascii=False) for text in plan.stop) or "none"
    text = f"temperature 0, {seed}, stop {stop}"
    return text + (f"; then {_settings(plan.sampler)}" if plan.sampler else "")


def _settings(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {json.dumps(value)}" for name, value in values.items())


def _arrivals(manifest: Manifest) -> str:
    asked = manifest.plan.arrivals
    how = {
        "closed": "each client asks again when it has its answer",
        "poisson": f"at random, {asked.rate_per_s:g} a second",
        "recorded": f"as recorded in {asked.file}",
    }[asked.kind]
    slots = f"1 at a time, then {asked.slots}" if asked.slots > 1 else "1 at a time"
    mix = f"; mix {_settings(asked.mix)}" if asked.mix else ""
    return f"{slots}; {how}{mix}; timeout {manifest.plan.rules.timeout_s:g} s"


def _order_lines(manifest: Manifest, columns: int) -> Iterator[str]:
    from slipstream.lab.scheduling.schedule import blocks

    yield "order of blocks; conditions lie in mirrored rounds (A B B A), prompts in the order above"
    planned = blocks(manifest)
    several = len(manifest.runtimes) > 1
    groups = groupby(planned, key=lambda b: (b.stage, b.record_stage, b.slots))
    for number, (_, group) in enumerate(groups, 1):
        yield wrapped(f"{number}. {_group(list(group), several=several)}", columns, "  ")


def _group(group: Sequence[Block], *, several: bool) -> str:
    """A rung's blocks of one kind: which conditions over which workloads, and how often."""
    first = group[0]
    pairs = dict.fromkeys((b.runtime, b.condition) for b in group)
    names = ", ".join(f"{r} {c}" if several else c for r, c in pairs)
    strata = len({b.stratum for b in group})
    over = f"{strata} workloads" if strata > 1 else first.stratum
    count = f"{len(group)} block{'s' if len(group) > 1 else ''}"
    slots = f", {first.slots} at a time" if first.slots > 1 else ""
    if first.kind != "measured":
        return f"{first.stage}{slots}: {_KINDS[first.kind]}; {count}"
    rounds = max(b.repeat for b in group) + 1
    often = f"{rounds} rounds each" if rounds > 1 else "once"
    sampled = ", your sampler" if first.sampling != "greedy" else ""
    return f"{first.stage}{slots}{sampled}: {over}, {often}: {names}; {count}"
