"""One block and its record: how it ended, and what its end means for the blocks after it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from slipstream.lab.contract.records import BlockRecord, Counts, FindingRecord, RequestRecord
from slipstream.lab.evidence.store import next_attempt
from slipstream.lab.observation import probe
from slipstream.lab.observation.probe import Reading
from slipstream.lab.running.bench import FIGURES, MOST_TEXT, Bench, Seen
from slipstream.lab.running.block_process import BlockProcess
from slipstream.lab.running.tools import is_here
from slipstream.lab.scheduling.schedule import Block

MOST_FINDINGS: Final = 64
WHOLE: Final = ("router", "wrong-model")
"""Findings that concern the program, whatever it drafts with."""
ASIDE: Final = ("logits", "paths", "isolation")


def run_block(bench: Bench, block: Block, before: Reading) -> Reading | None:
    """Run it and append its records; returns the reading of the machine after it.

    None where the machine disturbed it: what did so may be over when the next block begins.

    What a program does wrong ends up in the records, never as an exception; KeyboardInterrupt
    leaves an aborted attempt behind.

    Raises:
        OperationError: the records cannot be written.
    """
    attempt = next_attempt(bench.store.lines, block.number)
    began, seen = bench.tools.now(), Seen(bench.clock())
    BlockProcess(bench, block, attempt, seen).run()
    elapsed_s = bench.clock() - seen.start_s
    after = bench.tools.probe()
    around = _around(bench, block, before, after)
    outcome, reason = _outcome(bench, block, seen.failed, around)
    ended = _Ended(attempt, began, round(elapsed_s, 6), outcome, reason[:MOST_TEXT])
    bench.store.append_block(_record(bench, block, seen, around, ended))
    if reason and not seen.failed:
        again = "it runs once more" if outcome == "repeated" else "it counts for nothing"
        bench.progress.note(f"block {block.number + 1}: {reason}; {again}")
    announce(bench)
    return None if outcome in ("repeated", "inconclusive") else after


@dataclass(frozen=True)
class _Around:
    """The machine around a block; nothing of it is known where the program runs elsewhere.

    Attributes:
        drift, load, probe_s: as ``BlockRecord`` has them.
    """

    drift: float | None
    load: float | None
    probe_s: float | None


@dataclass(frozen=True)
class _Ended:
    """When and how a block ended, as ``BlockRecord`` has it."""

    attempt: int
    began: str
    elapsed_s: float
    outcome: str
    reason: str


def _around(bench: Bench, block: Block, before: Reading, after: Reading) -> _Around:
    here = is_here(bench.manifest.plan.runtimes[block.runtime])
    readings = (before, after) if here else ()
    change = probe.drift(readings, _earlier(bench))
    return _Around(change, probe.busier(readings), probe.slower(readings))


def _record(bench: Bench, block: Block, seen: Seen, around: _Around, ended: _Ended) -> BlockRecord:
    return BlockRecord(
        run=bench.manifest.run,
        block=block.number,
        runtime=block.runtime,
        condition=block.condition,
        stratum=block.stratum,
        stage=block.record_stage,
        slots=block.slots,
        attempt=ended.attempt,
        began=ended.began,
        elapsed_s=ended.elapsed_s,
        outcome=ended.outcome,
        reason=ended.reason,
        drift=around.drift,
        counts=seen.counts or Counts(),
        peak_rss_bytes=seen.peak_rss_bytes,
        energy_j=seen.energy_j,
        metrics_before=seen.before,
        metrics_after=seen.after,
        log=seen.log,
        log_findings=tuple(text[:MOST_TEXT] for text in seen.findings[:MOST_FINDINGS]),
        repeat=block.repeat,
        baseline=block.baseline,
        probe_s=around.probe_s,
        other_load=around.load,
    )


def announce(bench: Bench) -> None:
    """Record what failed blocks mean, as far as it is not recorded; also what a kill prevented."""
    asked = {(x.block, x.attempt) for x in bench.store.lines if isinstance(x, RequestRecord)}
    for record in [x for x in bench.store.lines if isinstance(x, BlockRecord)]:
        finding = failure_finding(record, asked=(record.block, record.attempt) in asked)
        if finding is not None and bench.store.append_new(finding):
            bench.progress.note(f"{record.condition}: {finding.name}: {finding.text}")


def failure_finding(record: BlockRecord, *, asked: bool) -> FindingRecord | None:
    """What ends by a block that failed; None = it did not fail.

    A router or another model ends all of the program. What did not start, or did not pass its
    trial, would not elsewhere either: the condition ends. What broke while it answered ends on
    this stratum and at this concurrency: others are other requests. Blocks that only tell more of
    the others (``ASIDE``) end nothing.

    Args:
        asked: whether it came to a request.
    """
    if record.outcome != "failed":
        return None
    name, _, text = record.reason.partition(": ")
    whole = name in WHOLE
    here = asked and not whole and record.stage != "trial"
    return FindingRecord(
        run=record.run,
        name=name,
        text=text,
        runtime=record.runtime,
        condition="" if whole else record.condition,
        stratum=record.stratum if here else "",
        slots=record.slots if here else 0,
        stops=whole or record.stage not in ASIDE,
    )


def _earlier(bench: Bench) -> list[float]:
    return [
        x.probe_s for x in bench.store.lines if isinstance(x, BlockRecord) and x.probe_s is not None
    ]


def _outcome(bench: Bench, block: Block, failed: str, around: _Around) -> tuple[str, str]:
    """A disturbed block is run once more; disturbed again, it is inconclusive."""
    if failed:
        return "failed", failed
    limit = bench.manifest.plan.rules.drift_limit
    why = probe.disturbed(around.drift, around.load, limit) if block.kind in FIGURES else ""
    if not why:
        return "ok", ""
    again = any(
        isinstance(x, BlockRecord) and x.block == block.number and x.outcome == "repeated"
        for x in bench.store.lines
    )
    return ("inconclusive", why) if again else ("repeated", why)
