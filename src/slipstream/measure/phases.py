"""Where the time of a pass goes: wall time per phase of the native program, grouped by op.

A phase lasts from the end of the one before it to its own end, on all threads, barrier included,
so the phases of a pass and what lies outside them add up to the pass.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from slipstream.backends.base import Step
from slipstream.backends.cpu import CpuProgram
from slipstream.dispatch.structure import activation_planes
from slipstream.errors import OptionError
from slipstream.loading import LoadedModel
from slipstream.measure.interleave import mirrored_order
from slipstream.measure.probes import multiply_mix
from slipstream.measure.rows import (
    Progress,
    RoundCounter,
    chain_step,
    fill,
    open_sequence,
    spread_tokens,
)
from slipstream.quants import type_name

OUTSIDE = "outside the phases"
_COPIES = frozenset({"input", "output", "gather", "rope_table"})  # beside others they cost nothing


@dataclass(frozen=True)
class OpCost:
    """Phases that do the same, over one pass.

    Attributes:
        op: such as ``q4_k 8960+8960 x 1536`` (outputs of each matrix x inputs), ``attention`` or
            the row ops of a phase.
        kind: ``product``, ``attention``, ``row``, ``other`` or ``outside``.
        phases: how many of a pass.
        weight_bytes: bytes of the matrices, all phases.
        mix_weights: mix -> weights that a row is multiplied by, all phases.
        ms: row count -> median milliseconds of all of them together.
    """

    op: str
    kind: str
    phases: int
    weight_bytes: int
    mix_weights: Mapping[str, int]
    ms: Mapping[int, float]


@dataclass
class _Group:
    kind: str
    phases: list[int]
    matrices: list[tuple[int, int, int]]


def op_costs(
    loaded: LoadedModel,
    rows: Sequence[int],
    *,
    depth: int,
    rounds: int,
    progress: Progress | None = None,
) -> list[OpCost]:
    """Time every phase of passes of each row count, after ``depth`` committed positions.

    Raises:
        OptionError: the program has no phases to time, or the rows do not fit the context.
    """
    program = loaded.program
    if not isinstance(program, CpuProgram):
        raise OptionError(
            "the native backend, whose program has phases",
            f"the backend `{loaded.backend.name}`",
            "Leave out --ops.",
        )
    groups = _groups(program)
    counter = RoundCounter((rounds + 1) * len(rows), "ops", progress)
    samples: dict[tuple[str, int], list[float]] = {}
    with open_sequence(loaded, depth + max(rows)) as sequence:
        fill(program, sequence, depth)
        steps = {
            str(r): chain_step(sequence, spread_tokens(r, program.graph.vocabulary)) for r in rows
        }
        for number, name in mirrored_order(list(steps), rounds + 1):
            counter(name)
            for op, seconds in _profiled(program, steps[name], groups):
                if number > 0:
                    samples.setdefault((op, int(name)), []).append(seconds)
    groups[OUTSIDE] = _Group("outside", [], [])
    precision = loaded.backend.precision
    return [_cost(op, group, rows, samples, precision) for op, group in groups.items()]


def _profiled(
    program: CpuProgram, step: Step, groups: Mapping[str, _Group]
) -> Iterator[tuple[str, float]]:
    """Seconds of each group in one run of a step, and of what lies outside them."""
    program.profile(True)
    try:
        begin = time.perf_counter()
        program.run(step)
        elapsed = time.perf_counter() - begin
        seconds = program.phase_seconds()
    finally:
        program.profile(False)
    for op, group in groups.items():
        yield op, sum(seconds[index] for index in group.phases)
    yield OUTSIDE, elapsed - sum(seconds)


def _groups(program: CpuProgram) -> dict[str, _Group]:
    groups: dict[str, _Group] = {}
    for index, (kind, paths, matrices) in enumerate(program.phases()):
        group = groups.setdefault(_label(kind, paths, matrices), _Group(kind, [], []))
        group.phases.append(index)
        group.matrices += matrices
    order = {"product": 0, "attention": 1, "other": 2, "row": 3}
    return dict(sorted(groups.items(), key=lambda item: order[item[1].kind]))


def _label(kind: str, paths: Sequence[str], matrices: Sequence[tuple[int, int, int]]) -> str:
    if kind in ("attention", "other"):
        return kind
    if kind == "row":
        names = dict.fromkeys(path.partition("/")[0] for path in paths)
        return ", ".join([name for name in names if name not in _COPIES] or names)
    types = "+".join(dict.fromkeys(type_name(type_id) for type_id, _, _ in matrices))
    outputs = "+".join(str(rows) for _, rows, _ in matrices)
    return f"{types} {outputs} x {matrices[0][2]}"


def _cost(
    op: str,
    group: _Group,
    rows: Sequence[int],
    samples: Mapping[tuple[str, int], Sequence[float]],
    precision: str,
) -> OpCost:
    from slipstream import _native

    weights: dict[str, int] = {}
    for type_id, height, width in group.matrices:
        mix = multiply_mix(type_id)
        planes = activation_planes(type_id, precision)
        weights[mix] = weights.get(mix, 0) + height * width * planes
    return OpCost(
        op=op,
        kind=group.kind,
        phases=len(group.phases),
        weight_bytes=sum(_native.matrix_bytes(*matrix) for matrix in group.matrices),
        mix_weights=weights,
        ms={r: 1e3 * statistics.median(samples[op, r]) for r in rows},
    )
