"""Drafters that law tests put in place of real ones."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from math import nan

import numpy as np

from slipstream.drafters.base import (
    ROOT,
    BaseDrafter,
    Distribution,
    Draft,
    DraftRequest,
    Outcome,
    TargetPass,
)


class TestDrafter(BaseDrafter):
    """Records what the engine tells it; proposes nothing.

    Attributes:
        opened, closed: sequence ids, in order.
        scopes, forgotten: of ``open`` and ``forget``, in order.
        outcomes: sequence -> outcomes observed.
        positions: sequence -> positions of all processed rows.
    """

    __test__ = False
    name = "test"

    def __init__(self) -> None:
        self.opened: list[int] = []
        self.scopes: list[str] = []
        self.forgotten: list[str | None] = []
        self.closed: list[int] = []
        self.outcomes: dict[int, list[Outcome]] = {}
        self.positions: dict[int, list[int]] = {}

    def open(self, sequence: int, tokens: Sequence[int], scope: str) -> None:
        del tokens
        self.scopes.append(scope)
        self.opened.append(sequence)
        self.outcomes[sequence] = []
        self.positions[sequence] = []

    def process(self, passes: Sequence[TargetPass]) -> None:
        for target_pass in passes:
            self.positions[target_pass.sequence] += target_pass.positions.tolist()

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        return [self.propose(request) for request in requests]

    def propose(self, request: DraftRequest) -> Draft:
        del request
        return Draft()

    def observe(self, sequence: int, outcome: Outcome) -> None:
        self.outcomes[sequence].append(outcome)

    def fork(self, source: int, target: int) -> None:
        raise NotImplementedError

    def close(self, sequence: int) -> None:
        self.closed.append(sequence)

    def forget(self, scope: str | None) -> None:
        self.forgotten.append(scope)


class ScriptedDrafter(TestDrafter):
    """Proposes the true continuation, as far as it is known.

    Args:
        outputs: whole token sequences, prompt included, one of which a request is a prefix of.
        length: most tokens proposed.
        wrong_at: depth whose token is replaced by another, or None.
    """

    name = "scripted"

    def __init__(
        self, outputs: Sequence[Sequence[int]], length: int = 64, wrong_at: int | None = None
    ) -> None:
        super().__init__()
        self.outputs = [list(output) for output in outputs]
        self.length = length
        self.wrong_at = wrong_at

    def propose(self, request: DraftRequest) -> Draft:
        known = list(request.tokens)
        for output in self.outputs:
            if output[: len(known)] == known:
                tokens = output[len(known) : len(known) + self.length]
                if self.wrong_at is not None and self.wrong_at < len(tokens):
                    tokens[self.wrong_at] = 0 if tokens[self.wrong_at] else 1
                return Draft.chain(tokens, self.name)
        return Draft()


class HostileDrafter(TestDrafter):
    """Random chains and trees, well-formed but worthless, with a true branch now and then.

    Args:
        vocabulary: token ids are drawn below it.
        seed: of the draws.
        outputs: as ``ScriptedDrafter``; a tree may hold a part of the truth at any place.
        trees: whether to propose trees.
    """

    name = "hostile"

    def __init__(
        self,
        vocabulary: int,
        seed: int,
        outputs: Sequence[Sequence[int]] = (),
        trees: bool = True,
    ) -> None:
        super().__init__()
        self.vocabulary = vocabulary
        self.random = random.Random(seed)
        self.truth = ScriptedDrafter(outputs)
        self.trees = trees

    def propose(self, request: DraftRequest) -> Draft:
        nodes = self.random.randint(0, 2 * request.n_max + 2)
        if not self.trees or self.random.random() < 0.3:
            return Draft.chain([self._token() for _ in range(nodes)], self.name)
        return self._tree(nodes, self.truth.propose(request).tokens)

    def _token(self) -> int:
        return self.random.randrange(self.vocabulary)

    def _tree(self, nodes: int, truth: Sequence[int]) -> Draft:
        tokens: list[int] = []
        parents: list[int] = []
        used: set[tuple[int, int]] = set()
        true_node, known = ROOT, 0
        for _ in range(nodes):
            parent = self.random.randint(ROOT, len(tokens) - 1)
            token = self._token()
            if known < len(truth) and self.random.random() < 0.5:
                parent, token = true_node, truth[known]
            if (parent, token) in used:
                continue
            used.add((parent, token))
            if known < len(truth) and (parent, token) == (true_node, truth[known]):
                true_node, known = len(tokens), known + 1
            tokens.append(token)
            parents.append(parent)
        return Draft(tuple(tokens), tuple(parents))


def _drawn(ids: list[int], probabilities: list[float], nodes: int = 1) -> Draft:
    """Token 1 as drawn from a distribution."""
    distribution = Distribution(np.array(ids, np.int64), np.array(probabilities))
    return Draft((1,), (-1,), distributions=(distribution,) * nodes)


MALFORMED: Mapping[str, Callable[[int], Draft]] = {
    "token id outside the vocabulary": lambda vocabulary: Draft((1, vocabulary), (-1, 0)),
    "negative token id": lambda _: Draft((-1,), (-1,)),
    "parent after its child": lambda _: Draft((1, 2), (1, -1)),
    "own parent": lambda _: Draft((1, 2), (-1, 1)),
    "parent below the root": lambda _: Draft((1, 2), (-1, -2)),
    "siblings alike": lambda _: Draft((1, 2, 1), (-1, -1, -1)),
    "fewer parents than tokens": lambda _: Draft((1, 2), (-1,)),
    "too long": lambda _: Draft.chain([1] * 5000, "hostile"),
    "not integers": lambda _: Draft((1.5,), (-1,)),  # type: ignore[arg-type]
    "fewer estimates than tokens": lambda _: Draft((1, 2), (-1, 0), probabilities=(0.5,)),
    "an estimate above 1": lambda _: Draft((1,), (-1,), probabilities=(1.5,)),
    "an estimate that is no number": lambda _: Draft((1,), (-1,), probabilities=(nan,)),
    "a distribution too many": lambda _: _drawn([1], [1.0], nodes=2),
    "distribution outside the vocabulary": lambda vocabulary: _drawn([1, vocabulary], [0.5, 0.5]),
    "distribution out of order": lambda _: _drawn([2, 1], [0.5, 0.5]),
    "distribution of sum 2": lambda _: _drawn([1, 2], [1.0, 1.0]),
    "negative probability": lambda _: _drawn([1, 2], [1.5, -0.5]),
    "token that the distribution lacks": lambda _: _drawn([2, 3], [0.5, 0.5]),
    "token of probability 0": lambda _: _drawn([1, 2], [0.0, 1.0]),
    "distribution of no id": lambda _: _drawn([], []),
}
"""What is wrong -> a draft that has it, for a vocabulary."""


class MalformedDrafter(TestDrafter):
    """Proposes malformed drafts, one kind after the other."""

    name = "malformed"

    def __init__(self, vocabulary: int, kinds: Sequence[str] = tuple(MALFORMED)) -> None:
        super().__init__()
        self.proposals = cycle([MALFORMED[kind](vocabulary) for kind in kinds])

    def propose(self, request: DraftRequest) -> Draft:
        del request
        return next(self.proposals)
