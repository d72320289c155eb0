"""Errors of programs under measurement; ``finding`` is the name that a report gives them."""

from __future__ import annotations

from typing import ClassVar

from slipstream.errors import PeerRuntimeError


class RuntimeFaultError(PeerRuntimeError):
    """A program under measurement did what it should not."""

    finding: ClassVar[str] = "crashed"


class CrashedError(RuntimeFaultError):
    """It ended by itself, or was never ready."""


class RouterError(RuntimeFaultError):
    """It is a router: which process computes, and with what, is not known."""

    finding = "router"


class WrongModelError(RuntimeFaultError):
    """It serves another model than the plan's."""

    finding = "wrong-model"


class IdentityError(RuntimeFaultError):
    """It is another build than the plan says."""

    finding = "identity-changed"
