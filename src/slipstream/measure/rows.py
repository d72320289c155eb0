"""What a pass of R rows costs: the curve that decides whether speculation can pay."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slipstream.backends.base import Program, Step
from slipstream.measure.interleave import by_condition, interleave


@dataclass(frozen=True)
class RowCost:
    """Median time of a pass of ``rows`` rows.

    Attributes:
        ms: median milliseconds.
        spread: (largest - smallest) / median over the rounds.
        ratio: ms / ms of one row.
        weight_gb_s: weight bytes of one step / ms, in GB/s.
    """

    rows: int
    ms: float
    spread: float
    ratio: float
    weight_gb_s: float


def _tokens(count: int, vocabulary: int) -> NDArray[np.int32]:
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


def fill(program: Program, sequence: int, depth: int, chunk: int = 64) -> None:
    """Commit ``depth`` positions of arbitrary tokens."""
    tokens = _tokens(depth, program.graph.vocabulary)
    for begin in range(0, depth, chunk):
        part = tokens[begin : begin + chunk]
        program.run(chain_step(sequence, part, all_logits=False))
        program.memory.commit(sequence, range(len(part)))


def row_costs(
    program: Program, step_bytes: int, rows: Sequence[int], *, depth: int, rounds: int
) -> list[RowCost]:
    """Time passes of each row count in turns, logits of all rows included.

    Args:
        step_bytes: weight bytes that one step reads.
        rows: row counts; the first is the base of ``ratio``.
        depth: committed positions in front of the rows.
        rounds: timed rounds.
    """
    sequence = program.memory.open()
    try:
        fill(program, sequence, depth)
        steps = {str(r): chain_step(sequence, _tokens(r, program.graph.vocabulary)) for r in rows}
        calls = {name: lambda step=step: program.run(step) for name, step in steps.items()}
        timings = by_condition(interleave(calls, rounds, warm_up=2))
    finally:
        program.memory.close(sequence)
    costs = []
    base = statistics.median(t.elapsed_s for t in timings[str(rows[0])])
    for r in rows:
        elapsed = [t.elapsed_s for t in timings[str(r)]]
        middle = statistics.median(elapsed)
        spread = (max(elapsed) - min(elapsed)) / middle
        costs.append(RowCost(r, middle * 1e3, spread, middle / base, step_bytes / middle / 1e9))
    return costs
