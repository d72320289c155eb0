"""Which kernel runs each op at each row class, and why: decided when a program is compiled.

Hard conditions come first (a kernel that cannot run an op is never chosen, forced or not), then a
soft preference. The answer is a prediction; what ran is ``Program.observed``, under the same names.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from slipstream.dispatch.kernels import Kernel, cpu_kernels
from slipstream.dispatch.policy import DEFAULT_RUNG, Policy, Rung, load_policy
from slipstream.dispatch.structure import writes
from slipstream.errors import OptionError, UnsupportedError
from slipstream.graph import (
    Attention,
    Embed,
    GatedLinear,
    Graph,
    Input,
    Linear,
    LinearGroup,
    Op,
    Output,
)


@dataclass(frozen=True)
class RowClass:
    """Row counts that share a choice; ``last`` is None when there is no upper end."""

    name: str
    first: int
    last: int | None


ROW_CLASSES: Final = (
    RowClass("rows_1", 1, 1),
    RowClass("rows_2_8", 2, 8),
    RowClass("rows_9_16", 9, 16),
    RowClass("rows_17", 17, None),
)


def row_class(rows: int) -> RowClass:
    """The class of a row count of at least 1."""
    return next(known for known in ROW_CLASSES if known.last is None or rows <= known.last)


@dataclass(frozen=True)
class PlanRow:
    """One choice.

    Attributes:
        op: index of the op in the graph.
        kind: its class name.
        label: the weight, layer or value it is about; a group has a row for each weight.
        rows: the row class.
        kernel: path as ``Program.observed`` names it, without the row class; None when no kernel
            can run the op.
        rung: what backs the kernel.
        reason: why this kernel, or why none.
    """

    op: int
    kind: str
    label: str
    rows: RowClass
    kernel: str | None
    rung: Rung | None
    reason: str


@dataclass(frozen=True)
class Plan:
    """The choice for every op of a graph at every row class."""

    isa: str
    choices: tuple[PlanRow, ...]

    def rows(self, row_class: RowClass | None = None) -> tuple[PlanRow, ...]:
        """All choices, or those of one row class, in graph order."""
        return tuple(row for row in self.choices if row_class in (None, row.rows))

    def paths(self) -> frozenset[str]:
        """What ``Program.observed`` may name, row classes included."""
        return frozenset(f"{row.kernel}/{row.rows.name}" for row in self.choices if row.kernel)

    def require_complete(self) -> None:
        """Raise for an op without a kernel.

        Raises:
            UnsupportedError: names the op and the hard condition it misses.
        """
        missing = next((row for row in self.choices if row.kernel is None), None)
        if missing is not None:
            raise UnsupportedError(
                expected=f"a kernel of level {self.isa} for {missing.kind} {missing.label}",
                found=missing.reason,
                remedy="Convert the tensor to another type, or use the reference backend.",
            )


def select(
    graph: Graph, isa: str, native_types: Collection[int], policy: Policy | None = None
) -> Plan:
    """The plan of a graph on one instruction-set level.

    Args:
        isa: a level of the policy, such as ``avx2``.
        native_types: GGML ids with a native kernel.

    Raises:
        OptionError: the policy does not know the level.
    """
    policy = policy or load_policy("cpu")
    _check_known(isa, policy)
    kernels = cpu_kernels(isa, native_types, policy)
    choices = (
        _choose(at, type(op).__name__, part, rows, kernels)
        for at, op in enumerate(graph.ops)
        for part in _parts(op)
        for rows in ROW_CLASSES
    )
    return Plan(isa, tuple(choices))


def choose_isa(available: Sequence[str], policy: Policy | None = None) -> tuple[str, str]:
    """The strongest level that evidence backs, and the reason.

    Args:
        available: levels that the processor and the build have, weakest first.

    Raises:
        OptionError: the policy does not know a level, or backs none of them.
    """
    policy = policy or load_policy("cpu")
    for isa in available:
        _check_known(isa, policy)
    backed = [isa for isa in available if policy.levels[isa].reaches(DEFAULT_RUNG)]
    if not backed:
        raise OptionError(
            f"a level at rung {DEFAULT_RUNG} or above",
            ", ".join(f"{isa} ({policy.levels[isa].rung})" for isa in available),
            "Name a level with SLIPSTREAM_ISA to run it all the same.",
        )
    stronger = available[available.index(backed[-1]) + 1 :]
    passed_over = "".join(f"; {isa} is {policy.levels[isa].rung}" for isa in stronger)
    return backed[-1], f"strongest level at rung {DEFAULT_RUNG} or above{passed_over}"


def _check_known(isa: str, policy: Policy) -> None:
    if isa not in policy.levels:
        raise OptionError(
            f"an instruction-set level among {', '.join(policy.levels)}",
            repr(isa),
            "Set SLIPSTREAM_ISA to one of them, or leave it unset.",
        )


def _parts(op: Op) -> Iterator[Op]:
    """The ops that kernels are chosen for: each matrix of a fused op by itself."""
    if isinstance(op, LinearGroup):
        yield from op.members
    elif isinstance(op, GatedLinear):
        yield Linear(op.out, op.x, op.gate)
        yield Linear(op.out, op.x, op.up)
    else:
        yield op


def _choose(at: int, kind: str, op: Op, rows: RowClass, kernels: Sequence[Kernel]) -> PlanRow:
    label = describe(op)
    refusals = [kernel.eligible(op) for kernel in kernels]
    able = [kernel for kernel, refusal in zip(kernels, refusals, strict=True) if refusal is None]
    if not able:
        reason = next(filter(None, refusals), f"no kernel for {kind}")
        return PlanRow(at, kind, label, rows, None, None, reason)
    chosen = next((kernel for kernel in able if kernel.preferred(op, rows.first)), able[0])
    reason = chosen.reason(op, rows.first)
    return PlanRow(at, kind, label, rows, chosen.name, chosen.status.rung, reason)


def describe(op: Op) -> str:
    """A name for an op in a plan: its weight where it has one, else its layer or what it writes."""
    if isinstance(op, Linear | Embed):
        return op.weight.name
    if isinstance(op, Attention):
        return f"layer {op.layer}" + (f", window {op.window}" if op.window else "")
    if isinstance(op, Output | Input):
        return op.name
    return ", ".join(f"value {value.index} [{value.width}]" for value in writes(op))
