"""The figures of every cell, none of them derived here: ``definitions`` and the gates have them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from slipstream.lab.contract.records import BlockRecord, Counts, Line, RequestRecord
from slipstream.lab.evidence import definitions as define
from slipstream.lab.evidence.noise import pairs_to_plan
from slipstream.lab.judging.block_times import block_measure
from slipstream.lab.judging.cells import (
    GREEDY,
    NONE,
    SAMPLER,
    Cell,
    Evidence,
    by_occurrence,
    output_of,
)
from slipstream.lab.judging.draft_findings import counts_of
from slipstream.lab.judging.gates import memory_gate
from slipstream.lab.judging.output_gate import compared
from slipstream.lab.judging.step_rows import step_rows
from slipstream.lab.judging.time_gate import needed, speed, spread_of
from slipstream.lab.reporting import analysis_data as shown

MOST_POSITIONS: Final = 64
_MOST_ERRORS: Final = 5
FIRST, DECODE = "to the first token", "decode"
"""What the client's clock tells apart of a request's time."""


def cells_of(evidence: Evidence) -> tuple[shown.Cell, ...]:
    """Of every cell that has a block, in the plan's order."""
    return tuple(cell_of(evidence, cell) for cell in ordered(evidence))


def ordered(evidence: Evidence) -> list[Cell]:
    """Cells that figures are made of: by concurrency and sampling, workload, program, condition."""
    manifest = evidence.manifest
    strata = _ranks(p.stratum for p in manifest.prompts)
    runtimes = _ranks(r.name for r in manifest.runtimes)
    conditions = _ranks(m.condition for m in manifest.methods)

    def key(cell: Cell) -> tuple[object, ...]:
        places = (
            strata.get(cell.stratum, len(strata)),
            conditions.get(cell.condition, len(conditions)),
            runtimes.get(cell.runtime, len(runtimes)),
        )
        return (cell.stage, cell.slots, *places, cell)

    return sorted((c for c in evidence.cells if c.stage in (GREEDY, SAMPLER)), key=key)


def _ranks(names: Iterable[str]) -> Mapping[str, int]:
    return {name: rank for rank, name in enumerate(dict.fromkeys(names))}


def cell_of(evidence: Evidence, cell: Cell) -> shown.Cell:
    """The figures of one cell."""
    requests, every = list(evidence.requests(cell)), list(evidence.all_requests(cell))
    figures = _times(requests) | _drafting(evidence, cell, requests) | _outputs(evidence, cell)
    figures |= _beside_none(evidence, cell) | _noise(evidence, cell)
    blocks = [block.requests for block in evidence.blocks(cell)]
    errors = [r for r in every if r.error and not r.timed_out]
    return shown.Cell(
        runtime=cell.runtime,
        condition=cell.condition,
        stratum=cell.stratum,
        slots=cell.slots,
        stage=cell.stage,
        outcomes=dict(Counter(b.record.outcome for b in evidence.attempts(cell))),
        requests=len(requests),
        errors=len(errors),
        timeouts=sum(r.timed_out for r in every),
        error_texts=tuple(dict.fromkeys(f"{r.error:.200}" for r in errors))[:_MOST_ERRORS],
        throughput_tok_s=define.throughput_tok_s(blocks),
        peak_rss_bytes=max(_peaks(evidence, cell), default=None),
        energy_per_token_j=define.energy_per_token_j(requests),
        **figures,
    )


def _peaks(evidence: Evidence, cell: Cell) -> Iterator[int]:
    for block in evidence.attempts(cell):
        told = (block.record.peak_rss_bytes, *(r.peak_rss_bytes for r in block.requests))
        yield from (peak for peak in told if peak is not None and peak > 0)


def _times(requests: list[RequestRecord]) -> dict[str, Any]:
    """What the client's clock says, and the runtime of its queue and phases."""

    def figure(of: Callable[[RequestRecord], float | None]) -> define.Figure | None:
        return define.figure(of(r) for r in requests)

    sound = [r for r in requests if not r.error]
    return {
        "total_s": figure(define.total_s),
        "total_p95_s": define.p95(define.total_s(r) for r in requests),
        "ttft_s": figure(define.ttft_s),
        "ttft_p95_s": define.p95(define.ttft_s(r) for r in requests),
        "queue_s": define.figure(r.queue_s for r in sound),
        "decode_tok_s": figure(define.decode_rate),
        "output_tokens": define.figure(r.output_tokens for r in sound),
        "phases": define.phase_shares(requests),
        "clock": define.phase_shares(_by_clock(r) for r in requests),
    }


def _by_clock(record: RequestRecord) -> RequestRecord:
    first, decode = define.ttft_s(record), define.decode_s(record)
    known = first is not None and decode is not None
    phases = {FIRST: first or 0.0, DECODE: decode or 0.0} if known else {}
    return msgspec.structs.replace(record, phases=phases)


