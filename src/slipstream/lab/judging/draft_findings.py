"""Findings about drafting: whether it happened as asked, and whether its counts can be true."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Final

from slipstream.lab.contract.plan import rows_range_of
from slipstream.lab.contract.records import Counts, FindingRecord, ObservedRecord, RequestRecord
from slipstream.lab.evidence.count_sums import summed
from slipstream.lab.evidence.definitions import rows_per_step
from slipstream.lab.judging.cells import GREEDY, NONE, SAMPLER, Block, Cell, Evidence
from slipstream.lab.judging.clock_findings import impossible_rate
from slipstream.lab.judging.service_findings import finding
from slipstream.lab.judging.shared_pools import draft_scope
from slipstream.lab.judging.step_rows import step_rows, unplaced
from slipstream.lab.observation.counter_text import counter_values, start_time

_ENOUGH_DRAFTED: Final = 100
_NOISE_RATE: Final = 0.05
_Z: Final = 1.96
_MOST_SHORT: Final = 0.25  # of the steps, with fewer rows than the range has
_APART: Final = 64  # positions of a draft that Slipstream counts apart
_FIGURES: Final = (GREEDY, SAMPLER)
_PIECES_OVER: Final = 2  # pieces without a token: the role at the start, the end


def counts_of(evidence: Evidence, cell: Cell) -> Counts:
    """Drafting of all its measured requests; of blocks, where requests do not tell."""
    requests = [r for r in evidence.requests(cell) if not r.error]
    made = summed(r.counts for r in requests)
    if made.drafted is None:
        made = summed(b.record.counts for b in evidence.blocks(cell))
    return made


def _drafting(evidence: Evidence) -> Iterator[Cell]:
    return (cell for cell in evidence.cells if cell.condition != NONE)


def never_fired(evidence: Evidence) -> Iterator[FindingRecord]:
    """Not one token was drafted: whatever the time shows is noise."""
    for cell in _drafting(evidence):
        requests = sum(1 for _ in evidence.requests(cell))
        if requests and counts_of(evidence, cell).drafted == 0:
            yield finding(
                evidence, cell, "never-fired", f"nothing was drafted in {requests} requests"
            )


def _upper_rate(accepted: int, drafted: int) -> float:
    """Upper end of Wilson's 95 % interval (Wilson 1927)."""
    p, z2 = accepted / drafted, _Z * _Z
    half = _Z * math.sqrt(p * (1 - p) / drafted + z2 / (4 * drafted * drafted))
    return (p + z2 / (2 * drafted) + half) / (1 + z2 / drafted)


def drafter_is_noise(evidence: Evidence) -> Iterator[FindingRecord]:
    """Of 100 drafted tokens and more, surely under 5 % are accepted."""
    for cell in _drafting(evidence):
        counts = counts_of(evidence, cell)
        drafted, accepted = counts.drafted or 0, counts.accepted
        if drafted < _ENOUGH_DRAFTED or accepted is None or not 0 <= accepted <= drafted:
            continue
        if _upper_rate(accepted, drafted) < _NOISE_RATE:
            text = f"{accepted} of {drafted} drafted tokens were accepted"
            yield finding(evidence, cell, "drafter-is-noise", text)


def flag_ignored(evidence: Evidence) -> Iterator[FindingRecord]:
    """What ran is not what was asked for: as the program says, or as its behaviour shows."""
    for told in evidence.observed:
        if told.differs:
            cell = Cell(told.runtime, told.condition, "", 0)
            yield finding(evidence, cell, "flag-ignored", _differences(told))
    for cell in evidence.cells:
        text = _behaviour(evidence, cell)
        if text:
            yield finding(evidence, cell, "flag-ignored", text)


def _differences(told: ObservedRecord) -> str:
    pairs = sorted(told.differs.items())
    return "; ".join(f"{name}: asked {a}, in effect {b}" for name, (a, b) in pairs)[:400]


