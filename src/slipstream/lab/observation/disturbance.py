"""How many blocks a busy machine cost a run, and what its user can do; pure functions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from slipstream.lab.contract.records import BlockRecord, Line
from slipstream.lab.observation.probe import BUSY_LIMIT, LOADED

_FEWEST: Final = 4
_SHARE: Final = 1 / 3


class Disturbance(msgspec.Struct, frozen=True, kw_only=True):
    """
    Attributes:
        ran: times that a block ran to its end.
        repeated: of those, how many ran once more as the machine disturbed them.
        lost: blocks that were disturbed a second time and count for nothing.
        loaded: of both, how many by other programs' load, which no plan's limit allows.
    """

    ran: int = 0
    repeated: int = 0
    lost: int = 0
    loaded: int = 0

    @property
    def disturbed(self) -> int:
        return self.repeated + self.lost

    @property
    def many(self) -> bool:
        """Whether the machine is no place to measure as it is: a third, four at least."""
        return self.disturbed >= _FEWEST and self.disturbed >= _SHARE * self.ran

    def text(self) -> str:
        """What it cost; empty = nothing."""
        if not self.disturbed:
            return ""
        return (
            f"the machine disturbed {self.disturbed} of the {self.ran} times that a block ran: "
            f"{self.repeated} ran once more, {self.lost} count for nothing"
        )

    def advice(self, limit: float) -> str:
        """What to do about it.

        Args:
            limit: the plan's ``drift_limit``.
        """
        told = (
            "Close other programs, or measure when the machine is quiet (Ctrl-C ends the run, "
            "--resume goes on)."
        )
        if self.loaded * 2 > self.disturbed:
            return f"{told} Others kept more than {BUSY_LIMIT:.0%} of the processors busy."
        return (
            f"{told} Or raise drift_limit ({limit:g}) in a new plan, knowingly: noisier pairs "
            "count then, and more of them are needed."
        )


def disturbance(lines: Iterable[Line]) -> Disturbance:
    """Of all blocks of a run so far."""
    blocks = [x for x in lines if isinstance(x, BlockRecord)]
    disturbed = [x for x in blocks if x.outcome in ("repeated", "inconclusive")]
    return Disturbance(
        ran=len(blocks),
        repeated=sum(x.outcome == "repeated" for x in disturbed),
        lost=sum(x.outcome == "inconclusive" for x in disturbed),
        loaded=sum(x.reason.startswith(LOADED) for x in disturbed),
    )
