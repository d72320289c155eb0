"""Another drafting policy over a trace on disk: what it would have verified, accepted and taken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from slipstream.engine.tracing import recorded_decision
from slipstream.measure.replay import DrafterTimes, Outputs, Played, Player
from slipstream.measure.trace_passes import Pass
from slipstream.measure.trace_policies import PolicyMaker
from slipstream.measure.trace_times import RowTimes


@dataclass
class Outcome:
    """A policy over some decoding rounds; passes that hold prompt rows are not counted.

    Attributes:
        rounds: replayed, ``censored`` of them where the policy wanted more than was recorded.
        drafted, accepted, tokens, seconds: under the policy; the seconds of a pass are shared
            equally among its sequences.
        recorded_tokens, recorded_seconds: of the same rounds.
    """

    rounds: int = 0
    censored: int = 0
    drafted: int = 0
    accepted: int = 0
    tokens: int = 0
    seconds: float = 0.0
    recorded_tokens: int = 0
    recorded_seconds: float = 0.0

    @property
    def tok_s(self) -> float | None:
        return self.tokens / self.seconds if self.seconds > 0 else None

    @property
    def recorded_tok_s(self) -> float | None:
        return self.recorded_tokens / self.recorded_seconds if self.recorded_seconds > 0 else None

    def merge(self, other: Outcome) -> None:
        for name in vars(self):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def to_mapping(self) -> dict[str, float | int | None]:
        """Plain values, for JSON."""
        return {**vars(self), "tok_s": self.tok_s, "recorded_tok_s": self.recorded_tok_s}


@dataclass
class Replay:
    """One policy over all engines of a trace; each has a controller of its own.

    Args:
        make: makes a controller.
        times, drafter_times, outputs: of the whole trace.
    """

    make: PolicyMaker
    times: RowTimes
    drafter_times: DrafterTimes
    outputs: Outputs
    _players: dict[int, Player] = field(default_factory=dict)

    def add(self, made: Pass, drafters: Sequence[str], outcomes: Sequence[Outcome]) -> Played:
        """
        Args:
            drafters: of its engine, in order of precedence.
            outcomes: per decoding round, where it is counted.
        """
        engine = made.first.engine
        if engine not in self._players:
            controller = self.make(drafters)
            self._players[engine] = Player(controller, self.outputs, self.drafter_times, self.times)
        decisions = [recorded_decision(record) for record in made.rounds]
        played = self._players[engine].play(decisions, drafters)
        if made.pure and outcomes:
            spared = made.asked_s - played.asked_s + made.first.verify_s - played.elapsed_s
            self._count(made, played, outcomes, made.seconds - spared)
        return played

    def _count(
        self, made: Pass, played: Played, outcomes: Sequence[Outcome], seconds: float
    ) -> None:
        rows = zip(outcomes, made.decoding, played.decisions, played.censored, strict=True)
        for outcome, record, decision, censored in rows:
            outcome.rounds += 1
            outcome.censored += censored
            outcome.drafted += decision.drafted
            outcome.accepted += decision.accepted
            outcome.tokens += len(decision.tokens)
            outcome.seconds += seconds / len(outcomes)
            outcome.recorded_tokens += len(record.sampled)
            outcome.recorded_seconds += made.seconds / len(outcomes)

    def close(self, engine: int, sequence: int, *, private: bool = False) -> None:
        """A request is over; see ``Player.close``."""
        if engine in self._players:
            self._players[engine].close(sequence, private=private)
