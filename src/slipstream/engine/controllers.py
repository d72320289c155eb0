"""Which controller an engine gets."""

from __future__ import annotations

from collections.abc import Sequence

from slipstream.drafters import runs_a_model
from slipstream.engine.controller import Controller, DoublingController
from slipstream.engine.cost_controller import CREDIT, LONE_CREDIT, CostController

__all__ = ["LONE_CREDIT", "controller_for"]


def controller_for(methods: Sequence[str], *, fixed: bool) -> Controller:
    """The controller of an engine with drafters of these names; ``fixed`` verifies whole drafts.

    A sequence that chooses some of them is given credit by those (``Room.methods``).
    """
    if fixed or not methods:
        return DoublingController(fixed=fixed)
    alone = all(map(runs_a_model, methods))
    return CostController(LONE_CREDIT if alone else CREDIT)
