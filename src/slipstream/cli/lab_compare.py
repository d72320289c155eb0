"""slipstream lab compare"""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slipstream.cli.numbers import whole_number
from slipstream.cli.output import add_json, print_json, printable, table
from slipstream.errors import ModelFileError, OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slipstream.lab.comparing.compare_data import ComparisonResult
    from slipstream.lab.comparing.compare_plan import Choices
    from slipstream.lab.contract.manifest import Manifest
    from slipstream.lab.contract.plan import Plan

_PLAN = "plan.toml"
_OPTIONS = {
    "target": ("MODEL", "the model that answers: path or catalogue name"),
    "draft": ("MODEL", "one that drafts for it [none: n-grams of the text draft]"),
    "rows": ("N", "rows of a step within the few-row range [8]"),
    "outside-rows": ("N", "rows of a step beyond it [16 more]"),
    "slots": ("N", "requests at a time [1]"),
    "strata": ("NAMES", "workloads, with commas [repetitive]"),
    "prompts": ("N", "most of each workload [3]"),
    "tokens": ("N", "most of an output [96]"),
    "repeats": ("N", "pairs of blocks [6]"),
    "threads": ("N", "of both; 0 = the programs' own number [0]"),
    "context": ("N", "positions per slot [4096]"),
    "timeout": ("SECONDS", "of a request [600]"),
    "budget": ("SECONDS", "of the whole run [no limit]"),
    "flags": ("TEXT", 'of every start: --flags="--no-mmap -fa off"'),
    "release-a": ("TAG", "of A, as you know it [unknown]"),
    "release-b": ("TAG", "of B"),
}
_NUMBERS = {
    "rows": "rows",
    "outside_rows": "outside",
    "slots": "slots",
    "prompts": "prompts",
    "tokens": "tokens",
    "repeats": "repeats",
    "threads": "threads",
    "context": "context",
    "timeout": "timeout_s",
    "budget": "budget_s",
}
_USAGE = "slipstream lab compare A B --target MODEL, or slipstream lab compare FOLDER"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "builds",
        metavar="A B",
        nargs="+",
        help="two of: a llama-server binary, a python with xllamacpp, `slipstream`; or the FOLDER "
        "of a kept comparison, to show it again",
    )
    for flag, (metavar, about) in _OPTIONS.items():
        parser.add_argument(f"--{flag}", metavar=metavar, help=about)
    parser.add_argument(
        "--same-build",
        action="store_true",
        help="A and B are one build: an A/A check of the procedure, told as that alone",
    )
    parser.add_argument(
        "--text",
        action="store_true",
        help="compare texts where a build returns no token ids; no near-tie is known then",
    )
    parser.add_argument("--out", metavar="DIR", help="the run's folder [runs/NAME-DATE-DIGEST]")
    parser.add_argument(
        "--resume", action="store_true", help="go on with FOLDER, or the newest run of A and B"
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="freeze the manifest and diff the builds' flags; start no server",
    )
    add_json(parser)


def execute(arguments: argparse.Namespace) -> int:
    builds = arguments.builds
    if arguments.dry_run and arguments.resume:
        raise OptionError("--dry-run or --resume", "both", "Leave one out.")
    if len(builds) == 1:
        return _kept(Path(builds[0]), arguments)
    if len(builds) != 2:
        raise OptionError("two builds, A and B", f"{len(builds)}", f"Usage: {_USAGE}")
    if not arguments.target:
        raise OptionError("--target MODEL", "none", f"Usage: {_USAGE}")
    text, plan = _planned(arguments)
    return _dry_run(text, plan, arguments) if arguments.dry_run else _new(text, plan, arguments)


def _kept(folder: Path, arguments: argparse.Namespace) -> int:
    """Show a kept run, or go on with it; its manifest is its plan."""
    from slipstream.lab.comparing.compare import read_comparison
    from slipstream.lab.freezing.freeze import read_manifest

    if arguments.target or arguments.dry_run:
        raise OptionError("two builds, A and B", f"one: `{folder}`", f"Usage: {_USAGE}")
    if arguments.resume:
        read_comparison(folder)
        return _run(read_manifest(folder).plan, folder, arguments, resume=True)
    return _told(folder, 0, arguments)


def _planned(arguments: argparse.Namespace) -> tuple[str, Plan]:
    from slipstream.cli.opening import fetch_if_wanted
    from slipstream.lab.comparing.compare_plan import written
    from slipstream.lab.comparing.compare_stops import require_builds

    choices = _choices(arguments)
    if not arguments.dry_run:
        for model in filter(None, (choices.target, choices.draft)):
            fetch_if_wanted(model)
    text, plan = written(choices, _weight_types(choices.target, dry=arguments.dry_run))
    require_builds(plan)
    return text, plan


def _choices(arguments: argparse.Namespace) -> Choices:
    from slipstream.lab.comparing.compare_plan import Choices

    given: dict[str, Any] = {}
    for option, name in _NUMBERS.items():
        text = getattr(arguments, option)
        if text is not None:
            flag = f"--{option.replace('_', '-')}"
            given[name] = whole_number(flag, text, least=0 if option == "threads" else 1)
    given |= {"strata": tuple(arguments.strata.split(","))} if arguments.strata else {}
    given |= {"flags": tuple(_words(arguments.flags))} if arguments.flags else {}
    a, b = arguments.builds
    return Choices(
        a=a,
        b=b,
        target=arguments.target,
        draft=arguments.draft or "",
        releases=(arguments.release_a or "", arguments.release_b or ""),
        same_build=arguments.same_build,
        comparison="text" if arguments.text else "ids",
        **given,
    )


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as problem:
        remedy = 'Quote them as a shell does: --flags="-fa off".'
        raise OptionError("--flags that can be split", f"{problem}", remedy) from None


