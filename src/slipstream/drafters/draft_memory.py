"""The memory of a draft model: what it has read of each sequence, and reading what is missing.

A sequence has lanes: handles of the draft model's own memory, each with the tokens it holds. After
a draft the drafted tokens stay in them; the next draft keeps the lane that agrees longest with the
text, and only tokens after the agreement are computed.

What the model reads is the text itself, or its first few tokens and its newest part: where more
than ``window`` tokens are missing (a long prompt, a text that went on without this drafter) only
the newest ``window`` are read, and where the text outgrows the draft model's context it begins
anew with the newest half. The few first tokens stay because attention leans on them (Xiao et al.
2023, arXiv:2309.17453). That lowers acceptance and changes no output.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from slipstream.backends.base import Program, Step
from slipstream.memory.base import PAGE_POSITIONS

SINKS = 4
"""First tokens of a text that stay in view."""
FIRST_ROWS = 32
AIM = 0.8  # of the time limit of a native call, as the engine's scheduler

Row = NDArray[np.float32]


@dataclass(eq=False)
class Lane:
    """
    Attributes:
        tokens: in memory; the first ``length`` of them are meant, others may turn out right.
        rows: length -> logits after that many tokens.
    """

    handle: int
    tokens: list[int] = field(default_factory=list)
    length: int = 0
    rows: dict[int, Row] = field(default_factory=dict)


@dataclass
class Track:
    """
    Attributes:
        start: where the newest part of the text begins; 0 = the whole text is in view.
        draws: random numbers used so far.
    """

    start: int = 0
    lanes: list[Lane] = field(default_factory=list)
    draws: int = 0


@dataclass(frozen=True)
class Reading:
    """How a sequence is brought up to date: ``held`` tokens of ``view`` are in ``lane``."""

    start: int
    view: list[int]
    lane: Lane | None
    held: int


class Pace:
    """Rows that one native call has time for; learns from every call, grows at most twofold.

    Args:
        most: rows of a call.
        limit_s: seconds of a call.
    """

    def __init__(self, most: int, limit_s: float) -> None:
        self.rows = min(FIRST_ROWS, most)
        self._most = most
        self._limit_s = limit_s

    def observe(self, rows: int, elapsed_s: float) -> None:
        if rows >= self.rows or elapsed_s > self._limit_s:
            affordable = int(AIM * self._limit_s * rows / max(elapsed_s, 1e-9))
            self.rows = max(1, min(affordable, 2 * self.rows, self._most))


class DraftMemory:
    """
    Args:
        compile: (positions, sequences) -> a program; called once, when the first sequence opens, so
            that no draft is charged with it.
        context: most tokens that the draft model holds of a sequence.
        parallel: most sequences.
        window: most tokens read before a draft.
        depth: most tokens drafted.
        lanes: most lanes of a sequence.
        ids: the model reads ids below this; another one stands as id 0. None = it reads all.
        pace: limits a call.
    """

    def __init__(
        self,
        compile: Callable[[int, int], Program],
        *,
        context: int,
        parallel: int,
        window: int,
        depth: int,
        lanes: int,
        ids: int | None,
        pace: Pace,
    ) -> None:
        self.context = context
        self.tracks: dict[int, Track] = {}
        self.pace = pace
        self._compile = compile
        self._parallel = parallel
        self._window = window
        self._reserve = min(depth, context // 4)
        self._keep = max(min(window, context // 2), 1)
        self._sinks = min(SINKS, self._keep // 8)
        self._ids = ids
        self._lanes = lanes
        # every lane may own the page where it branched off, and those it grew into
        self._positions = context + depth + lanes * (2 * PAGE_POSITIONS + depth)
        self._program: Program | None = None

    @property
    def program(self) -> Program:
        return self._compiled()

    def _compiled(self) -> Program:
        if self._program is None:
            self._program = self._compile(self._positions, self._parallel)
        return self._program

    def bytes(self) -> int:
        """Of keys and values in use."""
        return 0 if self._program is None else self._program.memory.bytes()

    def open(self, sequence: int) -> None:
        """Keys and values take no memory before the first draft.

        Raises:
            SlipstreamError: the draft model cannot be compiled.
        """
        self._compiled()
        self.tracks[sequence] = Track()

    def close(self, sequence: int) -> None:
        track = self.tracks.pop(sequence, None)
        for lane in track.lanes if track else ():
            self.program.memory.close(lane.handle)

    def fork(self, source: int, target: int) -> None:
        """The target shares what the first lane of the source holds."""
        track = self.tracks[source]
        lanes = [self._twin(lane) for lane in track.lanes[:1]]
        self.tracks[target] = Track(track.start, lanes, track.draws)

    def pending(self, sequence: int, tokens: Sequence[int]) -> int:
        """Rows to compute before the first draft token."""
        reading = self._reading(self.tracks.get(sequence, Track()), tokens)
        return len(reading.view) - reading.held

    def catch_up(self, texts: Sequence[tuple[int, Sequence[int]]]) -> list[tuple[Lane, Row]]:
        """Read what is missing of each text, all sequences together.

        Args:
            texts: (sequence, its tokens) each.

        Returns:
            Per text, the lane that holds it and the logits after its newest token.
        """
        work = [self._aligned(self.tracks[sequence], tokens) for sequence, tokens in texts]
        rows = self.read(work)
        for lane, _ in work:
            lane.rows = {n: known for n, known in lane.rows.items() if n >= lane.length}
        return [(lane, row) for (lane, _), row in zip(work, rows, strict=True)]

    def _aligned(self, track: Track, tokens: Sequence[int]) -> tuple[Lane, list[int]]:
        """The lane to go on with, the others closed, and the tokens that it lacks."""
        reading = self._reading(track, tokens)
        for other in track.lanes:
            if other is not reading.lane:
                self.program.memory.close(other.handle)
        lane = reading.lane or Lane(self.program.memory.open())
        track.start, track.lanes = reading.start, [lane]
        lane.length = reading.held
        return lane, reading.view[reading.held :]

    def _reading(self, track: Track, tokens: Sequence[int]) -> Reading:
        view = self._view(tokens, track.start)
        found = [(self._agreement(lane, view), lane) for lane in track.lanes]
        held, lane = max(found, key=lambda pair: pair[0], default=(0, None))
        if lane is not None and len(view) <= self.context - self._reserve:
            early = held < self.program.memory.earliest(lane.handle)
            if not early and len(view) - held <= self._window:
                return Reading(track.start, view, lane, held)
        whole = len(tokens) <= min(self._window, self.context - self._reserve)
        start = 0 if whole else len(tokens) - self._keep + self._sinks
        return Reading(start, self._view(tokens, start), None, 0)

    def _view(self, tokens: Sequence[int], start: int) -> list[int]:
        """The ids that the model reads for a text."""
        seen = [*tokens[: self._sinks], *tokens[start:]] if start else list(tokens)
        if self._ids is not None:
            return [token if token < self._ids else 0 for token in seen]
        return seen

    def _agreement(self, lane: Lane, view: list[int]) -> int:
        """Leading tokens of ``view`` that need not be read."""
        low, high = 0, min(len(lane.tokens), len(view))
        while low < high:
            middle = (low + high + 1) // 2
            if lane.tokens[low:middle] == view[low:middle]:
                low = middle
            else:
                high = middle - 1
        return low if low < len(view) or low in lane.rows else low - 1

    def read(self, work: Sequence[tuple[Lane, list[int]]]) -> list[Row]:
        """Append tokens to lanes; returns the logits after the last token of each.

        What a lane holds already is not computed again.
        """
        left = [self._known(lane, tokens) for lane, tokens in work]
        while any(left):
            self._pass([(lane, rest) for (lane, _), rest in zip(work, left, strict=True) if rest])
        return [lane.rows[lane.length] for lane, _ in work]

    def _known(self, lane: Lane, tokens: list[int]) -> list[int]:
        """Move over tokens that the lane holds with their logits; the rest is left to compute."""
        end = lane.length + len(tokens)
        if end in lane.rows and lane.tokens[lane.length : end] == tokens:
            lane.length = end
            return []
        if len(lane.tokens) > lane.length:
            self.program.memory.truncate(lane.handle, lane.length)
            del lane.tokens[lane.length :]
        lane.rows = {length: row for length, row in lane.rows.items() if length <= lane.length}
        return list(tokens)

    def _pass(self, work: Sequence[tuple[Lane, list[int]]]) -> None:
        """One call: as many rows as the pace allows, those of the first lanes first."""
        shares: list[tuple[Lane, list[int], bool]] = []
        room = self.pace.rows
        for lane, rest in work:
            taken, rest[:] = rest[:room], rest[room:]
            room -= len(taken)
            if taken:
                shares.append((lane, taken, not rest))
        outputs = self.program.run(_step(shares))
        self.pace.observe(self.pace.rows - room, outputs.elapsed_s)
        rows = iter(outputs.logits)
        for lane, taken, last in shares:
            self.program.memory.commit(lane.handle, range(len(taken)))
            lane.tokens += taken
            lane.length += len(taken)
            if last:
                lane.rows[lane.length] = next(rows)

    def branch(self, track: Track, lane: Lane, length: int) -> Lane | None:
        """A new lane with the first ``length`` tokens of another; None where there is no room."""
        early = length < self.program.memory.earliest(lane.handle)
        if early or len(track.lanes) >= self._lanes:
            return None
        twin = self._twin(lane)
        twin.length = length
        track.lanes.append(twin)
        return twin

    def _twin(self, lane: Lane) -> Lane:
        return Lane(self.program.memory.fork(lane.handle), list(lane.tokens), lane.length)


def _step(shares: Sequence[tuple[Lane, list[int], bool]]) -> Step:
    tokens: list[int] = []
    sequences: list[int] = []
    parents: list[int] = []
    logit_rows: list[int] = []
    for lane, taken, last in shares:
        first = len(tokens)
        tokens += taken
        sequences += [lane.handle] * len(taken)
        parents += [-1, *range(first, first + len(taken) - 1)]
        if last:
            logit_rows.append(len(tokens) - 1)
    return Step(
        np.array(tokens, np.int32),
        np.array(sequences, np.int32),
        np.array(parents, np.int32),
        np.array(logit_rows, np.int32),
    )
