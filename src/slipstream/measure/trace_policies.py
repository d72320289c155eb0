"""Drafting policies by name, for the replay of a trace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from slipstream.engine.controller import Controller, Decision, DoublingController
from slipstream.engine.controllers import controller_for
from slipstream.errors import OptionError

PolicyMaker = Callable[[Sequence[str]], Controller]
"""Names of an engine's drafters -> a new controller."""


class FixedController(DoublingController):
    """Asks for the same number of nodes in every step and verifies them all."""

    def __init__(self, nodes: int) -> None:
        super().__init__(first=nodes, most=nodes)

    def observe(self, decision: Decision) -> None:
        del decision


@dataclass(frozen=True)
class Policy:
    """How a policy is made.

    Attributes:
        form: as a user writes it.
        make: (text after the colon, or None; names of the drafters) -> a new controller.
    """

    form: str
    make: Callable[[str | None, Sequence[str]], Controller]


def _fixed(argument: str | None, drafters: Sequence[str]) -> Controller:
    del drafters
    if argument is None or not argument.isdecimal() or not 1 <= int(argument) <= 1024:
        raise OptionError(
            "`--policy fixed:N` with N from 1 to 1024", f"`{argument}`", "For example `fixed:4`."
        )
    return FixedController(int(argument))


def _plain(make: PolicyMaker) -> Callable[[str | None, Sequence[str]], Controller]:
    def made(argument: str | None, drafters: Sequence[str]) -> Controller:
        if argument is not None:
            raise OptionError("a policy without a number", f"`:{argument}`", "Leave it out.")
        return make(drafters)

    return made


def _auto(drafters: Sequence[str]) -> Controller:
    """As an engine with these drafters gets it, whatever was recorded."""
    return controller_for(drafters, fixed=False)


POLICIES: dict[str, Policy] = {
    "off": Policy("off", _plain(lambda _: FixedController(0))),
    "fixed": Policy("fixed:N", _fixed),
    "doubling": Policy("doubling", _plain(lambda _: DoublingController())),
    "auto": Policy("auto", _plain(_auto)),
}


def policy_maker(text: str) -> PolicyMaker:
    """Makes the controller that a user names, such as ``fixed:4``.

    Raises:
        OptionError: no such policy; the maker raises it for an argument out of range.
    """
    name, colon, argument = text.partition(":")
    if name not in POLICIES:
        known = ", ".join(policy.form for policy in POLICIES.values())
        raise OptionError(f"`--policy` one of {known}", f"`{text}`", "Choose one of them.")
    return lambda drafters: POLICIES[name].make(argument if colon else None, drafters)
