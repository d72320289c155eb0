"""The ladder: which block may run now, from the manifest and the records so far; else why not.

A rung is unlocked by the ones before it. Everything here is a pure function, so a report says the
same of a run as the run did.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from slipstream.lab.contract.manifest import Manifest, Pairing
from slipstream.lab.contract.records import Line
from slipstream.lab.planning import ready_made
from slipstream.lab.scheduling.block_prompts import sweep_strata
from slipstream.lab.scheduling.schedule import (
    MIX,
    NONE,
    PATHS,
    WITH_MODEL,
    Block,
    blocks,
    method_of,
    studied,
)
from slipstream.lab.scheduling.standing import Lock, Standing, failure

State = Literal["done", "to run", "waiting", "not run"]


@dataclass(frozen=True)
class Rung:
    """A series of blocks: a condition on a stratum, at a stage and concurrency.

    Attributes:
        done, of: blocks that ended, and that the manifest has.
        state: ``done``, ``to run``, ``waiting`` (for a rung before it) or ``not run``.
        reason: of ``waiting`` and ``not run``.
    """

    runtime: str
    condition: str
    stratum: str
    stage: str
    slots: int
    state: State
    reason: str = ""
    done: int = 0
    of: int = 0


class Ladder:
    """The locks of a run at one moment.

    Args:
        lines: of ``records.jsonl``, as far as it got.
    """

    def __init__(self, manifest: Manifest, lines: Sequence[Line]) -> None:
        self.manifest = manifest
        self.standing = Standing(manifest, lines)
        self._known: dict[tuple[object, ...], Lock | None] = {}

    def lock(self, block: Block) -> Lock | None:
        """Why a block may not run now; None = it may."""
        own = block.number if block.kind == PATHS else None  # a rung may have two
        key = (
            *(block.runtime, block.condition, block.stratum),
            *(block.stage, block.kind, block.slots, own),
        )
        if key not in self._known:
            self._known[key] = next(self._locks(block), None)
        return self._known[key]

    def _locks(self, block: Block) -> Iterator[Lock]:
        runtime, condition, stratum = block.runtime, block.condition, block.stratum
        method = method_of(self.manifest, runtime, condition)
        if method is None:
            yield Lock(f"`{runtime}` has no condition `{condition}`")
            return
        if method.not_run:
            yield Lock(method.not_run)
        if stopped := self.standing.stop(runtime, condition, stratum, block.slots):
            yield Lock(stopped)
        first_rung = block.stage == "none" and block.kind == "measured"
        ready = None if first_rung else self._ready(block)
        if ready is not None:
            yield ready
        if block.kind == PATHS and not self.standing.open_places(block):
            yield Lock("no output parted where a row probe could tell why")
        if condition != NONE:
            yield from self._drafting_locks(block)
        elif block.kind == "measured" and block.stage != "none":
            yield from self._pointless(block)

    def _ready(self, block: Block) -> Lock | None:
        return self.standing.baseline(block.runtime, self._strata(block), block.slots)

    def _strata(self, block: Block) -> tuple[str, ...]:
        """Of its prompts: one, or those of a mix."""
        if block.stratum != MIX:
            return (block.stratum,)
        found = {p.id: p.stratum for p in self.manifest.prompts if not p.warm_up}
        return tuple(dict.fromkeys(found[prompt] for prompt in block.prompts))

    def _drafting_locks(self, block: Block) -> Iterator[Lock]:
        runtime, condition = block.runtime, block.condition
        method = method_of(self.manifest, runtime, condition)
        if method is not None and method.draft:
            yield from _pairing_locks(self.manifest, method.draft)
        if left := self.standing.rows(runtime, condition):
            yield Lock(f"rejected: {left}")
        own_stage = method.stage if method is not None else block.stage
        tried = own_stage in WITH_MODEL and block.kind != "trial"
        if tried and (lock := self.standing.trial(runtime, condition)):
            yield lock
        if block.stage == "ngram-sweep":
            parent = ready_made.parents(self.manifest.plan).get(condition, "")
            if parent and (lock := self._parent(runtime, parent)):
                yield lock
        later = block.kind == "measured" and block.stage in ("slots", "sampler")
        later = later or block.kind == "isolation"
        if later and (lock := self.standing.survived(runtime, condition, block.stratum)):
            yield lock

    def _parent(self, runtime: str, parent: str) -> Lock | None:
        """A sweep begins where its parent gives the output of ``none``; it may be slow or rare."""
        series = [
            block
            for stratum in sweep_strata(self.manifest)
            for block in self.standing.series(runtime, parent, stratum)
        ]
        for block in series:
            record = self.standing.record(block)
            if record is None:
                stopped = self.standing.stop(runtime, parent, block.stratum, 1)
                if stopped:
                    return Lock(f"`{parent}`, which it varies, ended: {stopped}")
                return Lock(f"`{parent}`, which it varies, has not run yet", waiting=True)
            found = self.standing.requests(block)
            if why := failure(record, found) or self.standing.unequal(found):
                return Lock(f"`{parent}`, which it varies, did not pass: {why}")
        return None

    def _pointless(self, block: Block) -> Iterator[Lock]:
        """``none`` of a rung runs only beside a condition that does."""
        others = {
            b.condition: b
            for b in self.standing.plan
            if (b.runtime, b.stage, b.stratum) == (block.runtime, block.stage, block.stratum)
            and b.slots == block.slots
            and b.kind == "measured"
            and b.condition != NONE
        }
        locks = [self.lock(b) for b in others.values()]
        kept = [lock for lock in locks if lock is not None]
        if locks and len(kept) == len(locks):
            waiting = any(lock.waiting for lock in kept)
            yield Lock("no condition of this rung runs beside it", waiting=waiting)


def rungs(manifest: Manifest, lines: Sequence[Line]) -> list[Rung]:
    """Every measured rung of the run with its state, in the run's order."""
    ladder = Ladder(manifest, lines)
    series: dict[tuple[str, str, str, str, int], list[Block]] = {}
    for block in blocks(manifest):
        if block.kind == "measured":
            key = (block.runtime, block.condition, block.stratum, block.stage, block.slots)
            series.setdefault(key, []).append(block)
    return [*(_rung(ladder, group) for group in series.values()), *_without_blocks(manifest)]


