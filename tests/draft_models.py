"""Draft models for tests, every row of which is recorded, and a drafter that remembers nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from fake_program import FakeProgram, FakeTokenizer
from slipstream.backends.base import Outputs, Program, Step
from slipstream.drafters.base import ROOT, BaseDrafter, Draft, DraftRequest
from slipstream.drafters.draft_simple import DraftSimple, create
from slipstream.drafters.draft_tokens import Rules, guessed
from slipstream.drafters.draft_tree import DraftTree
from slipstream.drafters.resources import DraftModel, Resources
from slipstream.memory.base import Memory
from slipstream.options import SpeculationOptions
from slipstream.tokenizer import Tokenizer

Row = NDArray[np.float32]


class RecordingProgram:
    """Keeps the steps of another program.

    Attributes:
        steps: in order.
        histories: per row of all steps, the tokens up to and including it; chains only.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.memory: Memory = program.memory
        self.graph = program.graph
        self.steps: list[Step] = []
        self.histories: list[tuple[int, ...]] = []

    def run(self, step: Step) -> Outputs:
        self.steps.append(step)
        if isinstance(self.memory, RecordingMemory):
            self._record(step, self.memory)
        return self.program.run(step)

    def _record(self, step: Step, memory: RecordingMemory) -> None:
        assert step.tokens is not None
        texts: dict[int, list[int]] = {}
        for token, handle in zip(step.tokens.tolist(), step.sequences.tolist(), strict=True):
            text = texts.setdefault(handle, list(memory.texts[handle]))
            text.append(token)
            self.histories.append(tuple(text))
        memory.written = texts

    @property
    def rows(self) -> list[int]:
        return [len(step.sequences) for step in self.steps]

    def observed(self) -> Mapping[str, int]:
        return self.program.observed()


class RecordingMemory:
    """A memory that also keeps the tokens of each sequence, and refuses a row that is a tree's."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.texts: dict[int, list[int]] = {}
        self.written: dict[int, list[int]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.memory, name)

    def open(self) -> int:
        handle = self.memory.open()
        self.texts[handle] = []
        return handle

    def close(self, sequence: int) -> None:
        self.memory.close(sequence)
        del self.texts[sequence]

    def commit(self, sequence: int, path: Sequence[int]) -> None:
        before = self.memory.length(sequence)
        self.memory.commit(sequence, path)
        self.texts[sequence] = self.written.pop(sequence)
        assert self.memory.length(sequence) == before + len(path) == len(self.texts[sequence])

    def truncate(self, sequence: int, length: int) -> None:
        self.memory.truncate(sequence, length)
        del self.texts[sequence][length:]

    def fork(self, source: int, length: int | None = None) -> int:
        target = self.memory.fork(source, length)
        self.texts[target] = self.texts[source][:length]
        return target


def recorded(program: Program) -> RecordingProgram:
    """Both recorders around a program."""
    found = RecordingProgram(program)
    found.memory = cast(Memory, RecordingMemory(program.memory))
    return found


def fake_draft_model(program: FakeProgram, context: int = 1 << 16) -> DraftModel:
    """One memory, whatever size is asked for."""
    vocabulary = program.graph.vocabulary
    tokenizer = cast(Tokenizer, FakeTokenizer())
    once = recorded(program)
    return DraftModel("fake", tokenizer, context, lambda _, __: once, vocabulary, vocabulary)


def recorder_of(drafter: DraftSimple) -> RecordingProgram:
    program = drafter.memory.program
    assert isinstance(program, RecordingProgram)
    return program


def draft_simple(
    model: DraftModel, vocabulary: int = 24, context: int = 256, **options: Any
) -> DraftSimple:
    """The drafter with these speculation options."""
    resources = Resources(cast(Tokenizer, FakeTokenizer()), vocabulary, context, 4, model)
    drafter = create(SpeculationOptions(type=("draft-simple",), **options), resources)
    assert isinstance(drafter, DraftSimple)
    return drafter


def fake_draft_simple(program: FakeProgram | None = None, **options: Any) -> DraftSimple:
    return draft_simple(fake_draft_model(program or FakeProgram()), **options)


class NaiveDrafter(BaseDrafter):
    """The slow twin of draft-simple: it computes every text anew, one at a time.

    Args:
        logits: of a text's next token.
    """

    name = "draft-simple"

    def __init__(self, logits: Callable[[Sequence[int]], Row], rules: Rules, n_max: int) -> None:
        self.logits = logits
        self.rules = rules
        self.n_max = n_max

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        return [self._draft(request) for request in requests]

    def _draft(self, request: DraftRequest) -> Draft:
        assert request.sampler is not None
        tree = DraftTree(request.n_max, min(self.n_max, request.n_max), request.worth)
        places = {ROOT: (list(request.tokens), request.sampler.fork())}
        row = self.logits(request.tokens)
        tree.grow(ROOT, guessed(row, places[ROOT][1], self.rules))
        for _ in range(self.n_max - 1):
            for node in tree.ripe(self.rules.branches):
                text, before = places[tree.parent(node)]
                state = before.fork()
                state.advance(tree.token(node))
                places[node] = ([*text, tree.token(node)], state)
                tree.close(node)
                tree.grow(node, guessed(self.logits(places[node][0]), state, self.rules))
        return tree.draft(self.name)
