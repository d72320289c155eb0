"""Which drafting methods a server offers, with what parameters, and why not the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from slipstream import drafters as methods
from slipstream.errors import OptionError, PairingError
from slipstream.keywords import changed
from slipstream.options import METHODS, SpeculationOptions
from slipstream.server.wire import Speculation
from slipstream.speculation_options import read_by

NEEDED: Final = {
    "draft-eagle3": "a version of Slipstream that runs EAGLE-3 heads",
    "draft-mtp": "a version of Slipstream that runs multi-token-prediction heads",
    "draft-dflash": "a version of Slipstream that runs DFlash drafters",
    "draft-dspark": "a version of Slipstream that runs DSpark drafters",
    "medusa": "a version of Slipstream that runs Medusa heads",
}


def offered(options: SpeculationOptions) -> tuple[str, ...]:
    """The drafters of a server: all that need no model, its draft model's, and plugins it names.

    In order of precedence.

    Raises:
        OptionError, UnsupportedError: a method that the options name is unknown or not here, or
            wants a draft model where none is named.
    """
    has_draft_model = options.draft_model is not None
    named = methods.check_names(options.type, draft_model=has_draft_model)
    if "draft-simple" in named and not has_draft_model:
        raise OptionError(
            "a draft model for `draft-simple`",
            "no `draft_model`",
            "Name one (--draft-model), or choose a method that needs none.",
        )
    known = [name for name in methods.implemented() if name not in ("none", "auto")]
    free = [name for name in known if not methods.runs_a_model(name)]
    models = ["draft-simple"] if has_draft_model else []
    chosen = dict.fromkeys(name for name in (*free, *models, *named) if name != "none")
    return tuple(sorted(chosen, key=methods.rank))


def with_methods(options: SpeculationOptions, names: Sequence[str]) -> SpeculationOptions:
    """The same options for other methods."""
    changed_options: SpeculationOptions = changed(options, {"type": tuple(names)})
    return changed_options


def default_speculation(options: SpeculationOptions) -> Speculation:
    """What a request without ``speculative`` gets: the methods of the server's ``type``."""
    names = methods.check_names(options.type, draft_model=options.draft_model is not None)
    chosen = tuple(name for name in names if name != "none")
    return Speculation(methods=chosen, scope=options.draft_scope)


def method_table(
    options: SpeculationOptions, names: Sequence[str], fault: PairingError | None
) -> dict[str, dict[str, Any]]:
    """``wire.Ready.methods``.

    Args:
        names: the drafters at work.
        fault: why the draft model is not used.
    """
    plugins = [name for name in names if name not in METHODS]
    known = [name for name in METHODS if name not in ("none", "auto")]
    return {name: _entry(options, name, names, fault) for name in (*known, *plugins)}


def _entry(
    options: SpeculationOptions, name: str, names: Sequence[str], fault: PairingError | None
) -> dict[str, Any]:
    reason = _reason(name, names, fault)
    entry: dict[str, Any] = {"offered": reason is None}
    if reason is None:
        entry["parameters"] = {
            option: options.longest if option == "n_max" else getattr(options, option)
            for option in read_by(name)
        }
    else:
        entry["reason"] = reason
    return entry


def _reason(name: str, names: Sequence[str], fault: PairingError | None) -> str | None:
    """Why a method is not offered, or None."""
    if name == "draft-simple" and fault is not None:
        return str(fault)
    if name in names:
        return None
    if name == "draft-simple":
        return "it needs a draft model: start the server with --draft-model"
    return f"it needs {NEEDED.get(name, 'another version of Slipstream')}"
