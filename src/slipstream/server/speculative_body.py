"""The ``speculative`` object of a request: which drafters it wants, and how much of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from slipstream.errors import RequestError
from slipstream.options import METHODS, DraftScope, SpeculationOptions, describe
from slipstream.server.bodies import fill, shown, unknown_key
from slipstream.server.wire import Speculation

LONGEST_PATH: Final = 1024
_SERVERS_OWN: Final = frozenset(
    name for option in describe(SpeculationOptions) for name in (option.name, *option.aliases)
)


class SpeculativeBody(msgspec.Struct, frozen=True, kw_only=True):
    """As a client writes it; what is left out is the server's.

    Attributes:
        type: methods, one or several (a list, or a text with commas); ``none`` = no drafts, and
            ``auto`` what ``--spec auto`` would use of those that the server offers.
        n_max: most draft tokens on a path.
        n_min: shorter drafts are dropped.
        p_min: nodes with a lower estimate are not verified.
        scope: how far what drafters learn from it reaches; never wider than the server's.
    """

    type: str | list[str] | None = None
    n_max: Annotated[int, Meta(ge=0, le=LONGEST_PATH)] | None = None
    n_min: Annotated[int, Meta(ge=0, le=LONGEST_PATH)] = 0
    p_min: Annotated[float, Meta(ge=0, le=1)] = 0.0
    scope: DraftScope | None = None


def speculation_of(value: Any, offered: Mapping[str, Mapping[str, Any]]) -> Speculation | None:
    """What a request's ``speculative`` asks for; None where it says nothing.

    Args:
        value: JSON of the key.
        offered: ``Service.methods``.

    Raises:
        RequestError: no object, an unknown key, a value out of bounds, or a method that the
            server does not offer (with its reason).
    """
    if value is None:
        return None
    if not isinstance(value, dict):
        raise RequestError(
            "`speculative` to be an object", shown(value), 'Send {"type": "suffix"}, say.'
        )
    body = _filled(value)
    if body.n_max is not None and 0 < body.n_max < body.n_min:
        raise RequestError(
            f"`n_min` of `speculative` at most `n_max` ({body.n_max})",
            f"{body.n_min}",
            "Lower it or raise `n_max`.",
        )
    return Speculation(
        methods=None if body.type is None else _methods(body.type, offered),
        n_max=body.n_max,
        n_min=body.n_min,
        p_min=body.p_min,
        scope=body.scope,
    )


def _filled(value: dict[str, Any]) -> SpeculativeBody:
    known = SpeculativeBody.__struct_fields__
    for key in value:
        if key in known:
            continue
        if key.replace("-", "_") in _SERVERS_OWN:
            raise RequestError(
                f"keys of `speculative` that a request may set ({', '.join(known)})",
                f"`{shown(key)}`",
                "It belongs to the server: set it when the server starts.",
            )
        error = unknown_key(key, known)
        raise RequestError(error.expected, f"`speculative.{shown(key)}`", error.remedy)
    try:
        return fill(SpeculativeBody, value)
    except RequestError as error:
        raise RequestError(
            error.expected.replace("`", "`speculative.", 1), error.found, error.remedy
        ) from None


def _methods(given: str | list[str], offered: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
    listed = given.split(",") if isinstance(given, str) else given
    names = list(dict.fromkeys(name.strip() for name in listed))
    if not names or (len(names) > 1 and "none" in names):
        raise RequestError(
            "`speculative.type` to be none, or some drafting methods",
            shown(given),
            "Leave out `none`, or leave out the others.",
        )
    if names == ["none"]:
        return ()
    chosen: list[str] = []
    for name in names:
        chosen += _automatic(offered) if name == "auto" else [_offered(name, offered)]
    return tuple(dict.fromkeys(chosen))


def _automatic(offered: Mapping[str, Mapping[str, Any]]) -> list[str]:
    automatic = ("suffix", "draft-simple")
    return [name for name in automatic if offered.get(name, {}).get("offered")]


def _offered(name: str, offered: Mapping[str, Mapping[str, Any]]) -> str:
    facts = offered.get(name)
    if facts is None:
        names = [*dict.fromkeys([*METHODS, *offered])]
        if name not in names:
            raise RequestError(
                "`speculative.type` to be a known drafting method",
                f"{shown(name)}",
                unknown_key(name, names).remedy,
            )
        facts = {"reason": "this server does not offer it"}
    if not facts.get("offered"):
        usable = [other for other, about in offered.items() if about.get("offered")]
        raise RequestError(
            f"`speculative.type` to be a method of this server ({', '.join(usable) or 'none'})",
            f"{shown(name)}: {facts.get('reason') or 'not offered'}",
            "Choose one of them, or none; `/props` lists them with the reasons.",
        )
    return name
