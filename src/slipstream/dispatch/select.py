"""Which kernel runs each op at each row class, and why: decided when a program is compiled.

Hard conditions come first (a kernel that cannot run an op is never chosen, forced or not), then a
soft preference. The answer is a prediction; what ran is ``Program.observed``, under the same names.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from slipstream.dispatch.kernels import Kernel, attention_path, cpu_kernels
from slipstream.dispatch.policy import DEFAULT_RUNG, Policy, Rung, load_policy
from slipstream.dispatch.structure import describe
from slipstream.errors import BackendError, OptionError, UnsupportedError
from slipstream.graph import (
    Attention,
    GatedLinear,
    Graph,
    Linear,
    LinearGroup,
    Op,
    Weight,
)
from slipstream.options import KvType, Precision


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
        weight: the matrix of the op, None without one.
        stored: GGML id that the matrix has in memory, None without one.
    """

    op: int
    kind: str
    label: str
    rows: RowClass
    kernel: str | None
    rung: Rung | None
    reason: str
    weight: Weight | None = None
    stored: int | None = None


@dataclass(frozen=True)
class Plan:
    """The choice for every op of a graph at every row class.

    Attributes:
        precision: of the activations of every product, whatever the row count: a mode that changed
            with the rows of a step would break row invariance.
        kv_type: how the memory keeps the keys and values that attention reads.
    """

    isa: str
    choices: tuple[PlanRow, ...]
    precision: Precision = "a8"
    kv_type: KvType = "f16"

    def rows(self, row_class: RowClass | None = None) -> tuple[PlanRow, ...]:
        """All choices, or those of one row class, in graph order."""
        return tuple(row for row in self.choices if row_class in (None, row.rows))

    def with_memory(self, kv_type: KvType) -> Plan:
        """The plan of the same weights with a memory that keeps ``kv_type``, known at compile."""
        path = attention_path(self.isa, kv_type)
        choices = tuple(
            replace(row, kernel=path) if row.kind == Attention.__name__ and row.kernel else row
            for row in self.choices
        )
        return replace(self, choices=choices, kv_type=kv_type)

    def paths(self) -> frozenset[str]:
        """What ``Program.observed`` may name, row classes included."""
        return frozenset(f"{row.kernel}/{row.rows.name}" for row in self.choices if row.kernel)

    def stored_types(self) -> Mapping[Weight, int]:
        """GGML id in memory of every matrix: the one layout that all its kernels read.

        Raises:
            BackendError: two kernels of a matrix want it in different layouts.
        """
        found: dict[Weight, int] = {}
        for row in self.choices:
            if row.weight is None or row.stored is None:
                continue
            if found.setdefault(row.weight, row.stored) != row.stored:
                raise BackendError(
                    f"one layout in memory for {row.weight.name}",
                    f"kernels that read types {found[row.weight]} and {row.stored}",
                    "Choose kernels that read the same layout at every row class.",
                )
        return found

    def notes(self) -> tuple[str, ...]:
        """Matrices that are not stored in the type of the file, and why."""
        rows = (row for row in self.choices if row.weight and row.stored is not None)
        changed = (row for row in rows if row.weight and row.stored != row.weight.type_id)
        return tuple(dict.fromkeys(f"{row.label}: {row.reason}" for row in changed))

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
    graph: Graph,
    isa: str,
    native_types: Collection[int],
    policy: Policy | None = None,
    precision: Precision = "a8",
    kv_type: KvType = "f16",
) -> Plan:
    """The plan of a graph on one instruction-set level.

    Args:
        isa: a level of the policy, such as ``avx2``.
        native_types: GGML ids with a native kernel.
        precision: of activations.
        kv_type: how the memory keeps keys and values.

    Raises:
        OptionError: the policy does not know the level.
    """
    policy = policy or load_policy("cpu")
    _check_known(isa, policy)
    eligible = _Eligible(cpu_kernels(isa, native_types, policy, precision, kv_type))
    choices = (
        _choose(at, type(op).__name__, part, rows, eligible)
        for at, op in enumerate(graph.ops)
        for part in _parts(op)
        for rows in ROW_CLASSES
    )
    return Plan(isa, tuple(choices), precision, kv_type)


