"""What the records say so far of a runtime, a condition and a stratum; pure functions of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from slipstream.lab.contract.manifest import Manifest
from slipstream.lab.contract.plan import rows_range_of
from slipstream.lab.contract.records import BlockRecord, FindingRecord, Line, RequestRecord
from slipstream.lab.evidence.output_verdict import DIVERGED, EQUAL, NOT_COMPARED
from slipstream.lab.evidence.store import blocks_of, counted
from slipstream.lab.scheduling.block_prompts import strata
from slipstream.lab.scheduling.divergences import Causes, Place, open_places
from slipstream.lab.scheduling.schedule import MIX, NONE, Block, blocks

EQUAL_TRIALS: Final = 2
"""So many prompts of a trial at least must give the output of ``none``."""


@dataclass(frozen=True)
class Lock:
    """Why a block does not run; ``waiting`` = the records do not tell yet."""

    reason: str
    waiting: bool = False


class Standing:
    """What the records say so far of each runtime, condition and stratum.

    Args:
        lines: of ``records.jsonl``; aborted attempts are left out here.
    """

    def __init__(self, manifest: Manifest, lines: Sequence[Line]) -> None:
        self.manifest = manifest
        self._lines = counted(lines)

    @cached_property
    def _ended(self) -> dict[int, BlockRecord]:
        """Block -> its last record that is not to be repeated."""
        ended = blocks_of(self._lines)
        return {n: r for (n, _), r in sorted(ended.items()) if r.outcome != "repeated"}

    @cached_property
    def _requests(self) -> dict[int, list[RequestRecord]]:
        """Block -> requests of the attempt that counts, warm-ups of the block left out."""
        found: dict[int, list[RequestRecord]] = {}
        for x in self._lines:
            if isinstance(x, RequestRecord) and x.prompt not in self._warm_ups:
                record = self._ended.get(x.block)
                if record is not None and record.attempt == x.attempt:
                    found.setdefault(x.block, []).append(x)
        return found

    @cached_property
    def _warm_ups(self) -> frozenset[str]:
        return frozenset(p.id for p in self.manifest.prompts if p.warm_up)

    @cached_property
    def _stops(self) -> list[FindingRecord]:
        return [x for x in self._lines if isinstance(x, FindingRecord) and x.stops]

    @cached_property
    def plan(self) -> tuple[Block, ...]:
        return blocks(self.manifest)

    @cached_property
    def _causes(self) -> Causes:
        return Causes(self.manifest, self._lines)

    def open_places(self, block: Block) -> tuple[Place, ...]:
        """What a ``paths`` block has to ask."""
        return open_places(self.plan, self._lines, block)

    def stop(self, runtime: str, condition: str, stratum: str, slots: int) -> str:
        """The finding that ended this condition, or the run; empty = none did."""
        for x in self._stops:
            scope = (
                (x.runtime, runtime),
                (x.condition, condition),
                (x.stratum, stratum),
                (x.slots, slots),
            )
            if all(theirs in ("", 0, ours) for theirs, ours in scope):
                return f"{x.name}: {x.text}"
        return ""

    def requests(self, block: Block) -> list[RequestRecord]:
        """Of the attempt that counts, warm-ups left out."""
        return self._requests.get(block.number, [])

    def record(self, block: Block) -> BlockRecord | None:
        """Of the attempt that counts; None = it has not ended."""
        return self._ended.get(block.number)

    def series(
        self, runtime: str, condition: str, stratum: str, *, kind: str = "measured", slots: int = 1
    ) -> list[Block]:
        """Blocks of a condition at one concurrency and temperature 0."""
        return [
            b
            for b in self.plan
            if (b.runtime, b.condition, b.stratum) == (runtime, condition, stratum)
            and (b.kind, b.slots, b.sampling) == (kind, slots, "greedy")
        ]

    def baseline(self, runtime: str, wanted: Sequence[str], slots: int = 1) -> Lock | None:
        """``none`` must have run over these strata without error."""
        for name in wanted:
            if stopped := self.stop(runtime, NONE, name, slots):
                return Lock(f"`none` did not run: {stopped}")
            first = self.series(runtime, NONE, name)[0]
            if first.number not in self._ended:
                return Lock(f"`none` has not run over {name} yet", waiting=True)
            failed = failure(self._ended[first.number], self.requests(first))
            if failed:
                return Lock(f"`none` did not run over {name} without error: {failed}")
        return None

    def trial(self, runtime: str, condition: str) -> Lock | None:
        """Several prompts without error, with the output of ``none`` or an explained one.

        That a file loads proves nothing.
        """
        block = self.series(runtime, condition, MIX, kind="trial")[0]
        record = self._ended.get(block.number)
        if record is None:
            return Lock("its trial has not run yet", waiting=True)
        if failed := failure(record, self.requests(block)):
            return Lock(f"its trial failed: {failed}")
        if left := self.unequal(self.requests(block)):
            return Lock(f"its trial did not give the output of `none`: {left}")
        equal = sum(r.verdict == EQUAL for r in self.requests(block))
        if equal < min(EQUAL_TRIALS, len(block.prompts)):
            return Lock(f"its trial gave the output of `none` for {equal} prompts only")
        return None

    def survived(self, runtime: str, condition: str, stratum: str) -> Lock | None:
        """At one slot: every round ended without error, with equal output, and not slower in all.

        Of a mix: in one of its strata at least. It is the same for any sampler.
        """
        if stratum == MIX:
            locks = [self.survived(runtime, condition, s) for s in self._mix()]
            kept = [lock for lock in locks if lock is not None]
            return None if len(kept) < len(locks) else _worst(kept)
        series = self.series(runtime, condition, stratum)
        if not series:
            return Lock(f"it has no blocks on {stratum}")
        stopped = self.stop(runtime, condition, stratum, 1) or self.rows(runtime, condition)
        if stopped:
            return Lock(f"it did not survive at one slot: {stopped}")
        if any(b.number not in self._ended for b in series):
            return Lock("it has not run at one slot yet", waiting=True)
        for block in series:
            found = self.requests(block)
            why = failure(self._ended[block.number], found) or self.unequal(found)
            if why:
                return Lock(f"it did not survive at one slot: {why}")
        # Two builds are compared whether speculation pays or not.
        return None if self.manifest.plan.comparison.builds else self._slower(series)

    def _mix(self) -> tuple[str, ...]:
        mix = self.manifest.plan.arrivals.mix
        return tuple(s for s, share in mix.items() if share > 0) or strata(self.manifest)

    def _slower(self, series: Sequence[Block]) -> Lock | None:
        ratios = [self._round_ratio(block) for block in series]
        known = [r for r in ratios if r is not None]
        if known and len(known) == len(ratios) and max(known) < 1:
            times = "once" if len(known) == 1 else f"in each of {len(known)} rounds"
            return Lock(f"it did not survive at one slot: slower than `none` {times}")
        return None

    def _round_ratio(self, block: Block) -> float | None:
        """Total of ``none`` / total of the condition over the prompts that both answered."""
        ours = {r.prompt: r.total_s for r in self.requests(block)}
        theirs = {
            r.prompt: r.total_s
            for r in self._requests.get(-1 if block.baseline is None else block.baseline, [])
        }
        pairs = [(theirs.get(p), t) for p, t in ours.items()]
        both = [(a, b) for a, b in pairs if a is not None and b]
        return sum(a for a, _ in both) / sum(b for _, b in both) if both else None

    def unequal(self, requests: Sequence[RequestRecord]) -> str:
        """The first request that left ``none`` unexplained, or was not compared.

        What a row probe has told by now counts; a divergence that none has answered is judged by
        its gap alone.
        """
        for r in requests:
            if r.verdict == DIVERGED and not self._causes.explained(r):
                at = "an unknown token" if r.divergence is None else f"{r.divergence.at}"
                return f"{r.prompt} diverged at {at}"
            if r.verdict == NOT_COMPARED:
                return f"{r.prompt} could not be compared"
        return ""

    def rows(self, runtime: str, condition: str) -> str:
        """Why the condition left its range of rows per step; empty = it did not.

        The runtime's counts give a mean; what it does not tell rejects nothing. Of builds that are
        compared, what one of them does rejects the condition for both.
        """
        low, high = rows_range_of(self.manifest.plan, condition)
        if condition == NONE or (low, high) == (0, 0):
            return ""
        builds = self.manifest.plan.comparison.builds
        for block in self.plan:
            record = self._ended.get(block.number)
            own = block.runtime == runtime or block.runtime in builds
            if not own or block.condition != condition or record is None:
                continue
            rows = record.counts.rows_per_step
            if builds and record.counts.drafted == 0 and block.kind == "measured":
                rows = 1.0
            if rows is not None and not (low <= rows and (rows <= high or not high)):
                return (
                    f"{rows:.2f} rows per step on average in block {block.number}, "
                    f"outside {low} to {high or 'any'}"
                )
        return ""


def failure(record: BlockRecord, requests: Sequence[RequestRecord]) -> str:
    if record.outcome == "failed":
        return record.reason or "its block failed"
    return next((f"{r.prompt}: {r.error}" for r in requests if r.error), "")


def _worst(locks: Sequence[Lock]) -> Lock:
    """Waiting while one waits; else the first reason."""
    return next((lock for lock in locks if lock.waiting), locks[0])
