"""No drafting: every step is plain decoding."""

from __future__ import annotations

from collections.abc import Sequence

from slipstream.drafters.base import Draft, DrafterNeeds, DraftRequest, Outcome, TargetPass
from slipstream.options import SpeculationOptions


class NoDrafter:
    name = "none"
    needs = DrafterNeeds()

    def open(self, sequence: int, tokens: Sequence[int]) -> None:
        pass

    def process(self, passes: Sequence[TargetPass]) -> None:
        pass

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        return [Draft() for _ in requests]

    def observe(self, sequence: int, outcome: Outcome) -> None:
        pass

    def fork(self, source: int, target: int) -> None:
        pass

    def close(self, sequence: int) -> None:
        pass


def create(options: SpeculationOptions) -> NoDrafter:
    del options
    return NoDrafter()
