"""What the cost controller knows of scopes and of the sequences in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from slipstream.drafters import runs_a_model
from slipstream.drafters.base import Draft
from slipstream.engine.acceptance import Foresight, SharedEvidence
from slipstream.engine.controller import Decision, Room
from slipstream.engine.ledger import Ledger

Methods = tuple[str, ...] | None
"""Drafters that a sequence chose, as in ``Room``."""

MOST_SCOPES = 64
STRETCH_RATE = 0.3


@dataclass
class Scope:
    """Nothing learned here is used in another scope.

    Attributes:
        ledger: of sequences with all drafters of the engine.
        others: of sequences that chose some: drafters -> what these cost and saved together.
        evidence: drafter -> how often it was right.
    """

    name: str
    ledger: Ledger = field(default_factory=Ledger)
    others: dict[tuple[str, ...], Ledger] = field(default_factory=dict)
    evidence: dict[str, SharedEvidence] = field(default_factory=dict)

    def ledger_of(self, methods: Methods) -> Ledger:
        return self.ledger if methods is None else self.others.setdefault(methods, Ledger())

    def knows(self, methods: Sequence[str] | None) -> bool:
        """Whether any decoding with one of these drafters was accounted for."""
        return self.ledger.plain_s > 0.0 or any(
            ledger.plain_s > 0.0 and (methods is None or not set(chosen).isdisjoint(methods))
            for chosen, ledger in self.others.items()
        )


@dataclass
class View:
    """One sequence.

    Attributes:
        ledger: of sequences like it.
        methods: drafters that it chose; None = all.
        foresights: drafter -> how it does here.
        tokens: emitted while the controller watched.
        uncovered: tokens since a look-up was of use.
        stretch: mean length of such stretches, once one has ended.
    """

    scope: Scope
    ledger: Ledger
    methods: Methods = None
    foresights: dict[str, Foresight] = field(default_factory=dict)
    tokens: int = 0
    uncovered: int = 0
    stretch: float | None = None

    @cached_property
    def lone(self) -> bool:
        """Whether it chose, and all that it chose run a model."""
        return bool(self.methods) and all(map(runs_a_model, self.methods or ()))

    def foresight(self, method: str) -> Foresight:
        found = self.foresights.get(method)
        if found is None:
            shared = self.scope.evidence.setdefault(method, SharedEvidence())
            found = self.foresights[method] = Foresight(method, shared)
        return found

    def coming(self, tokens: int) -> float:
        """Of the tokens to come, how many until a look-up is of use again."""
        if self.stretch is None:
            return tokens
        return min(tokens, max(self.stretch, self.uncovered))

    def learn(self, decision: Decision, probing: frozenset[str]) -> None:
        """Score what drafters proposed, and note what they have read.

        Args:
            probing: drafters that were asked only to see how they do.
        """
        proposed = {proposal.method: proposal for proposal in decision.proposals}
        for method in proposed:
            self.foresight(method)
        for method, foresight in self.foresights.items():
            proposal = proposed.get(method)
            self._score(foresight, decision, None if proposal is None else proposal.draft)
            if proposal is not None:
                self._asked(foresight, decision, proposal.cap, len(proposal.draft), probing)
        self._count(decision)

    def _score(self, foresight: Foresight, decision: Decision, draft: Draft | None) -> None:
        """A drawn token that was not verified says little: the target draws another just as well.

        The tokens of drafters that run no model are taken for fixed, whatever the room says.
        """
        if decision.room.drawn and foresight.method in decision.verified.methods:
            foresight.learn_drawn(decision.verified, decision.path, decision.rejected)
        elif decision.room.drawn and runs_a_model(foresight.method):
            foresight.learn(None, decision.tokens)
        else:
            foresight.learn(draft, decision.tokens)

    def _asked(
        self,
        foresight: Foresight,
        decision: Decision,
        cap: int,
        returned: int,
        probing: frozenset[str],
    ) -> None:
        own = [decision.verified.methods[node] == foresight.method for node in decision.path]
        foresight.heard = decision.room.context + 1 + sum(own)
        foresight.idle = 0 if any(own) else foresight.idle + 1
        foresight.asked = self.tokens
        doubled = min(2 * foresight.backoff, 1024)
        foresight.backoff = doubled if foresight.method in probing else 32
        shared = foresight.shared
        if 0 < returned < cap and not runs_a_model(foresight.method):  # one stops where it doubts
            shared.reach = max(shared.reach or 0, returned)

    def _count(self, decision: Decision) -> None:
        emitted = len(decision.tokens)
        self.tokens += emitted
        for method, shared in self.scope.evidence.items():
            if decision.room.opens(method):
                shared.now += emitted
        if not any(not runs_a_model(decision.verified.methods[node]) for node in decision.path):
            self.uncovered += emitted
        elif self.uncovered:
            known = self.uncovered if self.stretch is None else self.stretch
            self.stretch = known + STRETCH_RATE * (self.uncovered - known)
            self.uncovered = 0


class Experience:
    """Scopes, the most recently opened ones, and open sequences."""

    def __init__(self) -> None:
        self._scopes: dict[str, Scope] = {}
        self._views: dict[int, View] = {}

    def of(self, room: Room) -> View:
        view = self._views.get(room.sequence)
        if view is None:
            scope = self._scope(room.scope)
            view = View(scope, scope.ledger_of(room.methods), room.methods)
            self._views[room.sequence] = view
        return view

    def _scope(self, name: str) -> Scope:
        scope = self._scopes.pop(name, None) or Scope(name)
        self._scopes[name] = scope
        if len(self._scopes) > MOST_SCOPES:
            del self._scopes[next(iter(self._scopes))]
        return scope

    def close(self, sequence: int) -> None:
        self._views.pop(sequence, None)

    def forget(self, scope: str | None) -> None:
        """Open sequences of the scope start anew too."""
        concerned = [name for name in self._scopes if scope in (None, name)]
        for name in concerned:
            del self._scopes[name]
        gone = [key for key, view in self._views.items() if scope in (None, view.scope.name)]
        for key in gone:
            del self._views[key]

    def knows(self, scope: str, methods: Sequence[str] | None = None) -> bool:
        """Whether any decoding of the scope was accounted for; opening a sequence is not enough.

        Args:
            methods: with one of these drafters; None = with any.
        """
        found = self._scopes.get(scope)
        return found is not None and found.knows(methods)
