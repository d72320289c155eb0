"""slipstream bench speculate"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slipstream.cli.flags import add_flags, options
from slipstream.cli.identity import identity
from slipstream.cli.numbers import whole_number
from slipstream.cli.output import ProgressCallback, add_json, print_json, progress_bar
from slipstream.cli.page import page_path, write_page
from slipstream.cli.speculate_conditions import DEFAULT_SHOWN, Conditions, conditions, synthetic
from slipstream.cli.speculate_table import print_each, print_method, print_notes
from slipstream.cli.statistics import precision_line
from slipstream.cli.trace import add_trace
from slipstream.errors import OptionError
from slipstream.options import ModelOptions, SpeculationOptions

if TYPE_CHECKING:
    from slipstream.api import Model
    from slipstream.measure.speculation import Memory, Sample
    from slipstream.measure.workload import WorkloadPrompt


def configure(parser: argparse.ArgumentParser) -> None:
    add_flags(parser, ModelOptions, SpeculationOptions)
    parser.add_argument(
        "--against",
        metavar="METHOD",
        action="append",
        default=[],
        help="one more method, its flags in the same quotes; may be repeated",
    )
    parser.add_argument(
        "--workloads", metavar="DIR", default="workloads", help="folder of workloads [workloads]"
    )
    parser.add_argument("--strata", metavar="NAME,..", help="only these workloads")
    parser.add_argument(
        "--tasks", metavar="NAME,..", help="these files of the folder, such as code_edit"
    )
    parser.add_argument("--prompts", metavar="N", default="4", help="most prompts of each [4]")
    parser.add_argument("--rounds", metavar="N", default="1", help="rounds per prompt [1]")
    parser.add_argument("--limit", metavar="N", default="256", help="most tokens per output [256]")
    parser.add_argument(
        "--warm", action="store_true", help="repeat each request, and tell of the repetitions apart"
    )
    parser.add_argument("--each", action="store_true", help="a line per prompt as well")
    parser.add_argument("--plot", metavar="FILE", help="write the figures as one HTML page")
    add_trace(parser)
    add_json(parser)
    parser.epilog = f"Without --spec it measures {DEFAULT_SHOWN}."


def execute(arguments: argparse.Namespace) -> int:
    from slipstream.cli.opening import open_model, require_whole_trace
    from slipstream.measure.speculation import PLAIN, warm_up
    from slipstream.measure.speculation_page import speculation_page

    model_options = options(ModelOptions, arguments)
    compared = conditions(arguments)
    plan, page = _Plan(arguments), page_path(arguments.plot)
    model = open_model(model_options, quiet=arguments.json, trace=arguments.trace, prefix_cache=0)
    groups = plan.read()
    warm_up(model, next(iter(groups.values()))[0])
    with progress_bar("outputs") as progress:
        samples = plan.run(model, groups, {PLAIN: {"type": (PLAIN,)}, **compared}, progress)
    report = _Report(samples, list(compared), warm=arguments.warm)
    report.print(model_options.model, each=arguments.each)
    print(precision_line(model.loaded.backend.precision))
    invalid = synthetic(compared)
    if invalid:
        print("THE OUTPUT IS INVALID: acceptance was pretended, outputs were not compared")
    record = {
        **identity(model_options, model.loaded),
        **plan.record(),
        **_compared(compared),
        "valid": not invalid,
        **report.record(),
    }
    try:
        if page is not None:
            write_page(page, speculation_page(record))
    finally:
        if arguments.json:
            print_json(record)
    require_whole_trace(model)
    return 0 if report.identical or invalid else 1


def _compared(compared: Conditions) -> dict[str, Any]:
    first = next(iter(compared))
    return {"method": first, "options": compared[first], "conditions": compared}


class _Report:
    """The summaries of a run, per method and, if wanted, of warm drafters.

    Attributes:
        workloads, prompts: memory -> per method its lines.
    """

    def __init__(self, samples: Sequence[Sample], methods: Sequence[str], *, warm: bool) -> None:
        from slipstream.measure.speculation_summary import by_prompt, by_workload

        memories: tuple[Memory, ...] = ("cold", "warm") if warm else ("cold",)
        self.workloads = {m: [by_workload(name, samples, m) for name in methods] for m in memories}
        self.prompts = {m: [by_prompt(name, samples, m) for name in methods] for m in memories}

    @property
    def identical(self) -> bool:
        return all(lines[-1].identical for part in self.workloads.values() for lines in part)

    def print(self, model: str, *, each: bool) -> None:
        for memory, parts in self.workloads.items():
            for lines in parts:
                print_method(model, lines)
            for lines in self.prompts[memory] if each else []:
                print_each(model, lines)
        print_notes(self.workloads["cold"][0])

    def record(self) -> dict[str, Any]:
        """Lines of workloads and of prompts; those of warm drafters under names of their own."""
        from slipstream.measure.speculation_summary import record

        made = {}
        for memory, parts in self.workloads.items():
            prefix = "" if memory == "cold" else f"{memory}_"
            made[f"{prefix}summaries"] = [record(line) for lines in parts for line in lines]
            prompts = self.prompts[memory]
            made[f"{prefix}each"] = [record(line) for lines in prompts for line in lines]
        return made


class _Plan:
    """Which prompts run, and how often.

    Args:
        arguments: the verb's own.

    Raises:
        OptionError: a number is out of range, or there is no workload of that name.
    """

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._directory = Path(arguments.workloads)
        self._names = _workload_names(arguments.strata, arguments.tasks)
        self._prompts = whole_number("--prompts", arguments.prompts)
        self._rounds = whole_number("--rounds", arguments.rounds)
        self._limit = whole_number("--limit", arguments.limit)
        self._warm: bool = arguments.warm

    def record(self) -> dict[str, Any]:
        return {"rounds": self._rounds, "limit": self._limit, "warm": self._warm}

    def read(self) -> dict[str, list[WorkloadPrompt]]:
        from slipstream.measure.workload import read_workloads

        groups = read_workloads(self._directory, self._names)
        return {name: prompts[: self._prompts] for name, prompts in groups.items()}

    def run(
        self,
        model: Model,
        groups: dict[str, list[WorkloadPrompt]],
        compared: Conditions,
        progress: ProgressCallback,
    ) -> list[Sample]:
        from slipstream.measure.speculation import run_pairs

        outputs = len(compared) + (len(compared) - 1) * self._warm
        total = sum(map(len, groups.values())) * self._rounds * outputs
        samples: list[Sample] = []
        for name, prompts in groups.items():
            taken = run_pairs(
                model,
                prompts,
                compared,
                rounds=self._rounds,
                max_tokens=self._limit,
                reset=model.forget,
                warm=self._warm,
            )
            samples += _counted(taken, len(samples), total, name, progress)
        return samples


def _workload_names(strata: str | None, tasks: str | None) -> tuple[str, ...]:
    """Files to read: strata, then tasks; every stratum where none was named.

    Raises:
        OptionError: there is no workload of that name.
    """
    from slipstream.measure.workload import STRATA, TASKS

    names: tuple[str, ...] = ()
    for flag, text, known in (("--strata", strata, STRATA), ("--tasks", tasks, tuple(TASKS))):
        for name in text.split(",") if text else ():
            if name not in known:
                expected = f"`{flag}` among {', '.join(known)}"
                raise OptionError(expected, f"`{name}`", "Correct it.")
            names += (name,)
    return tuple(dict.fromkeys(names)) or STRATA


def _counted(
    samples: Iterator[Sample], done: int, total: int, name: str, progress: ProgressCallback
) -> Iterator[Sample]:
    progress(done, total, name)
    for sample in samples:
        done += 1
        progress(done, total, name)
        yield sample
