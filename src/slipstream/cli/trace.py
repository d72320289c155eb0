"""slipstream trace"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from slipstream.cli.output import add_json, print_json, printable, table

if TYPE_CHECKING:
    from slipstream.engine.trace_format import Header
    from slipstream.measure.balance import Balance
    from slipstream.measure.trace_tally import DrafterTally, RequestTally
    from slipstream.measure.traces import Condition, TraceReport

SHOWN_REQUESTS = 40
SHOWN_POSITIONS = 8
_REQUESTS = [
    *("request", "drafters", "start", "tokens", "passes", "drafted", "tested", "accepted"),
    *("tok/pass", "tok/s", "balance", "equal"),
]
_DRAFTERS = [
    *("drafter", "asked", "proposed", "verified", "accepted", "of verified", "ms"),
    "accepted / drafts that reached position 1, 2, ..",
]


def add_trace(parser: argparse.ArgumentParser) -> None:
    """The flag of verbs that generate."""
    parser.add_argument(
        "--trace", metavar="FILE", help="write every round, one JSON line each (`slipstream trace`)"
    )


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="written by --trace")
    parser.add_argument(
        "--policy", metavar="NAME", help="replay another policy: off, fixed:N, doubling or auto"
    )
    add_json(parser)
    parser.epilog = "Exit code 1: a recorded summary is not what its rounds say, or there is none."


def execute(arguments: argparse.Namespace) -> int:
    from slipstream.measure.trace_policies import policy_maker
    from slipstream.measure.traces import read_report, report_mapping

    policy = None if arguments.policy is None else policy_maker(arguments.policy)
    report = read_report(arguments.file, policy)
    for line in _lines(report, arguments.policy):
        print(printable(line))
    if arguments.json:
        print_json({"file": arguments.file, **_head(report.header), **report_mapping(report)})
    return 0 if report.equal else 1


def _head(header: Header) -> dict[str, object]:
    names = "version model sha256 backend isa precision kv_type threads options"
    return {name: getattr(header, name) for name in names.split()}


def _lines(report: TraceReport, policy: str | None) -> list[str]:
    from slipstream.measure.traces import conditions

    header = report.header
    threads = "" if header.threads is None else f", {header.threads} threads"
    lines = [
        f"{header.model} ({header.backend} {header.isa}{threads}), trace format {header.version}",
        "",
    ]
    requests = list(report.requests.values())[:SHOWN_REQUESTS]
    lines.append(table(_REQUESTS, [_request(report, request) for request in requests], text=3))
    if len(requests) < len(report.requests):
        lines.append(f"and {len(report.requests) - len(requests)} more requests (--json has all)")
    joined = conditions(report)
    drafters = [
        _drafter(name, condition, tally)
        for condition in joined
        for name, tally in condition.drafters.items()
    ]
    if drafters:
        lines += ["", table(_DRAFTERS, drafters)]
    lines += ["", *_balance_lines(joined)]
    if policy is not None:
        lines += _replay_lines(joined, policy)
    return [*lines, *_verdict(report)]


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _request(report: TraceReport, request: RequestTally) -> list[object]:
    found = request.recomputed()
    balance = report.balances.get(request.sequence)
    percent = None if balance is None or not balance.passes else balance.cost_percent
    equal = "no end" if request.end is None else "NO" if request.differences() else "yes"
    return [
        request.sequence,
        ",".join(request.drafters) or "none",
        "-" if request.memory == "unknown" else request.memory,
        request.emitted,
        request.rounds,
        request.drafted,
        request.tested,
        request.accepted,
        _number(found["tokens_per_pass"], 2),
        _number(found.get("decode_tok_s"), 1),
        "-" if percent is None else f"{percent:+.1f} %",
        equal,
    ]


def _drafter(name: str, condition: Condition, tally: DrafterTally) -> list[object]:
    of = "" if condition.name == name else f" of {condition.name}"
    rate = tally.accepted / tally.verified if tally.verified else None
    positions = [
        f"{tally.accepted_at[depth]}/{tally.reached[depth]}"
        for depth in sorted(tally.reached)[:SHOWN_POSITIONS]
    ]
    more = ".." if len(tally.reached) > SHOWN_POSITIONS else ""
    return [
        f"{name}{of}, {condition.memory}",
        tally.asked,
        tally.proposed,
        tally.verified,
        tally.accepted,
        "-" if rate is None else f"{100 * rate:.0f} %",
        f"{1e3 * tally.seconds:.1f}",
        " ".join([*positions, more]).strip() or "-",
    ]


def _balance_lines(joined: Sequence[Condition]) -> list[str]:
    lines = [
        _balance_line(condition.title, condition.balance)
        for condition in joined
        if condition.balance.passes
    ]
    if not lines and any(condition.record.drafters for condition in joined):
        return ["balance: not measurable, no decoding pass without drafts was traced"]
    return lines


def _balance_line(name: str, balance: Balance) -> str:
    left_out = (
        f"; {balance.left_out} rounds beside prompt rows left out" if balance.left_out else ""
    )
    return (
        f"balance of {name}: drafting {balance.draft_s:.3f} s + extra rows "
        f"{balance.extra_rows_s:.3f} s + bookkeeping {balance.bookkeeping_s:.3f} s - saved "
        f"{balance.saved_s:.3f} s = {_number(balance.cost_percent, 2)} % of the plain time "
        f"{balance.plain_s:.3f} s{left_out}"
    )


def _replay_lines(joined: Sequence[Condition], policy: str) -> list[str]:
    """A line per condition of which decoding passes with drafters were traced."""
    lines = []
    for condition in joined:
        made = condition.outcome
        if made.tok_s is not None and made.recorded_tok_s is not None:
            lines.append(
                f"policy {policy}, {condition.title}: {made.tok_s:.1f} tokens/s estimated, "
                f"{made.recorded_tok_s:.1f} recorded (x{made.tok_s / made.recorded_tok_s:.2f}); "
                f"censored {made.censored} of {made.rounds} rounds, where it wanted more than was "
                "recorded"
            )
    none = f"policy {policy}: not measurable, no decoding pass with drafters was traced"
    return lines or [none]


def _verdict(report: TraceReport) -> list[str]:
    from slipstream.measure.traces import unfinished

    lines = [
        f"request {request.sequence}: {difference}"
        for request in report.requests.values()
        for difference in request.differences()
    ][:SHOWN_REQUESTS]
    open_ones = list(unfinished(report))
    if open_ones:
        lines.append(f"without an end, so not compared: {len(open_ones)} requests")
    words = {
        True: "statistics: every recorded summary equals its rounds",
        False: "statistics: NOT EQUAL to the rounds",
        None: "statistics: no summary to compare",
    }
    return [*lines, words[report.equal]]
