"""What ``bench speculate`` prints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from slipstream.cli.output import table, wrapped

if TYPE_CHECKING:
    from slipstream.measure.balance import Balance
    from slipstream.measure.speculation_summary import Phases, Summary
    from slipstream.measure.statistics import Ratio

_HEADER = [
    "workload",
    "prompts",
    "tok/s off",
    "tok/s on",
    "speed-up [95 %]",
    "drafted",
    "accepted",
    "tok/pass",
    "identical",
]
_SHOWN_POSITIONS = 8


def print_method(model: str, summaries: Sequence[Summary]) -> None:
    """The table of one method, cold or warm; its last line is of everything."""
    whole = summaries[-1]
    memory = "cold drafter" if whole.memory == "cold" else "WARM drafter (the request repeated)"
    heading = f"{model}, greedy, one request at a time, {memory}: off, and {whole.method}"
    print(wrapped(f"{heading}, interleaved"))
    print(table(_HEADER, [_line(summary) for summary in summaries]))
    for line in _details(whole):
        print(wrapped(line))


def print_each(model: str, prompts: Sequence[Summary]) -> None:
    """A line per prompt."""
    header = ["prompt", *_HEADER[2:]]
    print(wrapped(f"{model}, {prompts[0].method}, {prompts[0].memory}, prompt by prompt"))
    print(table(header, [[s.name, *_line(s)[2:]] for s in prompts]))


def print_notes(summaries: Sequence[Summary]) -> None:
    """What was left out, drift, and how to read the columns.

    Args:
        summaries: the lines of one method; the last is of everything.
    """
    for prompt, reason in summaries[-1].degenerate.items():
        print(wrapped(f"left out of the figures: {prompt} ({reason})"))
    print(wrapped(_drift_line(summaries[:-1])))
    print("speed-up: median over pairs of the same prompt; tok/s without the first token")


def _drift_line(workloads: Sequence[Summary]) -> str:
    """Whether the machine changed within a workload: between them the prompts differ too."""
    drifting = [summary for summary in workloads if summary.drifting]
    if not drifting:
        return "drift: none beyond the noise"
    shown = ", ".join(f"{s.name} {100 * s.drift_change:+.0f} %" for s in drifting)
    return f"drift: the plain time of a token changed during a workload ({shown}): measure again"


def _details(whole: Summary) -> list[str]:
    lines = [
        _phase_line("off", whole.plain_phases),
        _phase_line("on", whole.phases),
        _acceptance_line(whole),
        _balance_line(whole.balance),
    ]
    return [line for line in lines if line]


def _phase_line(name: str, phases: Phases) -> str:
    if not phases.tokens:
        return ""
    parts = {
        "draft": phases.draft_s,
        "verify": phases.verify_s,
        "sample": phases.sample_s,
        "commit": phases.commit_s,
        "other": phases.other_s,
    }
    each = 1e3 / phases.tokens
    shown = ", ".join(f"{part} {seconds * each:.2f}" for part, seconds in parts.items())
    return f"ms per token, {name}: {sum(parts.values()) * each:.2f} ({shown})"


def _acceptance_line(whole: Summary) -> str:
    if not whole.positions:
        return ""
    shown = ", ".join(
        f"{100 * p.accepted / p.reached:.0f}% of {p.reached}"
        for p in whole.positions[:_SHOWN_POSITIONS]
    )
    more = ", .." if len(whole.positions) > _SHOWN_POSITIONS else ""
    return f"accepted at position 1, 2, .. of the drafts that reached it: {shown}{more}"


def _balance_line(balance: Balance | None) -> str:
    if balance is None:
        return ""
    shares = [
        f"{100 * seconds / balance.plain_s:.1f} %"
        for seconds in (
            balance.draft_s,
            balance.extra_rows_s,
            balance.bookkeeping_s,
            balance.saved_s,
        )
    ]
    sums = "draft {} + extra rows {} + bookkeeping {} - saved {}".format(*shares)
    return f"balance: {100 * balance.net_share:+.1f} % of plain time ({sums})"


def _number(value: float | None, digits: int = 1) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def speed_up(ratio: Ratio | None) -> str:
    """With its interval, where there are pairs enough for one."""
    from slipstream.measure.speculation_summary import FEWEST_PAIRS

    if ratio is None:
        return "-"
    if ratio.pairs < FEWEST_PAIRS:
        return f"{ratio.median:.2f} ({ratio.pairs} pair{'s' * (ratio.pairs != 1)})"
    return f"{ratio.median:.2f} [{ratio.low:.2f}, {ratio.high:.2f}]"


def _line(s: Summary) -> list[object]:
    fit = s.prompts - len(s.degenerate)
    return [
        s.name,
        f"{fit}" if fit == s.prompts else f"{fit}/{s.prompts}",
        _number(s.plain_tok_s),
        _number(s.tok_s),
        speed_up(s.speed_up),
        s.drafted,
        s.accepted,
        _number(s.tokens_per_pass, 2),
        "yes" if s.identical else "NO",
    ]
