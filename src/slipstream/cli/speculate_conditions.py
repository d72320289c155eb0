"""Which methods ``bench speculate`` compares with none."""

from __future__ import annotations

import argparse
import shlex
from typing import Any, Final

import msgspec

from slipstream.cli.flags import add_flags, options
from slipstream.cli.parser import Parser
from slipstream.errors import OptionError
from slipstream.options import SpeculationOptions

DEFAULT_SHOWN: Final = "`--spec auto`"
_DEFAULT_METHOD = {"type": ("auto",)}

Conditions = dict[str, dict[str, Any]]
"""Name of a condition -> options of ``Model.complete``."""


def method(arguments: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    """The condition of ``--spec`` and its options; what the user gave stands.

    Raises:
        OptionError: there is no method to compare with none, or an option that it does not read.
    """
    defaults = {} if arguments.type else _DEFAULT_METHOD
    chosen = options(SpeculationOptions, arguments, defaults)
    if chosen.type == ("none",):
        raise OptionError(
            "a drafting method, to be compared with none", "`--spec none`", "Leave it out."
        )
    return ",".join(chosen.type), msgspec.structs.asdict(chosen)


def conditions(arguments: argparse.Namespace) -> Conditions:
    """The methods of ``--spec`` and of every ``--against``, in this order.

    Raises:
        OptionError: as ``method``, or a condition stands there twice.
    """
    name, chosen = method(arguments)
    made: Conditions = {name: chosen}
    for text in arguments.against:
        name, other = _against(text, chosen["draft_model"])
        if name in made:
            raise OptionError("every condition once", f"`{name}` twice", "Leave one out.")
        made[name] = other
    return made


def _against(text: str, draft_model: str | None) -> tuple[str, dict[str, Any]]:
    """The condition of one ``--against``: a method and its flags, named by its own words."""
    parser = Parser("slipstream bench speculate --against", "A condition.")
    add_flags(parser, SpeculationOptions)
    try:
        words = shlex.split(text)
    except ValueError as problem:
        remedy = "Close the quotes."
        raise OptionError("a method and its flags", f"`{text}`: {problem}", remedy) from None
    if not words:
        remedy = "For example `--against 'draft-simple --n-max 7'`."
        raise OptionError("a method and its flags after --against", "nothing", remedy)
    parsed = parser.parse(["--spec", *words])
    drafts = any(m.startswith("draft-") or m == "auto" for m in ",".join(parsed.type).split(","))
    parsed.draft_model = parsed.draft_model or (draft_model if drafts else None)
    _, chosen = method(parsed)
    return " ".join(words), chosen


def synthetic(made: Conditions) -> bool:
    """Whether a condition pretends acceptance, so that its output is invalid."""
    return any(
        chosen["synth_len"] is not None or chosen["synth_rates"] is not None
        for chosen in made.values()
    )