def _drafting(evidence: Evidence, cell: Cell, requests: list[RequestRecord]) -> dict[str, Any]:
    counts, made = counts_of(evidence, cell), speed(evidence, cell)
    per_pass = define.tokens_per_pass(requests)
    gain = made.figure.median if made and not evidence.of_throughput(cell) else None
    return {
        "counts": counts,
        "acceptance_rate": define.acceptance_rate(counts),
        "positions": positions_of(counts),
        "mean_acceptance_length": define.mean_acceptance_length(counts),
        "rows_per_step": define.rows_per_step(counts),
        "step_rows": step_rows(evidence, evidence.blocks(cell)),
        "tokens_per_pass": per_pass,
        "step_efficiency": define.step_efficiency(gain, per_pass),
    }


def positions_of(counts: Counts) -> tuple[shown.Position, ...]:
    """Acceptance by position, with its denominator; the first 64 positions."""
    rates = define.acceptance_at(counts)[:MOST_POSITIONS]
    told = zip(rates, counts.accepted_at, counts.reached_at, strict=False)
    return tuple(
        shown.Position(position=i, accepted=accepted, reached=reached, rate=rate)
        for i, (rate, accepted, reached) in enumerate(told, 1)
    )


def _outputs(evidence: Evidence, cell: Cell) -> dict[str, Any]:
    alike = cell.condition == NONE or cell.stage != GREEDY
    made = None if alike else compared(evidence, cell)
    checks: dict[str, tuple[int, int]] = {}
    for record in evidence.requests(cell):
        for name, passed in record.judged.items():
            good, of = checks.get(name, (0, 0))
            checks[name] = (good + passed, of + 1)
    return {
        "equal": made.equal if made else 0,
        "diverged": len(made.diverged) if made else 0,
        "missing": made.missing if made else (),
        "checks": dict(sorted(checks.items())),
    }


def _beside_none(evidence: Evidence, cell: Cell) -> dict[str, Any]:
    """Speed over ``none``; where an output is another, ratios of rate and length instead."""
    what = "throughput" if evidence.of_throughput(cell) else "total time"
    if cell.condition == NONE:
        return {
            "speed": None,
            "speed_of": what,
            "rate_ratio": None,
            "length_ratio": None,
            "memory_added_bytes": None,
        }
    other = list(_unequal(evidence, cell))
    added = memory_gate(evidence, cell).values.get("added_bytes")
    return {
        "speed": speed(evidence, cell),
        "speed_of": what,
        "rate_ratio": define.figure(define.rate_ratio(a, b) for a, b in other),
        "length_ratio": define.figure(define.length_ratio(a, b) for a, b in other),
        "memory_added_bytes": None if added is None else int(added),
    }


def _unequal(evidence: Evidence, cell: Cell) -> Iterator[tuple[RequestRecord, RequestRecord]]:
    rule = evidence.manifest.plan.rules.comparison
    for before, after in evidence.pairs(cell):
        kept = by_occurrence(before.requests)
        for key, record in by_occurrence(after.requests).items():
            none = kept.get(key)
            if none is None or none.error or record.error:
                continue
            if output_of(none, rule) != output_of(record, rule):
                yield none, record


def _noise(evidence: Evidence, cell: Cell) -> dict[str, Any]:
    noise, rules = spread_of(evidence, cell), evidence.manifest.plan.rules
    if noise is None:
        empty = {"sigma": None, "sigma_source": "", "pairs_needed": None, "pairs_to_plan": None}
        return dict(empty)
    return {
        "sigma": noise.sigma,
        "sigma_source": f"{noise.differences} differences of {noise.source}",
        "pairs_needed": needed(evidence, cell),
        "pairs_to_plan": pairs_to_plan(noise.sigma, rules.margin, rules.confidence),
    }


def moments_of(evidence: Evidence, lines: Iterable[Line]) -> tuple[shown.Moment, ...]:
    """Every block that ended, in the order of the records; of what is there twice the last."""
    records = {(x.block, x.attempt): x for x in lines if isinstance(x, BlockRecord)}
    totals = dict(_totals_of_none(evidence))
    return tuple(
        shown.Moment(
            block=x.block,
            attempt=x.attempt,
            runtime=x.runtime,
            condition=x.condition,
            stratum=x.stratum,
            stage=x.stage,
            slots=x.slots,
            outcome=x.outcome,
            reason=x.reason,
            elapsed_s=x.elapsed_s,
            total_s=totals.get(key),
            probe_s=x.probe_s,
            drift=x.drift,
            other_load=x.other_load,
        )
        for key, x in records.items()
    )


def _totals_of_none(evidence: Evidence) -> Iterator[tuple[tuple[int, int], float]]:
    for cell in evidence.cells:
        if cell.condition == NONE and cell.stage == GREEDY and not evidence.of_throughput(cell):
            measure = block_measure(evidence, cell)
            for block in evidence.blocks(cell):
                if (seconds := measure(block)) is not None:
                    yield (block.record.block, block.record.attempt), seconds
