"""A trace, read as a stream: every statistic again, what drafts cost and saved, another policy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slipstream.engine.trace_file import read_trace
from slipstream.engine.trace_format import End, EngineRecord, Header, RoundRecord
from slipstream.engine.tracing import recorded_decision
from slipstream.errors import TraceError
from slipstream.measure.balance import (
    ENOUGH,
    Balance,
    Reference,
    ReferenceFit,
    parts_of_pass,
    reference_of,
)
from slipstream.measure.replay import DrafterTimes, Outputs
from slipstream.measure.trace_passes import Pass, passes
from slipstream.measure.trace_policies import PolicyMaker
from slipstream.measure.trace_replay import Outcome, Replay
from slipstream.measure.trace_tally import DrafterTally, Memory, RequestTally
from slipstream.measure.trace_times import RowTimes, TimeFit

MOST_REQUESTS = 100_000
MOST_ENGINES = 1_000

Drafters = tuple[str, ...]


@dataclass
class TraceReport:
    """
    Attributes:
        engines: number -> its record.
        requests: sequence -> its counts.
        balances: sequence -> what its drafts cost and saved; none without drafters or a reference.
        times: t(rows) of the trace, or None without a pass to fit it to.
        reference: what passes without drafts took, or None where there were none.
        replay: of another policy, if one was asked for, and what came of it by engine, memory and
            drafters of the request.
    """

    header: Header
    engines: dict[int, EngineRecord] = field(default_factory=dict)
    requests: dict[int, RequestTally] = field(default_factory=dict)
    balances: dict[int, Balance] = field(default_factory=dict)
    times: RowTimes | None = None
    reference: Reference | None = None
    replay: Replay | None = None
    outcomes: dict[tuple[int, Memory, Drafters], Outcome] = field(default_factory=dict)

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
        if policy is not None:
            outputs, drafter_times = reading.outputs, reading.drafter_times
            report.replay = Replay(policy, report.times, drafter_times, outputs)
        for item in passes(read_trace(path)):
            _judge(report, item)
    return report


class _Reading:
    """The first reading."""

    def __init__(self) -> None:
        self.report: TraceReport | None = None
        self.outputs = Outputs()
        self.drafter_times = DrafterTimes()
        self._fit = TimeFit()
        self._plain, self._own = ReferenceFit(), ReferenceFit()

    def count(self, item: Header | EngineRecord | End | Pass) -> None:
        if isinstance(item, Header):
            self.report = TraceReport(item)
            return
        assert self.report is not None, "a trace begins with its header"
        if isinstance(item, EngineRecord):
            self.report.engines[item.engine] = item
            _at_most(MOST_ENGINES, len(self.report.engines), "engines")
        elif isinstance(item, End):
            self._end(item)
        else:
            self._pass(item, drafting=bool(self.report.engines[item.first.engine].drafters))

    def _pass(self, made: Pass, *, drafting: bool) -> None:
        self._fit.add(made, drafting=drafting)
        for _, part in parts_of_pass(made):
            (self._own if drafting else self._plain).add(part)
            break  # the parts of a pass differ in what they had of it, not in what it took
        for record in made.rounds:
            self._round(record)

    def _request(self, engine: int, sequence: int) -> RequestTally:
        assert self.report is not None
        if sequence not in self.report.requests:
            drafters = self.report.engines[engine].drafters
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
        self.outputs.add(record.sequence, record.sampled)
        self.drafter_times.add(recorded_decision(record).proposals)

    def _end(self, record: End) -> None:
        self._request(record.engine, record.sequence).close(record)

    def finished(self) -> TraceReport:
        assert self.report is not None
        times = self.report.times = self._fit.times()
        self.report.reference = reference_of(self._plain, self._own, least=ENOUGH, beyond=times)
        return self.report


def _at_most(most: int, count: int, what: str) -> None:
    if count > most:
        raise TraceError(f"a trace of at most {most} {what}", "more", "Split the trace.")


def _judge(report: TraceReport, item: Header | EngineRecord | End | Pass) -> None:
    """The second reading."""
    if isinstance(item, End) and report.replay is not None:
        report.replay.close(item.engine, item.sequence, private=item.private is True)
    if not isinstance(item, Pass):
        return
    engine = report.engines[item.first.engine]
    if not engine.drafters:
        return
    if report.reference is not None:
        _weigh(report, report.reference, item)
    if report.replay is not None:
        requests = [report.requests[record.sequence] for record in item.decoding]
        keys = [(request.engine, request.memory, request.drafters) for request in requests]
        outcomes = [report.outcomes.setdefault(key, Outcome()) for key in keys]
        report.replay.add(item, engine.drafters, outcomes)


def _weigh(report: TraceReport, reference: Reference, made: Pass) -> None:
    for record in made.decoding:
        if report.requests[record.sequence].drafters:
            report.balances.setdefault(record.sequence, Balance()).left_out += not made.pure
    for record, part in parts_of_pass(made):
        if record.sequence in report.balances:
            report.balances[record.sequence].add(part, reference)


@dataclass
class Condition:
    """Requests under equal speculation options that all started cold, or all warm.

    Attributes:
        name: its drafters; a number tells further options with the same. Requests that chose some
            of an engine's drafters are conditions of their own.
        methods: the drafters at work.
        requests: how many.
        drafters: drafter -> what it did.
        balance: of their rounds; empty without drafters or a reference.
        outcome: of the policy that was replayed over their rounds.
    """

    name: str
    memory: Memory
    record: EngineRecord
    methods: Drafters
    requests: int = 0
    drafters: dict[str, DrafterTally] = field(default_factory=dict)
    balance: Balance = field(default_factory=Balance)
    outcome: Outcome = field(default_factory=Outcome)

    @property
    def title(self) -> str:
        """Its name, and whether its drafters started cold or warm, if it has any."""
        return f"{self.name}, {self.memory}" if self.methods else self.name

    def add(self, request: RequestTally, balance: Balance | None) -> None:
        self.requests += 1
        for name, tally in request.tallies.items():
            self.drafters.setdefault(name, DrafterTally()).merge(tally)
        if balance is not None:
            self.balance.merge(balance)


def conditions(report: TraceReport) -> list[Condition]:
    """Engines of the same options joined; cold and warm requests are never added up."""
    names = _names(report.engines.values())
    joined: dict[tuple[str, Memory], Condition] = {}
    for request in report.requests.values():
        record = report.engines[request.engine]
        key = (_name(names, record, request.drafters), request.memory)
        condition = joined.setdefault(key, Condition(*key, record, request.drafters))
        condition.add(request, report.balances.get(request.sequence))
    for (engine, memory, drafters), outcome in report.outcomes.items():
        name = _name(names, report.engines[engine], drafters)
        joined[name, memory].outcome.merge(outcome)
    return list(joined.values())


def _options(record: EngineRecord) -> tuple[object, ...]:
    return record.drafters, record.verifier, repr(record.options)


def _name(names: Mapping[tuple[object, ...], str], record: EngineRecord, drafters: Drafters) -> str:
    """Of the condition of a request with these drafters of an engine."""
    name = names[_options(record)]
    return name if drafters == record.drafters else f"{','.join(drafters) or 'none'} in {name}"


def _names(records: Iterable[EngineRecord]) -> dict[tuple[object, ...], str]:
    """Options -> name of their condition."""
    names: dict[tuple[object, ...], str] = {}
    same: Counter[str] = Counter()
    for record in records:
        if _options(record) not in names:
            name = ",".join(record.drafters) or "none"
            same[name] += 1
            names[_options(record)] = name if same[name] == 1 else f"{name} #{same[name]}"
    return names


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
            "memory": request.memory,
            "balance": _balance(report.balances.get(request.sequence)),
        }
        for request in report.requests.values()
    ]
    joined = [
        {
            "name": condition.name,
            "memory": condition.memory,
            "requests": condition.requests,
            "methods": list(condition.methods),
            "verifier": condition.record.verifier,
            "options": condition.record.options,
            "drafters": {name: tally.to_mapping() for name, tally in condition.drafters.items()},
            "balance": _balance(condition.balance),
            "replay": condition.outcome.to_mapping() if condition.outcome.rounds else None,
        }
        for condition in conditions(report)
    ]
    return {
        "equal": report.equal,
        "requests": requests,
        "conditions": joined,
        "row_times": report.times and {str(r): s for r, s in report.times.base.items()},
        "context_slope_s": report.times and report.times.slope,
    }


def _balance(balance: Balance | None) -> dict[str, Any] | None:
    return balance.to_mapping() if balance is not None and balance.passes else None
