"""Which sequences take part in a step, and how many prompt rows it may hold.

A place goes to the session with the fewest running sequences, then to who came first.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence

from slipstream.engine.pace import Pace
from slipstream.engine.sequence import SequenceState
from slipstream.errors import OverloadedError
from slipstream.options import EngineOptions

FIRST_ROWS = 32
# of the time limit of a native call; the rest is margin for the growth of the context
AIM = 0.8


class Places:
    """Room for sequences in one memory, shared by the schedulers that use it.

    Args:
        count: most sequences that run at the same time, over all schedulers.

    Attributes:
        free: places left.
        queue: sequences that wait for one, in the order they came.
        running: session -> sequences that have one.
    """

    def __init__(self, count: int) -> None:
        self.free = count
        self.queue: deque[SequenceState] = deque()
        self.running: Counter[str] = Counter()

    def next(self) -> SequenceState:
        """Whose turn it is; somebody waits."""
        return min(self.queue, key=lambda sequence: self.running[sequence.session])

    def take(self, sequence: SequenceState) -> None:
        self.queue.remove(sequence)
        self.running[sequence.session] += 1
        self.free -= 1

    def give_back(self, session: str) -> None:
        self.free += 1
        self.running[session] -= 1
        if not self.running[session]:
            del self.running[session]


class Scheduler:
    """Prompts are cut into chunks beside the decoding rows, whose pace they must not slow too much.

    Args:
        options: limits on sequences, rows and seconds of a pass.
        queue: most sequences waiting.
        places: shared with other schedulers; default: ``options.parallel`` of its own.

    Attributes:
        rows: rows of a pass that holds prompt or draft rows; adapts to the time they take.
    """

    def __init__(self, options: EngineOptions, queue: int, places: Places | None = None) -> None:
        self.options = options
        self.queue = queue
        self.places = places or Places(options.parallel)
        self.rows = min(FIRST_ROWS, options.prefill_chunk)
        self.waiting: deque[SequenceState] = deque()
        self.running: list[SequenceState] = []
        self._pace = Pace(options.pace)

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
        self.places.queue.append(sequence)

    @property
    def admissible(self) -> bool:
        """Whether the next place is free and this scheduler's."""
        return self._next() is not None

    def _next(self) -> SequenceState | None:
        if not self.places.free or not self.waiting:
            return None
        sequence = self.places.next()
        return sequence if sequence in self.waiting else None

    def admit(self) -> Iterator[SequenceState]:
        """Sequences that start to run."""
        while (sequence := self._next()) is not None:
            self.waiting.remove(sequence)
            self.places.take(sequence)
            self.running.append(sequence)
            yield sequence

    def expired(self, clock: Callable[[], float]) -> list[SequenceState]:
        """Those whose time is up; the clock is read only where one of them has a deadline."""
        bounded = [
            (sequence, sequence.deadline_s)
            for sequence in (*self.running, *self.waiting)
            if sequence.deadline_s is not None
        ]
        now = clock() if bounded else 0.0
        return [sequence for sequence, deadline_s in bounded if now >= deadline_s]

    def find(self, identity: int) -> SequenceState | None:
        for sequence in (*self.running, *self.waiting):
            if sequence.id == identity:
                return sequence
        return None

    def remove(self, sequence: SequenceState) -> None:
        if sequence in self.running:
            self.running.remove(sequence)
            self.places.give_back(sequence.session)
        elif sequence in self.waiting:
            self.waiting.remove(sequence)
            self.places.queue.remove(sequence)

    def decoding(self) -> list[SequenceState]:
        return [sequence for sequence in self.running if not sequence.prompt_left]

    def chunks(self, decode_rows: int) -> list[tuple[SequenceState, int]]:
        """Prompt rows per sequence for a pass that also holds ``decode_rows``.

        At least one if there is a prompt, but for the first pass that could show what decoding
        alone takes.
        """
        left = self._pace.rows(decode_rows, max(self.rows - decode_rows, 1))
        chunks = []
        for sequence in self.running:
            if sequence.handle < 0:
                continue  # it waits for another one's prompt
            count = min(sequence.prompt_left, left)
            if count:
                chunks.append((sequence, count))
                left -= count
        return chunks

    def affordable_drafts(self, wanted: Sequence[int]) -> list[int]:
        """Draft rows per decoding sequence that a pass has time for; the longest are cut first.

        Args:
            wanted: draft rows per decoding sequence, each beside the row of its newest token.
        """
        left = max(self.rows - len(wanted), 0)
        granted = [0] * len(wanted)
        order = sorted(range(len(wanted)), key=wanted.__getitem__)
        for done, place in enumerate(order):
            granted[place] = min(wanted[place], left // (len(wanted) - done))
            left -= granted[place]
        return granted

    def observe(self, rows: int, elapsed_s: float, *, prompt_rows: int) -> None:
        """Learn from a pass; growth is at most twofold.

        Few rows cost little more than one, so a pass that decodes teaches only where it was as
        large as allowed or took too long.
        """
        self._pace.observe(rows - prompt_rows, prompt_rows, elapsed_s)
        slow = rows > 1 and elapsed_s > self.options.step_time_limit_s
        if not (prompt_rows == rows or rows >= self.rows or slow):
            return
        affordable = int(AIM * self.options.step_time_limit_s * rows / max(elapsed_s, 1e-9))
        self.rows = max(1, min(affordable, 2 * self.rows, self.options.prefill_chunk))
