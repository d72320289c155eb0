"""The contract of a drafter: it proposes tokens; it never decides what is emitted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from slipstream.sampling import SamplerState

ROOT = -1
GRAMMAR = "grammar"
"""Name, as a drafting method, of the tokens that a sequence's grammar dictates."""
Value = TypeVar("Value")


@dataclass(frozen=True)
class Distribution:
    """What a drafter drew a token from, over the target's token ids.

    Attributes:
        ids: int64 [n], ascending; every other id has probability 0.
        probabilities: float64 [n], their sum is 1.
    """

    ids: NDArray[np.int64]
    probabilities: NDArray[np.float64]


@dataclass(frozen=True)
class Draft:
    """Proposed tokens as a tree in topological order; a chain is the common case.

    Attributes:
        tokens: node -> token id.
        parents: node -> parent node, ``ROOT`` = child of the newest sampled token. A parent comes
            before its children; siblings have different tokens and stand in draft order.
        methods: node -> name of the drafter that proposed it; the engine fills it in.
        probabilities: node -> the drafter's estimate that the node is accepted where its parent
            was; empty = no estimate. For a node drawn from a distribution it must not depend on
            the token drawn (else rejection sampling would be biased by what is cut).
        distributions: node -> what it was drawn from given that its earlier siblings were
            rejected, or None = a point mass; empty = all point masses.
        fault: why there is no draft where the drafter failed; the nodes are then ignored.
    """

    tokens: tuple[int, ...] = ()
    parents: tuple[int, ...] = ()
    methods: tuple[str, ...] = ()
    probabilities: tuple[float, ...] = ()
    distributions: tuple[Distribution | None, ...] = ()
    fault: str = ""

    @staticmethod
    def chain(
        tokens: Sequence[int],
        method: str,
        probabilities: Sequence[float] = (),
        distributions: Sequence[Distribution | None] = (),
    ) -> Draft:
        """Each token the only child of the one before."""
        return Draft(
            tuple(tokens),
            tuple(range(-1, len(tokens) - 1)),
            (method,) * len(tokens),
            tuple(probabilities),
            tuple(distributions),
        )

    @property
    def method(self) -> str:
        """Names of its drafters in order of their first nodes, joined by commas, or ``none``."""
        return ",".join(dict.fromkeys(self.methods)) or "none"

    def cut(self, nodes: int) -> Draft:
        """The first ``nodes`` nodes: a prefix in topological order is itself a tree."""
        if nodes >= len(self.tokens):
            return self
        return Draft(
            self.tokens[:nodes],
            self.parents[:nodes],
            self.methods[:nodes],
            self.probabilities[:nodes],
            self.distributions[:nodes],
        )

    def kept(self, nodes: Sequence[int]) -> Draft:
        """The tree of some nodes, in their order; the parent of each must come before it."""
        places = {node: place for place, node in enumerate(nodes)} | {ROOT: ROOT}

        def of(values: tuple[Value, ...]) -> tuple[Value, ...]:
            return tuple(values[node] for node in nodes) if values else ()

        return Draft(
            of(self.tokens),
            tuple(places[self.parents[node]] for node in nodes),
            of(self.methods),
            of(self.probabilities),
            of(self.distributions),
        )

    def children(self) -> dict[int, list[int]]:
        """Node (or ``ROOT``) -> its children in draft order."""
        children: dict[int, list[int]] = {}
        for node, parent in enumerate(self.parents):
            children.setdefault(parent, []).append(node)
        return children

    def depths(self) -> list[int]:
        """Node -> its depth; children of the root have depth 0."""
        depths: list[int] = []
        for parent in self.parents:
            depths.append(0 if parent == ROOT else depths[parent] + 1)
        return depths

    def matched(self, tokens: Sequence[int]) -> tuple[int, ...]:
        """The longest path from the root whose tokens begin ``tokens``."""
        children, path = self.children(), []
        node = ROOT
        for token in tokens:
            found = [child for child in children.get(node, ()) if self.tokens[child] == token]
            if not found:
                break
            [node] = found
            path.append(node)
        return tuple(path)

    def __len__(self) -> int:
        return len(self.tokens)


@dataclass(frozen=True)
class DraftRequest:
    """One sequence that wants a draft.

    Attributes:
        sequence: engine sequence id.
        tokens: every token in the sequence so far, the newest sampled one (not yet in memory) last.
        n_max: most nodes the controller will verify.
        sampler: the sequence's own sampler at the next token: options, noise and grammar of the
            target. Read it or fork it; never advance it. None in a drafter's own tests.
        drawn: whether tokens are to be drawn with their distributions given (rejection sampling);
            otherwise the drafter guesses which token the target's sampler will draw. Two
            drafters that draw for one sequence must not do it with the same noise.
        worth: probability of being accepted (the product along its path) below which a further
            node costs more to draft than it gives: a drafter that pays per node stops there.
        p_min: estimate below which a node will not be verified, nor what follows it: a drafter
            that pays per node need not go on there. Where tokens are drawn, the first ``n_min`` on
            a path are spared.
        n_min: proposals whose longest path is shorter will be dropped, unless tokens are drawn.
    """

    sequence: int
    tokens: Sequence[int]
    n_max: int
    sampler: SamplerState | None = None
    drawn: bool = False
    worth: float = 0.0
    p_min: float = 0.0
    n_min: int = 0


