"""slipstream lab gate"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slipstream.cli.output import add_json, print_json, printable, wrapped

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from slipstream.lab.judging.verdict import Verdict
    from slipstream.lab.running.analysis_reach import Progress

ADOPT, NOT_REJECT = "adopt", "not-reject"
NOTHING_JUDGED = (
    "failed: 0 verdicts, as the plan has no condition beside `none`. The run tells how `none` does "
    "and compares it with nothing; add a condition to the plan, or let `lab init` write one."
)
_FIELDS = {
    "workload": "stratum",
    "condition": "condition",
    "runtime": "runtime",
    "concurrency": "slots",
}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="FOLDER", help="of a run")
    for name, about in (
        ("workload", "only this one"),
        ("condition", "only this one"),
        ("runtime", "only this one of several programs"),
    ):
        parser.add_argument(f"--{name}", metavar=name.upper(), help=about)
    parser.add_argument("--concurrency", metavar="N", type=int, help="only at so many at a time")
    parser.add_argument(
        "--require",
        choices=(ADOPT, NOT_REJECT),
        default=ADOPT,
        help="of every verdict chosen; what was not run is no `adopt`, and not-reject passes it "
        "over as long as something ran [adopt]",
    )
    parser.add_argument(
        "--allow-unfinished",
        action="store_true",
        help="judge what there is of a run that did not come to its end; without it, none passes",
    )
    add_json(parser)


def execute(arguments: argparse.Namespace) -> int:
    from slipstream.cli.lab_verdict_lines import gate_lines, width
    from slipstream.lab.reporting.analysis import verdicts_of
    from slipstream.lab.running.analysis_state import progress_of
    from slipstream.lab.running.kept_run import read_run

    run = read_run(Path(arguments.folder))
    verdicts, open_run = verdicts_of(*run), unfinished(progress_of(*run))
    if not verdicts:
        return _unjudged(arguments)
    chosen = _chosen(verdicts, arguments)
    failing = against(chosen, arguments.require)
    columns = width()
    for verdict in chosen:
        print(printable("\n".join(gate_lines(verdict, columns))))
    part = bool(open_run) and not arguments.allow_unfinished
    told = summary(len(chosen), len(failing), arguments.require, part=part)
    print("\n".join(wrapped(line) for line in (open_run, told) if line))
    if arguments.json:
        made = _record(chosen, failing, arguments.require)
        print_json({**made, "passed": not (failing or part), "unfinished": open_run})
    return 1 if failing or part else 0


def unfinished(made: Progress) -> str:
    """How a run did not come to its end, and how to judge it all the same; empty = it did."""
    if made.state == "complete":
        return ""
    reason = f" ({made.reason})" if made.reason else ""
    counts = f"{made.ended} of {made.blocks} blocks ended, {made.left} are missing"
    return (
        f"unfinished: the run is {made.state}{reason}; {counts}. Its verdicts are those of a part: "
        "no pass without --allow-unfinished"
    )


def _unjudged(arguments: argparse.Namespace) -> int:
    """Nothing was compared, so that nothing holds: no error of whoever asks, and no pass."""
    print(wrapped(NOTHING_JUDGED))
    if arguments.json:
        print_json({**_record((), (), arguments.require), "passed": False, "why": NOTHING_JUDGED})
    return 1


def summary(chosen: int, failing: int, require: str, *, part: bool = False) -> str:
    """
    Args:
        part: the run did not come to its end, and nobody asked for its verdicts all the same.
    """
    wanted = "`adopt`" if require == ADOPT else "anything but `reject`"
    if failing:
        return f"failed: {failing} of {chosen} verdicts are not {wanted}"
    if part:
        return f"failed: the run is unfinished, though {chosen} of {chosen} verdicts are {wanted}"
    return f"passed: {chosen} of {chosen} verdicts are {wanted}"


def _chosen(verdicts: Sequence[Verdict], arguments: argparse.Namespace) -> list[Verdict]:
    """
    Raises:
        OptionError: nothing of the run is what the options name.
    """
    from slipstream.errors import OptionError

    chosen = list(verdicts)
    for option, field in _FIELDS.items():
        wanted = getattr(arguments, option)
        if wanted is None:
            continue
        known = _listed(str(value) for value in dict.fromkeys(getattr(v, field) for v in chosen))
        chosen = [v for v in chosen if getattr(v, field) == wanted]
        if not chosen:
            raise OptionError(f"a {option} among {known}", f"`{wanted}`", f"Correct --{option}.")
    return chosen


def _listed(names: Iterable[str]) -> str:
    """At most 20 of them."""
    known = list(names)
    more = f" and {len(known) - 20} more" if len(known) > 20 else ""
    return ", ".join(known[:20]) + more


def against(chosen: Sequence[Verdict], require: str) -> list[Verdict]:
    """The verdicts that are not as required; of records that were changed none is."""
    from slipstream.lab.judging.findings import CHANGED

    if require == ADOPT:
        return [v for v in chosen if v.word != "adopt"]
    if all(v.word == "not run" for v in chosen):
        return list(chosen)
    return [v for v in chosen if v.word == "reject" or CHANGED in v.findings]


def _record(chosen: Sequence[Verdict], failing: Sequence[Verdict], require: str) -> dict[str, Any]:
    import msgspec

    return {
        "passed": not failing,
        "require": require,
        "verdicts": msgspec.to_builtins(chosen),
        "failing": [[v.runtime, v.stratum, v.condition, v.slots, v.word] for v in failing],
    }
