"""slipstream lab run"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slipstream.cli.output import add_json, print_json, printable, wrapped
from slipstream.paths import shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from slipstream.lab.contract.manifest import Manifest
    from slipstream.lab.contract.plan import Plan
    from slipstream.lab.contract.runtimes import Runtime
    from slipstream.lab.running.outcome import Outcome


UNMEASURED = "unmeasured"
EXIT_CODES = {"interrupted": 130, "stopped": 1, UNMEASURED: 3}
"""How a run ended -> exit code, else 0; ``unmeasured`` = it ended by itself without a figure."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("plan", metavar="PLAN", help="a plan.toml; `lab init` writes one")
    parser.add_argument("--out", metavar="DIR", help="the run's folder [runs/NAME-DATE-DIGEST]")
    parser.add_argument(
        "--resume", action="store_true", help="go on with the newest run of this plan, or of --out"
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="write the manifest and show requests, time, disk and memory; start nothing",
    )
    add_json(parser)


def execute(arguments: argparse.Namespace) -> int:
    from slipstream.errors import OptionError
    from slipstream.lab.planning.plan_file import read_plan
    from slipstream.lab.runtimes.registry import runtimes

    if arguments.dry_run and arguments.resume:
        raise OptionError("--dry-run or --resume", "both", "Leave one out.")
    plan = read_plan(Path(arguments.plan))
    out = Path(arguments.out) if arguments.out else None
    if arguments.dry_run:
        return _dry_run(plan, runtimes(plan), out, as_json=arguments.json)
    return _run(plan, runtimes(plan), out, arguments)


def _dry_run(
    plan: Plan, runtimes: Mapping[str, Runtime], out: Path | None, *, as_json: bool
) -> int:
    from slipstream.cli.lab_manifest_lines import expectation_lines, manifest_lines
    from slipstream.lab.observation.reading_rate import reading_rate
    from slipstream.lab.running.expectation import cache_sizes, expected
    from slipstream.lab.running.run_folder import freeze_into
    from slipstream.lab.scheduling.schedule import blocks

    missing: list[str] = []
    folder, manifest = freeze_into(plan, runtimes, out, missing=missing)
    rate = reading_rate(plan.threads)
    expectation = expected(
        manifest,
        blocks(manifest),
        read_bytes_per_s=rate.bytes_per_s,
        caution=rate.caution,
        cache_bytes=cache_sizes(manifest),
    )
    lines = [*manifest_lines(manifest), *expectation_lines(expectation, folder)]
    lines += [wrapped(f"why: {shown(text, 400)}") for text in dict.fromkeys(missing)]
    lines += [f"written: {folder}/manifest.json; nothing was started"]
    print(printable("\n".join(lines)))
    if as_json:
        print_json(
            {
                **_identity(folder, manifest),
                "expected": _plain(expectation),
                "missing": list(dict.fromkeys(missing)),
                "requests": [_plain(prompt) for prompt in manifest.prompts],
            }
        )
    return 0


def _run(
    plan: Plan,
    runtimes: Mapping[str, Runtime],
    out: Path | None,
    arguments: argparse.Namespace,
) -> int:
    from slipstream.lab.freezing.freeze import reopened
    from slipstream.lab.running.progress import shown
    from slipstream.lab.running.run import run
    from slipstream.lab.running.run_folder import freeze_into, resumable

    _fetch(plan)
    if arguments.resume:
        folder = resumable(plan, out, lambda text: print(printable(text)))
        manifest = reopened(folder, runtimes)
    else:
        folder, manifest = freeze_into(plan, runtimes, out)
    print(printable(f"{folder}: manifest {manifest.digest[:16]}, {plan.question.text}"))
    with shown() as progress:
        outcome = run(folder, manifest, runtimes, progress=progress)
    print(printable("\n".join(outcome_lines(outcome, folder, arguments.plan))))
    if arguments.json:
        print_json({**_identity(folder, manifest), "outcome": _plain(outcome)})
    return exit_code(outcome)


def exit_code(outcome: Outcome) -> int:
    known = EXIT_CODES.get(outcome.ended)
    return known if known is not None else (0 if outcome.measured else EXIT_CODES[UNMEASURED])


def outcome_lines(outcome: Outcome, folder: Path, plan: str) -> Iterator[str]:
    """How a run ended, what was measured, what it found, and what to do next."""
    from slipstream.lab.judging.measured import NOTHING

    reason = f": {outcome.reason}" if outcome.reason else ""
    nothing = "" if outcome.measured else f", but {NOTHING}"
    counts = f"{outcome.blocks} blocks ended, {outcome.left} are left"
    yield f"{outcome.ended}{nothing}{reason}; {counts}"
    yield from outcome.told
    if lost := outcome.disturbance.text():
        yield f"{lost}. {outcome.advice}" if outcome.advice else lost
    for finding in outcome.findings:
        yield f"finding {finding.name}: {finding.text}"
    for rung in outcome.not_run:
        yield f"not run: {rung.runtime} {rung.condition}, {rung.stratum}: {rung.reason}"
    if outcome.left and outcome.ended != "stopped":
        yield f"to go on: slipstream lab run {plan} --resume --out {folder}"
    yield f"next: slipstream lab report {folder}"


def _fetch(plan: Plan) -> None:
    """Offer models of the catalogue that are not here, where a program of ours reads them."""
    from slipstream.cli.opening import fetch_if_wanted

    if any(runtime.kind != "openai" for runtime in plan.runtimes.values()):
        for artifact in (plan.target, *plan.drafts.values()):
            fetch_if_wanted(artifact.model)


def _identity(folder: Path, manifest: Manifest) -> dict[str, Any]:
    return {"run": manifest.run, "folder": str(folder), "manifest_sha256": manifest.digest}


def _plain(value: Any) -> Any:
    import msgspec

    return msgspec.to_builtins(value)
