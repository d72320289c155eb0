"""slipstream lab init"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from slipstream.cli.output import add_json, print_json, printable, wrapped
from slipstream.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slipstream.lab.contract.plan import Plan
    from slipstream.lab.init.plan_template import Choices


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
    from slipstream.lab.init.plan_template import plan_text
    from slipstream.lab.planning.plan_file import parse_plan

    path = Path(arguments.out)
    _require_new(path, force=arguments.force)
    choices = _choices(arguments)
    text = plan_text(choices)
    plan = parse_plan(text)
    _write(path, text, force=arguments.force)
    print(printable("\n".join(_lines(path, plan, choices))))
    if arguments.json:
        found = {name: offer.limits() for name, offer in choices.offers.items()}
        conditions = [condition.name for condition in plan.conditions]
        named = {"plan": str(path), "name": plan.name, "strata": list(plan.strata)}
        print_json({**named, "conditions": conditions, "limits": found})
    return 0


def _choices(arguments: argparse.Namespace) -> Choices:
    """What the user names; of servers that run already, what they say now."""
    from slipstream.catalog import DEFAULT_MODEL
    from slipstream.lab.init.plan_template import Choices, parse_runtimes
    from slipstream.lab.runtimes.offers import offer_of

    runtimes = parse_runtimes(arguments.runtime)
    offers = {name: offer_of(place) for name, (kind, place) in runtimes.items() if kind == "openai"}
    served = next((offer.model for offer in offers.values() if offer.model), "")
    return Choices(
        runtimes=runtimes,
        model=arguments.model or served or DEFAULT_MODEL,
        draft=arguments.draft_model or "",
        small=arguments.small,
        offers=offers,
    )


def _lines(path: Path, plan: Plan, choices: Choices) -> Iterator[str]:
    yield f"{path}: {len(plan.conditions)} conditions beside `none`, all explained"
    if not choices.restartable:
        yield from (wrapped(offer.limits()) for offer in choices.offers.values())
    if choices.small:
        yield "a first look: it can end in no better word than `inconclusive`; see the plan's head"
    yield f"next: slipstream lab run {path} --dry-run, then without --dry-run"


def _require_new(path: Path, *, force: bool) -> None:
    """
    Raises:
        OptionError: the file exists and may not be replaced.
    """
    if path.exists() and not force:
        found = f"`{path}`, which exists"
        raise OptionError("a new file", found, "Name another with --out, or --force.")


def _write(path: Path, text: str, *, force: bool) -> None:
    try:
        with path.open("w" if force else "x", encoding="utf-8") as stream:
            stream.write(text)
    except OSError as problem:
        found = f"`{path}`: {problem.strerror or type(problem).__name__}"
        raise OptionError("a file that can be written", found, "Name another: --out.") from None