def _behaviour(evidence: Evidence, cell: Cell) -> str:
    counts = counts_of(evidence, cell)
    if cell.condition == NONE:
        if counts.drafted is not None and counts.drafted > 0:
            return f"{counts.drafted} tokens were drafted under none"
        return _length(evidence, cell)
    method, rows = evidence.method(cell), rows_per_step(counts)
    most = None if method is None else method.most_proposed
    if isinstance(most, int) and rows is not None and rows > most + 1 + 1e-9:
        return f"{rows - 1:.2f} tokens drafted per step, where at most {most} were asked for"
    return _length(evidence, cell)


def _length(evidence: Evidence, cell: Cell) -> str:
    limits = {p.id: p.max_tokens for p in evidence.manifest.prompts}
    for record in evidence.requests(cell):
        limit, tokens = limits.get(record.prompt), record.output_tokens
        if limit is not None and tokens is not None and tokens > limit:
            return f"{record.prompt} gave {tokens} tokens, where at most {limit} were asked for"
    return ""


def flag_unknown(evidence: Evidence) -> Iterator[FindingRecord]:
    """A flag that the program's help does not have: known before anything ran."""
    for method in evidence.manifest.methods:
        if re.search(r"(?<![\w-])--?[a-z][\w-]*", method.not_run) and "help" in method.not_run:
            cell = Cell(method.runtime, method.condition, "", 0)
            yield finding(evidence, cell, "flag-unknown", method.not_run, stops=True)


def counts_disagree(evidence: Evidence) -> Iterator[FindingRecord]:
    """Counts that contradict each other or the output; a rate that no late client explains."""
    for cell in evidence.cells:
        text = next(_contradictions(evidence, cell), "")
        if text:
            yield finding(evidence, cell, "counts-disagree", text)


def _contradictions(evidence: Evidence, cell: Cell) -> Iterator[str]:
    for block in evidence.blocks(cell):
        for record in block.requests:
            if not record.error:
                texts = (*impossible(record.counts), *_against_output(record))
                yield from (f"{record.prompt}: {text}" for text in texts)
        number = block.record.block
        yield from (f"block {number}: {text}" for text in impossible(block.record.counts))
        yield from _against_counters(block)


def impossible(counts: Counts) -> Iterator[str]:
    """What cannot be true of any drafting; negative differences are ``counters_reset``'s."""
    drafted, accepted, steps = counts.drafted, counts.accepted, counts.steps
    if accepted is not None and drafted is not None and 0 <= drafted < accepted:
        yield f"{accepted} tokens accepted of {drafted} drafted"
    if steps == 0 and drafted is not None and drafted > 0:
        yield f"{drafted} tokens drafted in no step"
    # a server may count the deepest positions together
    pairs = enumerate(zip(counts.accepted_at[:_APART], counts.reached_at, strict=False), 1)
    yield from (
        f"{one} accepted at position {i} of {two} that reached it"
        for i, (one, two) in pairs
        if one > two
    )
    total = sum(counts.accepted_at)
    if counts.accepted_at and accepted is not None and total != accepted:
        yield f"{accepted} tokens accepted, {total} by position"


def _against_output(record: RequestRecord) -> Iterator[str]:
    tokens, accepted = record.output_tokens, record.counts.accepted
    pieces = len(record.token_times_s)
    if tokens is None:
        return
    if pieces > tokens + _PIECES_OVER:
        yield f"{pieces} pieces streamed of {tokens} tokens"
    steps = record.counts.steps
    if accepted is not None and steps is not None and tokens > 0 and steps > tokens:
        yield f"{steps} verification steps for {tokens} tokens"
    if text := impossible_rate(record):
        yield text


def _against_counters(block: Block) -> Iterator[str]:
    """Requests' own counts against the differences of the counters, warm-up in or out."""
    counters, requests = block.record.counts, [r for r in block.requests if not r.error]
    own = [r.counts for r in requests]
    if counters.source != "counters" or any(c.source != "request" for c in own) or not own:
        return
    if len(requests) != len(block.requests):
        return
    for name in ("drafted", "accepted"):
        window, told = getattr(counters, name), getattr(summed(own), name)
        if window is not None and told is not None and 0 <= window < told:
            yield f"block {block.record.block}: {told} {name} by the requests, {window} by counters"


