"""The records of a run, sorted: blocks of a workload x concurrency x condition, and their pairs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from slipstream.lab.contract.manifest import (
    ArtifactIdentity,
    Manifest,
    MethodIdentity,
    RuntimeIdentity,
)
from slipstream.lab.contract.plan import ComparisonRule
from slipstream.lab.contract.records import (
    BlockRecord,
    FindingRecord,
    Line,
    ObservedRecord,
    RequestRecord,
)
from slipstream.lab.scheduling.divergences import Causes

NONE: Final = "none"
GREEDY: Final = "greedy"
SAMPLER: Final = "sampler"
ROLLBACK: Final = "rollback"
"""Stage of the blocks that ran the kept build with ``none`` once more, after everything else."""
ISOLATION: Final = "isolation"
"""Stage of the blocks that asked for one tenant, alone (``repeat`` 0) and after the others (1)."""
MIX: Final = "mix"
"""Stratum of a block whose requests come from several."""
_DEGENERATE: Final = "degenerate"


@dataclass(frozen=True, order=True)
class Cell:
    """What a verdict is about."""

    runtime: str
    condition: str
    stratum: str
    slots: int = 1
    stage: str = GREEDY

    @property
    def none(self) -> Cell:
        return replace(self, condition=NONE)


@dataclass(frozen=True)
class Block:
    """A block that was finished, with the requests of its attempt; warm-up is left out.

    All requests of an isolation probe are here, though no figure is made of them.
    """

    record: BlockRecord
    requests: tuple[RequestRecord, ...]


def cell_of(record: RequestRecord | BlockRecord) -> Cell:
    return Cell(record.runtime, record.condition, record.stratum, record.slots, record.stage)


def reaches(finding: FindingRecord, cell: Cell) -> bool:
    """Whether a finding's scope holds the cell; an empty part holds all."""
    return (
        finding.runtime in ("", cell.runtime)
        and finding.condition in ("", cell.condition)
        and finding.stratum in ("", cell.stratum)
        and finding.slots in (0, cell.slots)
    )


def output_of(record: RequestRecord, rule: ComparisonRule) -> str:
    """Digest of what is compared; empty where the runtime did not give it, or of an error."""
    if record.error:
        return ""
    return record.ids_sha256 if rule == "ids" else record.text_sha256


def degenerate_reason(record: RequestRecord) -> str:
    """Why its output is unfit for a figure, or empty."""
    return next((d for d in record.diagnostics if d.startswith(_DEGENERATE)), "")


def by_occurrence(
    requests: Iterable[RequestRecord],
) -> dict[tuple[str, int], RequestRecord]:
    """(prompt, how often it had come before) -> request: the same keys in every block."""
    found: dict[tuple[str, int], RequestRecord] = {}
    seen: dict[str, int] = defaultdict(int)
    for record in requests:
        found[record.prompt, seen[record.prompt]] = record
        seen[record.prompt] += 1
    return found


def _paired(before: Sequence[Block], after: Sequence[Block]) -> tuple[tuple[Block, Block], ...]:
    named = {a.record.block: a for a in before}
    own = [(named.get(b.record.baseline), b) for b in after if b.record.baseline is not None]
    made = [(a, b) for a, b in own if a is not None]
    taken = {a.record.block for a, _ in made}
    free = [a for a in before if a.record.block not in taken]
    loose = [b for b in after if b.record.baseline is None]
    return (*made, *_matched(free, loose))


def _alike(none: Block, other: Block, limit: float) -> bool:
    """Whether the machine was as fast around both, as far as its probe tells."""
    one, two = none.record.probe_s, other.record.probe_s
    if not one or not two or limit <= 0:
        return True
    return max(one, two) / min(one, two) <= 1 + limit


def _matched(before: Sequence[Block], after: Sequence[Block]) -> tuple[tuple[Block, Block], ...]:
    """Each block with the nearest of the other list that is still free, the nearest pairs first."""
    near = sorted(
        (abs(a.record.block - b.record.block), b.record.block, a.record.block, i, j)
        for i, a in enumerate(before)
        for j, b in enumerate(after)
    )
    mate: dict[int, int] = {}
    taken: set[int] = set()
    for *_, i, j in near:
        if j not in mate and i not in taken:
            mate[j] = i
            taken.add(i)
    return tuple((before[mate[j]], after[j]) for j in sorted(mate))


