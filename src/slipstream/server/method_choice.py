"""Which drafters an order gets: checked against what the server offers, and echoed."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from slipstream.drafters import AUTO
from slipstream.errors import OptionError
from slipstream.options import DraftScope
from slipstream.server.wire import Speculation

Methods = Mapping[str, Mapping[str, Any]]
REACHES: Final[tuple[DraftScope, ...]] = ("request", "session", "all")
"""The narrowest first."""

# how the methods' parameters are called that bound a draft
_LONGEST: Final = ("n_max", "size_m")
_SHORTEST: Final = ("n_min",)
_LEAST: Final = ("p_min",)


def in_effect(asked: Speculation | None, default: Speculation, methods: Methods) -> Speculation:
    """What an order runs with: what it asks for, and of the server where it asks for nothing.

    Args:
        asked: None = nothing.
        default: the server's.
        methods: ``wire.Ready.methods``.

    Raises:
        OptionError: a method is not offered, or a scope wider than the server's.
    """
    if asked is None:
        return default
    wanted = default.methods if asked.methods is None else _chosen(asked.methods, methods)
    _require_narrow(asked.scope, default.scope)
    return Speculation(
        methods=wanted,
        n_max=default.n_max if asked.n_max is None else asked.n_max,
        n_min=asked.n_min,
        p_min=asked.p_min,
        scope=default.scope if asked.scope is None else asked.scope,
    )


def echo(speculation: Speculation, methods: Methods | None = None) -> dict[str, Any]:
    """A ``speculative`` object that says what is in effect.

    The limits are those of the request and of the methods' own parameters; where several methods
    draft, the widest of theirs.

    Args:
        methods: ``wire.Ready.methods``; None = their parameters are not known.
    """
    told = msgspec.structs.asdict(speculation)
    names = told.pop("methods") or ()
    if names and methods is not None:
        own = [methods[name].get("parameters", {}) for name in names]
        longest = [_limit(parameters, _LONGEST) for parameters in own]
        if None not in longest:
            told["n_max"] = min(filter(_is_set, (told["n_max"], max(longest))))
        told["n_min"] = max(told["n_min"], min(_limit(one, _SHORTEST) or 0 for one in own))
        told["p_min"] = max(told["p_min"], min(_limit(one, _LEAST) or 0.0 for one in own))
    return {"type": ",".join(names or ("none",)), **told}


def _limit(parameters: Mapping[str, Any], endings: tuple[str, ...]) -> Any:
    """The parameter of such a name, or None."""
    return next((value for name, value in parameters.items() if name.endswith(endings)), None)


def _is_set(value: Any) -> bool:
    return value is not None


def _chosen(names: tuple[str, ...], methods: Methods) -> tuple[str, ...]:
    offered = [name for name, entry in methods.items() if entry["offered"]]
    automatic = [name for name in AUTO if name in offered]
    for name in names:
        if name not in (*offered, "none", "auto"):
            raise _not_offered(name, offered, methods)
    if "none" in names and set(names) != {"none"}:
        raise OptionError(
            "`none` alone, or drafting methods", f"`{','.join(names):.80}`", "Leave out `none`."
        )
    wanted = {*names, *(automatic if "auto" in names else ())}
    return tuple(name for name in offered if name in wanted)


def _not_offered(name: str, offered: list[str], methods: Methods) -> OptionError:
    reason = methods.get(name, {}).get("reason")
    near = difflib.get_close_matches(name[:64], ["none", "auto", *offered], 1, 0.0)[0]
    return OptionError(
        f"`type` to be drafting methods of this server ({', '.join(offered)})",
        f"`{name:.64}`" + (f": {reason}" if reason else ""),
        f"Did you mean `{near}`?",
    )


def _require_narrow(scope: DraftScope | None, widest: DraftScope | None) -> None:
    if scope is None or widest is None or REACHES.index(scope) <= REACHES.index(widest):
        return
    raise OptionError(
        f"`scope` to be {' or '.join(REACHES[: REACHES.index(widest) + 1])}",
        f"`{scope}`",
        "A request may narrow how far drafters learn from it, and no more.",
    )
