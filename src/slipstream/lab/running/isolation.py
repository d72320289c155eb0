"""Whether one tenant's texts make another's drafts better: the probe's two passes, compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from slipstream.lab.contract.manifest import Manifest
from slipstream.lab.contract.records import Line, RequestRecord
from slipstream.lab.evidence.store import counted
from slipstream.lab.scheduling.schedule import Block, blocks

RISE_OF_OUTPUT: Final = 0.1
"""Accepted tokens more than alone, as a share of the output, from which a pool is shared."""


@dataclass(frozen=True)
class Isolation:
    """What the last tenant's requests showed.

    Attributes:
        alone, after: its accepted draft tokens in a process of its own, and in one that answered
            the same prompts for the other tenants before.
        tokens: its output tokens, the smaller of both.
        shared: None where a pass is missing, failed or tells no counts.
    """

    alone: int | None
    after: int | None
    tokens: int | None
    shared: bool | None


def probed(manifest: Manifest, lines: Sequence[Line], runtime: str, condition: str) -> Isolation:
    """The isolation probe of a condition, from the records."""
    passes = [
        b
        for b in blocks(manifest)
        if (b.kind, b.runtime, b.condition) == ("isolation", runtime, condition)
    ]
    counts = [_last_tenant(manifest, lines, block) for block in passes]
    known = [c for c in counts if c is not None]
    if len(known) < 2:
        return Isolation(None, None, None, None)
    (alone, some), (after, others) = known
    tokens = min(some, others)
    shared = after - alone > RISE_OF_OUTPUT * tokens if tokens else None
    return Isolation(alone, after, tokens, shared)


def _last_tenant(manifest: Manifest, lines: Sequence[Line], block: Block) -> tuple[int, int] | None:
    """(accepted, output tokens) of its requests; None where one is unknown."""
    tenant = manifest.plan.tenants.names[-1]
    found = [
        x
        for x in counted(lines)
        if isinstance(x, RequestRecord) and x.block == block.number and x.tenant == tenant
    ]
    last = max((x.attempt for x in found), default=0)
    numbers = [
        (x.counts.accepted, x.output_tokens) for x in found if x.attempt == last and not x.error
    ]
    if len(numbers) < len(block.prompts) or any(a is None or t is None for a, t in numbers):
        return None
    return sum(a or 0 for a, _ in numbers), sum(t or 0 for _, t in numbers)
