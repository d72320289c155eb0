"""A trace, read as a stream: every statistic again, what drafts cost and saved, another policy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slipstream.drafters.base import GRAMMAR
from slipstream.engine.trace_file import read_trace
from slipstream.engine.trace_format import End, EngineRecord, Header, RoundRecord
from slipstream.errors import TraceError
from slipstream.measure.trace_passes import Pass, passes
from slipstream.measure.trace_policies import PolicyMaker
from slipstream.measure.trace_replay import DrafterTimes, Outputs, Replay
from slipstream.measure.trace_tally import DrafterTally, RequestTally, count_drafters
from slipstream.measure.trace_times import Balance, RowTimes, TimeFit

MOST_REQUESTS = 100_000
MOST_ENGINES = 1_000


@dataclass
class EngineReport:
    """Requests under one set of speculation options.

    Attributes:
        drafters: drafter -> what it did.
        balance: of its decoding passes; empty without drafters or times.
    """

    record: EngineRecord
    drafters: dict[str, DrafterTally] = field(default_factory=dict)
    balance: Balance = field(default_factory=Balance)

    def merge(self, other: EngineReport) -> None:
        for name, tally in other.drafters.items():
            self.drafters.setdefault(name, DrafterTally()).merge(tally)
        self.balance.merge(other.balance)


@dataclass
class TraceReport:
    """
    Attributes:
        requests: sequence -> its counts.
        balances: sequence -> whether its drafts paid.
        times: t(rows) of the trace, or None without a pass to fit it to.
        replay: of another policy, if one was asked for.
    """

    header: Header
    engines: dict[int, EngineReport] = field(default_factory=dict)
    requests: dict[int, RequestTally] = field(default_factory=dict)
    balances: dict[int, Balance] = field(default_factory=dict)
    times: RowTimes | None = None
    replay: Replay | None = None

    @property
    def equal(self) -> bool | None:
        """Whether every recorded summary is what its rounds say; None = there is no summary."""
        if any(request.differences() for request in self.requests.values()):
            return False
        return True if any(r.end is not None for r in self.requests.values()) else None


def read_report(path: str | Path, policy: PolicyMaker | None = None) -> TraceReport:
    """Read a trace twice: its counts and times, then what follows from the times.

    Raises:
        TraceError: see ``read_trace``; or it holds too many requests.
        OptionError: the policy refuses its argument.
    """
    reading = _Reading()
    for item in passes(read_trace(path)):
        reading.count(item)
    report = reading.finished()
    if report.times is not None:
        outputs, drafter_times = reading.outputs, reading.drafter_times
        if policy is not None:
            report.replay = Replay(policy, report.times, drafter_times, outputs)
        for item in passes(read_trace(path)):
            _judge(report, report.times, item)
    return report


class _Reading:
    """The first reading."""

    def __init__(self) -> None:
        self.report: TraceReport | None = None
        self.outputs = Outputs()
        self.drafter_times = DrafterTimes()
        self._fit = TimeFit()

    def count(self, item: Header | EngineRecord | End | Pass) -> None:
        if isinstance(item, Header):
            self.report = TraceReport(item)
            return
        assert self.report is not None, "a trace begins with its header"
        if isinstance(item, EngineRecord):
            self.report.engines[item.engine] = EngineReport(item)
            _at_most(MOST_ENGINES, len(self.report.engines), "engines")
        elif isinstance(item, End):
            self._end(item)
        else:
            drafting = bool(self.report.engines[item.first.engine].record.drafters)
            self._fit.add(item, drafting=drafting)
            for record in item.rounds:
                self._round(record)

    def _request(self, engine: int, sequence: int) -> RequestTally:
        assert self.report is not None
        if sequence not in self.report.requests:
            drafters = self.report.engines[engine].record.drafters
            self.report.requests[sequence] = RequestTally(engine, sequence, drafters)
            _at_most(MOST_REQUESTS, len(self.report.requests), "requests")
        request = self.report.requests[sequence]
        if request.engine != engine or request.end is not None:
            raise TraceError(
                "sequence ids that one request has", f"{sequence} again", "Trace again."
            )
        return request

    def _round(self, record: RoundRecord) -> None:
        assert self.report is not None
        self._request(record.engine, record.sequence).add(record)
        count_drafters(self.report.engines[record.engine].drafters, record)
        self.outputs.add(record)
        self.drafter_times.add(record)

    def _end(self, record: End) -> None:
        self._request(record.engine, record.sequence).end = record

    def finished(self) -> TraceReport:
        assert self.report is not None
        self.report.times = self._fit.times()
        return self.report


def _at_most(most: int, count: int, what: str) -> None:
    if count > most:
        raise TraceError(f"a trace of at most {most} {what}", "more", "Split the trace.")


def _judge(report: TraceReport, times: RowTimes, item: Header | EngineRecord | End | Pass) -> None:
    """The second reading."""
    if isinstance(item, End) and report.replay is not None:
        report.replay.close(item.engine, item.sequence)
    if not isinstance(item, Pass):
        return
    engine = report.engines[item.first.engine]
    if engine.record.drafters and times.settle_s is not None:
        engine.balance.add(item, times)
        for record in item.decoding:
            balance = report.balances.setdefault(record.sequence, Balance())
            balance.add(item, times, 1 / len(item.decoding))
    if report.replay is not None and engine.record.drafters:
        dictated = any(asked.method == GRAMMAR for r in item.rounds for asked in r.asked)
        first = (GRAMMAR,) if dictated else ()
        report.replay.add(item, (*first, *engine.record.drafters))


def conditions(report: TraceReport) -> dict[str, EngineReport]:
    """Engines of the same options joined, by their drafters; a number tells further options."""
    joined: dict[tuple[object, ...], EngineReport] = {}
    for engine in report.engines.values():
        record = engine.record
        key = (record.drafters, record.verifier, repr(record.options))
        joined.setdefault(key, EngineReport(record)).merge(engine)
    named: dict[str, EngineReport] = {}
    for made in joined.values():
        name = ",".join(made.record.drafters) or "none"
        same = sum(other.record.drafters == made.record.drafters for other in named.values())
        named[f"{name} #{same + 1}" if same else name] = made
    return named


def unfinished(report: TraceReport) -> Iterator[int]:
    """Sequences whose end the trace lacks."""
    return (s for s, request in report.requests.items() if request.end is None)


def report_mapping(report: TraceReport) -> dict[str, Any]:
    """Plain values, for JSON."""
    requests = [
        {
            "sequence": request.sequence,
            "engine": request.engine,
            "finish_reason": request.end and request.end.finish_reason,
            "differences": request.differences(),
            "recomputed": request.recomputed(),
            "recorded": request.end and request.end.summary,
            "seconds": dict(request.seconds),
            "balance": _balance(report.balances.get(request.sequence)),
        }
        for request in report.requests.values()
    ]
    joined = [
        {
            "name": name,
            "methods": list(condition.record.drafters),
            "verifier": condition.record.verifier,
            "options": condition.record.options,
            "drafters": {name: tally.to_mapping() for name, tally in condition.drafters.items()},
            "balance": _balance(condition.balance),
        }
        for name, condition in conditions(report).items()
    ]
    return {
        "equal": report.equal,
        "requests": requests,
        "conditions": joined,
        "row_times": report.times and {str(r): s for r, s in report.times.base.items()},
        "context_slope_s": report.times and report.times.slope,
        "replay": report.replay and report.replay.to_mapping(),
    }


def _balance(balance: Balance | None) -> dict[str, float | int | None] | None:
    return balance.to_mapping() if balance is not None and balance.passes else None
