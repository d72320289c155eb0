"""Drafting methods by name. A method ``a-b`` lives in ``drafters/a_b.py``, which has ``create``.

``create(options, resources)`` returns a drafter, or raises what is wrong with the pairing. Other
packages may offer more (``drafters/plugins.py``).
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec

from slipstream import plugin_names
from slipstream.drafters.base import Drafter
from slipstream.drafters.resources import Resources
from slipstream.errors import OptionError, UnsupportedError
from slipstream.options import METHODS, SpeculationOptions


def runs_a_model(method: str) -> bool:
    """Whether a draft of the method takes passes of a model or of heads; others look it up."""
    return method.startswith("draft-") or method == "medusa"


# of methods used together: those that look up come first, so that a model need not run where they
# are good enough; otherwise llama.cpp's order, then this project's own
PRECEDENCE = tuple(
    sorted((method for method in METHODS if method not in ("none", "auto")), key=runs_a_model)
)
AUTO = ("suffix", "draft-simple")  # what ``auto`` runs; the second where a draft model is named


def rank(name: str) -> float:
    """Place in the order of precedence: drafters of others stand before the draft models.

    They are likely to be dearer than the built-in n-gram methods and cheaper than a second model.
    """
    if name in PRECEDENCE:
        return PRECEDENCE.index(name)
    return next(i for i, method in enumerate(PRECEDENCE) if method.startswith("draft-")) - 0.5


def reads_draft_model(names: Sequence[str]) -> bool:
    """Whether one of the methods may run a draft model."""
    return any(name == "auto" or name.startswith("draft-") for name in names)


def _module(name: str) -> str:
    return f"slipstream.drafters.{name.replace('-', '_')}"


def implemented() -> tuple[str, ...]:
    """Methods that this build can run."""
    found = tuple(name for name in PRECEDENCE if find_spec(_module(name)))
    return ("none", *found, *(("auto",) if AUTO[0] in found else ()))


def check_names(names: Sequence[str], *, draft_model: bool = False) -> tuple[str, ...]:
    """The methods to run, in order of precedence; ``auto`` stands for ``AUTO``.

    Args:
        draft_model: whether the user named one; ``auto`` uses it.

    Raises:
        OptionError: a name is unknown, or ``none`` stands beside others.
        UnsupportedError: a method exists but not in this build.
    """
    available = implemented()
    for name in names:
        if name in plugin_names.installed() and name not in METHODS:
            continue
        if name not in METHODS:
            near = difflib.get_close_matches(name, available, 1, 0.0)
            remedy = f"Did you mean {near[0]!r}?" if near else "Use 'none'."
            raise OptionError(f"a drafting method ({', '.join(available)})", repr(name), remedy)
        if name not in available:
            raise UnsupportedError(
                f"one of {', '.join(available)}", repr(name), "Choose another method."
            )
    if "none" in names and set(names) != {"none"}:
        raise OptionError(
            "'none' alone, or drafting methods", repr(",".join(names)), "Leave out 'none'."
        )
    if "none" in names or not names:
        return ("none",)
    automatic = AUTO[: 2 if draft_model else 1] if "auto" in names else ()
    for name in automatic:
        if name not in available:
            raise UnsupportedError("`auto` with a draft model", name, "Leave out the draft model.")
    chosen = dict.fromkeys(name for name in (*names, *automatic) if name != "auto")
    return tuple(sorted(chosen, key=rank))


def among(names: Sequence[str], offered: Sequence[str]) -> tuple[str, ...]:
    """The methods that a request chooses of those at work, in their order; none for ``none``.

    Args:
        names: ``auto`` stands for those of ``AUTO`` that are at work.
        offered: names of the drafters at work, in order of precedence.

    Raises:
        OptionError: a name is none of them, or ``none`` stands beside others.
    """
    automatic = [name for name in AUTO if name in offered]
    known = ("none", *offered, *(("auto",) if automatic else ()))
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name[:64], known, 1, 0.0)[0]
            raise OptionError(
                f"drafting methods that are at work here ({', '.join(known)})",
                f"{name!r:.80}",
                f"Did you mean `{near}`?",
            )
    if "none" in names and set(names) != {"none"}:
        raise OptionError(
            "'none' alone, or drafting methods", f"{','.join(names)!r:.80}", "Leave out 'none'."
        )
    chosen = {*names, *(automatic if "auto" in names else ())}
    return tuple(name for name in offered if name in chosen)


def create(
    names: Sequence[str], options: SpeculationOptions, resources: Resources
) -> tuple[Drafter, ...]:
    """The named methods in order of precedence; none for ``none``.

    Raises:
        OptionError: a name is unknown or that of two installed drafters, or a method lacks its
            draft model.
        UnsupportedError: a method exists but not in this build, or a package's cannot be used.
    """
    return tuple(
        _created(name, options, resources)
        for name in check_names(names, draft_model=options.draft_model is not None)
        if name != "none"
    )


def _created(name: str, options: SpeculationOptions, resources: Resources) -> Drafter:
    if name not in METHODS:
        from slipstream.drafters.plugins import load

        return load(name, options, resources)
    drafter: Drafter = import_module(_module(name)).create(options, resources)
    return drafter


def arranged(drafters: Sequence[Drafter]) -> tuple[Drafter, ...]:
    """In order of precedence; drafters of others as given among themselves."""
    return tuple(sorted(drafters, key=lambda drafter: rank(drafter.name)))