def _weight_types(target: str, *, dry: bool) -> tuple[str, ...]:
    """Of the target's file; where it is not here and nothing is to run, none."""
    from slipstream.catalog import locate
    from slipstream.lab.freezing.model_facts import read_facts

    try:
        return read_facts(locate(target)).weight_types
    except ModelFileError:
        if dry:
            return ()
        raise


def _dry_run(text: str, plan: Plan, arguments: argparse.Namespace) -> int:
    from slipstream.lab.running.run_folder import freeze_into
    from slipstream.lab.runtimes.registry import runtimes

    missing: list[str] = []
    out = Path(arguments.out) if arguments.out else None
    folder, manifest = freeze_into(plan, runtimes(plan), out, missing=missing)
    _write_plan(folder, text)
    print(printable("\n".join(_frozen_lines(folder, manifest, missing))))
    return _told(folder, 0, arguments)


def _frozen_lines(folder: Path, manifest: Manifest, missing: list[str]) -> Iterator[str]:
    from slipstream.cli.lab_manifest_lines import expectation_lines, manifest_lines
    from slipstream.lab.observation.reading_rate import reading_rate
    from slipstream.lab.running.expectation import cache_sizes, expected
    from slipstream.lab.scheduling.schedule import blocks

    rate = reading_rate()
    expectation = expected(
        manifest,
        blocks(manifest),
        read_bytes_per_s=rate.bytes_per_s,
        caution=rate.caution,
        cache_bytes=cache_sizes(manifest),
    )
    yield from manifest_lines(manifest)
    yield from expectation_lines(expectation, folder)
    yield from (f"why: {text}" for text in dict.fromkeys(missing))


def _new(text: str, plan: Plan, arguments: argparse.Namespace) -> int:
    from slipstream.lab.running.run_folder import freeze_into, resumable
    from slipstream.lab.runtimes.registry import runtimes

    out = Path(arguments.out) if arguments.out else None
    if arguments.resume:
        folder = resumable(plan, out, lambda text: print(printable(text)))
        return _run(plan, folder, arguments, resume=True)
    folder, _ = freeze_into(plan, runtimes(plan), out)
    _write_plan(folder, text)
    return _run(plan, folder, arguments, resume=False)


def _write_plan(folder: Path, text: str) -> None:
    from slipstream.cache import write_atomically

    write_atomically(folder / _PLAN, text.encode())


def _run(plan: Plan, folder: Path, arguments: argparse.Namespace, *, resume: bool) -> int:
    from slipstream.cli.lab_run import exit_code
    from slipstream.lab.freezing.freeze import read_manifest, reopened
    from slipstream.lab.running.progress import shown
    from slipstream.lab.running.run import run
    from slipstream.lab.runtimes.registry import runtimes

    programs = runtimes(plan)
    manifest = reopened(folder, programs) if resume else read_manifest(folder)
    print(printable(f"{folder}: manifest {manifest.digest[:16]}, {plan.question.text}"))
    with shown() as progress:
        outcome = run(folder, manifest, programs, progress=progress)
    code = _told(folder, exit_code(outcome), arguments)
    if outcome.left and outcome.ended != "stopped":
        print(printable(f"to go on: slipstream lab compare {shlex.quote(str(folder))} --resume"))
    return code


def _told(folder: Path, code: int, arguments: argparse.Namespace) -> int:
    """Write the comparison's files and show what they say."""
    from slipstream.lab.comparing.compare import read_comparison
    from slipstream.lab.comparing.compare_files import write_comparison

    made = read_comparison(folder)
    paths = write_comparison(folder, made)
    print(printable("\n".join(_lines(made))))
    print(printable(f"written: {', '.join(str(path) for path in paths)}"))
    if arguments.json:
        import msgspec

        identity = {"folder": str(folder), "files": [path.name for path in paths]}
        print_json({**identity, **msgspec.to_builtins(made)})
    return code


def _lines(made: ComparisonResult) -> Iterator[str]:
    from slipstream.lab.comparing.compare_words import (
        ENDED,
        HEADER,
        NOTHING_ELSE,
        contrast_text,
        flags_line,
        series_row,
        title,
    )

    yield f"{title(made)}: {ENDED[made.ended]}"
    yield from made.scope
    for change in made.identity:
        yield f"{change.name}: A {change.a or 'none'}, B {change.b or 'none'}"
    yield flags_line(made)
    yield table(list(HEADER), [list(series_row(s)) for s in made.series], text=len(HEADER))
    yield from (contrast_text(c) for c in made.contrasts)
    if made.boundary is not None:
        yield f"DIAGNOSTIC BOUNDARY after {made.boundary.blocks} blocks: {made.boundary.name}"
        yield f"  {made.boundary.text}"
        yield from (f"  established: {text}" for text in made.boundary.established)
        yield from (f"  not established: {text}" for text in made.boundary.open)
        yield f"  {NOTHING_ELSE}"