Verify = Callable[[str], str | None]
"""Compares a level's bits with the portable level's on this processor; what differs, or None."""


def resolve_level(
    asked: str | None, available: Sequence[str], verified: Verify, policy: Policy | None = None
) -> tuple[str, str]:
    """The one decision about the instruction-set level, and the reason.

    In order: the option, ``SLIPSTREAM_ISA``, the best available level that evidence backs or that
    passes a check on this processor.

    Args:
        asked: the option; None = not given.
        available: levels that the processor and the build have, weakest first.
        verified: run for a level only when its rung is below ``DEFAULT_RUNG``.

    Raises:
        OptionError: the level asked for is not available, the policy does not know an available
            one, or nothing backs any.
    """
    policy = policy or load_policy("cpu")
    for isa in available:
        _check_known(isa, policy)
    named, source = asked, "--isa"
    if named is None:
        named, source = os.environ.get("SLIPSTREAM_ISA") or None, "SLIPSTREAM_ISA"
    if named is not None:
        _check_available(named, source, available)
        return named, f"asked for with {source}; {named} is {policy.levels[named].rung}"
    return _best_level(available, verified, policy)


def backed_level(available: Sequence[str]) -> str:
    """The best available level that evidence backs; neither option nor environment is looked at."""
    return _best_level(available, lambda _: "it was not run", load_policy("cpu"))[0]


def _best_level(available: Sequence[str], verified: Verify, policy: Policy) -> tuple[str, str]:
    passed_over: list[str] = []
    for isa in reversed(available):
        rung = policy.levels[isa].rung
        if policy.levels[isa].reaches(DEFAULT_RUNG):
            best = f"best level at rung {DEFAULT_RUNG} or above"
            return isa, "; ".join([best, *passed_over])
        difference = verified(isa)
        if difference is None:
            checked = f"{isa}: bits equal portable's on this processor (checked at load)"
            return isa, "; ".join([checked, *passed_over])
        passed_over.append(f"{isa} is {rung} and failed its check: {difference}")
    raise OptionError(
        f"a level at rung {DEFAULT_RUNG} or above, or one that passes its check",
        "; ".join(passed_over) or "no level",
        "Name a level with SLIPSTREAM_ISA to run it all the same.",
    )


def _check_available(named: str, source: str, available: Sequence[str]) -> None:
    if named not in available:
        raise OptionError(
            f"{source} to name a level of this processor and build: {', '.join(available)}",
            repr(named),
            f"Change {source} or leave it out.",
        )


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


class _Eligible:
    """The kernels that can run an op; asked once per kind of op, type and width of its matrix."""

    def __init__(self, kernels: Sequence[Kernel]) -> None:
        self._kernels = kernels
        self._known: dict[tuple[type[Op], int | None, int | None], list[Kernel]] = {}

    def kernels(self, op: Op) -> list[Kernel]:
        weight = getattr(op, "weight", None)
        key = type(op), getattr(weight, "type_id", None), getattr(weight, "columns", None)
        if key not in self._known:
            self._known[key] = [k for k in self._kernels if k.eligible(op) is None]
        return self._known[key]

    def refusal(self, op: Op, kind: str) -> str:
        """Why no kernel can run an op."""
        refusals = (kernel.eligible(op) for kernel in self._kernels)
        return next(filter(None, refusals), f"no kernel for {kind}")


def _choose(at: int, kind: str, op: Op, rows: RowClass, eligible: _Eligible) -> PlanRow:
    label = describe(op)
    able = eligible.kernels(op)
    if not able:
        return PlanRow(at, kind, label, rows, None, None, eligible.refusal(op, kind))
    chosen = next((kernel for kernel in able if kernel.preferred(op, rows.first)), able[0])
    reason, weight = chosen.reason(op, rows.first), getattr(op, "weight", None)
    stored, rung = chosen.stored(op), chosen.status.rung
    return PlanRow(at, kind, label, rows, chosen.name, rung, reason, weight, stored)
