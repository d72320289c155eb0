"""slipstream lab init"""

from __future__ import annotations

import argparse
from pathlib import Path

from slipstream.cli.output import add_json, print_json, printable
from slipstream.errors import OptionError


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", metavar="FILE", default="plan.toml", help="[plan.toml]")
    parser.add_argument(
        "--runtime",
        metavar="KIND",
        action="append",
        default=[],
        help="slipstream, llama-server=PATH (a binary, or a python with xllamacpp) or openai=URL, "
        "perhaps after NAME:; may be repeated [slipstream]",
    )
    parser.add_argument("--model", metavar="MODEL", help="that answers: path or catalogue name")
    parser.add_argument("--draft-model", metavar="MODEL", help="one that drafts for it")
    parser.add_argument(
        "--small", action="store_true", help="a run of minutes, for a first look at the lab"
    )
    parser.add_argument("--force", action="store_true", help="replace a file that is there")
    add_json(parser)


def execute(arguments: argparse.Namespace) -> int:
    from slipstream.catalog import DEFAULT_MODEL
    from slipstream.lab.plan_file import parse_plan
    from slipstream.lab.plan_template import Choices, parse_runtimes, plan_text

    path = Path(arguments.out)
    choices = Choices(
        runtimes=parse_runtimes(arguments.runtime),
        model=arguments.model or DEFAULT_MODEL,
        draft=arguments.draft_model or "",
        small=arguments.small,
    )
    text = plan_text(choices)
    plan = parse_plan(text)
    _write(path, text, force=arguments.force)
    print(printable(f"{path}: {len(plan.conditions)} conditions beside `none`, all explained"))
    if choices.small:
        print("a first look: it can end in no better word than `inconclusive`; see the plan's head")
    print(printable(f"next: slipstream lab run {path} --dry-run, then without --dry-run"))
    if arguments.json:
        print_json({"plan": str(path), "name": plan.name, "strata": list(plan.strata)})
    return 0


def _write(path: Path, text: str, *, force: bool) -> None:
    try:
        with path.open("w" if force else "x", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError:
        found = f"`{path}`, which exists"
        raise OptionError("a new file", found, "Name another with --out, or --force.") from None
    except OSError as problem:
        found = f"`{path}`: {problem.strerror or type(problem).__name__}"
        raise OptionError("a file that can be written", found, "Name another: --out.") from None
