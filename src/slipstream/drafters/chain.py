"""Several drafters in a fixed order: the first that proposes anything has the step.

It also keeps each drafter's statistics, for one drafter as for many.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from slipstream.drafters.base import (
    Draft,
    Drafter,
    DrafterNeeds,
    DraftRequest,
    Outcome,
    TargetPass,
)


@dataclass
class DrafterStatistics:
    """What one drafter did since it was created.

    Attributes:
        requests: drafts asked of it.
        drafts: non-empty proposals.
        proposed: tokens proposed; ``drafted`` of them were verified, ``accepted`` accepted.
        accepted_drafts: drafts with at least one accepted token.
        accepted_at: depth -> drafts accepted at least that deep.
        draft_s, process_s, observe_s: wall seconds in each call.
    """

    requests: int = 0
    drafts: int = 0
    proposed: int = 0
    drafted: int = 0
    accepted: int = 0
    accepted_drafts: int = 0
    accepted_at: list[int] = field(default_factory=list)
    draft_s: float = 0.0
    process_s: float = 0.0
    observe_s: float = 0.0

    @property
    def fired(self) -> bool:
        return self.drafts > 0

    def count(self, outcome: Outcome) -> None:
        self.drafted += outcome.drafted
        self.accepted += outcome.accepted
        self.accepted_drafts += outcome.accepted > 0
        self.accepted_at += [0] * (outcome.accepted - len(self.accepted_at))
        for depth in range(outcome.accepted):
            self.accepted_at[depth] += 1


class DrafterChain:
    """A drafter made of drafters.

    Args:
        drafters: in order of precedence.
        clock: seconds; injected by tests.
    """

    def __init__(
        self, drafters: Sequence[Drafter], clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.drafters = tuple(drafters)
        self.name = ",".join(drafter.name for drafter in self.drafters)
        self.statistics = {drafter.name: DrafterStatistics() for drafter in self.drafters}
        self.needs = DrafterNeeds(
            hidden=frozenset().union(*(drafter.needs.hidden for drafter in self.drafters)),
            target_memory=any(drafter.needs.target_memory for drafter in self.drafters),
            target_embedding=any(drafter.needs.target_embedding for drafter in self.drafters),
        )
        self._clock = clock

    def never_fired(self) -> tuple[str, ...]:
        """Drafters that were asked and proposed nothing."""
        return tuple(
            name
            for name, statistics in self.statistics.items()
            if statistics.requests and not statistics.fired and name != "none"
        )

    def open(self, sequence: int, tokens: Sequence[int]) -> None:
        for drafter in self.drafters:
            drafter.open(sequence, tokens)

    def process(self, passes: Sequence[TargetPass]) -> None:
        for drafter in self.drafters:
            start = self._clock()
            drafter.process(passes)
            self.statistics[drafter.name].process_s += self._clock() - start

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        drafts = [Draft() for _ in requests]
        waiting = list(range(len(requests)))
        for drafter in self.drafters:
            if not waiting:
                break
            for place, draft in zip(
                waiting, self._ask(drafter, [requests[i] for i in waiting]), strict=True
            ):
                drafts[place] = draft
            waiting = [i for i in waiting if not len(drafts[i])]
        return drafts

    def _ask(self, drafter: Drafter, requests: Sequence[DraftRequest]) -> list[Draft]:
        statistics = self.statistics[drafter.name]
        start = self._clock()
        drafts = drafter.draft(requests)
        statistics.draft_s += self._clock() - start
        statistics.requests += len(requests)
        statistics.drafts += sum(len(draft) > 0 for draft in drafts)
        statistics.proposed += sum(len(draft) for draft in drafts)
        return drafts

    def observe(self, sequence: int, outcome: Outcome) -> None:
        if outcome.method in self.statistics:
            self.statistics[outcome.method].count(outcome)
        for drafter in self.drafters:
            start = self._clock()
            drafter.observe(sequence, outcome)
            self.statistics[drafter.name].observe_s += self._clock() - start

    def fork(self, source: int, target: int) -> None:
        for drafter in self.drafters:
            drafter.fork(source, target)

    def close(self, sequence: int) -> None:
        for drafter in self.drafters:
            drafter.close(sequence)