class Evidence:
    """A manifest and its records.

    Requests whose block has no record belong to an aborted attempt and are passed over. Of what is
    there twice (a run that was killed and resumed) the last counts.

    Args:
        lines: of ``records.jsonl``, in order.
    """

    def __init__(self, manifest: Manifest, lines: Iterable[Line]) -> None:
        lines = list(lines)
        self.manifest = manifest
        self.causes = Causes(manifest, lines)
        self.recorded: list[FindingRecord] = []
        self.observed: list[ObservedRecord] = []
        requests: dict[tuple[int, int], dict[int, RequestRecord]] = defaultdict(dict)
        blocks: dict[tuple[int, int], BlockRecord] = {}
        for line in lines:
            if isinstance(line, RequestRecord):
                requests[line.block, line.attempt][line.index] = line
            elif isinstance(line, BlockRecord):
                blocks[line.block, line.attempt] = line
            elif isinstance(line, FindingRecord):
                self.recorded.append(line)
            elif isinstance(line, ObservedRecord):
                self.observed.append(line)
        self._asked = {*requests}
        self._pairs: dict[Cell, tuple[tuple[Block, Block], ...]] = {}
        self._unlike: dict[Cell, int] = {}
        self._degenerate: dict[Cell, dict[str, str]] = {}
        self._by_cell: dict[Cell, list[Block]] = defaultdict(list)
        for key in sorted(blocks):
            cell, given = cell_of(blocks[key]), requests[key]
            kept = (r for _, r in sorted(given.items()) if not r.warm_up or cell.stage == ISOLATION)
            self._by_cell[cell].append(Block(blocks[key], tuple(kept)))

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Of which any block was finished, however it ended."""
        return tuple(sorted(self._by_cell))

    def attempts(self, cell: Cell) -> tuple[Block, ...]:
        """All finished blocks, those that count for no figure included."""
        return tuple(self._by_cell.get(cell, ()))

    def blocks(self, cell: Cell) -> tuple[Block, ...]:
        """Those that figures rest on."""
        return tuple(block for block in self.attempts(cell) if block.record.outcome == "ok")

    def requests(self, cell: Cell) -> Iterator[RequestRecord]:
        return (r for block in self.blocks(cell) for r in block.requests)

    def all_requests(self, cell: Cell) -> Iterator[RequestRecord]:
        """Errors of failed blocks included; not those of a block that was repeated."""
        blocks = (b for b in self.attempts(cell) if b.record.outcome != "repeated")
        return (r for block in blocks for r in block.requests)

    def was_asked(self, cell: Cell) -> bool:
        """Whether any process of it came to a request, a warm-up included."""
        records = (block.record for block in self.attempts(cell))
        return any((r.block, r.attempt) in self._asked for r in records)

    def answered(self, cell: Cell) -> Iterator[RequestRecord]:
        """Requests without an error, of all attempts: for what no disturbance changes."""
        return (r for b in self.attempts(cell) for r in b.requests if not r.error)

    def pairs(self, cell: Cell) -> tuple[tuple[Block, Block], ...]:
        """(block of ``none``, block of the condition), as the run paired them, on a like machine.

        Where it did not, the nearest in the order they ran, each once. Pairs between whose blocks
        the machine's probe changed by more than the plan's drift limit are left out.
        """
        if cell not in self._pairs:
            every = _paired(self.blocks(cell.none), self.blocks(cell))
            limit = self.manifest.plan.rules.drift_limit
            self._pairs[cell] = tuple(pair for pair in every if _alike(*pair, limit))
            self._unlike[cell] = len(every) - len(self._pairs[cell])
        return self._pairs[cell]

    def unlike(self, cell: Cell) -> int:
        """Pairs that the machine's change between their blocks made useless."""
        self.pairs(cell)
        return self._unlike[cell]

    def degenerate(self, cell: Cell) -> dict[str, str]:
        """Prompt -> why its text is unfit for a figure, with the condition or with ``none``."""
        if cell not in self._degenerate:
            found = [r for c in (cell.none, cell) for r in self.requests(c)]
            told = ((r.prompt, degenerate_reason(r)) for r in found)
            self._degenerate[cell] = {prompt: why for prompt, why in told if why}
        return self._degenerate[cell]

    def method(self, cell: Cell) -> MethodIdentity | None:
        own = (m for m in self.manifest.methods if m.runtime in ("", cell.runtime))
        return next((m for m in own if m.condition == cell.condition), None)

    def runtime(self, name: str) -> RuntimeIdentity | None:
        return next((r for r in self.manifest.runtimes if r.name == name), None)

    def artifacts(self, cell: Cell) -> Mapping[str, ArtifactIdentity | None]:
        """Target, and draft model where the condition has one; None = not in the manifest."""
        method = self.method(cell)
        wanted = {"target": {"target"}}
        if method is not None and method.draft:
            key = method.draft
            wanted[f"draft {key}"] = {key, f"draft:{key}"}
        return {
            name: next((a for a in self.manifest.artifacts if a.role in roles), None)
            for name, roles in wanted.items()
        }

    def recorded_of(self, cell: Cell) -> list[FindingRecord]:
        """What the run itself noted of a cell."""
        return [finding for finding in self.recorded if reaches(finding, cell)]

    def observations(self, cell: Cell) -> list[ObservedRecord]:
        wanted = (cell.runtime, cell.condition)
        return [o for o in self.observed if (o.runtime, o.condition) == wanted]

    @cached_property
    def closed_loop(self) -> bool:
        return self.manifest.plan.arrivals.kind == "closed"

    def of_throughput(self, cell: Cell) -> bool:
        """Whether work per time is judged: several clients that ask as fast as they are answered.

        Where requests come at times of their own, throughput is theirs, so time is judged.
        """
        return cell.slots > 1 and self.closed_loop