def _without_blocks(manifest: Manifest) -> Iterator[Rung]:
    """Conditions that the schedule has no place for."""
    placed = {(b.runtime, b.condition) for b in blocks(manifest) if b.kind == "measured"}
    for runtime in studied(manifest):
        for method in manifest.methods:
            ours = method.runtime in ("", runtime)
            if ours and (runtime, method.condition) not in placed:
                reason = "its stage is none that drafts"
                if method.stage == "ngram-sweep":
                    reason = "a sweep runs on repetitive strata, and the plan measures none"
                yield Rung(runtime, method.condition, "", method.stage, 1, "not run", reason)


def _rung(ladder: Ladder, group: Sequence[Block]) -> Rung:
    first = group[0]
    left = [b for b in group if ladder.standing.record(b) is None]
    lock = ladder.lock(left[0]) if left else None
    state: State = "done" if not left else "to run"
    if lock is not None:
        state = "waiting" if lock.waiting else "not run"
    return Rung(
        first.runtime,
        first.condition,
        first.stratum,
        first.stage,
        first.slots,
        state,
        lock.reason if lock is not None else "",
        len(group) - len(left),
        len(group),
    )


def not_run(manifest: Manifest, lines: Sequence[Line]) -> list[Rung]:
    """Series that were not run, or not to their end, each with its reason."""
    return [rung for rung in rungs(manifest, lines) if rung.state == "not run"]


def _pairing_locks(manifest: Manifest, draft: str) -> Iterator[Lock]:
    """All four parts must be confirmed, each with a named source."""
    found = [p for p in manifest.pairings if p.draft == draft]
    pairing = found[0] if found else Pairing(draft=draft)
    if not pairing.confirmed:
        parts = ("tokenizer", "vocabulary", "template", "architecture")
        open_parts = [
            f"{part}: {getattr(pairing, part)}"
            for part in parts
            if not getattr(pairing, part).startswith("confirmed: ")
        ]
        yield Lock(f"its pairing with the target is not confirmed ({'; '.join(open_parts)})")