@dataclass(frozen=True)
class TargetPass:
    """What a target pass computed, for every row of every sequence, prefill included.

    Attributes:
        sequence: engine sequence id.
        tokens, positions: int32 [rows].
        parents: int32 [rows], index of the parent among these rows, -1 = committed prefix.
        hidden: requested hidden outputs, name -> float32 [rows, width].
        logit_rows: int32 [m], the rows among these whose logits were computed.
        logits: float32 [m, vocabulary], or None unless a drafter asked for them; valid during
            the call only.
    """

    sequence: int
    tokens: NDArray[np.int32]
    positions: NDArray[np.int32]
    parents: NDArray[np.int32]
    hidden: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)
    logit_rows: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    logits: NDArray[np.float32] | None = None


@dataclass(frozen=True)
class Outcome:
    """What verification said in the last step of a sequence.

    Attributes:
        draft: the tree that was verified, perhaps of several drafters; empty when there was none.
        path: its accepted nodes.
        tokens: accepted tokens and the next token, in order.
        proposed: nodes that this drafter had proposed in the step.
    """

    draft: Draft
    path: tuple[int, ...]
    tokens: tuple[int, ...]
    proposed: int = 0

    @property
    def accepted(self) -> int:
        return len(self.path)

    def drafted_by(self, method: str) -> int:
        """Verified nodes of one drafter."""
        return self.draft.methods.count(method)

    def accepted_by(self, method: str) -> int:
        """Accepted nodes of one drafter."""
        return sum(self.draft.methods[node] == method for node in self.path)


@dataclass(frozen=True)
class DrafterNeeds:
    """What a drafter asks of the engine.

    Attributes:
        hidden: names of hidden outputs of the target, delivered by ``process``.
        logits: whether ``process`` delivers the target's logits.
        target_memory, target_embedding: whether it reads those.
    """

    hidden: frozenset[str] = frozenset()
    logits: bool = False
    target_memory: bool = False
    target_embedding: bool = False


class Drafter(Protocol):
    name: str
    needs: DrafterNeeds

    def open(self, sequence: int, tokens: Sequence[int], scope: str) -> None:
        """A sequence starts.

        Args:
            tokens: the whole prompt. Of a drafter without ``needs.hidden`` and ``needs.logits`` the
                memory of a prefix may be reused; ``process`` then sees the rows after it only.
            scope: what the drafter learns of this sequence may be used for sequences of the same
                scope and for no other.
        """

    def process(self, passes: Sequence[TargetPass]) -> None:
        """Called after every target pass; if it raises, again with each sequence alone."""

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """One draft (possibly empty) per request; ``n_min`` style rules are the drafter's own.

        If it raises, it is called again with each request alone; a failure that concerns one
        request is better told by ``Draft.fault``, which costs that draft only.
        """

    def observe(self, sequence: int, outcome: Outcome) -> None:
        """The verdict on this step; also called when nothing was drafted."""

    def fork(self, source: int, target: int) -> None: ...

    def close(self, sequence: int) -> None: ...

    def pools(self) -> Mapping[str, Pool]:
        """What it remembers beyond open sequences: scope -> its extent."""

    def forget(self, scope: str | None) -> None:
        """Erase what was learned in a scope, or in all; open sequences start to learn anew."""


@runtime_checkable
class Priced(Protocol):
    """A drafter whose first draft token may cost much: a controller can ask before it drafts."""

    def pending(self, sequence: int, tokens: Sequence[int]) -> int:
        """Rows that its own model must compute before the first draft token; changes nothing.

        Args:
            tokens: as ``DraftRequest.tokens`` would be.
        """


@dataclass(frozen=True)
class Pool:
    """Extent of what a drafter remembers in one scope.

    Attributes:
        tokens: of texts it was built from.
        bytes: of memory, estimated.
    """

    tokens: int
    bytes: int


class BaseDrafter:
    """Does nothing where a drafter need not act: a subclass sets ``name`` and writes ``draft``."""

    name = "base"
    needs = DrafterNeeds()

    def open(self, sequence: int, tokens: Sequence[int], scope: str) -> None:
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

    def pools(self) -> Mapping[str, Pool]:
        return {}

    def forget(self, scope: str | None) -> None:
        pass
