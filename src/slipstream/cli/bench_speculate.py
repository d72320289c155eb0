"""slipstream bench speculate"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from slipstream.cli.flags import add_flags, options
from slipstream.cli.identity import identity
from slipstream.cli.numbers import whole_number
from slipstream.cli.output import ProgressCallback, add_json, print_json, progress_bar, table
from slipstream.cli.statistics import precision_line
from slipstream.errors import OptionError
from slipstream.options import ModelOptions, SpeculationOptions

if TYPE_CHECKING:
    from slipstream.api import Model
    from slipstream.measure.speculation import Sample, Summary
    from slipstream.measure.statistics import Ratio
    from slipstream.measure.workload import WorkloadPrompt

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
_FEWEST_PAIRS = 6  # of fewer, the bootstrap of a median says little: no interval is shown
_DEFAULT_METHOD = {
    "type": ("ngram-simple",),
    # llama.cpp's 12 and 48 are meant for long contexts; outputs here have at most 256 tokens
    "ngram_simple_size_n": 4,
    "ngram_simple_size_m": 12,
}
_DEFAULT_SHOWN = "`--spec ngram-simple --ngram-simple-size-n 4 --ngram-simple-size-m 12`"


def configure(parser: argparse.ArgumentParser) -> None:
    add_flags(parser, ModelOptions, SpeculationOptions)
    parser.add_argument(
        "--workloads", metavar="DIR", default="workloads", help="folder of workloads [workloads]"
    )
    parser.add_argument("--strata", metavar="NAME,..", help="only these workloads")
    parser.add_argument("--prompts", metavar="N", default="4", help="most prompts of each [4]")
    parser.add_argument("--rounds", metavar="N", default="1", help="rounds per prompt [1]")
    parser.add_argument("--limit", metavar="N", default="256", help="most tokens per output [256]")
    add_json(parser)
    parser.epilog = f"Without --spec it measures {_DEFAULT_SHOWN}."


def execute(arguments: argparse.Namespace) -> int:
    from slipstream.cli.opening import open_model
    from slipstream.measure.speculation import PLAIN, summarise, warm_up

    model_options = options(ModelOptions, arguments)
    method, chosen = _method(arguments)
    plan = _Plan(arguments)
    model = open_model(model_options, quiet=arguments.json)
    groups = plan.read()
    conditions = {PLAIN: {"type": (PLAIN,)}, method: chosen}
    warm_up(model, next(iter(groups.values()))[0])
    with progress_bar("outputs") as progress:
        samples = {name: plan.run(model, groups, name, conditions, progress) for name in groups}
    summaries = [summarise(name, method, group) for name, group in samples.items()]
    every = [sample for group in samples.values() for sample in group]
    summaries.append(_whole(method, every, summaries))
    _print(model_options.model, method, summaries)
    print(precision_line(model.loaded.backend.precision))
    if arguments.json:
        head = {**identity(model_options, model.loaded), "method": method, "options": chosen}
        print_json({**head, "summaries": [asdict(summary) for summary in summaries]})
    return 0 if summaries[-1].identical else 1


def _whole(method: str, samples: list[Sample], strata: list[Summary]) -> Summary:
    """The summary of everything; it drifts if a workload does, for workloads differ anyway."""
    from slipstream.measure.speculation import summarise

    drifting = any(stratum.drifting for stratum in strata)
    worst = max((s.drift_change for s in strata if s.drifting), key=abs, default=0.0)
    made = summarise("all", method, samples)
    return replace(made, drift_change=worst, drifting=drifting)


def _method(arguments: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    """The name of the condition and its options; what the user gave stands.

    Raises:
        OptionError: there is no method to compare with none, an option that it does not read, or
            the output would be invalid.
    """
    from slipstream.verify.choice import require_valid_output

    defaults = {} if arguments.type else _DEFAULT_METHOD
    speculation = options(SpeculationOptions, arguments, defaults)
    if speculation.type == ("none",):
        raise OptionError(
            "a drafting method, to be compared with none", "`--spec none`", "Leave it out."
        )
    require_valid_output(speculation, "compare it with that of plain decoding")
    return ",".join(speculation.type), msgspec.structs.asdict(speculation)


class _Plan:
    """Which prompts run, and how often.

    Args:
        arguments: the verb's own.

    Raises:
        OptionError: a number is out of range, or there is no stratum of that name.
    """

    def __init__(self, arguments: argparse.Namespace) -> None:
        from slipstream.measure.workload import STRATA

        self._directory = Path(arguments.workloads)
        self._strata = tuple(arguments.strata.split(",")) if arguments.strata else STRATA
        unknown = [name for name in self._strata if name not in STRATA]
        if unknown:
            known = f"`--strata` among {', '.join(STRATA)}"
            raise OptionError(known, f"`{unknown[0]}`", "Correct it.")
        self._prompts = whole_number("--prompts", arguments.prompts)
        self._rounds = whole_number("--rounds", arguments.rounds)
        self._limit = whole_number("--limit", arguments.limit)
        self._done = 0

    def read(self) -> dict[str, list[WorkloadPrompt]]:
        from slipstream.measure.workload import read_workloads

        groups = read_workloads(self._directory, self._strata)
        return {name: prompts[: self._prompts] for name, prompts in groups.items()}

    def run(
        self,
        model: Model,
        groups: dict[str, list[WorkloadPrompt]],
        name: str,
        conditions: dict[str, dict[str, Any]],
        progress: ProgressCallback,
    ) -> list[Sample]:
        from slipstream.measure.speculation import run_pairs

        samples = run_pairs(
            model,
            groups[name],
            conditions,
            rounds=self._rounds,
            max_tokens=self._limit,
            reset=model.forget,
        )
        total = sum(map(len, groups.values())) * self._rounds * len(conditions)
        return list(self._counted(samples, total, name, progress))

    def _counted(
        self, samples: Iterator[Sample], total: int, name: str, progress: ProgressCallback
    ) -> Iterator[Sample]:
        progress(self._done, total, name)
        for sample in samples:
            self._done += 1
            progress(self._done, total, name)
            yield sample


def _print(model: str, method: str, summaries: list[Summary]) -> None:
    print(f"{model}, greedy, one request at a time, cold drafter: off, and {method}, interleaved")
    print(table(_HEADER, [_line(summary) for summary in summaries]))
    for prompt, reason in summaries[-1].degenerate.items():
        print(f"left out of the figures: {prompt} ({reason})")
    print(_drift_line(summaries[:-1]))
    print("speed-up: median over pairs of the same prompt; tok/s without the first token")


def _drift_line(strata: list[Summary]) -> str:
    """Whether the machine changed within a workload: between them the prompts differ too."""
    drifting = [summary for summary in strata if summary.drifting]
    if not drifting:
        return "drift: none beyond the noise"
    shown = ", ".join(f"{s.name} {100 * s.drift_change:+.0f} %" for s in drifting)
    return f"drift: the plain time of a token changed during a workload ({shown}): measure again"


def _number(value: float | None, digits: int = 1) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _speed_up(ratio: Ratio | None) -> str:
    if ratio is None:
        return "-"
    if ratio.pairs < _FEWEST_PAIRS:
        return f"{ratio.median:.2f} ({ratio.pairs} pairs)"
    return f"{ratio.median:.2f} [{ratio.low:.2f}, {ratio.high:.2f}]"


def _line(s: Summary) -> list[object]:
    fit = s.prompts - len(s.degenerate)
    return [
        s.name,
        f"{fit}" if fit == s.prompts else f"{fit}/{s.prompts}",
        _number(s.plain_tok_s),
        _number(s.tok_s),
        _speed_up(s.speed_up),
        s.drafted,
        s.accepted,
        _number(s.tokens_per_pass, 2),
        "yes" if s.identical else "NO",
    ]
