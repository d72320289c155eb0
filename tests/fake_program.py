"""A language model without weights: logits are a hash of the token history.

It honours parents and commits, and refuses what the contracts forbid, so the laws of the engine
can be tested exhaustively and fast.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from slipstream.backends.base import Outputs, Step
from slipstream.errors import OutOfMemoryError
from slipstream.graph import Graph
from slipstream.memory.base import PAGE_POSITIONS, KeyLayout, Memory


class FakeMemory:
    """Token ids instead of keys.

    Args:
        positions: most slots over all sequences, draft rows included.
    """

    def __init__(self, positions: int = 1 << 20) -> None:
        self.positions = positions
        self.committed: dict[int, list[int]] = {}
        self.written: dict[int, list[tuple[int, int]]] = {}  # (token, parent among own rows)
        self.reclaim: Callable[[], bool] | None = None
        self._opened = 0

    def open(self) -> int:
        self._opened += 1
        self.committed[self._opened] = []
        return self._opened

    def close(self, sequence: int) -> None:
        del self.committed[sequence]
        self.written.pop(sequence, None)

    def length(self, sequence: int) -> int:
        return len(self.committed[sequence])

    def earliest(self, sequence: int) -> int:
        del sequence
        return 0

    def layout(self, sequences: NDArray[np.int32], parents: NDArray[np.int32]) -> KeyLayout:
        raise NotImplementedError

    def commit(self, sequence: int, path: Sequence[int]) -> None:
        rows, parent = self.written.pop(sequence), -1
        for row in path:
            assert rows[row][1] == parent, "not a path from the root"
            self.committed[sequence].append(rows[row][0])
            parent = row

    def truncate(self, sequence: int, length: int) -> None:
        assert self.earliest(sequence) <= length <= self.length(sequence)
        del self.committed[sequence][length:]

    def fork(self, source: int, length: int | None = None) -> int:
        assert length is None or self.earliest(source) <= length <= self.length(source)
        target = self.open()
        self.committed[target] = self.committed[source][:length]
        return target

    def bytes(self) -> int:
        return 4 * sum(map(len, self.committed.values()))

    def pages_held(self, sequences: Iterable[int]) -> int:
        return sum(-(-self.length(sequence) // PAGE_POSITIONS) for sequence in sequences)


class FakeProgram:
    """
    Args:
        vocabulary: number of ids.
        order: tokens of history that the logits depend on; None = all. A small order repeats.
        spread: standard deviation of the logits.
    """

    def __init__(
        self,
        vocabulary: int = 24,
        order: int | None = None,
        spread: float = 2.0,
        memory: FakeMemory | None = None,
    ) -> None:
        self.tokens = memory or FakeMemory()
        self.memory: Memory = self.tokens
        self.graph = Graph((), "fake", 1, vocabulary, 1 << 16)
        self.order = order
        self.spread = spread
        self.steps: list[Step] = []
        self._cache: dict[tuple[int, ...], NDArray[np.float32]] = {}

    def logits(self, history: Sequence[int]) -> NDArray[np.float32]:
        key = tuple(history if self.order is None else history[-self.order :])
        if key not in self._cache:
            digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
            generator = np.random.default_rng(int.from_bytes(digest, "little"))
            row = generator.standard_normal(self.graph.vocabulary) * self.spread
            self._cache[key] = row.astype(np.float32)
        return self._cache[key]

    def run(self, step: Step) -> Outputs:
        self.steps.append(step)
        assert step.tokens is not None
        self._reserve(step)
        starts: dict[int, int] = {}
        histories: list[list[int]] = []
        for row, (token, sequence, parent) in enumerate(
            zip(step.tokens.tolist(), step.sequences.tolist(), step.parents.tolist(), strict=True)
        ):
            if sequence not in starts:
                starts[sequence] = row
                self.tokens.written[sequence] = []
            start = starts[sequence]
            rows = self.tokens.written[sequence]
            assert start + len(rows) == row, "rows of a sequence are contiguous"
            assert parent == -1 or start <= parent < row, "a parent is an earlier row of its own"
            assert 0 <= token < self.graph.vocabulary
            before = histories[parent] if parent >= 0 else self.tokens.committed[sequence]
            histories.append([*before, token])
            rows.append((token, parent - start if parent >= 0 else -1))
        wanted = [self.logits(histories[row]) for row in step.logit_rows.tolist()]
        empty = np.zeros((0, self.graph.vocabulary), np.float32)
        return Outputs(np.stack(wanted) if wanted else empty, {}, 0.001 * len(histories))

    def _reserve(self, step: Step) -> None:
        while (used := self._used(step)) > self.tokens.positions:
            if self.tokens.reclaim is None or not self.tokens.reclaim():
                raise OutOfMemoryError(f"{self.tokens.positions} positions", f"{used}", "Use less.")

    def _used(self, step: Step) -> int:
        """Positions in use, were the step committed; what sequences share counts for each."""
        return sum(map(len, self.tokens.committed.values())) + len(step.sequences)

    def observed(self) -> Mapping[str, int]:
        return {"fake": len(self.steps)}


class FakeTokenizer:
    """Ids as text: one piece per id, some of them half a character.

    Args:
        pieces: id -> bytes; default: two letters per id.
        end_ids: end-of-generation ids.
    """

    def __init__(
        self, pieces: Sequence[bytes] | None = None, end_ids: frozenset[int] = frozenset()
    ) -> None:
        letters = "abcdefghijklmnopqrstuvwxyz"
        self.pieces = pieces or [
            (letters[i % 26] + letters[(7 * i + 3) % 26]).encode() for i in range(512)
        ]
        self.end_ids = end_ids

    def stream(self) -> FakeDecoder:
        return FakeDecoder(self.pieces)


class FakeDecoder:
    def __init__(self, pieces: Sequence[bytes]) -> None:
        self._pieces = pieces
        self._held = b""

    def push(self, token_id: int, /) -> str:
        self._held += self._pieces[token_id]
        try:
            text = self._held.decode()
        except UnicodeDecodeError as error:
            if error.reason != "unexpected end of data":
                raise
            text = self._held[: error.start].decode()
            self._held = self._held[error.start :]
            return text
        self._held = b""
        return text

    def flush(self) -> str:
        text, self._held = self._held.decode(errors="replace"), b""
        return text