def counters_reset(evidence: Evidence) -> Iterator[FindingRecord]:
    """Counters that went back within a block: the process began anew, or counts nothing."""
    for cell in evidence.cells:
        for block in evidence.attempts(cell):
            text = _reset(block)
            if text:
                yield finding(
                    evidence, cell, "counters-reset", f"block {block.record.block}: {text}"
                )
                break


def _reset(block: Block) -> str:
    counts = block.record.counts
    for name in ("drafted", "accepted", "steps"):
        value = getattr(counts, name)
        if value is not None and value < 0:
            return f"{name} changed by {value}"
    before, after = (
        counter_values(text) for text in (block.record.metrics_before, block.record.metrics_after)
    )
    for name, value in before.items():
        if name in after and after[name] < value:
            return f"{name} fell from {value:g} to {after[name]:g}"
    begun = [start_time(text) for text in (block.record.metrics_before, block.record.metrics_after)]
    if None not in begun and begun[0] != begun[1]:
        return "the process began anew"
    return ""


def rows_left_range(evidence: Evidence) -> Iterator[FindingRecord]:
    """Rows of a verification step outside their range (a most of 0 = any): it is rejected."""
    plan = evidence.manifest.plan
    for cell in _drafting(evidence):
        least, most = rows_range_of(plan, cell.condition)
        rows = rows_per_step(counts_of(evidence, cell)) if (least, most) != (0, 0) else None
        if rows is not None and not (least <= rows and (rows <= most or not most)):
            text = f"{rows:.2f} rows per step (a mean), asked for {least} to {most or 'any'}"
            yield finding(evidence, cell, "rows-left-range", text, stops=True)
        told = step_rows(evidence, evidence.blocks(cell)) if cell.stage in _FIGURES else None
        if told is not None and (text := _outside(told.histogram, least, most)):
            text += ", warm-up included" if told.warm_up else ""
            yield finding(evidence, cell, "rows-left-range", text, stops=True)
    yield from _unplaced_left_range(evidence)


def _unplaced_left_range(evidence: Evidence) -> Iterator[FindingRecord]:
    """By what processes of unknown blocks told, each judged by itself: it reaches all of them."""
    for runtime, condition in dict.fromkeys((o.runtime, o.condition) for o in evidence.observed):
        least, most = rows_range_of(evidence.manifest.plan, condition)
        for histogram in unplaced(evidence, runtime, condition) if condition != NONE else ():
            if text := _outside(histogram, least, most):
                cell = Cell(runtime, condition, "", 0)
                text += " (a process of an unknown block, warm-up included)"
                yield finding(evidence, cell, "rows-left-range", text, stops=True)


def _outside(histogram: Mapping[str, int], least: int, most: int) -> str:
    """Rows of steps that verified something and lie outside; a step of one row verifies nothing.

    An output's last drafts are cut by what it may still be, so some shorter ones are no fault.
    """
    if (least, most) == (0, 0):
        return ""
    counted = {int(r): n for r, n in histogram.items() if n > 0 and r.isdigit()}
    steps = {rows: n for rows, n in counted.items() if rows > 1}
    short = sum(n for rows, n in steps.items() if rows < least)
    few = short <= _MOST_SHORT * sum(steps.values())
    outside = sorted(r for r in steps if (r < least and not few) or (most and r > most))
    text = f"steps of {', '.join(map(str, outside))} rows"[:300]
    return f"{text}, asked for {least} to {most or 'any'}" if outside else ""


def shared_pool(evidence: Evidence) -> Iterator[FindingRecord]:
    """A drafter whose memory reaches from one tenant's requests to another's."""
    for runtime, condition in dict.fromkeys((c.runtime, c.condition) for c in evidence.cells):
        cell = Cell(runtime, condition, "", 0)
        scope, why = draft_scope(evidence, cell)
        if scope == "shared":
            yield finding(evidence, cell, "shared-pool", why)
