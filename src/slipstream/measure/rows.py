"""What a pass of R rows costs: the curve that decides whether speculation can pay."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from slipstream.backends.base import Program, Step
from slipstream.errors import OptionError
from slipstream.loading import LoadedModel
from slipstream.measure.interleave import Timing, by_condition, interleave
from slipstream.measure.statistics import drift, median_interval
from slipstream.options import EngineOptions

Progress = Callable[[int, int | None, str], None]
"""Called with steps done, steps in all, and what is being done."""
PREFILL_CHUNK: Final = EngineOptions().prefill_chunk
"""Most rows of a step of a prompt, as in the engine."""


@dataclass(frozen=True)
class RowCost:
    """Median time of a pass of ``rows`` rows.

    Attributes:
        ms: median milliseconds.
        low_ms, high_ms: bounds of the 95 % bootstrap interval of that median.
        spread: (largest - smallest) / median over the rounds.
        ratio: ms / ms of the first row count measured.
        weight_gb_s: weight bytes of one step / ms, in GB/s.
        drift_change: fitted last-to-first change of the time over the run, relative.
        drifting: whether that change is beyond the noise.
    """

    rows: int
    ms: float
    low_ms: float
    high_ms: float
    spread: float
    ratio: float
    weight_gb_s: float
    drift_change: float
    drifting: bool


@dataclass(frozen=True)
class DecodeRates:
    """Medians over rounds, in tokens per second.

    Attributes:
        spread: (largest - smallest) / median of ``decode_tok_s``.
    """

    prefill_tok_s: float
    decode_tok_s: float
    spread: float


def spread_tokens(count: int, vocabulary: int) -> NDArray[np.int32]:
    """Ids spread over the vocabulary; the same at every call."""
    ids = np.random.default_rng(0).integers(0, vocabulary, size=count)
    return ids.astype(np.int32)


def chain_step(sequence: int, tokens: NDArray[np.int32], *, all_logits: bool = True) -> Step:
    """Rows that follow one another in one sequence."""
    rows = len(tokens)
    wanted = np.arange(rows) if all_logits else np.array([rows - 1])
    return Step(
        tokens=tokens,
        sequences=np.full(rows, sequence, dtype=np.int32),
        parents=np.arange(-1, rows - 1, dtype=np.int32),
        logit_rows=wanted.astype(np.int32),
    )


def fill(program: Program, sequence: int, depth: int, chunk: int = PREFILL_CHUNK) -> None:
    """Commit ``depth`` positions of arbitrary tokens."""
    tokens = spread_tokens(depth, program.graph.vocabulary)
    for begin in range(0, depth, chunk):
        part = tokens[begin : begin + chunk]
        program.run(chain_step(sequence, part, all_logits=False))
        program.memory.commit(sequence, range(len(part)))


@contextmanager
def open_sequence(loaded: LoadedModel, positions: int) -> Iterator[int]:
    """A sequence with room for so many positions, closed at the end.

    Raises:
        OptionError: the context is shorter.
    """
    if positions > loaded.context:
        raise OptionError(
            f"at most {loaded.context} positions, the context",
            f"{positions}",
            "Ask for fewer tokens or rows, or raise the context.",
        )
    memory = loaded.program.memory
    sequence = memory.open()
    try:
        yield sequence
    finally:
        memory.close(sequence)


def row_costs(
    loaded: LoadedModel,
    rows: Sequence[int],
    *,
    depth: int = 64,
    rounds: int = 15,
    progress: Progress | None = None,
) -> list[RowCost]:
    """Time passes of each row count in mirrored order, after ``depth`` committed positions.

    Raises:
        OptionError: ``depth`` and the rows do not fit the context.
    """
    program = loaded.program
    with open_sequence(loaded, depth + max(rows)) as sequence:
        fill(program, sequence, depth)
        steps = {
            str(r): chain_step(sequence, spread_tokens(r, program.graph.vocabulary)) for r in rows
        }
        calls = {name: lambda step=step: program.run(step) for name, step in steps.items()}
        switch = RoundCounter((rounds + 2) * len(rows), "rows", progress)
        timings = by_condition(interleave(calls, rounds, warm_up=2, switch=switch))
    base = statistics.median(t.elapsed_s for t in timings[str(rows[0])])
    return [_cost(r, timings[str(r)], base, loaded.weights.step_bytes) for r in rows]


def _cost(rows: int, timings: Sequence[Timing], base: float, step_bytes: int) -> RowCost:
    elapsed = [t.elapsed_s for t in timings]
    middle = statistics.median(elapsed)
    low, high = median_interval(elapsed)
    change = drift(timings)
    return RowCost(
        rows=rows,
        ms=middle * 1e3,
        low_ms=low * 1e3,
        high_ms=high * 1e3,
        spread=(max(elapsed) - min(elapsed)) / middle,
        ratio=middle / base,
        weight_gb_s=step_bytes / middle / 1e9,
        drift_change=change.change,
        drifting=change.drifting,
    )


class RoundCounter:
    """Reports every call to ``progress``, with the number of calls before it."""

    def __init__(self, total: int, label: str, progress: Progress | None) -> None:
        self._total = total
        self._label = label
        self._progress = progress
        self._done = 0

    def __call__(self, condition: str = "") -> None:
        if self._progress is not None:
            self._progress(self._done, self._total, f"{self._label} {condition}".strip())
        self._done += 1


def decode_rates(
    loaded: LoadedModel, *, prompt: int, count: int, rounds: int, progress: Progress | None = None
) -> DecodeRates:
    """Time a prefill of ``prompt`` tokens and ``count`` one-row passes after it.

    Raises:
        OptionError: the tokens do not fit the context.
    """
    counter = RoundCounter(rounds + 1, "round", progress)
    timed = []
    for _ in range(rounds + 1):
        counter()
        timed.append(_decode_round(loaded, prompt, count))
    prefill = [prompt / prefill_s for prefill_s, _ in timed[1:]]
    decode = [count / decode_s for _, decode_s in timed[1:]]
    middle = statistics.median(decode)
    return DecodeRates(statistics.median(prefill), middle, (max(decode) - min(decode)) / middle)


def _decode_round(loaded: LoadedModel, prompt: int, count: int) -> tuple[float, float]:
    """Seconds of the prefill and of the decoding."""
    program = loaded.program
    tokens = spread_tokens(count, program.graph.vocabulary)
    with open_sequence(loaded, prompt + count) as sequence:
        begin = time.perf_counter()
        fill(program, sequence, prompt)
        middle = time.perf_counter()
        for number in range(count):
            program.run(chain_step(sequence, tokens[number : number + 1]))
            program.memory.commit(sequence, [0])
        return middle - begin, time.perf_counter() - middle


def observe(loaded: LoadedModel, rows: Sequence[int]) -> Mapping[str, int]:
    """Run a pass of each row count; kernel path -> how often it ran."""
    program = loaded.program
    with open_sequence(loaded, max(rows)) as sequence:
        for count in rows:
            program.run(chain_step(sequence, spread_tokens(count, program.graph.vocabulary)))
    return program.observed()
