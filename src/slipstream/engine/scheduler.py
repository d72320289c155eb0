"""Which sequences take part in a step, and how many prompt rows it may hold."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from slipstream.engine.sequence import SequenceState
from slipstream.errors import OverloadedError
from slipstream.options import EngineOptions

FIRST_ROWS = 32
# of the time limit of a native call; the rest is margin for the growth of the context
AIM = 0.8


class Scheduler:
    """First come, first served; prompts are cut into chunks beside the decoding rows.

    Args:
        options: limits on sequences, rows and seconds of a pass.
        queue: most sequences waiting.

    Attributes:
        rows: rows of a pass that holds prompt rows; adapts to the time they take.
    """

    def __init__(self, options: EngineOptions, queue: int) -> None:
        self.options = options
        self.queue = queue
        self.rows = min(FIRST_ROWS, options.prefill_chunk)
        self.waiting: deque[SequenceState] = deque()
        self.running: list[SequenceState] = []

    def submit(self, sequence: SequenceState) -> None:
        """
        Raises:
            OverloadedError: the queue is full.
        """
        if len(self.waiting) >= self.queue:
            raise OverloadedError(
                f"at most {self.queue} waiting requests", "one more", "Try again later."
            )
        self.waiting.append(sequence)

    def admit(self) -> Iterator[SequenceState]:
        """Sequences that start to run."""
        while self.waiting and len(self.running) < self.options.parallel:
            sequence = self.waiting.popleft()
            self.running.append(sequence)
            yield sequence

    def find(self, identity: int) -> SequenceState | None:
        for sequence in (*self.running, *self.waiting):
            if sequence.id == identity:
                return sequence
        return None

    def remove(self, sequence: SequenceState) -> None:
        if sequence in self.running:
            self.running.remove(sequence)
        elif sequence in self.waiting:
            self.waiting.remove(sequence)

    def decoding(self) -> list[SequenceState]:
        return [sequence for sequence in self.running if not sequence.prompt_left]

    def chunks(self, decode_rows: int) -> list[tuple[SequenceState, int]]:
        """Prompt rows per sequence for a pass that also holds ``decode_rows``; at least one."""
        left = max(self.rows - decode_rows, 1)
        chunks = []
        for sequence in self.running:
            count = min(sequence.prompt_left, left)
            if count:
                chunks.append((sequence, count))
                left -= count
        return chunks

    def observe(self, rows: int, elapsed_s: float) -> None:
        """Learn from a pass with prompt rows; growth is at most twofold."""
        affordable = int(AIM * self.options.step_time_limit_s * rows / max(elapsed_s, 1e-9))
        self.rows = max(1, min(affordable, 2 * self.rows, self.options.prefill_chunk))
